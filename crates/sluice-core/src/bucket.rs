//! A bucket row, parsed: the line that its level follows.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::amount::{Amount, Cost};
use crate::dimension::Dimension;
use crate::inline::InlineLeases;
use crate::limit::Limit;
use crate::line::Line;
use crate::rate::Rate;
use crate::schema::{CAPACITY, COST_PER_CALL, Exact, KEY, LAST_REFILL_AT, LIMIT_TYPE, REFILL_RATE, TOKENS, VERSION};
use crate::statement::{Operand, Put, Statement};
use crate::timestamp::Timestamp;
use crate::vendor_limit::VendorLimit;

pub(crate) mod note;
mod read;

use note::Note;

/// A bucket as one reply of DynamoDB showed it.
///
/// With A the anchor, T the tokens at A, R the refill rate and C the capacity, its level at t is
/// `min(C, T + max(0, t - A) * R)`: a straight line, flat before its anchor, and capped. `line.rs` proves what follows from it. R is
/// 0 for concurrency, where the level is the number of free slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    dimension: Dimension,
    limit: Limit,
    capacity: Exact<Amount>,
    rate: Exact<Rate>,
    tokens: Amount,
    anchor: Exact<Timestamp>,
    version: i64,
    blocked_until: Option<Timestamp>,
    admitted: Option<Amount>,
    admitted_inline: Option<Amount>,
    counted: i64,
    capped: Option<Exact<Amount>>,
    lots: i64,
    returned: Amount,
    repaired_at: Option<Timestamp>,
    observed: Amount,
    observed_version: Option<i64>,
    vendor_limit: Option<VendorLimit>,
    adopts_limit: bool,
    note: Option<Note>,
    /// Shared: clones of a bucket are many.
    inline: Option<Arc<InlineLeases>>,
}

/// What a write on inline leases does to their bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Slots that become free, less those that are taken.
    pub(crate) slots: Amount,
    /// Slots that are granted.
    pub(crate) granted: Amount,
    /// Slots of leases that are removed without them, since there is no room.
    pub(crate) capped: Amount,
}

/// Interleaving that the condition stops: two processes create the bucket, and the later one resets a level in use.
static CREATE: Statement = Statement::guard("attribute_not_exists(#pk)", &[("#pk", KEY)]);

impl Bucket {
    /// A full bucket that no row stands for yet.
    #[must_use]
    pub fn full(dimension: Dimension, limit: Limit, now: Timestamp) -> Self {
        Self {
            dimension,
            limit,
            capacity: Exact::new(limit.capacity()),
            rate: Exact::new(limit.refill_rate()),
            tokens: limit.capacity(),
            anchor: Exact::new(now),
            version: 0,
            blocked_until: None,
            admitted: None,
            admitted_inline: None,
            counted: 0,
            capped: None,
            lots: 0,
            returned: Amount::ZERO,
            repaired_at: None,
            observed: Amount::ZERO,
            observed_version: None,
            vendor_limit: None,
            adopts_limit: false,
            note: None,
            inline: None,
        }
    }

    /// The write that makes the row of a bucket that the table does not have.
    #[must_use]
    pub fn create(&self) -> Put {
        let item: Vec<(&'static str, Operand)> = alloc::vec![
            (KEY, Operand::text(&self.dimension)),
            (CAPACITY, Operand::number(&self.capacity)),
            (TOKENS, Operand::number(self.tokens)),
            (REFILL_RATE, Operand::number(&self.rate)),
            (LAST_REFILL_AT, Operand::number(&self.anchor)),
            (COST_PER_CALL, Operand::number(self.limit.cost_per_call())),
            (LIMIT_TYPE, Operand::text(self.limit.limit_type())),
            (VERSION, Operand::number(self.version)),
        ];
        Put { item, statement: &CREATE }
    }

    /// Its name.
    #[must_use]
    pub const fn dimension(&self) -> &Dimension {
        &self.dimension
    }

    /// Its limits.
    #[must_use]
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Tokens at the anchor; free slots, for concurrency. Below zero where starts are booked ahead.
    #[must_use]
    pub const fn tokens(&self) -> Amount {
        self.tokens
    }

    /// The anchor.
    #[must_use]
    pub const fn anchor(&self) -> Timestamp {
        self.anchor.get()
    }

    /// Number of writes so far.
    #[must_use]
    pub const fn version(&self) -> i64 {
        self.version
    }

    /// Nothing is granted before this instant.
    #[must_use]
    pub const fn blocked_until(&self) -> Option<Timestamp> {
        self.blocked_until
    }

    /// Slots granted so far, where every client of the bucket counts them.
    #[must_use]
    pub const fn admitted(&self) -> Option<Amount> {
        self.admitted
    }

    /// Of [`admitted`](Self::admitted), the slots whose leases were inline.
    #[must_use]
    pub const fn admitted_inline(&self) -> Option<Amount> {
        self.admitted_inline
    }

    /// The leases that stand in the row itself; `None` where no client wrote inline leases yet.
    #[must_use]
    pub fn inline(&self) -> Option<&InlineLeases> {
        self.inline.as_deref()
    }

    /// Writes by clients that count what they admit.
    pub(crate) const fn counted(&self) -> i64 {
        self.counted
    }

    /// Writes by clients that do not count what they admit, so far.
    #[must_use]
    pub const fn uncounted(&self) -> i64 {
        self.version.saturating_sub(self.counted)
    }

    /// Cost of leases that was deleted without its slots, since the bucket had no room.
    #[must_use]
    pub fn capped(&self) -> Option<Amount> {
        self.capped.as_ref().map(Exact::get)
    }

    /// The same, as a condition compares it.
    pub(crate) const fn capped_as_read(&self) -> Option<&Exact<Amount>> {
        self.capped.as_ref()
    }

    /// Slots that the sweep before found lost, or minted (below zero), for the next to confirm.
    #[must_use]
    pub fn noted_drift(&self) -> Option<Amount> {
        self.note.as_ref().map(Note::drift)
    }

    /// What the sweep before found to be amiss.
    pub(crate) const fn note(&self) -> Option<&Note> {
        self.note.as_ref()
    }

    /// The level at `now`, rounded down: never above the capacity, below zero where starts are booked ahead.
    #[must_use]
    pub fn level(&self, now: Timestamp) -> Amount {
        self.line().at(now).min(self.limit.capacity())
    }

    /// When the level reaches `amount`, rounded up: the beginning of time where it is there at the anchor already, and `None` where it
    /// never does.
    #[must_use]
    pub fn reaches(&self, amount: Amount) -> Option<Timestamp> {
        self.line().reaches(amount)
    }

    /// The same bucket after `cost` was taken by a write whose reply does not show the row.
    #[must_use]
    pub fn after_taking(&self, cost: Cost) -> Self {
        self.less(cost.amount())
    }

    /// The same bucket after a write that took a lot.
    pub(crate) fn with_lot(mut self) -> Self {
        self.lots = self.lots.saturating_add(1);
        self
    }

    /// The same bucket on another line, as a write left it that is not the last.
    pub(crate) fn as_left(&self, tokens: Amount, anchor: Exact<Timestamp>, returned: Amount, lots: i64) -> Self {
        Self { tokens, anchor, returned, lots, ..self.clone() }
    }

    /// Number of lots taken so far.
    pub(crate) const fn lots(&self) -> i64 {
        self.lots
    }

    /// Tokens given back so far.
    pub(crate) const fn returned(&self) -> Amount {
        self.returned
    }

    /// When an anchor of the future was last moved back.
    pub(crate) const fn repaired_at(&self) -> Option<Timestamp> {
        self.repaired_at
    }

    /// The same bucket after a write that moved an anchor of the future back to `now`.
    pub(crate) fn repaired(&self, tokens: Amount, now: Timestamp) -> Self {
        Self { repaired_at: Some(now), ..self.moved(tokens, now) }.with_lot()
    }

    /// What replies of the vendor lowered it by so far.
    #[must_use]
    pub const fn observed(&self) -> Amount {
        self.observed
    }

    /// The version of the grant whose reply lowered it last.
    pub(crate) const fn observed_version(&self) -> Option<i64> {
        self.observed_version
    }

    /// The lowest limit that the vendor reported of late and that was lower than the bucket's.
    #[must_use]
    pub const fn vendor_limit(&self) -> Option<VendorLimit> {
        self.vendor_limit
    }

    /// Whether such a limit becomes its own.
    #[must_use]
    pub const fn adopts_limit(&self) -> bool {
        self.adopts_limit
    }

    pub(crate) fn less(&self, amount: Amount) -> Self {
        let mut after = self.clone();
        after.tokens = self.tokens.minus(amount);
        after.version = self.version.saturating_add(1);
        after
    }

    /// The same bucket after `cost` was given back.
    #[must_use]
    pub fn after_giving_back(&self, cost: Cost) -> Self {
        let mut after = self.clone();
        after.tokens = self.tokens.plus(cost.amount());
        after.version = self.version.saturating_add(1);
        after
    }

    /// The same bucket after a write that left it with these inline leases.
    pub(crate) fn after_inline(&self, moved: Moved, leases: InlineLeases) -> Self {
        let mut after = self.clone();
        after.tokens = self.tokens.plus(moved.slots);
        after.version = self.version.saturating_add(1);
        after.counted = self.counted.saturating_add(1);
        if moved.granted > Amount::ZERO {
            after.admitted = Some(self.admitted.unwrap_or_default().plus(moved.granted));
            after.admitted_inline = Some(self.admitted_inline.unwrap_or_default().plus(moved.granted));
        }
        if moved.capped > Amount::ZERO {
            after.capped = Some(Exact::new(self.capped().unwrap_or_default().plus(moved.capped)));
        }
        after.inline = Some(Arc::new(leases));
        after
    }

    /// The same bucket, moved to the line through `tokens` at `anchor`.
    pub(crate) fn moved(&self, tokens: Amount, anchor: Timestamp) -> Self {
        let mut after = self.clone();
        after.tokens = tokens;
        after.anchor = Exact::new(anchor);
        after.version = self.version.saturating_add(1);
        after
    }

    /// Whether its anchor lies further in the future of `now` than the errors of two clocks explain
    /// (twice [`CLOCK_ERROR`](crate::CLOCK_ERROR)): see [`FutureAnchor`](crate::FutureAnchor).
    #[must_use]
    pub fn is_anchored_far_ahead(&self, now: Timestamp) -> bool {
        !self.limit.is_concurrent() && self.line().is_far_ahead(now)
    }

    /// Its line, not capped.
    pub(crate) const fn line(&self) -> Line {
        Line::new(self.tokens, self.anchor.get(), self.limit.refill_rate())
    }

    /// How long `now` is before the end of a cool-down, if one holds.
    pub(crate) fn cooling_down(&self, now: Timestamp) -> Option<Duration> {
        self.blocked_until.filter(|until| *until > now).map(|until| until.since(now))
    }

    pub(crate) fn key(&self) -> String {
        self.dimension.to_string()
    }

    pub(crate) const fn anchor_as_read(&self) -> &Exact<Timestamp> {
        &self.anchor
    }

    pub(crate) const fn capacity_as_read(&self) -> &Exact<Amount> {
        &self.capacity
    }

    pub(crate) const fn rate_as_read(&self) -> &Exact<Rate> {
        &self.rate
    }
}
