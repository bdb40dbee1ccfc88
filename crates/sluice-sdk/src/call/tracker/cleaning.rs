//! The background task of a tracker: started and stopped any number of times, one at a time.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::call::tracker::{Shared, stale};
use crate::lane::task::boxed;

/// The shortest time between two looks at the oldest grant.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// Nothing is ever sent through these channels: one end learns that the other is gone.
type Alive = watch::Sender<()>;
type Gone = watch::Receiver<()>;

/// Whether the task runs, and what to wait for while it is ending.
#[derive(Debug, Default)]
pub(super) struct Cleaning(Mutex<CleaningState>);

#[derive(Debug, Default)]
struct CleaningState {
    /// The task ends when this is dropped, by a stop or with the tracker.
    keep_running: Option<Alive>,
    /// When this channel closes, the last task that was started has ended.
    ended: Option<Gone>,
}

impl Cleaning {
    pub(super) fn start(&self, shared: &Arc<Shared>) {
        let mut state = self.state();
        // A task that ended with its runtime does not count.
        if state.keep_running.as_ref().is_some_and(|running| !running.is_closed()) {
            return;
        }
        let (keep_running, stopped) = watch::channel(());
        let (alive, ended) = watch::channel(());
        let before = state.ended.replace(ended);
        state.keep_running = Some(keep_running);
        let interval = shared.config.stale_cleanup_interval.max(SHORTEST_INTERVAL);
        let cleaning = clean(Arc::downgrade(shared), interval, stopped);
        tokio::spawn(boxed(async move {
            // If a stop was given up, its task may still be releasing: a later stop waits for it too.
            if let Some(before) = before {
                gone(before).await;
            }
            cleaning.await;
            // Dropped when the task ends, however it ends.
            drop(alive);
        }));
    }

    pub(super) async fn stop(&self) {
        let ended = {
            let mut state = self.state();
            state.keep_running = None;
            state.ended.clone()
        };
        // Every stop waits, including the second of two at once.
        if let Some(ended) = ended {
            gone(ended).await;
        }
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, CleaningState> {
        self.0.lock()
    }
}

async fn clean(shared: Weak<Shared>, interval: Duration, mut stopped: Gone) {
    loop {
        tokio::select! {
            biased;
            _ = stopped.changed() => break,
            () = tokio::time::sleep(interval) => {}
        }
        // The tracker is not held meanwhile: if it is dropped, its grants are dropped with it at once.
        let Some((counts, stale)) =
            shared.upgrade().map(|shared| (Arc::clone(&shared.counts), shared.take_stale()))
        else {
            break;
        };
        stale::release(counts, stale).await;
    }
}

async fn gone(mut other: Gone) {
    while other.changed().await.is_ok() {}
}
