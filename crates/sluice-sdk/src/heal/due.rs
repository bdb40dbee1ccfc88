//! Tries that are due or under way, and how a program that is about to end waits for them.

use std::time::Duration;

use tokio::sync::watch;

use crate::client::Client;
use crate::heal::healing;

/// A small table is swept within a tenth of a second; one that hangs must not keep a program from its end.
const LONGEST: Duration = Duration::from_secs(5);

/// How many tries of a client's buckets are due or under way.
#[derive(Debug, Default)]
pub(super) struct Dues(watch::Sender<usize>);

impl Dues {
    pub(super) fn one(&self) -> Due {
        self.0.send_modify(|dues| *dues += 1);
        Due(self.0.clone())
    }
}

/// One of them. Dropped, as with the runtime of its task, nobody waits for it any more.
#[derive(Debug)]
pub(super) struct Due(watch::Sender<usize>);

impl Drop for Due {
    fn drop(&mut self) {
        self.0.send_modify(|dues| *dues -= 1);
    }
}

impl Client {
    /// Waits for the sweeps of full concurrency buckets that refusals of this client have begun, 5 s at most: for programs that end
    /// after a refusal, and for functions that return.
    ///
    /// A refusal waits for no sweep: a task does it, which ends with its runtime. Where every caller ends that soon, nobody gives back
    /// what crashed holders had but the reconciler. Where no try is due it returns at once and sends nothing, as after a grant, where
    /// another process is known to have swept of late, or with [`ClientBuilder::self_heal`](crate::ClientBuilder::self_heal) off; so
    /// it may be called in any case. A process that lives on need not call it. A function that is frozen between two calls goes on with
    /// the next, and may call it before it returns, so that the slots need not wait for that.
    pub async fn finish_healing(&self) {
        let mut dues = healing(&self.inner).dues.0.subscribe();
        if *dues.borrow_and_update() > 0 {
            // Whatever is not done by then is another process's, after this one's mark.
            let _ = tokio::time::timeout(LONGEST, dues.wait_for(|dues| *dues == 0)).await;
        }
    }
}
