//! How long a strongly consistent read takes from this machine: a grant waits at least that long.

use std::time::Duration;

use sluice_table::Probe;
use tokio::time::Instant;

use super::finding::{Check, Finding};

/// The most and the fewest reads that are measured, and the time after which the fewest are enough.
const MOST: usize = 100;
const LEAST: usize = 20;
const LONG_ENOUGH: Duration = Duration::from_secs(2);

/// DynamoDB answers in single-digit milliseconds within its Region. Ten times that means that the network is
/// slow.
const SLOW: Duration = Duration::from_millis(50);

/// Reads a row that no bucket uses, again and again. No finding if this role may not read it, or if DynamoDB
/// does not answer: other findings report that.
pub(super) async fn examine(probe: Probe<'_>) -> Option<Finding> {
    let read = || probe.row("load#doctor");
    // The first read may open the connection.
    read().await.given()?;
    let began = Instant::now();
    let mut took = Vec::with_capacity(MOST);
    while took.len() < MOST && (took.len() < LEAST || began.elapsed() < LONG_ENOUGH) {
        let sent = Instant::now();
        read().await.given()?;
        took.push(sent.elapsed());
    }
    took.sort_unstable();
    Some(judged(probe.table(), &took))
}

/// Judges the measured times; `took` is sorted.
fn judged(table: &str, took: &[Duration]) -> Finding {
    let millis = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1_000.0);
    let (p50, p99) = (percentile(took, 50), percentile(took, 99));
    let what = format!(
        "a read takes {} (p50), {} (p99); {} reads were measured",
        millis(p50),
        millis(p99),
        took.len()
    );
    if p50 > SLOW {
        let todo = "run callers in the table's Region (SLUICE_AWS_REGION names it), with a gateway endpoint for DynamoDB in their VPC: \
                    every grant waits for a write over the same distance";
        Finding::note(Check::Latency, table, what, todo)
    } else if p99 > SLOW {
        let todo = "most reads are quick: look for a proxy, a NAT gateway or a function with little memory on the way; nothing, if \
                    callers do not run on this machine";
        Finding::note(Check::Latency, table, what, todo)
    } else {
        Finding::fine(Check::Latency, table, what)
    }
}

/// The percentile of sorted times, by nearest rank.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Weight;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 50), Duration::from_millis(50));
        assert_eq!(percentile(&times, 99), Duration::from_millis(99));
        assert_eq!(percentile(&times[..1], 99), Duration::from_millis(1));
    }

    #[test]
    fn a_far_table_and_a_way_that_stumbles_are_told_apart() {
        let all = |millis| vec![Duration::from_millis(millis); 100];
        assert_eq!(judged("t", &all(5)).weight, Weight::Fine);
        let far = judged("t", &all(80));
        assert_eq!((far.weight, far.todo.unwrap().contains("Region")), (Weight::Note, true));
        let stumbling = judged("t", &[&all(5)[..95], &all(80)[..5]].concat());
        assert_eq!((stumbling.weight, stumbling.todo.unwrap().contains("proxy")), (Weight::Note, true));
    }
}
