//! What a client does beside its callers: the tasks that give back, and the end of the client.

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::api::error::AcquireError;
use crate::lane::task::boxed;

/// The tasks of a client, and how far its end has come.
#[derive(Debug, Default)]
pub(crate) struct Background {
    tasks: TaskTracker,
    /// The runtime of the last caller, for grants that are dropped outside of any runtime.
    runtime: Mutex<Option<Handle>>,
    closing: CancellationToken,
    cut_off: CancellationToken,
}

impl Background {
    /// Checks that a caller may begin: it runs in Tokio's runtime, and the client is not closed. The end of
    /// the client waits for the token. The token comes first: whoever closes the client afterwards sees it.
    pub(crate) fn begin(&self) -> Result<TaskTrackerToken, AcquireError> {
        let token = self.tasks.token();
        if self.closing.is_cancelled() {
            return Err(AcquireError::Closed);
        }
        let here = Handle::try_current().map_err(|_| AcquireError::NoRuntime)?;
        let mut runtime = self.runtime.lock();
        if runtime.as_ref().is_none_or(|runtime| runtime.id() != here.id()) {
            *runtime = Some(here);
        }
        Ok(token)
    }

    /// The runtime of the caller, or that of the last caller that acquired.
    pub(crate) fn runtime(&self) -> Option<Handle> {
        Handle::try_current().ok().or_else(|| self.runtime.lock().clone())
    }

    /// Runs a task for whose end [`idle`](Self::idle) waits.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        runtime: &Handle,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tasks.spawn_on(boxed(future), runtime)
    }

    /// Counts as a task until it is dropped.
    pub(crate) fn token(&self) -> TaskTrackerToken {
        self.tasks.token()
    }

    /// Returns when no task is left.
    pub(crate) async fn idle(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Returns the error of a caller that was granted something while the client was closed.
    pub(crate) fn check_open(&self) -> Result<(), AcquireError> {
        if self.is_closing() { Err(AcquireError::Closed) } else { Ok(()) }
    }

    /// Refuses callers from now on. Callers that wait learn of it.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Returns once the client is being closed.
    pub(crate) async fn closing(&self) {
        self.closing.cancelled().await;
    }

    /// Cuts off the calls that still run.
    pub(crate) fn cut_off(&self) {
        self.cut_off.cancel();
    }

    /// Returns once calls are to be cut off.
    pub(crate) async fn cut(&self) {
        self.cut_off.cancelled().await;
    }
}
