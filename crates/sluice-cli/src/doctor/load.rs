//! Findings from what sweeps wrote: slots that are held while nobody is active, expired holders, and whether
//! sweeps run.

use std::time::Duration;

use sluice_ops::Survey;
use sluice_sdk::core::{Amount, Bucket, LEAKED_AFTER, Load, Timestamp};

use super::Place;
use super::finding::{Check, Finding};
use crate::duration::took;
use crate::output;

/// Three runs of the five-minute rule; the alarm `no-sweep` waits for the same time.
const NO_SWEEP: Duration = Duration::from_secs(15 * 60);

/// What to do about missing sweeps if there is no reconciler.
pub(super) const SANDBOX_IS_NOT_SWEPT: &str =
    "nothing sweeps a sandbox by itself: run `sluice reconcile --interval 10s`";

/// Every finding about one bucket's load.
pub(super) fn of_load(load: &Load) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = load.dimension();
    if load.leaked() > Amount::ZERO {
        let minutes = LEAKED_AFTER.as_secs() / 60;
        let what = format!(
            "{} slots are taken, and for {minutes} minutes nothing was granted or given back",
            load.leaked()
        );
        let todo = "first see in `sluice leases` who holds them: a single call that streams for longer looks the same, but is no leak; end \
                    holders that hang, or give them a timeout (slot()); two sweeps recount slots without a lease and give them \
                    back";
        findings.push(Finding::problem(Check::Load, name, what, todo));
    }
    if load.expired_holders() > 0 {
        let what = format!(
            "{} holders outlived their leases so far: the vendor may have had more calls at once than the limit",
            load.expired_holders()
        );
        let todo = "give them longer leases (SLUICE_LEASE_TTL), or let them run in slot(), which renews; nothing, if the number no longer rises";
        findings.push(Finding::note(Check::Load, name, what, todo));
    }
    findings
}

/// Whether sweeps run, by the log of the last sweeps. Concurrency buckets need sweeps.
pub(super) fn of_sweeps(survey: &Survey, table: &str, place: Place, now: Timestamp) -> Option<Finding> {
    let slots = |bucket: &Bucket| bucket.limit().is_concurrent();
    let has_slots = survey.buckets.iter().filter_map(|row| row.bucket.as_ref().ok()).any(slots);
    let todo = match place.is_sandbox {
        true => SANDBOX_IS_NOT_SWEPT,
        false => {
            "check that the reconciler runs: its rule, its errors, its alarms; meanwhile `sluice reconcile --once` does its work"
        }
    };
    let Some(last) = survey.sweeps.until(now).next() else {
        let what =
            "no sweep is on record: what crashed callers held comes back only if a refused caller finds it";
        // The row may be in the part of the table that was not read.
        return (has_slots && survey.is_whole).then(|| Finding::note(Check::Sweeps, table, what, todo));
    };
    let when = output::relative(last.at, now);
    if now.since(last.at) > NO_SWEEP && has_slots {
        let what = format!(
            "the last sweep was {when}: what crashed callers held comes back only if a refused caller finds it"
        );
        return Some(Finding::problem(Check::Sweeps, table, what, todo).at_most_a_note_if(place.is_sandbox));
    }
    Some(Finding::fine(
        Check::Sweeps,
        table,
        format!("the last sweep was {when}, and took {}", took(last.duration.as_secs_f64())),
    ))
}
