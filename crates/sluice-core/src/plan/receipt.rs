//! What a grant of tokens can show: when it starts, and what may be given back of it.

use alloc::sync::Arc;

use crate::amount::{Amount, Cost};
use crate::bucket::Bucket;
use crate::dimension::Dimension;
use crate::line::Line;
use crate::plan::rate::{RatePlanner, largest_booking};
use crate::schema::{LAST_REFILL_AT, LOTS, RETURNED, TOKENS, VERSION};
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::Timestamp;

const NAMES: &[(&str, &str)] =
    &[("#T", TOKENS), ("#A", LAST_REFILL_AT), ("#v", VERSION), ("#r", RETURNED), ("#o", LOTS)];
const GIVE_BACK: &str = "SET #T = #T + :k, #r = if_not_exists(#r, :0) + :k, #v = #v + :1";

/// The return of a start that is still to come. Interleavings that the condition stops: after a full write by someone else the
/// tokens have flowed back by themselves (A); others booked starts behind this one, which they keep, and the next caller would be
/// given a start that is taken (T is not as this grant left it, or it is so again after a return, r); a lot was taken since, which
/// may be used as far as there is room above the line that it left, and this would lift it (o).
static GIVE_BACK_TAIL: Statement = Statement::fixed(
    GIVE_BACK,
    "#A = :a AND #T = :left AND (attribute_not_exists(#r) OR #r <= :most) AND (attribute_not_exists(#o) OR #o = :o)",
    NAMES,
);

/// The return of tokens whose start is past. Interleavings that the condition stops: as above (A, o); others gave back meanwhile, so
/// that the line stands higher than this grant left it, and there is less room below the brim, now or when a start that is still
/// to come is used (r).
static GIVE_BACK_PAST: Statement = Statement::fixed(
    GIVE_BACK,
    "#A = :a AND (attribute_not_exists(#r) OR #r <= :most) AND (attribute_not_exists(#o) OR #o = :o)",
    NAMES,
);

/// The same where the bucket is too small to hold them beside a start that is still to come: there is none where the line is above
/// zero and nobody has given back since.
static GIVE_BACK_IDLE: Statement = Statement::fixed(
    GIVE_BACK,
    "#A = :a AND #T >= :zero AND (attribute_not_exists(#r) OR #r <= :most) AND (attribute_not_exists(#o) OR #o = :o)",
    NAMES,
);

/// What a granted write left behind, for one of the callers that it took tokens for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateReceipt {
    after: Arc<Bucket>,
    /// What the same write took for those that came later.
    behind: Amount,
    cost: Cost,
    row: Shown,
}

/// Where the row of a receipt is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    InReply,
    Foreseen,
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
        Self { after, behind, cost, row: Shown::InReply }
    }

    /// The same of a write whose reply does not show the row (a transaction): `after` is what it should be. Others may have spent
    /// since the reading that it was planned by, so that the line may be lower than it says.
    #[must_use]
    pub const fn foreseen(after: Arc<Bucket>, behind: Amount, cost: Cost) -> Self {
        Self { after, behind, cost, row: Shown::Foreseen }
    }

    /// Whether a reply showed the row as the take left it: else its line is an upper bound, or from before others took theirs.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        self.row == Shown::InReply
    }

    /// What was granted.
    #[must_use]
    pub const fn cost(&self) -> Cost {
        self.cost
    }

    /// The bucket that it is of.
    #[must_use]
    pub fn dimension(&self) -> &Dimension {
        self.after.dimension()
    }

    /// The tokens as this grant left them for those behind it.
    pub(crate) fn left(&self) -> Amount {
        self.after.tokens().plus(self.behind)
    }

    /// When the level that the grant took is there: `granted_at`, or later where the start was booked.
    #[must_use]
    pub fn start_at(&self, granted_at: Timestamp) -> Timestamp {
        let (zero, line) = (Amount::ZERO.minus(self.behind), self.after.line());
        if line.has(zero, granted_at) {
            return granted_at;
        }
        let there = line.reaches(zero);
        there.map_or(granted_at, |there| there.max(granted_at))
    }

    /// Whether it may be used at `now` by someone else than whom it was granted to: its start is still to come, or there is room
    /// for it below the brim all the same.
    #[must_use]
    pub fn may_be_used_late(&self, now: Timestamp) -> bool {
        self.start_at(now) > now || self.room(now) >= self.cost.amount()
    }

    /// The line right after the grant.
    pub(super) fn line(&self) -> Line {
        Line::new(self.left(), self.after.anchor(), self.after.limit().refill_rate())
    }

    /// What keeps the line, as it stood right after the grant, at or below the capacity until `now`: tokens that would have
    /// run over the brim in the meantime are not there to be used late, or to be given back.
    pub(crate) fn room(&self, now: Timestamp) -> Amount {
        RatePlanner::new(&self.after).brim(now).minus(self.left())
    }

    /// The write that gives the tokens back unused, or `None` where they have flowed back by themselves.
    ///
    /// At most what keeps the line, as it stood right after the grant, at or below the capacity until `now`. A row that was
    /// re-anchored since is left alone. So is one on which others have booked later starts, where this start is still to come:
    /// the gap is then for a caller who takes over this very start. What is lost refills.
    #[must_use]
    pub fn give_back(&self, now: Timestamp) -> Option<Update> {
        let room = self.room(now);
        let unused = self.cost.amount().min(room);
        if unused <= Amount::ZERO {
            return None;
        }
        let returned = self.after.returned();
        let mut values = alloc::vec![
            (":k", Operand::number(unused)),
            (":o", Operand::number(self.after.lots())),
            (":0", Operand::number(0)),
        ];
        let planner = RatePlanner::new(&self.after);
        let (statement, most) = if self.start_at(now) > now {
            values.push((":left", Operand::number(self.left())));
            (&GIVE_BACK_TAIL, returned)
        } else if unused <= self.room_beside_starts() {
            (&GIVE_BACK_PAST, self.most_returned(now).minus(unused))
        } else {
            values.push((":zero", Operand::number(Amount::ZERO.minus(planner.accrued(now)))));
            (&GIVE_BACK_IDLE, returned)
        };
        values.push((":most", Operand::number(most)));
        Some(planner.update(statement, values))
    }

    /// What the bucket may count as returned after a return of this grant's tokens.
    ///
    /// Two bounds on what was given back since. The line, as it stood right after the grant and lifted by all returns since, stays
    /// below the brim: what would have run over was not there to be given back. And with the level that the vendor sees, V = line +
    /// starts to come, no start p that is still to come finds V above the capacity: V < cost of p + what takes made before p gave
    /// back since, since what a take made after p gives back it took before. A larger p moves the anchor.
    pub(super) fn most_returned(&self, now: Timestamp) -> Amount {
        self.after.returned().plus(self.room(now).min(self.room_beside_starts()))
    }

    /// The capacity less the largest start that may still be to come.
    fn room_beside_starts(&self) -> Amount {
        self.after.limit().capacity().minus(largest_booking(&self.after))
    }

    /// Whether `bucket`, as some reply showed it, is on the line of this grant, so that a return may count on it.
    pub(super) fn is_on_line(&self, bucket: &Bucket) -> bool {
        bucket.anchor() == self.after.anchor() && bucket.lots() == self.after.lots()
    }

    /// The number of the write that took it, among all writes of the bucket.
    pub(super) fn version(&self) -> i64 {
        self.after.version()
    }

    /// The bucket as the write left it.
    pub(crate) fn after(&self) -> &Bucket {
        &self.after
    }
}
