//! Lowers a bucket to what the vendor says is left, if that is less than the bucket's own count.
//!
//! Let m be what the vendor says is left after the call of a grant g, and l the line of the bucket right
//! after g, both at the start of that call. The bucket is too high by d = l - m. Both lines rise at the
//! refill rate and fall by each later call, so d does not change. T -= d leaves each call that is in flight,
//! and not in the vendor's count yet, counted once. The vendor counts a call when the call arrives, not when
//! its answer arrives. If d were computed at the time of the answer, each reply would take away the refill of
//! a whole call.
//!
//! If the line of the bucket right after g is not known (the bucket was full since and has another line, a
//! transaction or a lot took g, or g travelled as a ticket), a weaker bound still holds. Calls since only
//! lower the vendor's count further, so at t the vendor has m + (t - start) * R at most. A level above that
//! is lowered to it, as long as the reply is younger than the bucket takes to fill.
//!
//! The level is lowered, never raised. What earlier replies lowered since g counts (`observed`, monotone). A
//! reply to a grant that is earlier than the last grant whose reply lowered the bucket changes nothing
//! (`observed_version`).
//!
//! One reply lowers a bucket by at most what refills in `longest`: a mistaken "0 left" of a day would
//! otherwise stop the fleet for a day. If the vendor means it, the next replies lower the bucket further.

use alloc::borrow::Cow;
use alloc::string::ToString as _;
use core::time::Duration;

use crate::amount::Amount;
use crate::bucket::Bucket;
use crate::bucket::lines::Lines;
use crate::dimension::Dimension;
use crate::line::Line;
use crate::plan::lines::observe_lines;
use crate::plan::rate::RatePlanner;
use crate::plan::receipt::RateReceipt;
use crate::schema::{
    ADOPT_AT_LEAST, ADOPTS_LIMIT, CAPACITY, KEY, LAST_REFILL_AT, OBSERVED, OBSERVED_VERSION, REFILL_RATE,
    TOKENS, VENDOR_LIMIT, VENDOR_LIMIT_AT, VENDOR_LIMIT_WINDOW, VERSION,
};
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::Timestamp;
use crate::vendor_limit::{OnLowerLimit, VendorLimit};

const NAMES: &[&str] = &[TOKENS, LAST_REFILL_AT, VERSION, OBSERVED, OBSERVED_VERSION];
const LOWER: &str = "SET #tokens = #tokens - :excess, #observed = if_not_exists(#observed, :0) + :excess, \
     #observed_version = :observed_version, #version = #version + :1";

/// Interleavings that the condition stops:
/// - `last_refill_at`: the bucket was full since the grant, or has other limits, so that its line is another
///   one.
/// - `observed`: another reply lowered the bucket in the meantime, and this one would lower it for the same
///   calls again; or an older reply would overwrite a newer one.
static OBSERVE: Statement = Statement::fixed(
    LOWER,
    "#last_refill_at = :read_anchor AND (attribute_not_exists(#observed) OR #observed = :read_observed)",
    NAMES,
);

/// The same, from the level as it was read. Also stops: others spent since (`tokens`), and the vendor may or
/// may not have counted their calls.
static OBSERVE_LEVEL: Statement = Statement::fixed(
    LOWER,
    "#last_refill_at = :read_anchor AND #tokens >= :read_tokens \
     AND (attribute_not_exists(#observed) OR #observed = :read_observed)",
    NAMES,
);

/// The same for a full bucket: the condition ensures that its level is C.
static OBSERVE_FULL: Statement = Statement::fixed(
    "SET #tokens = :tokens, #last_refill_at = :anchor, #observed = if_not_exists(#observed, :0) + :excess, \
     #observed_version = :observed_version, #version = #version + :1",
    "#last_refill_at = :read_anchor AND #tokens > :brim \
     AND (attribute_not_exists(#observed) OR #observed = :read_observed)",
    NAMES,
);

/// Interleaving that the condition stops: the bucket was removed, and the write would create half a row. The
/// version stays, because no other client reads these attributes.
static NOTE_LIMIT: Statement = Statement::fixed(
    "SET #vendor_limit = :vendor_limit, #vendor_limit_window = :vendor_limit_window, \
     #vendor_limit_at = :vendor_limit_at",
    "attribute_exists(#key)",
    &[VENDOR_LIMIT, VENDOR_LIMIT_WINDOW, VENDOR_LIMIT_AT, KEY],
);

/// What the vendor said is left after the call of a grant.
#[derive(Clone, Debug)]
pub struct Remaining {
    /// The grant.
    pub receipt: RateReceipt,
    /// When its call began.
    pub start: Timestamp,
    /// What the vendor said is left.
    pub left: Amount,
}

impl Remaining {
    /// Whether `other` is the reply to a later call, on the same line.
    #[must_use]
    pub fn is_older_than(&self, other: &Self) -> bool {
        let is_same_line = self.receipt.after().anchor() == other.receipt.after().anchor();
        is_same_line && self.receipt.version() < other.receipt.version()
    }

    /// How much the bucket was above what the vendor said; zero or less if it was not above.
    fn excess(&self) -> Amount {
        // Before its anchor the bucket stands still, but the vendor does not. To compare them there would
        // take away the refill of the time by which each clock is ahead.
        let line = self.receipt.line();
        let both_rise = line.both_rise(self.start);
        line.at(both_rise).minus(self.left_at_most(both_rise, line))
    }

    /// The most that the vendor can have left at `at`, if its count rises as the bucket does.
    fn left_at_most(&self, at: Timestamp, line: Line) -> Amount {
        self.left.plus(line.rate().accrued_ceil(at.since(self.start)))
    }
}

/// What a reply means for a bucket, according to a reading of the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The bucket is too high by this much; the write lowers it.
    Lower(Amount, Update),
    /// The bucket is as low as the vendor says, or lower, to within one call.
    Agrees,
    /// The reply is older than the last reply that lowered the bucket, or older than what the bucket has been
    /// through since. It says nothing about the present level.
    Stale,
}

impl RatePlanner<'_> {
    /// Decides what `remaining` means for the bucket. A bucket that is too high by less than one call's worth
    /// counts as agreeing: otherwise every reply would cost a write. The bucket is lowered by at most what
    /// refills in `longest`.
    #[must_use]
    pub fn observe(self, remaining: &Remaining, longest: Duration, now: Timestamp) -> Observation {
        let (bucket, before, version) =
            (self.bucket(), remaining.receipt.after(), remaining.receipt.version());
        // A recreated row starts its versions again.
        let is_older_row = version > bucket.version();
        if is_older_row || bucket.observed_version().is_some_and(|last| last > version) {
            return Observation::Stale;
        }
        if let Some(lines) = bucket.lines() {
            return self.observe_shares(lines, remaining, longest, now);
        }
        let is_on_line = remaining.receipt.is_shown() && bucket.anchor() == before.anchor();
        let excess = if is_on_line {
            remaining.excess().minus(bucket.observed().minus(before.observed()))
        } else {
            match self.most_left(remaining, now) {
                Some(most) => bucket.level(now).minus(most),
                None => return Observation::Stale,
            }
        };
        if excess < remaining.receipt.cost().amount().max(bucket.limit().cost_per_call().amount()) {
            return Observation::Agrees;
        }
        let excess = excess.min(bucket.limit().refill_rate().accrued_ceil(longest));
        let mut values = alloc::vec![
            (":excess", Operand::number(excess)),
            (":read_observed", Operand::number(bucket.observed())),
            (":observed_version", Operand::number(version)),
            (":0", Operand::number(0)),
        ];
        let brim = self.brim(now);
        if is_on_line {
            return Observation::Lower(excess, self.update(&OBSERVE, values));
        }
        if bucket.tokens() <= brim {
            values.push((":read_tokens", Operand::number(bucket.tokens())));
            return Observation::Lower(excess, self.update(&OBSERVE_LEVEL, values));
        }
        values.extend([
            (":tokens", Operand::number(bucket.limit().capacity().minus(excess))),
            (":anchor", Operand::number(bucket.line().effect(now))),
            (":brim", Operand::number(brim)),
        ]);
        Observation::Lower(excess, self.update(&OBSERVE_FULL, values))
    }

    /// The same for a bucket with shares. A vendor counts the calls of all of them, so the sum of the levels
    /// is compared, and each line is lowered in proportion to its level. The grant's own line says nothing
    /// about the others, so this is the weaker bound above.
    fn observe_shares(
        self,
        lines: &Lines,
        remaining: &Remaining,
        longest: Duration,
        now: Timestamp,
    ) -> Observation {
        let (bucket, limit) = (self.bucket(), self.bucket().whole_limit());
        let age = now.since(remaining.start);
        if limit.refill_rate().time_for(limit.capacity()).is_none_or(|filled_in| age >= filled_in) {
            return Observation::Stale;
        }
        // What is booked on one line is no less of what another has.
        let excess =
            bucket.held_by_lines(now).minus(remaining.left.plus(limit.refill_rate().accrued_ceil(age)));
        let one_call = remaining.receipt.cost().amount().max(limit.cost_per_call().amount());
        if excess < one_call {
            return Observation::Agrees;
        }
        let excess = excess.min(limit.refill_rate().accrued_ceil(longest));
        Observation::Lower(excess, observe_lines(bucket, lines, excess, remaining.receipt.version(), now))
    }

    /// The most that the vendor can have left if its count and the bucket rise side by side; `None` if the
    /// vendor may have started again since.
    fn most_left(self, remaining: &Remaining, now: Timestamp) -> Option<Amount> {
        let (limit, line) = (self.bucket().limit(), self.bucket().line());
        let age = now.since(remaining.start);
        let is_young =
            limit.refill_rate().time_for(limit.capacity()).is_some_and(|filled_in| age < filled_in);
        is_young.then(|| remaining.left_at_most(line.both_rise(now), line))
    }
}

/// Interleaving that the condition stops: as for `NOTE_LIMIT`.
static ADOPT_LIMITS: Statement = Statement::fixed(
    "SET #adopts_limit = :adopts_limit, #adopt_at_least = :adopt_at_least",
    "attribute_exists(#key)",
    &[ADOPTS_LIMIT, ADOPT_AT_LEAST, KEY],
);

/// Interleaving that the condition stops: as for `NOTE_LIMIT`.
static REPORT_LIMITS: Statement = Statement::fixed(
    "SET #adopts_limit = :adopts_limit REMOVE #adopt_at_least",
    "attribute_exists(#key)",
    &[ADOPTS_LIMIT, ADOPT_AT_LEAST, KEY],
);

/// Interleavings that the condition stops:
/// - `adopt_at_least`: an operator or another process stated a floor since the reading. This one may have
///   been computed from a limit that was lowered since.
/// - `adopts_limit`: an operator switched adoption off.
/// - `capacity`, `refill_rate`: another process lowered the limit since the reading, or an operator changed
///   it.
static STATE_FLOOR: Statement = Statement::fixed(
    "SET #adopt_at_least = :adopt_at_least",
    "attribute_not_exists(#adopt_at_least) AND #adopts_limit = :1 AND #capacity = :read_capacity \
     AND #refill_rate = :read_refill_rate",
    &[ADOPTS_LIMIT, ADOPT_AT_LEAST, CAPACITY, REFILL_RATE],
);

/// The write that stores in the bucket's row what the bucket does if its vendor reports a lower limit.
#[must_use]
pub fn on_lower_limit(dimension: &Dimension, then: OnLowerLimit) -> Update {
    let adopts = |adopts: i32| (":adopts_limit", Operand::number(adopts));
    let (statement, values) = match then {
        OnLowerLimit::Report => (&REPORT_LIMITS, alloc::vec![adopts(0)]),
        OnLowerLimit::Adopt { at_least } => {
            (&ADOPT_LIMITS, alloc::vec![adopts(1), (":adopt_at_least", Operand::number(at_least))])
        }
    };
    Update { key: dimension.to_string(), statement: Cow::Borrowed(statement), values }
}

/// The write that states the floor of a bucket whose row states none ([`Bucket::adopt_at_least`]). Without
/// it, the floor would fall with each limit that the bucket adopts.
#[must_use]
pub fn state_floor(bucket: &Bucket) -> Update {
    let bucket = &bucket.clone().seen_from(None);
    let values = alloc::vec![
        (":adopt_at_least", Operand::number(bucket.adopt_at_least())),
        (":read_capacity", Operand::number(bucket.capacity_as_read())),
        (":read_refill_rate", Operand::number(bucket.rate_as_read())),
        (":1", Operand::number(1)),
    ];
    Update { key: bucket.key(), statement: Cow::Borrowed(&STATE_FLOOR), values }
}

/// The write that notes a limit in the bucket's row, one that the vendor reports and that is lower than the
/// bucket's.
#[must_use]
pub fn note_limit(dimension: &Dimension, reported: VendorLimit) -> Update {
    let values = alloc::vec![
        (":vendor_limit", Operand::number(reported.limit)),
        (":vendor_limit_window", Operand::number(reported.window.as_secs())),
        (":vendor_limit_at", Operand::number(reported.at)),
    ];
    Update { key: dimension.to_string(), statement: Cow::Borrowed(&NOTE_LIMIT), values }
}
