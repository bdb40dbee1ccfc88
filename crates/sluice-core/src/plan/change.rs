//! A change of a bucket's limits: how its row changes when its vendor allows more or less.

use alloc::borrow::Cow;
use core::time::Duration;

use crate::bucket::Bucket;
use crate::limit::{InvalidLimit, Limit, LimitType};
use crate::schema::{
    CAPACITY, CHANGES_TO, COST_PER_CALL, COUNTED, LAST_REFILL_AT, LIMIT_TYPE, REFILL_RATE, SHARES, TOKENS,
    VERSION,
};
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::Timestamp;

/// Interleaving that the condition stops: another change of limits, or a caller's re-anchor, lands between
/// the read and this write. The relative step would then be taken from another line.
///
/// A spend in between is harmless and must not make the write fail, so the condition does not compare the
/// version.
static CHANGE_RATE: Statement = Statement::fixed(
    "SET #tokens = #tokens + :step, #last_refill_at = :anchor, #capacity = :capacity, #refill_rate = :refill_rate, \
     #cost_per_call = :cost_per_call, #limit_type = :limit_type, #version = #version + :1",
    "#last_refill_at = :read_anchor AND #refill_rate = :read_refill_rate AND #capacity = :read_capacity \
     AND #tokens <= :brim",
    CHANGE_NAMES,
);

/// The same for a full bucket: the level is the capacity, whatever the line says.
static CHANGE_RATE_FULL: Statement = Statement::fixed(
    "SET #tokens = :tokens, #last_refill_at = :anchor, #capacity = :capacity, #refill_rate = :refill_rate, \
     #cost_per_call = :cost_per_call, #limit_type = :limit_type, #version = #version + :1",
    "#last_refill_at = :read_anchor AND #refill_rate = :read_refill_rate AND #capacity = :read_capacity \
     AND #tokens > :brim",
    CHANGE_NAMES,
);

const CHANGE_NAMES: &[&str] =
    &[TOKENS, LAST_REFILL_AT, CAPACITY, REFILL_RATE, COST_PER_CALL, LIMIT_TYPE, VERSION];

/// A concurrency bucket, or the row of a share, gains or loses slots.
pub(super) const RESIZES: &str = "SET #tokens = #tokens + :step, #capacity = :capacity, \
     #cost_per_call = :cost_per_call, #version = #version + :1, #counted = if_not_exists(#counted, :0) + :1";

/// Interleavings that the condition stops:
/// - `capacity`: two resizes planned from one reading would add the difference twice.
/// - `limit_type`: since the reading, the bucket was removed and recreated as a rate bucket of the same
///   capacity, and would gain tokens.
static RESIZE: Statement = Statement::fixed(
    RESIZES,
    "#limit_type = :concurrent AND #capacity = :read_capacity",
    &[TOKENS, CAPACITY, COST_PER_CALL, VERSION, COUNTED, LIMIT_TYPE],
);

/// The same of a row without shares.
///
/// Interleaving that the condition stops as well: an operator has declared shares since the reading, or
/// is still removing them, and the row would get slots that a share has.
static RESIZE_ALONE: Statement = Statement::fixed(
    RESIZES,
    "#limit_type = :concurrent AND #capacity = :read_capacity AND attribute_not_exists(#shares) \
     AND attribute_not_exists(#changes_to)",
    &[TOKENS, CAPACITY, COST_PER_CALL, VERSION, COUNTED, LIMIT_TYPE, SHARES, CHANGES_TO],
);

/// A change of a bucket's limits that keeps its level.
pub struct Change;

impl Change {
    /// The write that gives `bucket` the limits `to` at `now`. A rate bucket keeps the level that it has
    /// reached at the old rate (re-anchored, relative). A concurrency bucket gains or loses free slots, and
    /// may go below zero until holders release.
    ///
    /// # Errors
    /// [`InvalidLimit::KindChange`] between rate and concurrency.
    pub fn plan(bucket: &Bucket, to: &Limit, now: Timestamp) -> Result<Update, InvalidLimit> {
        let from = bucket.limit();
        if from.is_concurrent() != to.is_concurrent() {
            return Err(InvalidLimit::KindChange { from: from.limit_type(), to: to.limit_type() });
        }
        Ok(if to.is_concurrent() { Self::resize(bucket, to) } else { Self::rate(bucket, to, now) })
    }

    /// The write that gives a concurrency bucket the limit `to`.
    pub(super) fn resize(bucket: &Bucket, to: &Limit) -> Update {
        Update {
            key: bucket.key(),
            statement: Cow::Borrowed(if bucket.has_slot_shares() { &RESIZE } else { &RESIZE_ALONE }),
            values: alloc::vec![
                (":step", Operand::number(to.capacity().minus(bucket.limit().capacity()))),
                (":capacity", Operand::number(to.capacity())),
                (":cost_per_call", Operand::number(to.cost_per_call())),
                (":read_capacity", Operand::number(bucket.capacity_as_read())),
                (":concurrent", Operand::text(LimitType::Concurrent)),
                (":0", Operand::number(0)),
                (":1", Operand::number(1)),
            ],
        }
    }

    fn rate(bucket: &Bucket, to: &Limit, now: Timestamp) -> Update {
        let from = bucket.limit();
        // The anchor must move, so that a write planned before this change cannot pass after it.
        let at = now.max(bucket.anchor().after(Duration::from_micros(1)));
        let line = bucket.line();
        let brim = from.capacity().minus(line.accrued_ceil(at));
        let full = bucket.tokens() > brim;
        let tokens = if full {
            (":tokens", Operand::number(from.capacity()))
        } else {
            (":step", Operand::number(line.accrued_floor(at)))
        };
        Update {
            key: bucket.key(),
            statement: Cow::Borrowed(if full { &CHANGE_RATE_FULL } else { &CHANGE_RATE }),
            values: alloc::vec![
                tokens,
                (":anchor", Operand::number(at)),
                (":capacity", Operand::number(to.capacity())),
                (":refill_rate", Operand::number(to.refill_rate())),
                (":cost_per_call", Operand::number(to.cost_per_call())),
                (":limit_type", Operand::text(to.limit_type())),
                (":read_anchor", Operand::number(bucket.anchor_as_read())),
                (":read_refill_rate", Operand::number(bucket.rate_as_read())),
                (":read_capacity", Operand::number(bucket.capacity_as_read())),
                (":brim", Operand::number(brim)),
                (":1", Operand::number(1)),
            ],
        }
    }
}
