//! The lines of a history.

use serde::{Deserialize, Serialize};

/// The version of the format that is written and read.
pub const FORMAT_VERSION: u32 = 2;

/// One line. Times are in microseconds since the Unix epoch, amounts in millionths of a token (or of a slot).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The first line of a file.
    History(Header),
    /// What a bucket allows, and from when.
    Limit(Limit),
    /// A caller was granted something.
    Granted(Granted),
    /// A caller gave something back, or never will.
    Released(Released),
    /// What a call actually used.
    Settled(Settled),
    /// Tokens went back into a bucket.
    Returned(Returned),
    /// A caller asked and was granted nothing.
    Refused(Refused),
    /// A time in which no guarantee holds.
    Paused(Paused),
    /// The last line of a file.
    End(End),
}

/// The assumptions of a whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Header {
    /// [`FORMAT_VERSION`].
    pub version: u32,
    /// The error of the clocks by which clients plan (`start_at_micros`, `ends_at_micros`).
    #[serde(default)]
    pub clock_error_micros: i64,
    /// The error of all other times: zero if one clock wrote them all, as on one machine or in a simulation.
    #[serde(default)]
    pub stamp_error_micros: i64,
    /// The longest time from the moment at which a caller asks until its tokens are taken or booked. While a
    /// share's first caller is on its way, what flows into a full line of the share is lost. Of slots: the
    /// longest time from the moment at which a slot is taken until its caller has the answer, and from the
    /// sending of a release until the slot is free.
    #[serde(default)]
    pub request_micros: i64,
}

impl Header {
    /// A history whose planning clocks err by at most `clock_error_micros`, and whose other times are all of
    /// one clock.
    #[must_use]
    pub const fn new(clock_error_micros: i64) -> Self {
        Self { version: FORMAT_VERSION, clock_error_micros, stamp_error_micros: 0, request_micros: 0 }
    }
}

/// The end of a file, written when everything before it is. A file without it was cut off, or its writer
/// died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct End {
    /// The number of events before this one, with the header.
    pub events: u64,
}

/// What a bucket counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Calls over time.
    Requests,
    /// Tokens over time.
    Tokens,
    /// Calls at once.
    Concurrent,
}

impl Kind {
    /// Whether the bucket counts calls at once.
    #[must_use]
    pub const fn is_concurrent(self) -> bool {
        matches!(self, Self::Concurrent)
    }
}

/// A bucket's limit. It is written once before the grants, and again at each change. The first limit also
/// applies to all time before it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Limit {
    /// The bucket.
    pub dimension: String,
    /// What the bucket counts; never changes.
    pub kind: Kind,
    /// The capacity, in millionths of a token.
    pub capacity_micros: i64,
    /// The refill rate, in 10^-12 tokens a second; zero for a concurrency bucket. See
    /// [`pico_per_sec`](crate::pico_per_sec).
    pub refill_pico_per_sec: i64,
    /// The earliest moment at which the limit may be in force: when the change was sent.
    pub from_micros: i64,
    /// The moment from which no older limit is in force: when the change was confirmed. `from_micros` if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_micros: Option<i64>,
    /// The shares of the bucket from then on. Callers that name none of them have the rest of the limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<Share>,
}

/// What one share of a bucket is guaranteed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Share {
    /// The name of the share.
    pub name: String,
    /// Its part of the capacity, in millionths of a token.
    pub capacity_micros: i64,
    /// Its part of the refill rate, in 10^-12 tokens a second.
    pub refill_pico_per_sec: i64,
    /// Of slots: how many every borrower leaves free, in millionths; not judged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_micros: Option<i64>,
}

impl Share {
    /// The share of this name.
    #[must_use]
    pub fn new(name: impl Into<String>, capacity_micros: i64, refill_pico_per_sec: i64) -> Self {
        Self { name: name.into(), capacity_micros, refill_pico_per_sec, floor_micros: None }
    }

    /// The same share of slots, of which borrowers leave so many millionths free.
    #[must_use]
    pub const fn with_floor(mut self, floor_micros: i64) -> Self {
        self.floor_micros = Some(floor_micros);
        self
    }
}

impl Limit {
    /// A limit that is in force from one moment on.
    #[must_use]
    pub fn new(
        dimension: impl Into<String>,
        kind: Kind,
        capacity_micros: i64,
        refill_pico_per_sec: i64,
        from_micros: i64,
    ) -> Self {
        Self {
            dimension: dimension.into(),
            kind,
            capacity_micros,
            refill_pico_per_sec,
            from_micros,
            by_micros: None,
            shares: Vec::new(),
        }
    }

    /// The same limit, with a change that was confirmed at `by_micros`.
    #[must_use]
    pub const fn by(mut self, by_micros: i64) -> Self {
        self.by_micros = Some(by_micros);
        self
    }

    /// The same limit, split into shares.
    #[must_use]
    pub fn with_shares(mut self, shares: Vec<Share>) -> Self {
        self.shares = shares;
        self
    }
}

/// The part of a grant in one bucket. A grant over several buckets is several lines with one id.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Granted {
    /// The id, different from that of every other grant.
    pub id: String,
    /// The process (the client) that asked. A start that a caller left may be taken over by another caller of
    /// the same process.
    pub process: String,
    /// The bucket.
    pub dimension: String,
    /// The amount taken, in millionths.
    pub cost_micros: i64,
    /// When the caller asked.
    pub asked_at_micros: i64,
    /// When the caller received the answer.
    pub granted_at_micros: i64,
    /// When the call may be made, by the clock of the client, as the grant says.
    pub start_at_micros: i64,
    /// The earliest possible start by this bucket, if the grant does not state it exactly: the start lies
    /// between this moment and `start_at_micros`. Grants of a transaction and grants over several buckets
    /// state one start for all buckets. For these, the moment at which the caller asked is always correct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged_from_micros: Option<i64>,
    /// When the lease ends, if the grant has one. Renewals are not recorded: the lease counts until its first
    /// end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at_micros: Option<i64>,
    /// Whether the caller was willing to wait, so that it may have booked a start (`slot`, not `acquire`).
    #[serde(default)]
    pub booked: bool,
    /// The share that the caller named. A share that the bucket does not have counts as none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// The line of the bucket that the tokens were taken from, if the recorder knows it: the name of a share,
    /// or `common` for what no share has. It differs from `share` if the tokens were borrowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paid_from: Option<String>,
}

impl Granted {
    /// A grant of one bucket that was asked for and answered at one moment, and may start at that moment.
    #[must_use]
    pub fn at(
        id: impl Into<String>,
        process: impl Into<String>,
        dimension: impl Into<String>,
        cost_micros: i64,
        at_micros: i64,
    ) -> Self {
        Self {
            id: id.into(),
            process: process.into(),
            dimension: dimension.into(),
            cost_micros,
            asked_at_micros: at_micros,
            granted_at_micros: at_micros,
            start_at_micros: at_micros,
            judged_from_micros: None,
            ends_at_micros: None,
            booked: false,
            share: None,
            paid_from: None,
        }
    }
}

/// The end of a grant's part in one bucket. Rate tokens stay spent, so rate buckets need no such line except
/// [`Ending::GivenBackUnused`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Released {
    /// The grant.
    pub id: String,
    /// The bucket.
    pub dimension: String,
    /// When the release was *sent*, not when it was answered.
    pub at_micros: i64,
    /// How the grant ended.
    pub how: Ending,
}

/// How a grant ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The call was made, and a release was sent, also if the call's answer was an error.
    Released,
    /// The call was never made.
    GivenBackUnused,
    /// The release found that the lease was gone.
    LeaseGone,
    /// The holder was killed: nothing was sent, and the slot stays taken until its lease ends.
    Died,
}

/// What a call actually used of a rate bucket, if that is less than its grant took. If there are several, the
/// last one counts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Settled {
    /// The grant.
    pub id: String,
    /// The bucket.
    pub dimension: String,
    /// When the use was reported.
    pub at_micros: i64,
    /// The amount used, in millionths. What exceeds the cost was not known when the call began, and the cost
    /// counts instead.
    pub used_micros: i64,
}

/// Tokens that went back into a rate bucket, from calls that used less or were not made. They go to the next
/// booking, so that its start may be earlier than one that was booked before.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Returned {
    /// The bucket.
    pub dimension: String,
    /// The amount that went back, in millionths.
    pub amount_micros: i64,
    /// When the return was sent.
    pub from_micros: i64,
    /// When the return was applied at the latest; `from_micros` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_micros: Option<i64>,
}

/// A request that ended without a grant. It is needed if the caller was willing to wait: the caller may have
/// booked a start and left it, for another caller of its process to take over.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Refused {
    /// The process that asked.
    pub process: String,
    /// All buckets of the request.
    pub dimensions: Vec<String>,
    /// When the caller asked.
    pub asked_at_micros: i64,
    /// When the caller received its answer, gave up or was cut off.
    pub at_micros: i64,
    /// Whether the caller was willing to wait.
    #[serde(default)]
    pub booked: bool,
    /// The share that the caller named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// The error, if the request failed and was not refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A time in which no share of a bucket is promised its guarantee: a cool-down, a penalty, an outage, or a
/// debt of a call that used more than it took.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Paused {
    /// The bucket.
    pub dimension: String,
    /// The beginning.
    pub from_micros: i64,
    /// The end.
    pub to_micros: i64,
}

impl Event {
    /// The time by which files are merged: the answer of a grant, the sending of a release. `None` for the
    /// header and the end.
    #[must_use]
    pub const fn at_micros(&self) -> Option<i64> {
        match self {
            Self::History(_) | Self::End(_) => None,
            Self::Limit(limit) => Some(limit.from_micros),
            Self::Granted(granted) => Some(granted.granted_at_micros),
            Self::Released(released) => Some(released.at_micros),
            Self::Settled(settled) => Some(settled.at_micros),
            Self::Returned(returned) => Some(returned.from_micros),
            Self::Refused(refused) => Some(refused.at_micros),
            Self::Paused(paused) => Some(paused.from_micros),
        }
    }
}
