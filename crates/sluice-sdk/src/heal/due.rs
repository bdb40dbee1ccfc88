//! Tries that are due or under way, and how a program that is about to end waits for them.

use std::time::Duration;

use tokio::sync::watch;

use crate::client::Client;
use crate::heal::healing;

/// A small table is swept within a tenth of a second. A try that hangs must not keep a program from ending.
const LONGEST: Duration = Duration::from_secs(5);

/// How many tries of a client's buckets are due or under way.
#[derive(Debug, Default)]
pub(super) struct PendingTries(watch::Sender<usize>);

impl PendingTries {
    pub(super) fn one(&self) -> PendingTry {
        self.0.send_modify(|dues| *dues += 1);
        PendingTry(self.0.clone())
    }
}

/// One of the tries. If it is dropped, for example with the runtime of its task, nobody waits for it any
/// more.
#[derive(Debug)]
pub(super) struct PendingTry(watch::Sender<usize>);

impl Drop for PendingTry {
    fn drop(&mut self) {
        self.0.send_modify(|dues| *dues -= 1);
    }
}

impl Client {
    /// Waits, at most 5 s, for the healing of full concurrency buckets that refusals of this client have
    /// begun. For programs that end after a refusal, and for functions that return.
    ///
    /// A refusal does not wait for the healing: a task does the healing, and ends with its runtime. If every
    /// caller ends that soon, only the reconciler gives back the slots of crashed holders.
    ///
    /// If no try is due, this method returns at once and sends nothing. No try is due after a grant, if
    /// another process is known to have scanned recently, or with
    /// [`ClientBuilder::self_heal`](crate::ClientBuilder::self_heal) off. So the method may be called in any
    /// case.
    ///
    /// A process that lives on need not call this method. A function that is frozen between two calls
    /// continues the healing in its next call. Such a function may call this method before it returns, so
    /// that the slots do not wait for the next call.
    pub async fn finish_healing(&self) {
        let mut dues = healing(&self.inner).dues.0.subscribe();
        if *dues.borrow_and_update() > 0 {
            // What is not done by then is left to another process, after the time of this process's mark.
            let _ = tokio::time::timeout(LONGEST, dues.wait_for(|dues| *dues == 0)).await;
        }
    }
}
