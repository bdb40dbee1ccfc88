//! Commands on standard input, by which a product's tests move the time of the engine.

use std::io::{BufRead as _, stdin};
use std::thread;
use std::time::Duration;

use sluice_ops::SweepOptions;
use sluice_testkit::{EmbeddedDynamo, Faults};
use tokio::sync::mpsc;

use crate::duration::duration;
use crate::failure::Failure;

/// Follows the commands until the input ends: the sandbox does not outlive a program that was killed.
pub(super) async fn follow(dynamo: &EmbeddedDynamo, table: &str) {
    let (read, mut lines) = mpsc::unbounded_channel();
    // Tokio has no better way to read standard input than a thread.
    thread::spawn(move || {
        let _ = stdin().lock().lines().map_while(Result::ok).try_for_each(|line| read.send(line));
    });
    while let Some(line) = lines.recv().await {
        match obey(&line, dynamo, table).await {
            Ok(done) => println!("{done}"),
            Err(failure) => println!("error: {failure}"),
        }
    }
}

/// Sweeps too, as the reconciler does every few minutes: what crashed holders held is back when their leases
/// have ended.
async fn obey(line: &str, dynamo: &EmbeddedDynamo, table: &str) -> Result<String, Failure> {
    let by = moved_by(line).map_err(Failure::new)?;
    dynamo.clock().advance(by);
    let reconciler = dynamo.apart(Faults::default()).client(table);
    reconciler.ops().sweep(SweepOptions::default()).await?;
    Ok(format!("advanced by {}", humantime::format_duration(by)))
}

fn moved_by(line: &str) -> Result<Duration, String> {
    match line.split_once(' ') {
        Some(("advance", by)) => duration(by.trim()).map_err(|why| format!("advance {by}: {why}")),
        _ => Err(format!("{line:?} is no command: write `advance` and a time, as in `advance 60s`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_command_says_what_is_one() {
        assert_eq!(moved_by("advance 1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(moved_by("advance 0.5"), Ok(Duration::from_millis(500)));
        assert!(moved_by("advance soon").unwrap_err().starts_with("advance soon: it must be a time"));
        assert!(moved_by("rewind 5s").unwrap_err().contains("`advance 60s`"));
    }
}
