//! What a caller asks of a bucket, and the answers of a planner.

use core::time::Duration;

use crate::amount::{Amount, Cost};
use crate::timestamp::Timestamp;

pub(crate) mod batch;
pub(crate) mod change;
pub(crate) mod claim;
pub(crate) mod cool_down;
pub(crate) mod future_anchor;
pub(crate) mod inline;
pub(crate) mod lines;
pub(crate) mod lower;
pub(crate) mod nearness;
pub(crate) mod observe;
pub(crate) mod order;
pub(crate) mod rate;
pub(crate) mod receipt;
pub(crate) mod refill;
pub(crate) mod settle;
pub(crate) mod slot_rows;
pub(crate) mod slots;
pub(crate) mod split;

/// The wait of a refusal that time alone never ends.
pub const NEVER: Duration = Duration::MAX;

/// What a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take {
    /// Tokens or slots.
    pub cost: Cost,
    /// The time by the caller's clock.
    pub now: Timestamp,
    /// How far ahead the caller is willing to book a start. With zero, only tokens that are there already are
    /// taken.
    pub patience: Duration,
}

/// What a planner does with an anchor that lies further in the future than the errors of two clocks explain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FutureAnchor {
    /// The anchor stays: the time that the plan is made with may itself be wrong.
    #[default]
    Keep,
    /// A caller that finds too few tokens before the anchor moves the anchor back. Only for a time that is
    /// known to be DynamoDB's.
    Repair,
}

/// What to do for a caller, according to one reading of the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan<W> {
    /// Send this write. Its condition checks whether the reading still holds.
    Write(W),
    /// Not granted now.
    Refuse(Refusal),
    /// The cost is above the capacity: waiting never helps.
    NeverSatisfiable {
        /// The bucket's capacity.
        capacity: Amount,
    },
}

/// Not granted now, and how long to wait before another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Measured from the caller's `now`, rounded up to the microsecond. Exact for a rate bucket. A guess for
    /// a full concurrency bucket, where only a release ends the wait.
    pub wait: Duration,
    /// Why the bucket refuses.
    pub reason: Reason,
}

/// Why a bucket refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// A rate bucket has fewer tokens than the call takes.
    Exhausted,
    /// Every slot of a concurrency bucket is held.
    NoFreeSlot,
    /// The vendor asked for a pause, and the bucket's `blocked_until` is still to come.
    CoolingDown,
}
