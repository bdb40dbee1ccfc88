//! Decides one bucket: every promise of its kind.

use crate::event::Kind;
use crate::log::{BucketLog, Errors};
use crate::timeline::Timeline;
use crate::verdict::{BucketFigures, Violation};
use crate::{busiest, guarantee, lines, live, order};

/// Returns the figures of the bucket, and which promises were broken.
pub(crate) fn bucket(
    name: &str,
    kind: Kind,
    log: &mut BucketLog,
    errors: Errors,
) -> (BucketFigures, Vec<Violation>) {
    let timeline = Timeline::new(&log.limits, &log.grants, errors);
    let used = log.grants.iter().filter(|grant| !grant.unused);
    let mut figures = BucketFigures {
        dimension: name.to_owned(),
        kind,
        grants: log.grants.len() as u64,
        unused: log.grants.iter().filter(|grant| grant.unused).count() as u64,
        granted: used.map(|grant| i128::from(grant.used)).sum(),
        busiest: None,
        peak: None,
        shares: Vec::new(),
    };
    let mut violations = Vec::new();
    if kind.is_concurrent() {
        let (peak, exceeded) = live::check(&log.grants, &timeline, errors);
        figures.peak = peak;
        let violation = |window| Violation::ConcurrencyExceeded { dimension: name.to_owned(), window };
        violations.extend(exceeded.into_iter().map(violation));
        if log.has_shares() {
            violations.extend(lines::check_slots(name, log, errors));
            let (shares, broken) = guarantee::slots::check(name, log, errors);
            figures.shares = shares;
            violations.extend(broken);
        }
    } else {
        let (busiest, exceeded) = busiest::check(&log.grants, &timeline, errors);
        figures.busiest = busiest;
        let violation = |window| Violation::RateExceeded { dimension: name.to_owned(), window };
        violations.extend(exceeded.into_iter().map(violation));
        if log.has_shares() {
            violations.extend(lines::check(name, log, errors));
            let (shares, missed) = guarantee::check(name, log, errors);
            figures.shares = shares;
            violations.extend(missed);
        } else {
            violations.extend(order::check(name, log, errors));
        }
    }
    (figures, violations)
}
