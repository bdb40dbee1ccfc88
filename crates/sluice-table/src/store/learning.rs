//! Which caller reads the time of the table, and which callers wait for it.

use parking_lot::Mutex;
use tokio::sync::watch;

use super::error::StoreError;

/// The read under way to learn the time, if any: when the clocks of a fleet are set at once, each process
/// reads once.
#[derive(Debug, Default)]
pub(super) struct Learning(Mutex<Option<watch::Receiver<Option<ReadOutcome>>>>);

/// The result of a read: an error means that the time was not learned.
pub(super) type ReadOutcome = Result<(), StoreError>;

/// What a caller does to learn the time.
pub(super) enum Role {
    Reads(watch::Sender<Option<ReadOutcome>>),
    Waits(watch::Receiver<Option<ReadOutcome>>),
}

impl Learning {
    /// The role of a caller. One that has `waited` without success for the read under way begins another,
    /// because the first reader may be gone. Others that waited share the new one.
    pub(super) fn role(&self, waited: Option<&watch::Receiver<Option<ReadOutcome>>>) -> Role {
        let mut under_way = self.0.lock();
        // If the caller that reads has left, its channel is closed without an outcome.
        let is_stuck = |read: &watch::Receiver<_>| waited.is_some_and(|waited| waited.same_channel(read));
        let shared =
            under_way.as_ref().filter(|read| !is_stuck(read) && matches!(read.has_changed(), Ok(false)));
        if let Some(read) = shared {
            return Role::Waits(read.clone());
        }
        let (sender, read) = watch::channel(None);
        *under_way = Some(read);
        Role::Reads(sender)
    }
}
