//! Tries that are due or under way, and how a program that is about to end waits for them.

use std::time::Duration;

use tokio::sync::watch;

use crate::client::Client;
use crate::heal::healing;

/// A small table is swept within a tenth of a second. A try that hangs must not keep a program from ending.
const LONGEST: Duration = Duration::from_secs(5);

/// How many tries of a client's buckets are due or under way.
#[derive(Debug, Default)]
pub(super) struct PendingHeals(watch::Sender<usize>);

impl PendingHeals {
    pub(super) fn one(&self) -> PendingHeal {
        self.0.send_modify(|dues| *dues += 1);
        PendingHeal(self.0.clone())
    }
}

/// One of the tries. If it is dropped, as with its task's runtime, nobody waits for it.
#[derive(Debug)]
pub(super) struct PendingHeal(watch::Sender<usize>);

impl Drop for PendingHeal {
    fn drop(&mut self) {
        self.0.send_modify(|dues| *dues -= 1);
    }
}

impl Client {
    /// Waits, at most 5 s, for the healing that refusals of this client have begun: for programs that end
    /// after a refusal, and functions that return. A refusal does not wait: a task does the healing, and ends
    /// with its runtime. If every caller ends that soon, only the reconciler gives slots back.
    ///
    /// Returns at once, without a request, if no try is due: after a grant, if another process scanned
    /// recently, or with [`ClientBuilder::self_heal`](crate::ClientBuilder::self_heal) off. A process that
    /// lives on need not call it. A function that is frozen between calls heals in its next call, or calls
    /// this before it returns.
    pub async fn finish_healing(&self) {
        let mut dues = healing(&self.inner).dues.0.subscribe();
        if *dues.borrow_and_update() > 0 {
            // What is not done by then is left to another process, after the time of this process's mark.
            let _ = tokio::time::timeout(LONGEST, dues.wait_for(|dues| *dues == 0)).await;
        }
    }
}
