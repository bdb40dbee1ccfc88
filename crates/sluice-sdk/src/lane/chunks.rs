//! The loop that serves releases with lease rows, and settlements: a write serves as many callers as fit.

use sluice_table::StoreError;
use tokio::time::Instant;

use crate::lane::queue::Waiter;
use crate::lane::queue::leader::Leader;

/// Serves a lane until no caller is left. `serve` answers at most `most` callers of a batch that began at the
/// given time. If `serve` returns an error, nothing more is sent for the batch: `unsent` answers each of the
/// rest.
///
/// A caller that has left is served too: its call was made.
pub(super) async fn lead<Q, A, S: Future<Output = Result<(), StoreError>>>(
    mut leader: Leader<Q, A>,
    most: usize,
    serve: impl Fn(Vec<Waiter<Q, A>>, Instant) -> S,
    unsent: impl Fn(Waiter<Q, A>, StoreError),
) {
    while let Some(mut waiters) = leader.next_with_left(usize::MAX).await {
        let began = Instant::now();
        while !waiters.is_empty() {
            let later = waiters.split_off(waiters.len().min(most));
            let Err(error) = serve(std::mem::replace(&mut waiters, later), began).await else { continue };
            waiters.drain(..).for_each(|waiter| unsent(waiter, error.clone().unsent()));
        }
        leader.batch_is_over();
    }
}
