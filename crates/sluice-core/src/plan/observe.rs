//! What the vendor says is left, believed where it is less than the bucket's own count.
//!
//! With m what the vendor says is left after the call of a grant g, and l the line of the bucket right after g, both at the start of
//! that call: the bucket is too high by d = l - m. Both lines rise at the refill rate and fall by each later call, so that d stays
//! what it is: T -= d leaves each call that is in flight, and not in the vendor's count yet, counted once. The vendor counts when a
//! call arrives, not when its answer does: reckoned from the answer, the refill of a whole call would be taken away each time.
//!
//! Where the line of the bucket right after g is not known (the bucket was full since and has another, a transaction or a lot took g,
//! g travelled as a ticket), a weaker bound holds all the same: calls since only lower the vendor further, so that at t it has
//! m + (t - start) * R at most. A level above that comes down to it, as long as the reply is younger than the bucket takes to fill.
//!
//! Lowered, never raised. What earlier replies lowered since g counts (`observed`, monotone), and a reply to an earlier grant than the
//! last one that lowered it changes nothing (`observed_version`).

use alloc::borrow::Cow;
use alloc::string::ToString as _;

use crate::amount::Amount;
use crate::dimension::Dimension;
use crate::line::Line;
use crate::plan::rate::RatePlanner;
use crate::plan::receipt::RateReceipt;
use crate::schema::{
    ADOPTS_LIMIT, KEY, LAST_REFILL_AT, OBSERVED, OBSERVED_VERSION, TOKENS, VENDOR_LIMIT, VENDOR_LIMIT_AT,
    VENDOR_LIMIT_WINDOW, VERSION,
};
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::Timestamp;
use crate::vendor_limit::VendorLimit;

/// Interleavings that the condition stops: the bucket was full since the grant, or has other limits, so that its line is another one
/// (A); another reply lowered it meanwhile, and this would lower it for the same calls again, or an older reply overwrite a newer
/// one (s).
static OBSERVE: Statement = Statement::fixed(
    "SET #T = #T - :d, #s = if_not_exists(#s, :0) + :d, #g = :g, #v = #v + :1",
    "#A = :a AND (attribute_not_exists(#s) OR #s = :s)",
    &[("#T", TOKENS), ("#A", LAST_REFILL_AT), ("#v", VERSION), ("#s", OBSERVED), ("#g", OBSERVED_VERSION)],
);

/// The same, from the level as it was read: others spent since (lo), of whom the vendor may or may not know.
static OBSERVE_LEVEL: Statement = Statement::fixed(
    "SET #T = #T - :d, #s = if_not_exists(#s, :0) + :d, #g = :g, #v = #v + :1",
    "#A = :a AND #T >= :lo AND (attribute_not_exists(#s) OR #s = :s)",
    &[("#T", TOKENS), ("#A", LAST_REFILL_AT), ("#v", VERSION), ("#s", OBSERVED), ("#g", OBSERVED_VERSION)],
);

/// The same of a full bucket: its level is C by the condition.
static OBSERVE_FULL: Statement = Statement::fixed(
    "SET #T = :T, #A = :t, #s = if_not_exists(#s, :0) + :d, #g = :g, #v = #v + :1",
    "#A = :a AND #T > :hi AND (attribute_not_exists(#s) OR #s = :s)",
    &[("#T", TOKENS), ("#A", LAST_REFILL_AT), ("#v", VERSION), ("#s", OBSERVED), ("#g", OBSERVED_VERSION)],
);

/// Interleaving that the condition stops: the bucket was removed, and the write would make half a row of it. The version stays, as
/// no other client reads the attribute.
static NOTE_LIMIT: Statement = Statement::fixed(
    "SET #l = :l, #w = :w, #t = :t",
    "attribute_exists(#pk)",
    &[("#l", VENDOR_LIMIT), ("#w", VENDOR_LIMIT_WINDOW), ("#t", VENDOR_LIMIT_AT), ("#pk", KEY)],
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
    /// Whether `other` was said of a later call, on the same line.
    #[must_use]
    pub fn is_older_than(&self, other: &Self) -> bool {
        let is_same_line = self.receipt.after().anchor() == other.receipt.after().anchor();
        is_same_line && self.receipt.version() < other.receipt.version()
    }

    /// How much the bucket was above what the vendor said; zero and less where it was not.
    fn excess(&self) -> Amount {
        // Before the anchor the bucket stands still and the vendor does not: to compare them there would take away the refill of each
        // clock's lead.
        let line = self.receipt.line();
        let both_rise = line.both_rise(self.start);
        line.at(both_rise).minus(self.left_at_most(both_rise, line))
    }

    /// What the vendor can have left at `at`, if it rises as the bucket does.
    fn left_at_most(&self, at: Timestamp, line: Line) -> Amount {
        self.left.plus(line.rate().accrued_ceil(at.since(self.start)))
    }
}

/// What a reading of a bucket makes of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The bucket is too high by this much; the write lowers it.
    Lower(Amount, Update),
    /// It is as low as the vendor says, or lower, to within one call.
    Agrees,
    /// The reply is older than the last that lowered the bucket, or than what the bucket has been through since: it says nothing of the
    /// level as it is.
    Stale,
}

impl RatePlanner<'_> {
    /// What to make of `said`. Less than one call's worth too high counts as agreement: it would cost a write for every reply.
    #[must_use]
    pub fn observe(self, said: &Remaining, now: Timestamp) -> Observation {
        let (bucket, before, version) = (self.bucket(), said.receipt.after(), said.receipt.version());
        // A row that was made anew counts its versions anew.
        let is_older_row = version > bucket.version();
        if is_older_row || bucket.observed_version().is_some_and(|last| last > version) {
            return Observation::Stale;
        }
        let is_on_line = said.receipt.is_shown() && bucket.anchor() == before.anchor();
        let excess = if is_on_line {
            said.excess().minus(bucket.observed().minus(before.observed()))
        } else {
            match self.most_left(said, now) {
                Some(most) => bucket.level(now).minus(most),
                None => return Observation::Stale,
            }
        };
        if excess < said.receipt.cost().amount().max(bucket.limit().cost_per_call().amount()) {
            return Observation::Agrees;
        }
        let mut values = alloc::vec![
            (":d", Operand::number(excess)),
            (":s", Operand::number(bucket.observed())),
            (":g", Operand::number(version)),
            (":0", Operand::number(0)),
        ];
        let brim = self.brim(now);
        if is_on_line {
            return Observation::Lower(excess, self.update(&OBSERVE, values));
        }
        if bucket.tokens() <= brim {
            values.push((":lo", Operand::number(bucket.tokens())));
            return Observation::Lower(excess, self.update(&OBSERVE_LEVEL, values));
        }
        values.extend([
            (":T", Operand::number(bucket.limit().capacity().minus(excess))),
            (":t", Operand::number(bucket.line().effect(now))),
            (":hi", Operand::number(brim)),
        ]);
        Observation::Lower(excess, self.update(&OBSERVE_FULL, values))
    }

    /// What the vendor can have left when it and the bucket rise side by side; `None` where it may have begun anew since.
    fn most_left(self, said: &Remaining, now: Timestamp) -> Option<Amount> {
        let (limit, line) = (self.bucket().limit(), self.bucket().line());
        let age = now.since(said.start);
        let is_young = limit.refill_rate().time_for(limit.capacity()).is_some_and(|filled_in| age < filled_in);
        is_young.then(|| said.left_at_most(line.both_rise(now), line))
    }
}

/// As above.
static ADOPT_LIMITS: Statement =
    Statement::fixed("SET #d = :d", "attribute_exists(#pk)", &[("#d", ADOPTS_LIMIT), ("#pk", KEY)]);

/// Whether a bucket takes on a lower limit that the vendor reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLowerLimit {
    /// It is reported.
    Report,
    /// It is reported, and becomes the bucket's.
    Adopt,
}

/// The write that says so in the bucket's row.
#[must_use]
pub fn on_lower_limit(dimension: &Dimension, then: OnLowerLimit) -> Update {
    let adopts = i32::from(then == OnLowerLimit::Adopt);
    let values = alloc::vec![(":d", Operand::number(adopts))];
    Update { key: dimension.to_string(), statement: Cow::Borrowed(&ADOPT_LIMITS), values }
}

/// The write that notes, in the bucket's row, a limit that the vendor reports and that is lower than the bucket's.
#[must_use]
pub fn note_limit(dimension: &Dimension, reported: VendorLimit) -> Update {
    let values = alloc::vec![
        (":l", Operand::number(reported.limit)),
        (":w", Operand::number(reported.window.as_secs())),
        (":t", Operand::number(reported.at)),
    ];
    Update { key: dimension.to_string(), statement: Cow::Borrowed(&NOTE_LIMIT), values }
}
