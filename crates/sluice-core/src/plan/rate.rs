//! Rate buckets: taking tokens with one conditional write, and giving them back.
//!
//! With k the cost, t the caller's clock, x = max(0, t - A) * R what flowed in since the anchor, and p = patience * R:
//!
//! | form      | update                   | condition                              | when                      |
//! |-----------|--------------------------|----------------------------------------|---------------------------|
//! | spend     | T = T - k                | A = :a and T between k - x - p and C - x | the bucket is not full    |
//! | full      | T = C - k, A = max(t, A) | A = :a and T > C - x                   | the bucket is full        |
//! | re-anchor | T = T + x - k, A = max(t, A + 1 us) | as spend                    | A is more than 5 min old, or k is large |
//! | repair    | T = T - k, A = t         | as spend, and T as read at least       | A is in the future and T < k (`future_anchor.rs`) |
//!
//! A spend is relative and conditional on the anchor alone, so concurrent callers do not invalidate each other. The upper
//! bound is what makes it exact: without it an idle bucket would pay out more than its capacity. x is rounded down in the
//! lower bound and up in the upper one, both against the caller. The bounds are two comparisons and not `BETWEEN`, which
//! DynamoDB refuses as invalid where the lower one is above the upper one: so it is for a call that costs the whole capacity.

use alloc::borrow::Cow;
use core::time::Duration;

use crate::amount::{Amount, Cost};
use crate::bucket::Bucket;
use crate::line::Line;
use crate::plan::claim::{Claim, judge};
use crate::plan::{FutureAnchor, Plan, Refusal, Take};
use crate::schema::{BLOCKED_UNTIL, LAST_REFILL_AT, LOTS, TOKENS, VERSION};
use crate::statement::{Operand, Statement, Update, Values};
use crate::timestamp::Timestamp;

/// Age at which an anchor is moved. Older anchors are as exact; a young one keeps `tokens` near what people expect to read, and
/// costs every other process that spends on it one failed write.
const ANCHOR_MAX_AGE: Duration = Duration::from_secs(5 * 60);

/// Of the capacity, the largest call that is booked ahead without moving the anchor (or one call's worth, where that is more). A
/// return of tokens keeps to what fits below the brim beside any start that is still to come, and asks for the anchor of its take: so
/// a larger call moves the anchor, and the tokens taken before it no longer come back. Larger would leave less room for returns.
const LARGEST_BOOKING: (u32, u32) = (1, 4);

/// What a contended full write leaves below the brim is at most this part of the capacity.
const HEADROOM_SHARE: (u32, u32) = (1, 4);

const NAMES: &[(&str, &str)] = &[("#T", TOKENS), ("#A", LAST_REFILL_AT), ("#v", VERSION), ("#b", BLOCKED_UNTIL)];

const NAMES_OF_LOT: &[(&str, &str)] =
    &[("#T", TOKENS), ("#A", LAST_REFILL_AT), ("#v", VERSION), ("#b", BLOCKED_UNTIL), ("#o", LOTS)];

/// A write that takes tokens for its callers alone, or counts a lot besides.
struct Taking {
    alone: Statement,
    with_lot: Statement,
}

/// Interleavings that the condition stops: the bucket was re-anchored or its limits changed since the reading (A); others
/// spent what the reading showed (lower bound); it filled up meanwhile and would pay out more than C (upper bound); a
/// cool-down began (b).
const IF_THERE: &str = "#A = :a AND #T >= :lo AND #T <= :hi AND (attribute_not_exists(#b) OR #b <= :now)";
static SPEND: Taking = Taking {
    alone: Statement::fixed("SET #T = #T - :k, #v = #v + :1", IF_THERE, NAMES),
    with_lot: Statement::fixed(
        "SET #T = #T - :k, #v = #v + :1, #o = if_not_exists(#o, :0) + :1",
        IF_THERE,
        NAMES_OF_LOT,
    ),
};

/// As for a spend; the level is C by the condition, so that it may be set without reading it.
const IF_FULL: &str = "#A = :a AND #T > :hi AND (attribute_not_exists(#b) OR #b <= :now)";
static FULL: Taking = Taking {
    alone: Statement::fixed("SET #T = :T, #A = :t, #v = #v + :1", IF_FULL, NAMES),
    with_lot: Statement::fixed(
        "SET #T = :T, #A = :t, #v = #v + :1, #o = if_not_exists(#o, :0) + :1",
        IF_FULL,
        NAMES_OF_LOT,
    ),
};

static REANCHOR: Taking = Taking {
    alone: Statement::fixed("SET #T = #T + :d, #A = :t, #v = #v + :1", IF_THERE, NAMES),
    with_lot: Statement::fixed(
        "SET #T = #T + :d, #A = :t, #v = #v + :1, #o = if_not_exists(#o, :0) + :1",
        IF_THERE,
        NAMES_OF_LOT,
    ),
};

/// Which of the three writes takes the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Relative, on the anchor as it is.
    Spend,
    /// The bucket is full: a new anchor.
    Full,
    /// Relative, and moves the anchor.
    Reanchor,
}

/// Whether a write takes tokens that nobody asked for yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lot {
    With,
    Without,
}

/// Whether a write leaves the anchor where it is, if its age allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Stays,
    /// Whatever was taken before is not given back on top of it.
    Moves,
}

/// The largest call that may have a start to come while tokens that were taken before it are given back.
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
    /// What the row will be, if nobody else writes in between.
    pub after: Bucket,
}

/// Plans for one reading of a rate bucket.
#[derive(Clone, Copy, Debug)]
pub struct RatePlanner<'a> {
    bucket: &'a Bucket,
    headroom: Duration,
    future_anchor: FutureAnchor,
}

impl<'a> RatePlanner<'a> {
    /// Plans from `bucket`, as some reply showed it.
    #[must_use]
    pub const fn new(bucket: &'a Bucket) -> Self {
        Self { bucket, headroom: Duration::ZERO, future_anchor: FutureAnchor::Keep }
    }

    /// Plans from `bucket` at `now`. If its anchor lies further in the future than the errors of clocks explain, `future_anchor` says what
    /// becomes of it.
    #[must_use]
    pub fn at(bucket: &'a Bucket, now: Timestamp, future_anchor: impl FnOnce() -> FutureAnchor) -> Self {
        let planner = Self::new(bucket);
        if bucket.is_anchored_far_ahead(now) { planner.on_future_anchor(future_anchor()) } else { planner }
    }

    /// Says what becomes of an anchor that lies further in the future than the errors of clocks explain. [`FutureAnchor::Keep`] unless
    /// said otherwise.
    #[must_use]
    pub const fn on_future_anchor(self, then: FutureAnchor) -> Self {
        Self { future_anchor: then, ..self }
    }

    /// Lets a full write leave the refill of `room` below the brim (at most a quarter of the capacity). It should outlast the way
    /// of a few writes.
    ///
    /// For a bucket whose writers were seen to fail each other. Where refill is worth more than the calls of a round trip, the
    /// bucket is full again before the next write arrives; then every write is a full one, moves the anchor, and fails all
    /// the others. With this room they spend side by side on one anchor. The tokens given up would have run over the brim:
    /// only a burst right after notices. See `docs/adr/0001-headroom.md`.
    #[must_use]
    pub const fn with_headroom(self, room: Duration) -> Self {
        Self { headroom: room, ..self }
    }

    /// The write that takes `take`, or the refusal. Where others may spend in between, the grant's start is known from the
    /// reply alone ([`RateReceipt::start_at`](crate::RateReceipt::start_at)).
    #[must_use]
    pub fn plan(self, take: Take) -> Plan<Planned> {
        let claim = Claim { cost: take.cost, patience: take.patience };
        let answer = judge(self.bucket, self.line(take.now), claim, take.cost.amount(), take.now);
        match self.with_next_repair(answer, take.now) {
            Plan::Write(_) => Plan::Write(self.probe(take)),
            Plan::Refuse(refusal) => Plan::Refuse(refusal),
            Plan::NeverSatisfiable { capacity } => Plan::NeverSatisfiable { capacity },
        }
    }

    /// Why `claim` would have to wait, alone.
    #[must_use]
    pub fn refusal(self, claim: Claim, now: Timestamp) -> Option<Refusal> {
        let answer = judge(self.bucket, self.line(now), claim, claim.cost.amount(), now);
        match self.with_next_repair(answer, now) {
            Plan::Refuse(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Whether nobody who asks for `cost` would have to wait, whatever the time is: a line is nowhere lower than at its anchor, and
    /// no cool-down stands in the row. Spares its caller a look at the clock.
    #[must_use]
    pub fn never_refuses(self, cost: Cost) -> bool {
        let least = self.bucket.tokens().min(self.bucket.limit().capacity());
        self.bucket.blocked_until().is_none() && cost.amount() <= least
    }

    /// A write that takes `take` if there is more than the reading says: what is sent where the reading refuses but is too old
    /// to be believed. A failed condition brings the row.
    #[must_use]
    pub fn probe(self, take: Take) -> Planned {
        let ahead = self.flowing_in(take.now, take.patience);
        let lowest = take.cost.amount().minus(self.accrued(take.now)).minus(ahead);
        let anchor = self.anchor_for(Claim { cost: take.cost, patience: take.patience });
        self.write(take.now, take.cost.amount(), lowest, Lot::Without, anchor)
    }

    /// What flows in within `patience` from `now` on: nothing before the anchor.
    pub(super) fn flowing_in(self, now: Timestamp, patience: Duration) -> Amount {
        if patience.is_zero() {
            return Amount::ZERO;
        }
        let line = self.line(now);
        line.accrued_floor(now.after(patience)).minus(line.accrued_floor(now))
    }

    /// What `claim` asks of the anchor.
    pub(super) fn anchor_for(self, claim: Claim) -> Anchor {
        let is_large = claim.cost.amount() > largest_booking(self.bucket);
        if is_large && !claim.patience.is_zero() { Anchor::Moves } else { Anchor::Stays }
    }

    pub(super) const fn bucket(self) -> &'a Bucket {
        self.bucket
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

    /// C - x, rounded down: the bucket is full where T is above it.
    pub(crate) fn brim(self, now: Timestamp) -> Amount {
        self.bucket.limit().capacity().minus(self.bucket.line().accrued_ceil(now))
    }

    /// Takes `total` where the tokens are `lowest` at least.
    pub(super) fn write(self, now: Timestamp, total: Amount, lowest: Amount, lot: Lot, anchor: Anchor) -> Planned {
        let (brim, repairs) = (self.brim(now), self.repairs(now));
        if repairs && total > self.bucket.tokens() {
            return self.repairing_take(now, total, lowest);
        }
        // What flows in within a patience flows in after a repair alone, and this write makes none: it books nothing.
        let (lowest, anchor) = if repairs { (lowest.max(total), Anchor::Stays) } else { (lowest, anchor) };
        if self.bucket.tokens() > brim {
            return self.write_full(now, total, brim, lot);
        }
        let mut values = alloc::vec![(":lo", Operand::number(lowest)), (":hi", Operand::number(brim))];
        values.push((":now", Operand::number(now)));
        if let Some(at) = self.moves_to(now, anchor) {
            let step = self.accrued(at).minus(total);
            values.extend([(":d", Operand::number(step)), (":t", Operand::number(at))]);
            let after = self.bucket.moved(self.bucket.tokens().plus(step), at);
            self.planned(&REANCHOR, lot, values, Form::Reanchor, after)
        } else {
            values.push((":k", Operand::number(total)));
            self.planned(&SPEND, lot, values, Form::Spend, self.bucket.less(total))
        }
    }

    /// Where the anchor goes, if it does not stay: forward by all means, so that no other write passes on the old one.
    fn moves_to(self, now: Timestamp, anchor: Anchor) -> Option<Timestamp> {
        let is_old = now.since(self.bucket.anchor()) > ANCHOR_MAX_AGE;
        let forward = || now.max(self.bucket.anchor().after(Duration::from_micros(1)));
        (is_old || anchor == Anchor::Moves).then(forward)
    }

    fn write_full(self, now: Timestamp, total: Amount, brim: Amount, lot: Lot) -> Planned {
        let left = self.bucket.limit().capacity().minus(total).minus(self.room_below_brim(total));
        // But for a repair an anchor never moves back: a clock that lags would gain what lies between.
        let at = self.bucket.line().effect(now);
        let values = alloc::vec![
            (":T", Operand::number(left)),
            (":t", Operand::number(at)),
            (":now", Operand::number(now)),
            (":hi", Operand::number(brim)),
        ];
        self.planned(&FULL, lot, values, Form::Full, self.bucket.moved(left, at))
    }

    fn planned(self, taking: &'static Taking, lot: Lot, mut values: Values, form: Form, after: Bucket) -> Planned {
        let (statement, after) = match lot {
            Lot::Without => (&taking.alone, after),
            Lot::With => {
                values.push((":0", Operand::number(0)));
                (&taking.with_lot, after.with_lot())
            }
        };
        Planned { update: self.update(statement, values), form, after }
    }

    fn room_below_brim(self, total: Amount) -> Amount {
        let limit = self.bucket.limit();
        let (part, of) = HEADROOM_SHARE;
        let room = limit.refill_rate().accrued_floor(self.headroom).min(limit.capacity().fraction(part, of));
        // Never so much that a grant of it would start later than now.
        room.min(limit.capacity().minus(total)).max(Amount::ZERO)
    }

    pub(super) fn update(self, statement: &'static Statement, mut values: Values) -> Update {
        values.extend([(":a", Operand::number(self.bucket.anchor_as_read())), (":1", Operand::number(1))]);
        Update { key: self.bucket.key(), statement: Cow::Borrowed(statement), values }
    }
}

pub(crate) fn span_micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}
