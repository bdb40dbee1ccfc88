//! Rate buckets: taking tokens with one conditional write, and giving them back.
//!
//! Let k be the cost, t the caller's clock, `x = max(0, t - A) * R` what flowed in since the anchor, and
//! `p = patience * R`:
//!
//! | form | update | condition | when |
//! |---|---|---|---|
//! | spend | T = T - k | A as read, and T between k - x - p and C - x | the bucket is not full |
//! | full | T = C - k, A = max(t, A) | A as read, and T > C - x | the bucket is full |
//! | re-anchor | T = T + x - k, A = max(t, A + 1 us) | as spend | A is more than 5 min old, or k is large |
//! | repair | T = T - k, A = t | as spend, and T at least as read | A is in the future and T < k |
//!
//! A spend is relative and conditional on the anchor alone, so concurrent callers do not invalidate each
//! other. The upper bound makes a spend exact: without it an idle bucket would pay out more than its
//! capacity. x is rounded down in the lower bound and up in the upper bound, both against the caller. The
//! bounds are two comparisons and not `BETWEEN`: DynamoDB rejects a `BETWEEN` as invalid if its lower bound
//! is above its upper bound, which is the case for a call that costs the whole capacity. For the repair see
//! `future_anchor.rs`.

use alloc::borrow::Cow;
use core::time::Duration;

use crate::amount::{Amount, Cost};
use crate::bucket::Bucket;
use crate::bucket::lender::Lender;
use crate::line::Line;
use crate::plan::claim::{Claim, judge};
use crate::plan::{FutureAnchor, Plan, Refusal, Take};
use crate::schema::{BLOCKED_UNTIL, LAST_REFILL_AT, LENT, LOTS, TOKENS, VERSION};
use crate::statement::{Operand, Statement, Update, Values};
use crate::timestamp::Timestamp;

/// Age at which an anchor is moved. Older anchors are as exact. Moving the anchor keeps `tokens` near what
/// people expect to read, and costs every other process that spends on it one failed write.
const ANCHOR_MAX_AGE: Duration = Duration::from_secs(5 * 60);

/// The largest call, as a share of the capacity, that is booked ahead without moving the anchor (or one
/// call's worth, if that is more). A return gives back only what fits below the brim beside any start that is
/// still to come, and requires the anchor of its take. So a larger call moves the anchor, and the tokens
/// taken before it no longer come back. A larger share would leave less room for returns.
const LARGEST_BOOKING: (u32, u32) = (1, 4);

/// The most that a contended full write leaves below the brim, as a share of the capacity.
const HEADROOM_SHARE: (u32, u32) = (1, 4);

/// A write that takes tokens for its callers alone, that also counts a lot, or that counts what is lent.
struct Taking {
    alone: Statement,
    with_lot: Statement,
    lent: Statement,
}

macro_rules! taking {
    ($update:literal, $condition:expr) => {
        Taking {
            alone: Statement::fixed($update, $condition, &[TOKENS, LAST_REFILL_AT, VERSION, BLOCKED_UNTIL]),
            with_lot: Statement::fixed(
                concat!($update, ", #lots = if_not_exists(#lots, :0) + :1"),
                $condition,
                &[TOKENS, LAST_REFILL_AT, VERSION, BLOCKED_UNTIL, LOTS],
            ),
            lent: Statement::fixed(
                concat!($update, ", #lent = if_not_exists(#lent, :0) + :lent"),
                $condition,
                &[TOKENS, LAST_REFILL_AT, VERSION, BLOCKED_UNTIL, LENT],
            ),
        }
    };
}

/// Interleavings that the condition stops:
/// - `last_refill_at`: the bucket was re-anchored, or its limits changed, since the reading.
/// - `tokens` (lower bound): others spent what the reading showed.
/// - `tokens` (upper bound): the bucket filled up in the meantime and would pay out more than C.
/// - `blocked_until`: a cool-down began.
const IF_THERE: &str = "#last_refill_at = :read_anchor AND #tokens >= :lowest AND #tokens <= :brim \
     AND (attribute_not_exists(#blocked_until) OR #blocked_until <= :now)";
static SPEND: Taking = taking!("SET #tokens = #tokens - :cost, #version = #version + :1", IF_THERE);
static REANCHOR: Taking =
    taking!("SET #tokens = #tokens + :step, #last_refill_at = :anchor, #version = #version + :1", IF_THERE);

/// As for a spend. The condition ensures that the level is C, so the write may set the level without reading
/// it.
const IF_FULL: &str = "#last_refill_at = :read_anchor AND #tokens > :brim \
     AND (attribute_not_exists(#blocked_until) OR #blocked_until <= :now)";
static FULL: Taking =
    taking!("SET #tokens = :tokens, #last_refill_at = :anchor, #version = #version + :1", IF_FULL);

/// Which of the three writes takes the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Relative; the anchor stays.
    Spend,
    /// The bucket is full: sets a new anchor.
    Full,
    /// Relative; moves the anchor.
    Reanchor,
}

/// Whether a write raises the count of lots: it does if it takes tokens that nobody has asked for yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LotCount {
    Stays,
    Rises,
}

/// Who takes from a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taker<'a> {
    /// Callers of its own.
    Own,
    /// Callers of another line.
    Borrower(&'a Lender),
}

/// Whether a write leaves the anchor where it is, if the anchor's age allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Stays,
    /// Tokens that were taken before are not given back on top of this write.
    Moves,
}

/// The largest call whose start may be still to come while tokens that were taken before it are given back.
pub(super) fn largest_booking(bucket: &Bucket) -> Amount {
    let (part, of) = LARGEST_BOOKING;
    bucket.limit().capacity().fraction(part, of).max(bucket.limit().cost_per_call().amount())
}

/// A planned write on a rate bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The write.
    pub update: Update,
    /// Which form it has.
    pub form: Form,
    /// The row after the write, if nobody else writes in between.
    pub after: Bucket,
}

/// Plans for one reading of a rate bucket.
#[derive(Clone, Copy, Debug)]
pub struct RatePlanner<'a> {
    bucket: &'a Bucket,
    headroom: Duration,
    future_anchor: FutureAnchor,
    taker: Taker<'a>,
    expects_spent: bool,
}

impl<'a> RatePlanner<'a> {
    /// Plans from `bucket`, as some reply showed it.
    #[must_use]
    pub const fn new(bucket: &'a Bucket) -> Self {
        let (headroom, future_anchor) = (Duration::ZERO, FutureAnchor::Keep);
        Self { bucket, headroom, future_anchor, taker: Taker::Own, expects_spent: false }
    }

    /// Plans what a caller of another share borrows of `lender`, as [`Bucket::lenders`] returned it: now or
    /// not at all, and the floor stays.
    #[must_use]
    pub const fn borrowing(lender: &'a Lender) -> Self {
        Self { taker: Taker::Borrower(lender), ..Self::new(lender.line()) }
    }

    /// Plans from `bucket` at `now`. If the anchor lies further in the future than the errors of clocks
    /// explain, `future_anchor` says what becomes of it.
    #[must_use]
    pub fn at(bucket: &'a Bucket, now: Timestamp, future_anchor: impl FnOnce() -> FutureAnchor) -> Self {
        let planner = Self::new(bucket);
        if bucket.is_anchored_far_ahead(now) { planner.on_future_anchor(future_anchor()) } else { planner }
    }

    /// Sets what becomes of an anchor that lies further in the future than the errors of clocks explain. The
    /// default is [`FutureAnchor::Keep`].
    #[must_use]
    pub const fn on_future_anchor(self, then: FutureAnchor) -> Self {
        Self { future_anchor: then, ..self }
    }

    /// Lets a full write leave the refill of `room` below the brim (at most a quarter of the capacity).
    /// `room` should last longer than a few writes are on their way.
    ///
    /// For a bucket whose writers were seen to fail each other. If the refill of a round trip is worth more
    /// than the calls in it, the bucket is full again before the next write arrives. Then every write is a
    /// full one, moves the anchor, and makes all the others fail. With this room, writers spend side by side
    /// on one anchor. The tokens given up would have overflowed: only a burst right after the write
    /// notices the difference. See `docs/adr/0001-headroom.md`.
    #[must_use]
    pub const fn with_headroom(self, room: Duration) -> Self {
        Self { headroom: room, ..self }
    }

    /// Sets whether others have most likely spent since the reading. If so, and the reading says that the
    /// bucket is full by now, the planned write is a spend. The spend fails if the bucket is in fact full.
    #[must_use]
    pub const fn expecting_spent(self, expects_spent: bool) -> Self {
        Self { expects_spent, ..self }
    }

    /// The write that takes `take`, or the refusal. If others may spend in between, only the reply shows the
    /// grant's start ([`RateReceipt::start_at`](crate::RateReceipt::start_at)).
    #[must_use]
    pub fn plan(self, take: Take) -> Plan<Planned> {
        let claim = Claim { cost: take.cost, patience: take.patience };
        let answer =
            judge(self.bucket, self.line(take.now), claim, take.cost.amount().plus(self.floor()), take.now);
        match self.with_next_repair(answer, take.now) {
            Plan::Write(_) => Plan::Write(self.probe(take)),
            Plan::Refuse(refusal) => Plan::Refuse(refusal),
            Plan::NeverSatisfiable { capacity } => Plan::NeverSatisfiable { capacity },
        }
    }

    /// Why `claim` would have to wait if it were the only one.
    #[must_use]
    pub fn refusal(self, claim: Claim, now: Timestamp) -> Option<Refusal> {
        let answer = judge(self.bucket, self.line(now), claim, claim.cost.amount().plus(self.floor()), now);
        match self.with_next_repair(answer, now) {
            Plan::Refuse(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Whether no caller that asks for `cost` would have to wait, whatever the time is: a line is nowhere
    /// lower than at its anchor, and the row has no cool-down. Spares the caller a look at the clock.
    #[must_use]
    pub fn never_refuses(self, cost: Cost) -> bool {
        let least = self.bucket.tokens().min(self.bucket.limit().capacity());
        self.bucket.blocked_until().is_none() && cost.amount() <= least
    }

    /// A write that takes `take` if there is more than the reading says. It is sent if the reading refuses
    /// but is too old to be believed. If the condition fails, the reply contains the row.
    #[must_use]
    pub fn probe(self, take: Take) -> Planned {
        let ahead = self.flowing_in(take.now, take.patience);
        let lowest = take.cost.amount().plus(self.floor()).minus(self.accrued(take.now)).minus(ahead);
        let anchor = self.anchor_for(Claim { cost: take.cost, patience: take.patience });
        self.write(take.now, take.cost.amount(), lowest, LotCount::Stays, anchor)
    }

    /// What flows in within `patience` from `now` on. Nothing flows in before the anchor.
    pub(super) fn flowing_in(self, now: Timestamp, patience: Duration) -> Amount {
        if patience.is_zero() {
            return Amount::ZERO;
        }
        let line = self.line(now);
        line.accrued_floor(now.after(patience)).minus(line.accrued_floor(now))
    }

    /// What `claim` requires of the anchor.
    pub(super) fn anchor_for(self, claim: Claim) -> Anchor {
        let is_large = claim.cost.amount() > largest_booking(self.bucket);
        if is_large && !claim.patience.is_zero() { Anchor::Moves } else { Anchor::Stays }
    }

    /// Whether tokens may be taken ahead of demand: of the own line alone.
    pub(super) const fn takes_lots(self) -> bool {
        matches!(self.taker, Taker::Own)
    }

    pub(super) const fn bucket(self) -> &'a Bucket {
        self.bucket
    }

    /// What the takers leave: nothing, unless they borrow.
    pub(super) const fn floor(self) -> Amount {
        match self.taker {
            Taker::Own => Amount::ZERO,
            Taker::Borrower(lender) => lender.floor(),
        }
    }

    /// Whether an anchor that lies too far in the future of `now` is to be repaired.
    pub(super) fn is_to_repair(self, now: Timestamp) -> bool {
        self.future_anchor == FutureAnchor::Repair && self.bucket.line().is_far_ahead(now)
    }

    /// The line on which a take that is planned at `now` starts.
    pub(super) fn line(self, now: Timestamp) -> Line {
        match self.repairs(now) {
            true => Line::new(self.bucket.tokens(), now, self.bucket.limit().refill_rate()),
            false => self.bucket.line(),
        }
    }

    /// x, rounded down.
    pub(super) fn accrued(self, now: Timestamp) -> Amount {
        self.bucket.line().accrued_floor(now)
    }

    /// C - x, rounded down. The bucket is full if T is above it.
    pub(crate) fn brim(self, now: Timestamp) -> Amount {
        self.bucket.limit().capacity().minus(self.bucket.line().accrued_ceil(now))
    }

    /// Whether the reading says that the bucket is full, and others are expected to have spent since.
    pub(super) fn expects_spent_of_full(self, now: Timestamp) -> bool {
        self.expects_spent && self.bucket.tokens() > self.brim(now)
    }

    /// The write that takes `total` if the tokens are at least `lowest`.
    pub(super) fn write(
        self,
        now: Timestamp,
        total: Amount,
        lowest: Amount,
        lot_count: LotCount,
        anchor: Anchor,
    ) -> Planned {
        let (brim, repairs) = (self.brim(now), self.repairs(now));
        if repairs && total > self.bucket.tokens() {
            return self.repairing_take(now, total, lowest);
        }
        // What flows in within a patience flows in only after a repair. This write makes no repair, so it
        // books nothing.
        let (lowest, anchor) = if repairs { (lowest.max(total), Anchor::Stays) } else { (lowest, anchor) };
        if self.bucket.tokens() > brim && !self.expects_spent {
            return self.write_full(now, total, brim, lot_count);
        }
        let mut values = alloc::vec![(":lowest", Operand::number(lowest)), (":brim", Operand::number(brim))];
        values.push((":now", Operand::number(now)));
        if let Some(at) = self.moves_to(now, anchor) {
            let step = self.accrued(at).minus(total);
            values.extend([(":step", Operand::number(step)), (":anchor", Operand::number(at))]);
            let after = self.bucket.moved(self.bucket.tokens().plus(step), at);
            self.planned(&REANCHOR, (total, lot_count), values, Form::Reanchor, after)
        } else {
            values.push((":cost", Operand::number(total)));
            self.planned(&SPEND, (total, lot_count), values, Form::Spend, self.bucket.less(total))
        }
    }

    /// Where the anchor moves to, or `None` if it stays. It always moves forward, so that no other write
    /// passes on the old anchor.
    fn moves_to(self, now: Timestamp, anchor: Anchor) -> Option<Timestamp> {
        let is_old = now.since(self.bucket.anchor()) > ANCHOR_MAX_AGE;
        let forward = || now.max(self.bucket.anchor().after(Duration::from_micros(1)));
        (is_old || anchor == Anchor::Moves).then(forward)
    }

    fn write_full(self, now: Timestamp, total: Amount, brim: Amount, lot_count: LotCount) -> Planned {
        let left = self.bucket.limit().capacity().minus(total).minus(self.room_below_brim(total));
        // Only a repair moves an anchor back. Otherwise a clock that lags would gain the refill in between.
        let at = self.bucket.line().effect(now);
        let values = alloc::vec![
            (":tokens", Operand::number(left)),
            (":anchor", Operand::number(at)),
            (":now", Operand::number(now)),
            (":brim", Operand::number(brim)),
        ];
        self.planned(&FULL, (total, lot_count), values, Form::Full, self.bucket.moved(left, at))
    }

    fn planned(
        self,
        taking: &'static Taking,
        (total, lot_count): (Amount, LotCount),
        mut values: Values,
        form: Form,
        after: Bucket,
    ) -> Planned {
        let (statement, after) = match (self.taker, lot_count) {
            (Taker::Own, LotCount::Stays) => (&taking.alone, after),
            (Taker::Own, LotCount::Rises) => {
                values.push((":0", Operand::number(0)));
                (&taking.with_lot, after.with_lot())
            }
            // A borrower takes no lot.
            (Taker::Borrower(lender), _) => {
                values.extend([(":0", Operand::number(0)), (":lent", Operand::number(total))]);
                let mut update = self.update(&taking.lent, values);
                let counted = update.statement.into_owned().and_counted_by(lender.borrower());
                update.statement = Cow::Owned(counted);
                return Planned { update, form, after };
            }
        };
        Planned { update: self.update(statement, values), form, after }
    }

    fn room_below_brim(self, total: Amount) -> Amount {
        let limit = self.bucket.limit();
        let (part, of) = HEADROOM_SHARE;
        let room = limit.refill_rate().accrued_floor(self.headroom).min(limit.capacity().fraction(part, of));
        // Never so much that a grant of this write would start later than now.
        room.min(limit.capacity().minus(total).minus(self.floor())).max(Amount::ZERO)
    }

    pub(super) fn update(self, statement: &'static Statement, mut values: Values) -> Update {
        values.extend([
            (":read_anchor", Operand::number(self.bucket.anchor_as_read())),
            (":1", Operand::number(1)),
        ]);
        let statement = match self.bucket.share() {
            None => Cow::Borrowed(statement),
            Some(share) => Cow::Owned(statement.in_share(share)),
        };
        Update { key: self.bucket.key(), statement, values }
    }
}
