//! What the checker found.

use std::fmt;

use serde::Serialize;

use crate::event::Kind;
use crate::fault::HistoryFault;

/// The outcome of a check.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Verdict {
    /// Number of lines, or of events that were fed.
    pub events: u64,
    /// Number of grants; a grant over several buckets counts once.
    pub grants: u64,
    /// The figures of each bucket of the history, by name.
    pub buckets: Vec<BucketFigures>,
    /// Broken promises, and faults of the history itself.
    pub violations: Vec<Violation>,
}

impl Verdict {
    /// Whether every promise was kept and the history makes sense.
    #[must_use]
    pub const fn holds(&self) -> bool {
        self.violations.is_empty()
    }
}

/// What was granted from one bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BucketFigures {
    /// The name of the bucket.
    pub dimension: String,
    /// What the bucket counts.
    pub kind: Kind,
    /// Number of grants, including those that were given back unused.
    pub grants: u64,
    /// Number of grants that were given back unused.
    pub unused: u64,
    /// The cost of the grants that were used, in millionths.
    #[serde(rename = "granted_micros")]
    pub granted: i128,
    /// Rate buckets: the window that came nearest to what is allowed, or exceeded it by most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busiest: Option<Window>,
    /// Concurrency buckets: the instant at which most was held, and what was allowed then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<Window>,
    /// Buckets with shares: what each share was promised and got, and `common` for callers of no share.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<ShareFigures>,
}

/// What one share of a bucket got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShareFigures {
    /// The name of the share.
    pub share: String,
    /// Number of grants to callers of the share.
    pub grants: u64,
    /// What they cost, in millionths.
    #[serde(rename = "granted_micros")]
    pub granted: i128,
    /// The part of it that was taken from other lines, as far as the history tells.
    #[serde(rename = "borrowed_micros")]
    pub borrowed: i128,
    /// Of the windows in which a caller of the share always waited, and in which at least twenty of its
    /// largest calls were guaranteed: the one in which least of the guarantee was granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<Guarantee>,
    /// Of slots: the longest time in which a caller of the share waited although a slot of the share was
    /// free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_free: Option<FreeSlot>,
}

/// A time in which a caller waited although its share had a slot free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FreeSlot {
    /// The first moment, in microseconds since the epoch.
    pub from_micros: i64,
    /// The last moment.
    pub to_micros: i64,
    /// The longest that this may last, in microseconds.
    pub allowed_micros: i64,
}

/// What a share was guaranteed in a window, and what it got. Amounts are in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Guarantee {
    /// The first moment, in microseconds since the epoch.
    pub from_micros: i64,
    /// The last moment.
    pub to_micros: i64,
    /// What was granted to callers of the share, from whatever line.
    #[serde(rename = "granted_micros")]
    pub granted: i128,
    /// What flowed into the share's line.
    #[serde(rename = "guaranteed_micros")]
    pub guaranteed: i128,
    /// How much less is no violation: the call that waits, and the errors of times.
    #[serde(rename = "allowance_micros")]
    pub allowance: i128,
}

/// A stretch of time, what was granted in it, and what is allowed in it. Amounts are in millionths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// The first moment, in microseconds since the epoch.
    pub from_micros: i64,
    /// The last moment.
    pub to_micros: i64,
    /// What was granted, or held at once.
    #[serde(rename = "granted_micros")]
    pub granted: i128,
    /// What is allowed at most, rounded down.
    #[serde(rename = "allowed_micros")]
    pub allowed: i128,
    /// The grant at the first moment.
    pub first_id: String,
    /// The grant at the last moment.
    pub last_id: String,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "violation", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Violation {
    /// A rate bucket granted more in a window than is allowed.
    RateExceeded {
        /// The bucket.
        dimension: String,
        /// The worst of the overlapping windows that exceed what is allowed.
        window: Window,
    },
    /// A concurrency bucket had more live grants than capacity.
    ConcurrencyExceeded {
        /// The bucket.
        dimension: String,
        /// From the grant that exceeded the capacity until enough grants had ended, with the most that was
        /// held in between.
        window: Window,
    },
    /// A line of a bucket with shares granted more in a window than it can have.
    LineExceeded {
        /// The bucket.
        dimension: String,
        /// The share, or `common`.
        share: String,
        /// The worst of the overlapping windows that exceed what is allowed.
        window: Window,
    },
    /// A line of a concurrency bucket with shares had more slots in use than it has.
    LineHeld {
        /// The bucket.
        dimension: String,
        /// The share, or `common`.
        share: String,
        /// As for [`ConcurrencyExceeded`](Self::ConcurrencyExceeded).
        window: Window,
    },
    /// A share had a caller that waited all the time, and got less than it is guaranteed.
    GuaranteeMissed {
        /// The bucket.
        dimension: String,
        /// The share, or `common`.
        share: String,
        /// The window in which most is missing.
        window: Guarantee,
    },
    /// A caller of a share waited for a slot, and one of the share's slots was free for longer than it takes
    /// to see that.
    SlotLeftFree {
        /// The bucket.
        dimension: String,
        /// The share, or `common`.
        share: String,
        /// When that was.
        window: FreeSlot,
    },
    /// A slot of a share was lent while a caller of the share waited for one.
    LentWhileWaited {
        /// The bucket.
        dimension: String,
        /// The share, or `common`.
        share: String,
        /// The grant that borrowed.
        id: String,
        /// When that grant was answered.
        granted_at_micros: i64,
        /// Since when the caller of the share had waited.
        waited_from_micros: i64,
    },
    /// A caller of another share borrowed a slot that is never lent.
    FloorLent {
        /// The bucket.
        dimension: String,
        /// The share.
        share: String,
        /// The grant that borrowed.
        id: String,
        /// When that grant was answered.
        granted_at_micros: i64,
        /// What it left free at most, in millionths.
        left_micros: i128,
        /// What had to stay free.
        floor_micros: i64,
    },
    /// A caller was given an earlier start than another caller that had booked before this caller asked.
    Overtaken {
        /// The bucket.
        dimension: String,
        /// The grant that was booked earlier.
        first_id: String,
        /// When that grant was answered.
        first_granted_at_micros: i64,
        /// The start of that grant.
        first_start_at_micros: i64,
        /// The grant that was asked for later.
        later_id: String,
        /// When the later grant was asked for.
        later_asked_at_micros: i64,
        /// The start of the later grant.
        later_start_at_micros: i64,
    },
    /// Grants were never released, in a history in which each must be.
    NotReleased {
        /// The bucket.
        dimension: String,
        /// How many of its grants have no release.
        not_released: u64,
        /// All its grants.
        grants: u64,
        /// The first grant without a release.
        first_id: String,
        /// When that grant was answered.
        first_granted_at_micros: i64,
    },
    /// The history itself makes no sense.
    History(HistoryFault),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RateExceeded { dimension, window } => {
                let (granted, allowed) = (tokens(window.granted), tokens(window.allowed));
                write!(f, "{dimension}: {granted} granted in {window}; at most {allowed} are allowed")
            }
            Self::ConcurrencyExceeded { dimension, window } => {
                let (held, allowed) = (tokens(window.granted), tokens(window.allowed));
                write!(f, "{dimension}: {held} held at once in {window}; at most {allowed} are allowed")
            }
            Self::LineExceeded { dimension, share, window } => {
                let (granted, allowed) = (tokens(window.granted), tokens(window.allowed));
                write!(
                    f,
                    "{dimension}: {granted} granted from the line of {share} in {window}; at most {allowed} are allowed"
                )
            }
            Self::LineHeld { dimension, share, window } => {
                let (held, allowed) = (tokens(window.granted), tokens(window.allowed));
                write!(
                    f,
                    "{dimension}: {held} slots of {share} held at once in {window}; at most {allowed} are allowed"
                )
            }
            Self::GuaranteeMissed { dimension, share, window } => fmt_missed(f, dimension, share, window),
            Self::SlotLeftFree { dimension, share, window } => fmt_left_free(f, dimension, share, window),
            Self::LentWhileWaited { dimension, share, id, granted_at_micros, waited_from_micros } => write!(
                f,
                "{dimension}: {id}, granted at {}, borrowed a slot of {share}, and a caller of {share} had waited for \
                 one since {}",
                seconds(*granted_at_micros),
                seconds(*waited_from_micros),
            ),
            Self::FloorLent { dimension, share, id, granted_at_micros, left_micros, floor_micros } => write!(
                f,
                "{dimension}: {id}, granted at {}, borrowed a slot of {share} and left at most {} free; {} must stay \
                 free",
                seconds(*granted_at_micros),
                tokens(*left_micros),
                tokens(i128::from(*floor_micros)),
            ),
            Self::Overtaken {
                dimension,
                first_id,
                first_granted_at_micros,
                first_start_at_micros,
                later_id,
                later_asked_at_micros,
                later_start_at_micros,
            } => write!(
                f,
                "{dimension}: {later_id}, asked for at {}, starts at {}, before {first_id}, which was granted at {} and starts at {}",
                seconds(*later_asked_at_micros),
                seconds(*later_start_at_micros),
                seconds(*first_granted_at_micros),
                seconds(*first_start_at_micros),
            ),
            Self::NotReleased { dimension, not_released, grants, first_id, first_granted_at_micros } => {
                write!(
                    f,
                    "{dimension}: {not_released} of {grants} grants were never released; the first is {first_id}, granted at {}",
                    seconds(*first_granted_at_micros),
                )
            }
            Self::History(fault) => write!(f, "the history makes no sense: {fault}"),
        }
    }
}

fn fmt_missed(f: &mut fmt::Formatter<'_>, dimension: &str, share: &str, window: &Guarantee) -> fmt::Result {
    let Guarantee { from_micros: from, to_micros: to, granted, guaranteed, allowance } = window;
    write!(
        f,
        "{dimension}: {share} got {} in {} to {} ({} s), and a caller of it waited all the time; {} are guaranteed, \
         at least {} must be granted",
        tokens(*granted),
        seconds(*from),
        seconds(*to),
        tokens(i128::from(*to) - i128::from(*from)),
        tokens(*guaranteed),
        tokens(guaranteed - allowance),
    )
}

fn fmt_left_free(f: &mut fmt::Formatter<'_>, dimension: &str, share: &str, window: &FreeSlot) -> fmt::Result {
    let FreeSlot { from_micros: from, to_micros: to, allowed_micros: allowed } = window;
    write!(
        f,
        "{dimension}: a caller of {share} waited in {} to {} ({} s), and a slot of {share} was free; at most {} s are \
         allowed",
        seconds(*from),
        seconds(*to),
        tokens(i128::from(*to) - i128::from(*from)),
        tokens(i128::from(*allowed)),
    )
}

/// "1709550002.000000 to 1709550002.500000 (0.5 s, from a to b)".
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from_micros: from, to_micros: to, first_id, last_id, .. } = self;
        let length = tokens(i128::from(*to) - i128::from(*from));
        write!(f, "{} to {} ({length} s, from {first_id} to {last_id})", seconds(*from), seconds(*to))
    }
}

const MILLION: u128 = 1_000_000;

/// Microseconds as Unix seconds, with all six decimals.
fn seconds(micros: i64) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let micros = u128::from(micros.unsigned_abs());
    format!("{sign}{}.{:06}", micros / MILLION, micros % MILLION)
}

/// Millionths as a decimal without trailing zeros.
fn tokens(micros: i128) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let (whole, decimals) = (micros.unsigned_abs() / MILLION, micros.unsigned_abs() % MILLION);
    let text = format!("{sign}{whole}.{decimals:06}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
