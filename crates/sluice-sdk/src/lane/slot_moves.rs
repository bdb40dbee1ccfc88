//! When a process moves slots while the shares of their bucket change: one task for all callers that find none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The bounds of the mean pause before a process moves slots, and how much each row that it reads adds for
/// each process that wants slots. So all of them together read at most 250 rows a second, until the pause is
/// the longest. A shorter pause gives slots to their shares sooner, and reads more.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
const FOR_EACH_READ: Duration = Duration::from_millis(4);

/// The mean pause, with so many processes that want slots and so many shares.
pub(super) fn pause(processes: u32, shares: usize) -> Duration {
    let rows = u32::try_from(shares).unwrap_or(u32::MAX).saturating_add(1);
    FOR_EACH_READ.saturating_mul(processes.saturating_mul(rows)).clamp(PAUSE.0, PAUSE.1)
}

/// Whether a task of this process moves slots of a bucket, or is about to.
#[derive(Debug, Default)]
pub(super) struct MovesSlots(AtomicBool);

/// Until this is dropped, no other task does.
pub(super) struct Underway(Arc<MovesSlots>);

impl Underway {
    /// `None` if a task does already.
    pub(super) fn begin(moves: Arc<MovesSlots>) -> Option<Self> {
        (!moves.0.swap(true, Ordering::Relaxed)).then(|| Self(moves))
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_task_moves_slots_and_the_next_when_it_is_gone() {
        let moves = Arc::new(MovesSlots::default());
        let first = Underway::begin(Arc::clone(&moves)).unwrap();
        assert!(Underway::begin(Arc::clone(&moves)).is_none());
        drop(first);
        assert!(Underway::begin(moves).is_some());
    }

    #[test]
    fn more_processes_and_rows_wait_longer() {
        assert_eq!(pause(1, 2), Duration::from_secs(1));
        assert_eq!(pause(72, 16), Duration::from_millis(4) * 72 * 17);
        assert_eq!(pause(10_000, 16), Duration::from_secs(30));
    }
}
