//! Waiting: whoever waits in line keeps its place until its own deadline. Conflicts, throttling, lost replies
//! and an outage delay it.
//!
//! A slot that ends before its deadline without a start must have heard what time does not mend, or an exact
//! wait that ends later. Excused: an outage where the process answers it by itself (`SLUICE_ON_UNAVAILABLE`).
//! What is near the deadline is not judged, since a look that would come after it is not made.

use std::time::Duration;

use sluice_sdk::{AcquireError, LimitError, RetryReason, StoreError};
use tokio::time::Instant;

use crate::process::Process;
use crate::universe::Universe;

/// The longest pause between two looks.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// What must have been judged in a run of many seeds.
pub(crate) const JUDGED: &str = "judged: a wait in line";

/// One wait in line.
pub(crate) struct Wait {
    began: Instant,
    patience: Duration,
}

impl Wait {
    /// Begins now, and ends by itself after `patience`.
    pub(crate) fn begins(patience: Duration) -> Self {
        Self { began: Instant::now(), patience }
    }

    /// Judges what a slot came to that never started, of a process that answers an outage by itself or not.
    pub(crate) fn judge(
        &self,
        (universe, process): (&Universe, &Process),
        error: Option<&LimitError>,
        answers_alone: bool,
    ) {
        let waited = self.began.elapsed();
        let Some(error) = error else { return };
        if waited + LAST_LOOK >= self.patience {
            return;
        }
        universe.count(JUDGED);
        let why = match error {
            // The process's own share may be used up.
            LimitError::Refused(retry) if answers_alone && retry.reason() == RetryReason::NoFreeSlot => {
                return;
            }
            LimitError::Refused(retry)
                if !matches!(retry.reason(), RetryReason::Exhausted | RetryReason::CoolingDown) =>
            {
                retry.reason().as_str().to_owned()
            }
            LimitError::Acquire(AcquireError::Store(error @ StoreError::Contended { .. })) => {
                error.to_string()
            }
            LimitError::Acquire(AcquireError::Store(error @ StoreError::Unavailable { .. }))
                if !answers_alone =>
            {
                error.to_string()
            }
            _ => return,
        };
        let (name, patience) = (&process.name, self.patience);
        universe.violated(format!(
            "{name} waited in line for {patience:?}, and was sent away after {waited:?}: {why}"
        ));
    }
}
