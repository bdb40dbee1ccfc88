//! The receipt of a grant of tokens: when the grant starts, and what of it may be given back.

use alloc::sync::Arc;

use crate::amount::{Amount, Cost};
use crate::bucket::Bucket;
use crate::dimension::Dimension;
use crate::limit::LimitType;
use crate::line::Line;
use crate::plan::rate::{RatePlanner, largest_booking};
use crate::schema::{LAST_REFILL_AT, LOTS, RETURNED, TOKENS, VERSION};
use crate::share::ShareName;
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::Timestamp;

const NAMES: &[&str] = &[TOKENS, LAST_REFILL_AT, VERSION, RETURNED, LOTS];
const GIVE_BACK: &str = "SET #tokens = #tokens + :unused, #returned = if_not_exists(#returned, :0) + :unused, #version = #version + :1";

/// The return of a start that is still to come.
///
/// Interleavings that the condition stops:
/// - `last_refill_at`: after a full write by someone else, the tokens have flowed back by themselves.
/// - `tokens`, `returned`: others booked starts behind this one and keep them, and the next caller would be
///   given a start that is taken. The condition fails because `tokens` is not as this grant left it, or
///   because `tokens` is so again after a return (`returned`).
/// - `lots`: a lot was taken since. The lot may be used as far as there is room above the line that it left,
///   and this return would lift that line.
static GIVE_BACK_TAIL: Statement = Statement::fixed(
    GIVE_BACK,
    "#last_refill_at = :read_anchor AND #tokens = :left \
     AND (attribute_not_exists(#returned) OR #returned <= :most_returned) \
     AND (attribute_not_exists(#lots) OR #lots = :read_lots)",
    NAMES,
);

/// The return of tokens whose start is past.
///
/// Interleavings that the condition stops:
/// - `last_refill_at`, `lots`: as above.
/// - `returned`: others gave back in the meantime. The line is then higher than this grant left it, and there
///   is less room below the brim, now or when a start that is still to come is used.
static GIVE_BACK_PAST: Statement = Statement::fixed(
    GIVE_BACK,
    "#last_refill_at = :read_anchor AND (attribute_not_exists(#returned) OR #returned <= :most_returned) \
     AND (attribute_not_exists(#lots) OR #lots = :read_lots)",
    NAMES,
);

/// The same, if the bucket is too small to hold the tokens beside a start that is still to come. There is no
/// such start if the line is at zero or above, and nobody has given back since.
static GIVE_BACK_IDLE: Statement = Statement::fixed(
    GIVE_BACK,
    "#last_refill_at = :read_anchor AND #tokens >= :empty \
     AND (attribute_not_exists(#returned) OR #returned <= :most_returned) \
     AND (attribute_not_exists(#lots) OR #lots = :read_lots)",
    NAMES,
);

/// What a granted write left behind, for one of the callers that the write took tokens for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateReceipt {
    after: Arc<Bucket>,
    /// What the same write took for callers behind this one.
    behind: Amount,
    cost: Cost,
    row: Shown,
}

/// Where the row of a receipt comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    InReply,
    Foreseen,
}

impl RateReceipt {
    /// A grant of `cost` by a write for this caller alone. `after` is the row after the write.
    #[must_use]
    pub fn new(after: Bucket, cost: Cost) -> Self {
        Self::in_batch(Arc::new(after), Amount::ZERO, cost)
    }

    /// A grant of `cost` by a write for several callers. `after` is the row after the write, and `behind` is
    /// what the write took for callers behind this one.
    #[must_use]
    pub const fn in_batch(after: Arc<Bucket>, behind: Amount, cost: Cost) -> Self {
        Self { after, behind, cost, row: Shown::InReply }
    }

    /// The same for a write whose reply does not show the row (a transaction): `after` is what the row should
    /// be. Others may have spent since the reading that the write was planned from, so the line may be lower
    /// than `after` says.
    #[must_use]
    pub const fn foreseen(after: Arc<Bucket>, behind: Amount, cost: Cost) -> Self {
        Self { after, behind, cost, row: Shown::Foreseen }
    }

    /// Whether a reply showed the row as the take left it. If not, the line of the receipt is an upper bound,
    /// or is from before others took their tokens.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        self.row == Shown::InReply
    }

    /// What was granted.
    #[must_use]
    pub const fn cost(&self) -> Cost {
        self.cost
    }

    /// The bucket that the tokens are of.
    #[must_use]
    pub fn dimension(&self) -> &Dimension {
        self.after.dimension()
    }

    /// The share of the bucket that the tokens are of; `None` for the common line.
    #[must_use]
    pub fn share(&self) -> Option<&ShareName> {
        self.after.share()
    }

    /// What the bucket limits.
    #[must_use]
    pub fn limit_type(&self) -> LimitType {
        self.after.limit().limit_type()
    }

    /// The tokens as this grant left them for callers behind it.
    pub(crate) fn left(&self) -> Amount {
        self.after.tokens().plus(self.behind)
    }

    /// When the level that the grant took is there: `granted_at`, or later if the start was booked.
    #[must_use]
    pub fn start_at(&self, granted_at: Timestamp) -> Timestamp {
        let (zero, line) = (Amount::ZERO.minus(self.behind), self.after.line());
        if line.has(zero, granted_at) {
            return granted_at;
        }
        let there = line.reaches(zero);
        there.map_or(granted_at, |there| there.max(granted_at))
    }

    /// Whether somebody else than the caller it was granted to may use the grant at `now`: its start is still
    /// to come, or there is still room for it below the brim.
    #[must_use]
    pub fn may_be_used_late(&self, now: Timestamp) -> bool {
        self.start_at(now) > now || self.room(now) >= self.cost.amount()
    }

    /// The line right after the grant.
    pub(super) fn line(&self) -> Line {
        Line::new(self.left(), self.after.anchor(), self.after.limit().refill_rate())
    }

    /// The room that keeps the line, as it stood right after the grant, at or below the capacity until `now`.
    /// Tokens that would have overflowed in the meantime can neither be used late nor be given back.
    pub(crate) fn room(&self, now: Timestamp) -> Amount {
        RatePlanner::new(&self.after).brim(now).minus(self.left())
    }

    /// The write that gives the tokens back unused, or `None` if they have flowed back by themselves.
    ///
    /// The write gives back at most what keeps the line, as it stood right after the grant, at or below the
    /// capacity until `now`. It leaves alone a row that was re-anchored since. If this start is still to
    /// come, it also leaves alone a row on which others have booked later starts: the gap is then for a
    /// caller that takes over this very start. What is lost refills.
    #[must_use]
    pub fn give_back(&self, now: Timestamp) -> Option<Update> {
        let room = self.room(now);
        let unused = self.cost.amount().min(room);
        if unused <= Amount::ZERO {
            return None;
        }
        let returned = self.after.returned();
        let mut values = alloc::vec![
            (":unused", Operand::number(unused)),
            (":read_lots", Operand::number(self.after.lots())),
            (":0", Operand::number(0)),
        ];
        let planner = RatePlanner::new(&self.after);
        let (statement, most) = if self.start_at(now) > now {
            values.push((":left", Operand::number(self.left())));
            (&GIVE_BACK_TAIL, returned)
        } else if unused <= self.room_beside_starts() {
            (&GIVE_BACK_PAST, self.most_returned(now).minus(unused))
        } else {
            values.push((":empty", Operand::number(Amount::ZERO.minus(planner.accrued(now)))));
            (&GIVE_BACK_IDLE, returned)
        };
        values.push((":most_returned", Operand::number(most)));
        Some(planner.update(statement, values))
    }

    /// The most that the bucket may count as returned after a return of this grant's tokens.
    ///
    /// Two bounds apply to what was given back since the grant:
    ///
    /// - The line, as it stood right after the grant and lifted by all returns since, stays below the brim.
    ///   What would have run over was not there to be given back.
    /// - Let V be the level that the vendor sees: V = line + starts to come. No start p that is still to come
    ///   finds V above the capacity. V < cost of p + what takes made before p gave back since, because a take
    ///   made after p gives back only what it took before. A larger p moves the anchor.
    pub(super) fn most_returned(&self, now: Timestamp) -> Amount {
        self.after.returned().plus(self.room(now).min(self.room_beside_starts()))
    }

    /// The capacity less the largest start that may still be to come.
    fn room_beside_starts(&self) -> Amount {
        self.after.limit().capacity().minus(largest_booking(&self.after))
    }

    /// Whether `bucket`, as some reply showed it, is on the line of this grant, so that a return may rely on
    /// it.
    pub(super) fn is_on_line(&self, bucket: &Bucket) -> bool {
        bucket.share() == self.after.share()
            && bucket.anchor() == self.after.anchor()
            && bucket.lots() == self.after.lots()
    }

    /// The number of the write that took the tokens, among all writes of the bucket.
    pub(super) fn version(&self) -> i64 {
        self.after.version()
    }

    /// Whether the bucket has shares.
    #[must_use]
    pub fn has_shares(&self) -> bool {
        self.after.has_shares()
    }

    /// The bucket as the write left it.
    pub(crate) fn after(&self) -> &Bucket {
        &self.after
    }
}
