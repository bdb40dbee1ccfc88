//! What a caller accepts: how long it waits, and how long its leases last.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::on_unavailable::OnUnavailable;
use crate::lane::setback::QueuePatience;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The latest start; `None` for now or not at all.
    pub(crate) until: Option<Instant>,
    /// Whether the caller stays in the queue until then, for slots and through what delays the queue.
    pub(crate) stays: bool,
    /// How long the leases last.
    pub(crate) lease: Duration,
    /// When waiting and running together end, if the caller says so.
    pub(crate) ends: Option<Instant>,
    /// Whether the caller leaves the queue for another one instead of waiting for slots or through conflicts.
    pub(crate) moves_on: bool,
    /// The caller's place among those that may move on, which keep their order in the other queue; 0 for all
    /// others.
    pub(crate) came: u64,
    /// Whether the caller may leave one of the last starts within its patience to callers of other processes
    /// ([`last_start`](crate::lane::last_start)): not one that holds something else meanwhile.
    pub(crate) lets_others: bool,
    /// Whether the slots are for a call that runs already: it began while DynamoDB was out
    /// ([`fallback`](crate::lane::fallback)). Nobody is asked to wait for it, and it waits for nobody.
    pub(crate) is_running: bool,
}

impl Terms {
    pub(crate) const fn at_once(lease: Duration) -> Self {
        Self {
            until: None,
            stays: false,
            lease,
            ends: None,
            moves_on: false,
            came: 0,
            lets_others: false,
            is_running: false,
        }
    }

    /// How far ahead the caller books, from now.
    pub(crate) fn patience(self) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// What is left of the time for waiting and running together.
    pub(crate) fn time_left(self) -> Duration {
        self.ends.map_or(Duration::MAX, |ends| ends.saturating_duration_since(Instant::now()))
    }

    /// Until when the caller stays in the queue, if it does.
    pub(crate) fn stays_until(self) -> Option<Instant> {
        self.until.filter(|_| self.stays)
    }

    /// How long the caller stays in the queue, from now.
    pub(crate) fn queue_patience(self, on_unavailable: OnUnavailable) -> QueuePatience {
        let stays = if self.stays { self.patience() } else { Duration::ZERO };
        QueuePatience {
            stays,
            answers_locally: on_unavailable != OnUnavailable::Error,
            moves_on: self.moves_on,
        }
    }
}
