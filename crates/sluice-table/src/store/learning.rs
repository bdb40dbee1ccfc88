//! Who reads the time of the table, and who waits for it.

use parking_lot::Mutex;
use tokio::sync::watch;

use super::error::StoreError;

/// The read that is under way to learn the time, if one is. When the clocks of a fleet are set at once, each of its processes asks once.
#[derive(Debug, Default)]
pub(super) struct Learning(Mutex<Option<watch::Receiver<Option<Outcome>>>>);

/// What became of a read: an error that told no time.
pub(super) type Outcome = Result<(), StoreError>;

/// What a caller does for the time.
pub(super) enum Role {
    Reads(watch::Sender<Option<Outcome>>),
    Waits(watch::Receiver<Option<Outcome>>),
}

impl Learning {
    /// A caller that has `waited` in vain for the read that is under way begins another: nobody may drive that one any more. Others who
    /// waited for it share the new one.
    pub(super) fn role(&self, waited: Option<&watch::Receiver<Option<Outcome>>>) -> Role {
        let mut under_way = self.0.lock();
        // That of a caller that left is closed without an outcome.
        let is_stuck = |read: &watch::Receiver<_>| waited.is_some_and(|waited| waited.same_channel(read));
        let shared = under_way.as_ref().filter(|read| !is_stuck(read) && matches!(read.has_changed(), Ok(false)));
        if let Some(read) = shared {
            return Role::Waits(read.clone());
        }
        let (tells, read) = watch::channel(None);
        *under_way = Some(read);
        Role::Reads(tells)
    }
}
