//! Many callers at once.

use sluice_sdk::{Client, Outcome, RetryReason};
use sluice_testkit::EmbeddedDynamo;

use crate::world::{TABLE, dimension, requests, sdk_config};

/// Callers of one bucket, each acquiring `calls` times; how many were granted, and what the rest was told.
async fn storm(clients: Vec<Client>, name: &'static str, calls: usize) -> (usize, Vec<RetryReason>) {
    let callers: Vec<_> = clients
        .into_iter()
        .map(|client| {
            tokio::spawn(async move {
                let mut refused = Vec::new();
                for _ in 0..calls {
                    match client.acquire(name).await.unwrap() {
                        Outcome::Granted(grant) => drop(grant.release().await.unwrap()),
                        Outcome::RetryIn(retry) => refused.push(retry.reason()),
                    }
                }
                refused
            })
        })
        .collect();
    let mut refused = Vec::new();
    let many = callers.len() * calls;
    for caller in callers {
        refused.extend(caller.await.unwrap());
    }
    (many - refused.len(), refused)
}

/// Slow limits, fast ones that are full again within a round trip, one process and eight: over a socket, in real time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_callers_with_ample_tokens_are_never_refused() {
    let dynamo = EmbeddedDynamo::with_table(TABLE).await.unwrap();
    let server = dynamo.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    for (name, capacity, window_secs) in
        [("a#minute", 100_000, 60), ("a#second", 1_000_000, 1), ("a#hour", 5_000, 3_600)]
    {
        dynamo.client(TABLE).ops().apply_limit(&dimension(name), &requests(capacity, window_secs)).await.unwrap();
        for processes in [1, 8] {
            let mut clients = Vec::new();
            for _ in 0..processes {
                let settings = Client::builder(TABLE).endpoint_url(server.endpoint_url());
                let client = settings.connect_with(&sdk_config()).clone();
                clients.extend(std::iter::repeat_n(client, 64 / processes));
            }
            let (granted, refused) = storm(clients, name, 20).await;
            assert_eq!((granted, refused), (64 * 20, vec![]), "{name} from {processes} processes");
        }
    }
}
