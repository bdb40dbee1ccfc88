//! The crash of one caller process, and its recovery by the others.

use std::collections::BTreeSet;
use std::time::Duration;

use sluice_testkit::EmbeddedDynamo;
use tokio::time::{Instant, interval, sleep, sleep_until};

use super::crew::{self, Crew};
use super::limits::TABLE;
use super::progress::Announcer;
use crate::failure::Failure;

/// A call takes 0.9 s at most, and the lease of the killed process lasts longer.
const CALLS_END: Duration = Duration::from_millis(1_300);
/// Time between two checks of what the killed process held.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How many processes are killed until one held a slot.
const KILLED_AT_MOST: usize = 2;

/// What the crash left, and how it was recovered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recovery {
    /// Zero if the process held nothing when it was killed.
    pub(crate) crashed_holders: usize,
    pub(crate) slots_restored: usize,
    /// When the process was killed.
    pub(crate) crashed_at: Option<Instant>,
    /// When nothing that it left remained.
    pub(crate) healed_at: Option<Instant>,
    /// When nobody looked any more.
    pub(crate) looked_until: Option<Instant>,
}

impl Recovery {
    pub(crate) fn took(&self) -> Option<Duration> {
        Some(self.healed_at? - self.crashed_at?)
    }
}

/// Kills a process at `at`, and looks until `end` whether the other callers give its slots back. No sweep
/// runs while they call: a caller that is refused a slot finds what the killed process left.
pub(crate) async fn play(
    dynamo: &EmbeddedDynamo,
    crew: &mut Crew,
    at: Instant,
    end: Instant,
    announcer: &Announcer,
) -> Result<Recovery, Failure> {
    sleep_until(at).await;
    let mut recovery = Recovery::default();
    let mut left = BTreeSet::new();
    // One process is left that can heal.
    for n in 0..KILLED_AT_MOST.min(crew.len() - 1) {
        let Some(crashed_at) = crash(crew, n, end).await? else { return Ok(recovery) };
        announcer.say(&format!("   {} was killed (SIGKILL)", crew::name(n)));
        left = left_by_crashed(dynamo, crashed_at).await?;
        recovery.crashed_at = Some(crashed_at);
        if !left.is_empty() {
            break;
        }
        announcer.say("   it held no slot");
    }
    if left.is_empty() {
        return Ok(recovery);
    }
    recovery.crashed_holders = left.len();
    announcer.say(&format!("   it held {} slots, which come back when its leases have ended", left.len()));
    let mut looks = interval(LOOK_EVERY);
    while recovery.healed_at.is_none() && Instant::now() < end {
        looks.tick().await;
        let there = leases(dynamo).await?;
        left.retain(|lease| there.contains(lease));
        recovery.slots_restored = recovery.crashed_holders - left.len();
        recovery.looked_until = Some(Instant::now());
        if left.is_empty() {
            recovery.healed_at = recovery.looked_until;
            announcer.say("   refused callers found these slots and gave them back");
        }
    }
    Ok(recovery)
}

/// Kills the process with SIGKILL, once it has reported a grant; returns when. `None` if it was granted
/// nothing.
async fn crash(crew: &mut Crew, n: usize, end: Instant) -> Result<Option<Instant>, Failure> {
    let tally = crew.tally();
    while Instant::now() < end {
        if tally.with(|reports| reports.last.get(n).is_some_and(|process| process.granted > 0)) {
            crew.kill(n).await?;
            return Ok(Some(Instant::now()));
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok(None)
}

/// The leases of the killed process: those of the moment of the crash that nobody has given back when the
/// calls of all others have ended. (In a crowd a lease is in its bucket's row, and names no holder.)
async fn left_by_crashed(dynamo: &EmbeddedDynamo, crashed_at: Instant) -> Result<BTreeSet<String>, Failure> {
    // Requests that the process had sent may still arrive.
    sleep_until(crashed_at + Duration::from_millis(50)).await;
    let then = leases(dynamo).await?;
    sleep_until(crashed_at + CALLS_END).await;
    Ok(&then & &leases(dynamo).await?)
}

/// The keys of all leases.
pub(crate) async fn leases(dynamo: &EmbeddedDynamo) -> Result<BTreeSet<String>, Failure> {
    Ok(dynamo.client(TABLE).ops().leases().await?.into_iter().map(|row| row.key).collect())
}
