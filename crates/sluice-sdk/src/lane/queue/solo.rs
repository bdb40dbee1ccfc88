//! The service of a lane while its only caller runs it.

use std::task::Context;

use crate::lane::queue::Service;
use crate::lane::sync::{Handle, Mutex, MutexGuard};

/// A service that its only caller runs, until a second caller comes.
pub(super) struct SoloLeader {
    service: Mutex<Option<Service>>,
    /// The runtime in which the service began, for a caller that is dropped outside of any runtime.
    runtime: Option<Handle>,
}

impl SoloLeader {
    pub(super) fn new(service: Service) -> Self {
        Self { service: Mutex::new(Some(service)), runtime: Handle::try_current().ok() }
    }

    /// Polls the service. Returns whether nothing is left to run.
    pub(super) fn is_over(&self, context: &mut Context<'_>) -> bool {
        let mut service = self.service();
        let is_over = service.as_mut().is_none_or(|service| service.as_mut().poll(context).is_ready());
        if is_over {
            *service = None;
        }
        is_over
    }

    /// Moves the service to a task of its own. Without a runtime the service ends here, and the callers in
    /// the queue are told so.
    pub(super) fn move_out(&self) {
        let service = self.service().take();
        let runtime = Handle::try_current().ok().or_else(|| self.runtime.clone());
        if let (Some(service), Some(runtime)) = (service, runtime) {
            runtime.spawn(service);
        }
    }

    fn service(&self) -> MutexGuard<'_, Option<Service>> {
        self.service.lock()
    }
}

impl std::fmt::Debug for SoloLeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SoloLeader")
    }
}
