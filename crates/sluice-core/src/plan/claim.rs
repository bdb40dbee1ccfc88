//! What one caller claims of a rate bucket, and whether the tokens are there.

use core::time::Duration;

use crate::amount::{Amount, Cost};
use crate::bucket::Bucket;
use crate::line::Line;
use crate::plan::{NEVER, Plan, Reason, Refusal};
use crate::timestamp::Timestamp;

/// One caller of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Tokens.
    pub cost: Cost,
    /// How far ahead the caller is willing to book a start. With zero, only tokens that are there already are
    /// taken.
    pub patience: Duration,
}

/// Whether the tokens of `line` up to `upto`, of which `claim` takes the last, are there within the patience
/// of `claim`.
pub(super) fn judge(bucket: &Bucket, line: Line, claim: Claim, upto: Amount, now: Timestamp) -> Plan<Amount> {
    let capacity = bucket.limit().capacity();
    if claim.cost.amount() > capacity {
        return Plan::NeverSatisfiable { capacity };
    }
    if let Some(wait) = bucket.cooling_down(now) {
        return Plan::Refuse(Refusal { wait, reason: Reason::CoolingDown });
    }
    if line.has(upto, now) {
        return Plan::Write(upto);
    }
    let wait = line.reaches(upto).map_or(NEVER, |at| at.since(now));
    if wait > claim.patience {
        return Plan::Refuse(Refusal { wait, reason: Reason::Exhausted });
    }
    Plan::Write(upto)
}
