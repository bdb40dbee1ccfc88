//! Rate buckets: taking tokens with one conditional write, and giving them back.
//!
//! With k the cost, t the caller's clock, x = (t - A) * R what flowed in since the anchor, and p = patience * R:
//!
//! | form      | update                   | condition                              | when                      |
//! |-----------|--------------------------|----------------------------------------|---------------------------|
//! | spend     | T = T - k                | A = :a and T between k - x - p and C - x | the bucket is not full    |
//! | full      | T = C - k, A = t         | A = :a and T > C - x                   | the bucket is full        |
//! | re-anchor | T = T + x - k, A = t     | as spend                               | A is more than 60 s old   |
//!
//! A spend is relative and conditional on the anchor alone, so concurrent callers do not invalidate each other. The upper
//! bound is what makes it exact: without it an idle bucket would pay out more than its capacity. x is rounded down in the
//! lower bound and up in the upper one, both against the caller. The bounds are two comparisons and not `BETWEEN`, which
//! DynamoDB refuses as invalid where the lower one is above the upper one: so it is for a call that costs the whole capacity.

use core::time::Duration;

use crate::amount::{Amount, Cost};
use crate::bucket::Bucket;
use crate::plan::{Factor, NEVER, Plan, Reason, Refusal, Take};
use crate::schema::{BLOCKED_UNTIL, LAST_REFILL_AT, TOKENS, VERSION};
use crate::statement::{Operand, Statement, Update, Values};
use crate::timestamp::Timestamp;

/// Age at which an anchor is moved. Older anchors are as exact; a young one keeps `tokens` near what people expect to read.
const ANCHOR_MAX_AGE: Duration = Duration::from_secs(60);

/// What a contended full write leaves below the brim is at most this part of the capacity.
const HEADROOM_SHARE: (u32, u32) = (1, 4);

const NAMES: &[(&str, &str)] = &[("#T", TOKENS), ("#A", LAST_REFILL_AT), ("#v", VERSION), ("#b", BLOCKED_UNTIL)];
const NAMES_UNBLOCKED: &[(&str, &str)] = &[("#T", TOKENS), ("#A", LAST_REFILL_AT), ("#v", VERSION)];

/// Interleavings that the condition stops: the bucket was re-anchored or its limits changed since the reading (A); others
/// spent what the reading showed (lower bound); it filled up meanwhile and would pay out more than C (upper bound); a
/// cool-down began (b).
static SPEND: Statement = Statement {
    update: "SET #T = #T - :k, #v = #v + :1",
    condition: "#A = :a AND #T >= :lo AND #T <= :hi AND (attribute_not_exists(#b) OR #b <= :now)",
    names: NAMES,
};

/// As [`SPEND`]; the level is C by the condition, so that it may be set without reading it.
static FULL: Statement = Statement {
    update: "SET #T = :T, #A = :t, #v = #v + :1",
    condition: "#A = :a AND #T > :hi AND (attribute_not_exists(#b) OR #b <= :now)",
    names: NAMES,
};

/// As [`SPEND`].
static REANCHOR: Statement = Statement {
    update: "SET #T = #T + :d, #A = :t, #v = #v + :1",
    condition: "#A = :a AND #T >= :lo AND #T <= :hi AND (attribute_not_exists(#b) OR #b <= :t)",
    names: NAMES,
};

/// Interleavings that the condition stops: after a full write by someone else the tokens have flowed back by themselves (A);
/// others booked starts behind this one, which they keep, and the next caller would be given a start that is taken (T is
/// neither as this grant left it, nor is the line above zero by now, where every start is past). A line that comes to stand
/// above the capacity is cut at the next spend, by its upper bound.
static GIVE_BACK: Statement = Statement {
    update: "SET #T = #T + :k, #v = #v + :1",
    condition: "#A = :a AND (#T = :left OR #T >= :zero)",
    names: &[("#T", TOKENS), ("#A", LAST_REFILL_AT), ("#v", VERSION)],
};

/// Interleaving that the condition stops: the bucket filled up or moved since the reading, and the refill that it has in
/// reserve would swallow the penalty.
static PENALIZE: Statement =
    Statement { update: "SET #T = #T - :k, #v = #v + :1", condition: "#A = :a AND #T <= :hi", names: NAMES_UNBLOCKED };

/// The penalty of a full bucket: its level is C by the condition.
static PENALIZE_FULL: Statement = Statement {
    update: "SET #T = :T, #A = :t, #v = #v + :1",
    condition: "#A = :a AND #T > :hi",
    names: NAMES_UNBLOCKED,
};

/// Which of the three writes takes the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Relative, on the anchor as it is.
    Spend,
    /// The bucket is full: a new anchor.
    Full,
    /// Relative, and moves an old anchor.
    Reanchor,
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
}

impl<'a> RatePlanner<'a> {
    /// Plans from `bucket`, as some reply showed it.
    #[must_use]
    pub const fn new(bucket: &'a Bucket) -> Self {
        Self { bucket, headroom: Duration::ZERO }
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
    /// reply alone ([`RateReceipt::start_at`]).
    #[must_use]
    pub fn plan(self, take: Take) -> Plan<Planned> {
        if let Some(answer) = self.answer_without_write(take) {
            return answer;
        }
        let ahead = self.bucket.limit().refill_rate().accrued_floor(span_micros(take.patience));
        Plan::Write(self.take(take, ahead))
    }

    /// As [`plan`](Self::plan), for a write whose reply does not show the row (a transaction): the condition itself holds the
    /// start that this reading promises, and fails where others spent in between.
    #[must_use]
    pub fn plan_pinned(self, take: Take) -> Plan<Planned> {
        if let Some(answer) = self.answer_without_write(take) {
            return answer;
        }
        let rate = self.bucket.limit().refill_rate();
        let start = self.reaches(take.cost).max(take.now);
        let anchor = self.bucket.anchor();
        let ahead =
            rate.accrued_floor(start.micros_since(anchor)).minus(rate.accrued_floor(take.now.micros_since(anchor)));
        Plan::Write(self.take(take, ahead))
    }

    /// A write that takes `take` if there is more than the reading says: what is sent where the reading refuses but is too old
    /// to be believed. A failed condition brings the row.
    #[must_use]
    pub fn probe(self, take: Take) -> Planned {
        let ahead = self.bucket.limit().refill_rate().accrued_floor(span_micros(take.patience));
        self.take(take, ahead)
    }

    /// The write that leaves `factor` of the present level, or `None` where there is no level to take from.
    #[must_use]
    pub fn penalize(self, factor: Factor, now: Timestamp) -> Option<Update> {
        let (kept, of) = factor.ratio();
        let brim = self.brim(now);
        if self.bucket.tokens() > brim {
            let left = self.bucket.limit().capacity().fraction(kept, of);
            let values = alloc::vec![
                (":T", Operand::number(left)),
                (":t", Operand::number(now.max(self.bucket.anchor()))),
                (":hi", Operand::number(brim))
            ];
            return Some(self.update(&PENALIZE_FULL, values));
        }
        let level = self.bucket.level(now);
        if level <= Amount::ZERO {
            return None;
        }
        let penalty = level.minus(level.fraction(kept, of));
        let values = alloc::vec![(":k", Operand::number(penalty)), (":hi", Operand::number(brim))];
        Some(self.update(&PENALIZE, values))
    }

    fn answer_without_write(self, take: Take) -> Option<Plan<Planned>> {
        let capacity = self.bucket.limit().capacity();
        if take.cost.amount() > capacity {
            return Some(Plan::NeverSatisfiable { capacity });
        }
        if let Some(wait) = self.bucket.cooling_down(take.now) {
            return Some(Plan::Refuse(Refusal { wait, reason: Reason::CoolingDown }));
        }
        let wait = self.wait(take);
        (wait > take.patience).then_some(Plan::Refuse(Refusal { wait, reason: Reason::Exhausted }))
    }

    /// How long until the level reaches the cost, rounded up.
    fn wait(self, take: Take) -> Duration {
        match self.bucket.reaches(take.cost.amount()) {
            Some(at) => at.since(take.now),
            None => NEVER,
        }
    }

    fn reaches(self, cost: Cost) -> Timestamp {
        self.bucket.reaches(cost.amount()).unwrap_or(Timestamp::from_micros(i64::MAX))
    }

    /// C - x, rounded down: the bucket is full where T is above it.
    fn brim(self, now: Timestamp) -> Amount {
        let limit = self.bucket.limit();
        limit.capacity().minus(limit.refill_rate().accrued_ceil(now.micros_since(self.bucket.anchor())))
    }

    /// Takes the cost where the level at `now` plus `ahead` covers it.
    fn take(self, take: Take, ahead: Amount) -> Planned {
        let brim = self.brim(take.now);
        if self.bucket.tokens() > brim {
            return self.take_full(take, brim);
        }
        let span = take.now.micros_since(self.bucket.anchor());
        let accrued = self.bucket.limit().refill_rate().accrued_floor(span);
        let lowest = take.cost.amount().minus(accrued).minus(ahead);
        let mut values = alloc::vec![(":lo", Operand::number(lowest)), (":hi", Operand::number(brim))];
        if span > span_micros(ANCHOR_MAX_AGE) {
            let step = accrued.minus(take.cost.amount());
            values.extend([(":d", Operand::number(step)), (":t", Operand::number(take.now))]);
            let after = self.bucket.moved(self.bucket.tokens().plus(step), take.now);
            Planned { update: self.update(&REANCHOR, values), form: Form::Reanchor, after }
        } else {
            values.extend([(":k", Operand::number(take.cost)), (":now", Operand::number(take.now))]);
            let after = self.bucket.after_taking(take.cost);
            Planned { update: self.update(&SPEND, values), form: Form::Spend, after }
        }
    }

    fn take_full(self, take: Take, brim: Amount) -> Planned {
        let left = self.bucket.limit().capacity().minus(take.cost.amount()).minus(self.room_below_brim(take.cost));
        // An anchor never moves back: a clock that lags would gain what lies between.
        let at = take.now.max(self.bucket.anchor());
        let values = alloc::vec![
            (":T", Operand::number(left)),
            (":t", Operand::number(at)),
            (":now", Operand::number(take.now)),
            (":hi", Operand::number(brim)),
        ];
        let after = self.bucket.moved(left, at);
        Planned { update: self.update(&FULL, values), form: Form::Full, after }
    }

    fn room_below_brim(self, cost: Cost) -> Amount {
        let limit = self.bucket.limit();
        let (part, of) = HEADROOM_SHARE;
        let room =
            limit.refill_rate().accrued_floor(span_micros(self.headroom)).min(limit.capacity().fraction(part, of));
        // Never so much that the grant itself would start later than now.
        room.min(limit.capacity().minus(cost.amount()))
    }

    fn update(self, statement: &'static Statement, mut values: Values) -> Update {
        values.extend([(":a", Operand::number(self.bucket.anchor_as_read())), (":1", Operand::number(1))]);
        Update { key: self.bucket.key(), statement, values }
    }
}

/// What a granted write left behind: when the grant starts, and what may be given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateReceipt {
    after: Bucket,
    cost: Cost,
}

impl RateReceipt {
    /// A grant of `cost` by a write after which the row was `after`.
    #[must_use]
    pub const fn new(after: Bucket, cost: Cost) -> Self {
        Self { after, cost }
    }

    /// When the level that the grant took is there: `granted_at`, or later where the start was booked.
    #[must_use]
    pub fn start_at(&self, granted_at: Timestamp) -> Timestamp {
        self.after.reaches(Amount::ZERO).map_or(granted_at, |there| there.max(granted_at))
    }

    /// The write that gives the tokens back unused, or `None` where they have flowed back by themselves.
    ///
    /// At most what keeps the line, as it stood right after the grant, at or below the capacity until `now`: tokens that
    /// would have run over the brim in the meantime are not there to be given back. A row that was re-anchored since is left
    /// alone, and so is one on which others have booked later starts: the gap is then for a caller who takes over this very
    /// start. What is lost refills.
    #[must_use]
    pub fn give_back(&self, now: Timestamp) -> Option<Update> {
        let planner = RatePlanner::new(&self.after);
        let brim = planner.brim(now);
        let unused = self.cost.amount().min(brim.minus(self.after.tokens()));
        if unused <= Amount::ZERO {
            return None;
        }
        let accrued = self.after.limit().refill_rate().accrued_floor(now.micros_since(self.after.anchor()));
        let values = alloc::vec![
            (":k", Operand::number(unused)),
            (":left", Operand::number(self.after.tokens())),
            (":zero", Operand::number(Amount::ZERO.minus(accrued))),
        ];
        Some(planner.update(&GIVE_BACK, values))
    }
}

fn span_micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}
