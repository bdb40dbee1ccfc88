//! Findings about buckets: unreadable, above the vendor's limit, inconsistent, or held by a cool-down.

use sluice_ops::{BucketFault, Survey};
use sluice_sdk::core::{Amount, Bucket, Timestamp};

use super::finding::{Check, Finding};
use super::shares;
use crate::duration::exact;
use crate::output;

pub(super) fn examine(survey: &Survey, table: &str, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut readable = 0;
    for row in &survey.buckets {
        match &row.bucket {
            Ok(bucket) => {
                readable += 1;
                findings.extend(of_limit(bucket, now));
                findings.extend(of_cool_down(bucket, now));
                findings.extend(of_slots(bucket));
                findings.extend(shares::examine(bucket, survey, now));
            }
            Err(fault) => {
                let todo = match fault {
                    BucketFault::Row(fault) => fault.advice(),
                    _ => "remove the row, or move it to a table of its own",
                };
                findings.push(Finding::problem(
                    Check::Rows,
                    &row.key,
                    format!("the row cannot be read: {fault}"),
                    todo,
                ));
            }
        }
    }
    match readable {
        // The buckets may be in the part that was not read.
        0 if !survey.is_whole => {}
        0 => {
            let todo = "declare buckets with `sluice buckets apply FILE`";
            findings.push(Finding::problem(Check::Rows, table, "the table has no buckets", todo));
        }
        1 => findings.push(Finding::fine(Check::Rows, table, "1 bucket")),
        count => findings.push(Finding::fine(Check::Rows, table, format!("{count} buckets"))),
    }
    findings
}

fn of_limit(bucket: &Bucket, now: Timestamp) -> Option<Finding> {
    let limit = &bucket.limit_at_vendor();
    let reported = bucket.vendor_limit()?;
    limit.lowered_to(reported.limit, reported.window)?;
    let per = if limit.is_concurrent() {
        String::new()
    } else {
        format!(" in {}", exact(reported.window.as_secs_f64()))
    };
    let (reported, when) = (reported.limit, output::relative(reported.at, now));
    let ours = match limit.is_concurrent() {
        true => format!("{} at once", limit.capacity()),
        false => {
            format!(
                "{} a second, with a burst of {}",
                output::short(&limit.refill_rate().to_string()),
                limit.capacity()
            )
        }
    };
    let todo = match bucket.adopts_limit() {
        // Shares of slots and adoption exclude each other.
        _ if !bucket.slot_shares().is_empty() => "lower the limit in the file of buckets, and apply the file",
        true => {
            "if the vendor's limit is right, lower the limit and adopt_at_least in the file of buckets, and apply it"
        }
        false => {
            "lower the limit in the file of buckets, or set adopt_lower_limit = true there, and apply the file"
        }
    };
    let what = format!("the vendor reported a limit of {reported}{per} {when}, and the bucket allows {ours}");
    Some(Finding::problem(Check::Limits, bucket.dimension(), what, todo))
}

fn of_cool_down(bucket: &Bucket, now: Timestamp) -> Option<Finding> {
    let until = bucket.blocked_until().filter(|until| *until > now)?;
    let what = format!("a cool-down is set: it ends {}", output::relative(until, now));
    let todo = "nothing: callers go on after its end; `sluice cool-down NAME --end` ends it sooner";
    Some(Finding::note(Check::CoolDown, bucket.dimension(), what, todo))
}

fn of_slots(bucket: &Bucket) -> Option<Finding> {
    let (name, limit) = (bucket.dimension(), bucket.limit());
    if limit.is_concurrent() && bucket.tokens() > limit.capacity() {
        let what = format!("{} slots are free, of {}", bucket.tokens(), limit.capacity());
        let todo = "run `sluice reconcile --once` twice: the second sweep takes away what was minted";
        return Some(Finding::problem(Check::Slots, name, what, todo));
    }
    let drift = bucket.noted_drift()?;
    let kind = if drift < Amount::ZERO { "too many" } else { "lost" };
    let todo = "nothing: the next sweep that finds them too corrects the bucket; find out who edits rows or restores twice";
    Some(Finding::note(Check::Slots, name, format!("slots {kind}: {}", drift.abs()), todo))
}
