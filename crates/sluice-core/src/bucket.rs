//! A bucket row, parsed: the line that its level follows.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::amount::Amount;
use crate::dimension::Dimension;
use crate::inline::InlineLeases;
use crate::limit::Limit;
use crate::line::Line;
use crate::rate::Rate;
use crate::schema::{
    CAPACITY, COST_PER_CALL, Exact, KEY, LAST_REFILL_AT, LIMIT_TYPE, PROTOCOL, REFILL_RATE, TOKENS, VERSION,
};
use crate::share::ShareName;
use crate::statement::{Operand, Put, Statement, Update};
use crate::timestamp::Timestamp;
use crate::vendor_limit::VendorLimit;

mod adopt;
pub(crate) mod after;
pub(crate) mod lender;
pub(crate) mod lines;
pub(crate) mod note;
mod read;
pub(crate) mod slot_lines;
pub(crate) mod slot_shares;

use lines::Lines;
use note::Note;
use slot_shares::SlotShares;

/// A bucket as one reply of DynamoDB showed it.
///
/// With A the anchor, T the tokens at A, R the refill rate and C the capacity, the level at t is
/// `min(C, T + max(0, t - A) * R)`: a straight line, flat before its anchor, and capped. `line.rs` proves
/// what follows from this. R is 0 for concurrency, and the level is then the number of free slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    dimension: Dimension,
    limit: Limit,
    capacity: Exact<Amount>,
    rate: Exact<Rate>,
    tokens: Amount,
    anchor: Exact<Timestamp>,
    version: i64,
    /// The protocol that the row requires, as it says.
    protocol: Option<i64>,
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
    vendor_limit: Option<Box<VendorLimit>>,
    adopts_limit: bool,
    adopt_at_least: Option<Box<Amount>>,
    note: Option<Box<Note>>,
    /// `None` if the row does not say it in a way that can be counted on.
    served: Option<i64>,
    waited_until: Option<Timestamp>,
    /// Shared, because buckets are cloned often.
    inline: Option<Arc<InlineLeases>>,
    /// All lines as they were read, if the bucket has shares.
    lines: Option<Arc<Lines>>,
    /// The share that the bucket is seen from.
    share: Option<ShareName>,
    /// What the row of a concurrency bucket says of its shares.
    slot_shares: Option<Arc<SlotShares>>,
}

/// Interleaving that the condition stops: two processes create the bucket, and the later one resets a level
/// in use.
static CREATE: Statement = Statement::guard("attribute_not_exists(#key)", &[KEY]);

/// Never lowers: an operator with an older file must not let in what a newer one keeps out.
static REQUIRE: Statement = Statement::fixed(
    "SET #protocol = :protocol",
    "attribute_exists(#key) AND (attribute_not_exists(#protocol) OR #protocol < :protocol)",
    &[KEY, PROTOCOL],
);

/// The end of a mark that is believed at most, from now: that of a writer whose clock is ahead.
pub(crate) const FARTHEST_MARK: Duration = Duration::from_secs(8);

impl Bucket {
    /// The write by which the bucket requires clients and sweeps of this protocol, or a later one.
    #[must_use]
    pub fn require_protocol(dimension: &Dimension, protocol: i64) -> Update {
        let values = alloc::vec![(":protocol", Operand::number(protocol))];
        Update { key: dimension.to_string(), statement: Cow::Borrowed(&REQUIRE), values }
    }

    /// Returns a full bucket that has no row yet.
    ///
    /// Slots do not flow in, so the anchor of a concurrency bucket is 0 and stays 0. Each write that takes or
    /// gives tokens asks for the anchor that its process read. So no such write changes a concurrency bucket
    /// that was made in the place of a rate bucket.
    #[must_use]
    pub fn full(dimension: Dimension, limit: Limit, now: Timestamp) -> Self {
        let anchor = if limit.is_concurrent() { Timestamp::default() } else { now };
        Self {
            dimension,
            limit,
            capacity: Exact::new(limit.capacity()),
            rate: Exact::new(limit.refill_rate()),
            tokens: limit.capacity(),
            anchor: Exact::new(anchor),
            version: 0,
            protocol: None,
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
            adopt_at_least: None,
            note: None,
            served: Some(0),
            waited_until: None,
            inline: None,
            lines: None,
            share: None,
            slot_shares: None,
        }
    }

    /// The write that creates the row of a bucket that is missing in the table.
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

    /// The name of the bucket.
    #[must_use]
    pub const fn dimension(&self) -> &Dimension {
        &self.dimension
    }

    /// The limit of the bucket.
    #[must_use]
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Tokens at the anchor; free slots, for concurrency. Below zero if starts are booked ahead.
    #[must_use]
    pub const fn tokens(&self) -> Amount {
        self.tokens
    }

    /// The anchor.
    #[must_use]
    pub const fn anchor(&self) -> Timestamp {
        self.anchor.get()
    }

    /// The least protocol of a client that may use the row, if the row says so.
    pub(crate) const fn protocol(&self) -> Option<i64> {
        self.protocol
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

    /// Slots granted so far, if every client of the bucket counts them.
    #[must_use]
    pub const fn admitted(&self) -> Option<Amount> {
        self.admitted
    }

    /// The part of [`admitted`](Self::admitted) whose leases were inline.
    #[must_use]
    pub const fn admitted_inline(&self) -> Option<Amount> {
        self.admitted_inline
    }

    /// About how many of the numbers that waiting callers drew have been served.
    #[must_use]
    pub fn served(&self) -> i64 {
        self.served.unwrap_or(0)
    }

    /// Whether a write may count the numbers that it serves: DynamoDB adds to numbers alone.
    pub(crate) const fn counts_served(&self) -> bool {
        self.served.is_some()
    }

    /// Until when the row says that callers wait for slots.
    #[must_use]
    pub const fn waited_until(&self) -> Option<Timestamp> {
        self.waited_until
    }

    /// Whether the row says that callers wait, so that others draw a number first. A mark that lies further
    /// ahead than any writer would put it is not believed.
    #[must_use]
    pub fn is_waited_for(&self, now: Timestamp) -> bool {
        self.waited_until.is_some_and(|until| until > now && until <= now.after(FARTHEST_MARK))
    }

    /// The leases in the row itself; `None` if no client has written inline leases yet.
    #[must_use]
    pub fn inline(&self) -> Option<&InlineLeases> {
        self.inline.as_deref()
    }

    /// Number of writes by clients that count what they admit.
    pub(crate) const fn counted(&self) -> i64 {
        self.counted
    }

    /// Number of writes so far by clients that do not count what they admit.
    #[must_use]
    pub const fn uncounted(&self) -> i64 {
        self.version.saturating_sub(self.counted)
    }

    /// Cost of leases that were deleted without freeing their slots, because the bucket had no room.
    #[must_use]
    pub fn capped(&self) -> Option<Amount> {
        self.capped.as_ref().map(Exact::get)
    }

    /// [`capped`](Self::capped) as a condition compares it.
    pub(crate) const fn capped_as_read(&self) -> Option<&Exact<Amount>> {
        self.capped.as_ref()
    }

    /// Slots that the previous sweep found lost (below zero: minted), for the next sweep to confirm.
    #[must_use]
    pub fn noted_drift(&self) -> Option<Amount> {
        self.note().map(Note::drift)
    }

    pub(crate) fn note(&self) -> Option<&Note> {
        self.note.as_deref()
    }

    /// The level at `now`, rounded down: at most the capacity, below zero if starts are booked ahead.
    #[must_use]
    pub fn level(&self, now: Timestamp) -> Amount {
        self.line().at(now).min(self.limit.capacity())
    }

    /// Whether the level has reached the capacity at `now`.
    #[must_use]
    pub fn is_full(&self, now: Timestamp) -> bool {
        self.level(now) >= self.limit.capacity()
    }

    /// When the level reaches `amount`, rounded up. The beginning of time if the level is there at the anchor
    /// already; `None` if it never reaches `amount`.
    #[must_use]
    pub fn reaches(&self, amount: Amount) -> Option<Timestamp> {
        self.line().reaches(amount)
    }

    /// Number of lots taken so far.
    pub(crate) const fn lots(&self) -> i64 {
        self.lots
    }

    /// Tokens given back so far.
    pub(crate) const fn returned(&self) -> Amount {
        self.returned
    }

    /// When an anchor in the future was last moved back.
    pub(crate) const fn repaired_at(&self) -> Option<Timestamp> {
        self.repaired_at
    }

    /// How much replies of the vendor have lowered the bucket so far.
    #[must_use]
    pub const fn observed(&self) -> Amount {
        self.observed
    }

    /// The version of the grant whose reply lowered the bucket last.
    pub(crate) const fn observed_version(&self) -> Option<i64> {
        self.observed_version
    }

    /// The lowest limit that the vendor reported recently and that was lower than the bucket's limit.
    #[must_use]
    pub fn vendor_limit(&self) -> Option<VendorLimit> {
        self.vendor_limit.as_deref().copied()
    }

    /// Whether the anchor is further in the future of `now` than the errors of two clocks explain (twice
    /// [`CLOCK_ERROR`](crate::CLOCK_ERROR)): see [`FutureAnchor`](crate::FutureAnchor).
    #[must_use]
    pub fn is_anchored_far_ahead(&self, now: Timestamp) -> bool {
        !self.limit.is_concurrent() && self.line().is_far_ahead(now)
    }

    pub(crate) const fn line(&self) -> Line {
        Line::new(self.tokens, self.anchor.get(), self.limit.refill_rate())
    }

    /// The time from `now` to the end of the cool-down, if there is one.
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
