//! What a grant of tokens can show: when it starts, and what may be given back of it.

use alloc::sync::Arc;

use crate::amount::{Amount, Cost};
use crate::bucket::Bucket;
use crate::plan::rate::RatePlanner;
use crate::schema::{LAST_REFILL_AT, LOTS, RETURNED, TOKENS, VERSION};
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::Timestamp;

/// Interleavings that the condition stops: after a full write by someone else the tokens have flowed back by themselves (A);
/// others booked starts behind this one, which they keep, and the next caller would be given a start that is taken (T is
/// neither as this grant left it, nor is the line above zero by now, where every start is past); others gave back meanwhile, so
/// that the line stands higher than this grant left it, and there is less room below the brim (r); a lot was taken since, which
/// may be used as far as there is room above the line that it left, and this would lift it (o).
static GIVE_BACK: Statement = Statement::fixed(
    "SET #T = #T + :k, #r = if_not_exists(#r, :0) + :k, #v = #v + :1",
    "#A = :a AND (#T = :left OR #T >= :zero) AND (attribute_not_exists(#r) OR #r <= :most) AND (attribute_not_exists(#o) OR #o = :o)",
    &[("#T", TOKENS), ("#A", LAST_REFILL_AT), ("#v", VERSION), ("#r", RETURNED), ("#o", LOTS)],
);

/// What a granted write left behind, for one of the callers that it took tokens for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateReceipt {
    after: Arc<Bucket>,
    /// What the same write took for those that came later.
    behind: Amount,
    cost: Cost,
}

impl RateReceipt {
    /// A grant of `cost` by a write for it alone, after which the row was `after`.
    #[must_use]
    pub fn new(after: Bucket, cost: Cost) -> Self {
        Self::in_batch(Arc::new(after), Amount::ZERO, cost)
    }

    /// A grant of `cost` by a write for several, which took `behind` for those that came later.
    #[must_use]
    pub const fn in_batch(after: Arc<Bucket>, behind: Amount, cost: Cost) -> Self {
        Self { after, behind, cost }
    }

    /// What was granted.
    #[must_use]
    pub const fn cost(&self) -> Cost {
        self.cost
    }

    /// The tokens as this grant left them for those behind it.
    fn left(&self) -> Amount {
        self.after.tokens().plus(self.behind)
    }

    /// When the level that the grant took is there: `granted_at`, or later where the start was booked.
    #[must_use]
    pub fn start_at(&self, granted_at: Timestamp) -> Timestamp {
        let zero = Amount::ZERO.minus(self.behind);
        if self.after.has(zero, granted_at) {
            return granted_at;
        }
        let there = self.after.reaches(zero);
        there.map_or(granted_at, |there| there.max(granted_at))
    }

    /// Whether it may be used at `now` by someone else than whom it was granted to: its start is still to come, or there is room
    /// for it below the brim all the same.
    #[must_use]
    pub fn may_be_used_late(&self, now: Timestamp) -> bool {
        self.start_at(now) > now || self.room(now) >= self.cost.amount()
    }

    /// What keeps the line, as it stood right after the grant, at or below the capacity until `now`: tokens that would have
    /// run over the brim in the meantime are not there to be used late, or to be given back.
    pub(crate) fn room(&self, now: Timestamp) -> Amount {
        RatePlanner::new(&self.after).brim(now).minus(self.left())
    }

    /// The write that gives the tokens back unused, or `None` where they have flowed back by themselves.
    ///
    /// At most what keeps the line, as it stood right after the grant, at or below the capacity until `now`. A row that was
    /// re-anchored since is left alone, and so is one on which others have booked later starts: the gap is then for a caller
    /// who takes over this very start. What is lost refills.
    #[must_use]
    pub fn give_back(&self, now: Timestamp) -> Option<Update> {
        let planner = RatePlanner::new(&self.after);
        let room = self.room(now);
        let unused = self.cost.amount().min(room);
        if unused <= Amount::ZERO {
            return None;
        }
        let values = alloc::vec![
            (":k", Operand::number(unused)),
            (":left", Operand::number(self.left())),
            (":zero", Operand::number(Amount::ZERO.minus(planner.accrued(now)))),
            (":most", Operand::number(self.after.returned().plus(room.minus(unused)))),
            (":o", Operand::number(self.after.lots())),
            (":0", Operand::number(0)),
        ];
        Some(planner.update(&GIVE_BACK, values))
    }
}
