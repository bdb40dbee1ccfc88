//! What was in use for sure while a slot was taken: all that had been answered before its caller asked, and
//! was given back after it had its answer.

use crate::live;
use crate::log::{Entry, Errors};

/// For each grant the sum of the costs of others whose certain lives cover its own request.
pub(super) fn amounts(grants: &[&Entry], errors: Errors) -> Vec<i128> {
    let mut ends: Vec<i64> = grants.iter().map(|grant| live::end(grant, errors)).collect();
    ends.sort_unstable();
    let rank = |end: i64| ends.partition_point(|other| *other < end);
    let not_over = |at: i64| grants.len() - ends.partition_point(|end| *end <= at);
    let mut by_begin: Vec<usize> = (0..grants.len()).collect();
    by_begin.sort_by_key(|n| grants[*n].granted_at);
    let mut by_asking: Vec<usize> = (0..grants.len()).collect();
    by_asking.sort_by_key(|n| grants[*n].asked_at);
    // The costs of those that have begun, by the rank of their ends, as a tree of partial sums from above.
    let mut sums = vec![0_i128; grants.len() + 1];
    let (mut begun, mut amounts) = (by_begin.into_iter().peekable(), vec![0; grants.len()]);
    for n in by_asking {
        let asked_at = grants[n].asked_at.saturating_sub(errors.stamp);
        let has_begun = |other: &usize| grants[*other].granted_at.saturating_add(errors.stamp) < asked_at;
        while let Some(other) = begun.next_if(has_begun) {
            let mut at = grants.len() - rank(live::end(grants[other], errors));
            while at < sums.len() {
                sums[at] += i128::from(grants[other].cost);
                at += at & at.wrapping_neg();
            }
        }
        let mut at = not_over(grants[n].granted_at.saturating_add(errors.stamp));
        while at > 0 {
            amounts[n] += sums[at];
            at &= at - 1;
        }
    }
    amounts
}
