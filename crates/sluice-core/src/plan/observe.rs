//! What the vendor says is left, believed where it is less than the bucket's own count.
//!
//! With m what the vendor says is left after the call of a grant g, and l the line of the bucket right after g, both at the start of
//! that call: the bucket is too high by d = l - m. Both lines rise at the refill rate and fall by each later call, so that d stays
//! what it is: T -= d leaves each call that is in flight, and not in the vendor's count yet, counted once. The vendor counts when a
//! call arrives, not when its answer does: reckoned from the answer, the refill of a whole call would be taken away each time.
//!
//! Lowered, never raised. What earlier replies lowered since g counts (`observed`, monotone), and a reply to an earlier grant than the
//! last one that lowered it changes nothing (`observed_at`).

use alloc::borrow::Cow;
use alloc::string::ToString as _;

use crate::amount::Amount;
use crate::dimension::Dimension;
use crate::plan::rate::RatePlanner;
use crate::plan::receipt::RateReceipt;
use crate::schema::{
    ADOPTS_LIMIT, KEY, LAST_REFILL_AT, OBSERVED, OBSERVED_AT, TOKENS, VENDOR_LIMIT, VENDOR_LIMIT_AT, VERSION,
};
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::Timestamp;

/// Interleavings that the condition stops: the bucket was full since the grant, or has other limits, so that its line is another one
/// (A); another reply lowered it meanwhile, and this would lower it for the same calls again, or an older reply overwrite a newer
/// one (s).
static OBSERVE: Statement = Statement::fixed(
    "SET #T = #T - :d, #s = if_not_exists(#s, :0) + :d, #g = :g, #v = #v + :1",
    "#A = :a AND (attribute_not_exists(#s) OR #s = :s)",
    &[("#T", TOKENS), ("#A", LAST_REFILL_AT), ("#v", VERSION), ("#s", OBSERVED), ("#g", OBSERVED_AT)],
);

/// Interleaving that the condition stops: the bucket was removed, and the write would make half a row of it. The version stays, as
/// no other client reads the attribute.
static NOTE_LIMIT: Statement = Statement::fixed(
    "SET #l = :l, #t = :t",
    "attribute_exists(#pk)",
    &[("#l", VENDOR_LIMIT), ("#t", VENDOR_LIMIT_AT), ("#pk", KEY)],
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
        self.receipt.line(self.start).minus(self.left)
    }
}

/// What a reading of a bucket makes of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The bucket is too high by this much; the write lowers it.
    Lower(Amount, Update),
    /// It is as low as the vendor says, or lower, to within one call.
    Agrees,
    /// The reply is older than what the bucket has been through since: it says nothing of the line as it is. Or where the line was
    /// right after the grant is not known, since a transaction took it (what others had spent before would be taken away again), or
    /// its start travelled as a ticket.
    Stale,
}

impl RatePlanner<'_> {
    /// What to make of `said`. Less than one call's worth too high counts as agreement: it would cost a write for every reply.
    #[must_use]
    pub fn observe(self, said: &Remaining) -> Observation {
        let bucket = self.bucket();
        let before = said.receipt.after();
        let version = said.receipt.version();
        if !said.receipt.is_shown()
            || bucket.anchor() != before.anchor()
            || bucket.observed_at().is_some_and(|last| last > version)
        {
            return Observation::Stale;
        }
        let lowered_since = bucket.observed().minus(before.observed());
        let excess = said.excess().minus(lowered_since);
        if excess < said.receipt.cost().amount().max(bucket.limit().cost_per_call().amount()) {
            return Observation::Agrees;
        }
        let values = alloc::vec![
            (":d", Operand::number(excess)),
            (":s", Operand::number(bucket.observed())),
            (":g", Operand::number(version)),
            (":0", Operand::number(0)),
        ];
        Observation::Lower(excess, self.update(&OBSERVE, values))
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
pub fn note_limit(dimension: &Dimension, reported: Amount, now: Timestamp) -> Update {
    let values = alloc::vec![(":l", Operand::number(reported)), (":t", Operand::number(now))];
    Update { key: dimension.to_string(), statement: Cow::Borrowed(&NOTE_LIMIT), values }
}
