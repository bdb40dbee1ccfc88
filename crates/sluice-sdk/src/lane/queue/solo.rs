//! The service of a lane while its only caller runs it.

use std::task::{Context, Waker};

use crate::lane::queue::Service;
use crate::lane::sync::{Handle, Mutex, MutexGuard};

/// A service that its only caller runs, until a second caller comes.
pub(super) struct SoloLeader {
    running: Mutex<Option<Running>>,
    /// The runtime in which the service began, for a caller that is dropped outside of any runtime.
    runtime: Option<Handle>,
}

struct Running {
    service: Service,
    /// Wakes the caller that runs the service, once it has run it for the first time.
    caller: Option<Waker>,
}

impl SoloLeader {
    pub(super) fn new(service: Service) -> Self {
        let running = Running { service, caller: None };
        Self { running: Mutex::new(Some(running)), runtime: Handle::try_current().ok() }
    }

    /// Polls the service. Returns whether nothing is left to run. If the service moves out later, the caller
    /// is woken.
    pub(super) fn is_over(&self, context: &mut Context<'_>) -> bool {
        let mut held = self.running();
        let Some(running) = held.as_mut() else { return true };
        if running.service.as_mut().poll(context).is_ready() {
            *held = None;
            return true;
        }
        match &mut running.caller {
            Some(caller) => caller.clone_from(context.waker()),
            caller => *caller = Some(context.waker().clone()),
        }
        false
    }

    /// Moves the service to a task of its own, and returns what wakes the caller that has run it so far,
    /// and which now only waits for its answer. Without a runtime the service ends here, and the callers in
    /// the queue ask again.
    pub(super) fn move_out(&self) -> Option<Waker> {
        let Running { service, caller } = self.running().take()?;
        match Handle::try_current().ok().or_else(|| self.runtime.clone()) {
            Some(runtime) => {
                runtime.spawn(service);
            }
            None => drop(service),
        }
        caller
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock()
    }
}

impl std::fmt::Debug for SoloLeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SoloLeader")
    }
}
