//! A lane whose callers give back or settle: each is served, in chunks of as many as one write may carry.

use sluice_table::{Store, StoreError};
use tokio::time::Instant;

use crate::lane::queue::Waiter;
use crate::lane::queue::leader::Leader;

/// Serves a lane until no caller is left. `serve` answers at most `most` callers, and returns the error if
/// DynamoDB is out. The callers behind share the time of one request with them: the next chunk is sent only if
/// one more attempt ends within that time. Otherwise `unsent` answers them.
///
/// A caller that has gone away is served too: its call was made.
pub(super) async fn lead<Q, A, S: Future<Output = Result<(), StoreError>>>(
    store: &Store,
    mut leader: Leader<Q, A>,
    most: usize,
    serve: impl Fn(Vec<Waiter<Q, A>>) -> S,
    unsent: impl Fn(StoreError) -> A,
) {
    while let Some(mut waiters) = leader.next_with_the_gone(usize::MAX).await {
        let began = Instant::now();
        while !waiters.is_empty() {
            let later = waiters.split_off(waiters.len().min(most));
            let Err(error) = serve(std::mem::replace(&mut waiters, later)).await else { continue };
            if began.elapsed() + store.attempt().of_rows() > store.longest_request() {
                waiters.drain(..).for_each(|waiter| waiter.answer(unsent(error.clone().unsent())));
            }
        }
        leader.batch_is_over();
    }
}
