//! What one caller claims of a rate bucket, and whether the tokens are there.

use core::time::Duration;

use crate::amount::{Amount, Cost};
use crate::bucket::Bucket;
use crate::line::Line;
use crate::plan::{NEVER, Plan, Reason, Refusal};
use crate::timestamp::Timestamp;

const MICROSECOND: Duration = Duration::from_micros(1);

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
/// of `claim`, also if others who go first delay them by `way`. When the line is full they are there: what it
/// lets others have would run over.
pub(super) fn judge(
    bucket: &Bucket,
    (line, way): (Line, Duration),
    claim: Claim,
    upto: Amount,
    now: Timestamp,
) -> Plan<Amount> {
    let limit = bucket.limit();
    let capacity = limit.capacity();
    if claim.cost.amount() > capacity {
        return Plan::NeverSatisfiable { capacity };
    }
    if let Some(wait) = bucket.cooling_down(now) {
        return Plan::Refuse(Refusal { wait, reason: Reason::CoolingDown });
    }
    if way.is_zero() && line.has(upto, now) {
        return Plan::Write(upto);
    }
    let until_full = || limit.refill_rate().time_for(capacity.minus(upto)).unwrap_or(Duration::MAX);
    let way = if way.is_zero() { way } else { way.min(until_full().saturating_sub(MICROSECOND)) };
    let wait = line.reaches(upto).map_or(NEVER, |at| at.after(way).since(now));
    if wait > claim.patience {
        return Plan::Refuse(Refusal { wait, reason: Reason::Exhausted });
    }
    Plan::Write(upto)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dimension::Dimension;
    use crate::limit::{Limit, LimitType};
    use crate::rate::Rate;
    use crate::{RatePlanner, Starts};

    const START: Timestamp = Timestamp::from_secs(1_800_000_000);

    /// Ten tokens, one each 100 ms, all taken at the start.
    fn empty() -> Bucket {
        let (capacity, rate) =
            (Amount::from_tokens(10), Rate::per(Amount::from_tokens(10), secs(1)).unwrap());
        let limit = Limit::rate(LimitType::Requests, capacity, rate, Cost::ONE).unwrap();
        Bucket::full(Dimension::new("openai#rpm").unwrap(), limit, START).less(capacity)
    }

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// The wait of the refusal, if the claim is refused: the same alone and in a batch.
    fn refused(bucket: &Bucket, way: Duration, patience: Duration, after: Duration) -> Option<Duration> {
        let (planner, now) = (RatePlanner::new(bucket).giving_way(way), START.after(after));
        let claim = Claim { cost: Cost::ONE, patience };
        let batch = planner.plan_batch(&[claim], now, Starts::InReply, Amount::ZERO);
        let alone = planner.refusal(claim, now).map(|refusal| refusal.wait);
        let in_batch = match batch.answers[0] {
            Plan::Refuse(refusal) => Some(refusal.wait),
            _ => None,
        };
        assert_eq!(alone, in_batch);
        alone
    }

    #[test]
    fn others_go_first_for_callers_that_wait_and_for_those_that_do_not() {
        let bucket = empty();
        let at = |way, patience, after| refused(&bucket, millis(way), millis(patience), millis(after));
        assert_eq!(at(0, 0, 100), None);
        assert_eq!(at(30, 0, 100), Some(millis(30)));
        assert_eq!(at(30, 0, 130), None);
        assert_eq!(at(0, 40, 60), None, "booked: the start is in 40 ms");
        assert_eq!(at(30, 40, 60), Some(millis(70)));
        assert_eq!(at(30, 40, 90), None);
        assert_eq!(at(30, 5_000, 0), None, "nobody comes between a caller with patience and its start");
    }

    /// What a full line lets others have runs over.
    #[test]
    fn a_full_line_has_the_tokens_however_long_others_go_first() {
        let bucket = empty();
        for after in [999, 1_000, 1_001, 90_000] {
            let refused = refused(&bucket, secs(60), Duration::ZERO, millis(after));
            assert_eq!(refused.is_none(), after >= 1_000, "{after} ms: {refused:?}");
        }
    }
}
