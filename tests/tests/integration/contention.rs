//! Many callers at once.

use std::time::Duration;

use sluice_sdk::{Basis, Client, Leases, OnUnavailable, Outcome, Released, RetryReason};
use sluice_testkit::{EmbeddedDynamo, Fault, Operation};

use crate::world::{TABLE, World, dimension, requests, sdk_config, settle, take};

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

/// Slow limits, fast ones that are full again within a round trip, one process and eight: over a socket, in
/// real time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_callers_with_ample_tokens_are_never_refused() {
    let dynamo = EmbeddedDynamo::with_table(TABLE).await.unwrap();
    let server = dynamo.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    for (name, capacity, window_secs) in
        [("a#minute", 100_000, 60), ("a#second", 1_000_000, 1), ("a#hour", 5_000, 3_600)]
    {
        dynamo
            .client(TABLE)
            .ops()
            .apply_limit(&dimension(name), &requests(capacity, window_secs))
            .await
            .unwrap();
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

/// What was free before the pause may be taken after it: a read costs a fifth of the write that would fail.
#[tokio::test(start_paused = true)]
async fn a_throttled_take_reads_the_row_before_it_tries_again() {
    for is_taken_meanwhile in [true, false] {
        let world = World::with_slots("elevenlabs#concurrent", 1).await;
        let client = world.client_with(|settings| settings.leases(Leases::Inline).self_heal(false));
        take(&client, "elevenlabs#concurrent").await.release().await.unwrap();
        world.dynamo.faults().next(Operation::UpdateItem, Fault::throttled());
        let read = world.dynamo.faults().hold_next(Operation::GetItem);
        let asked = tokio::spawn({
            let client = client.clone();
            async move { client.acquire("elevenlabs#concurrent").await.unwrap().granted() }
        });
        tokio::time::timeout(Duration::from_secs(1), read.reached()).await.expect("the row is read again");
        world.add_tokens("elevenlabs#concurrent", if is_taken_meanwhile { "-1" } else { "0" }).await;
        world.dynamo.meter().reset();
        read.open();
        assert_eq!(asked.await.unwrap().is_none(), is_taken_meanwhile);
        let writes = world.dynamo.meter().of(Operation::UpdateItem).requests;
        assert_eq!(writes, u64::from(!is_taken_meanwhile), "no write that is bound to fail");
    }
}

/// A lost reply may be a grant: the write is sent again until its condition tells.
#[tokio::test(start_paused = true)]
async fn a_lost_reply_and_a_throttled_try_are_no_outage() {
    for lost in [Fault::LoseReply, Fault::LoseRequest] {
        let world = World::with_slots("elevenlabs#concurrent", 1).await;
        let client = world.client_with(|settings| {
            settings.leases(Leases::Inline).self_heal(false).on_unavailable(OnUnavailable::Allow)
        });
        take(&client, "elevenlabs#concurrent").await.release().await.unwrap();
        world.dynamo.faults().next(Operation::UpdateItem, lost);
        world.dynamo.faults().next(Operation::UpdateItem, Fault::throttled());
        let grant = take(&client, "elevenlabs#concurrent").await;
        assert_eq!((grant.basis(), world.leases().await), (Basis::Table, 1));
        grant.release().await.unwrap();
        assert_eq!((world.free("elevenlabs#concurrent").await.as_str(), world.leases().await), ("1", 0));
    }
}

/// A release is not planned from the number of free slots, and is sent again as it is: alone, and in one
/// write with a take.
#[tokio::test(start_paused = true)]
async fn a_throttled_release_is_sent_again_without_a_read() {
    for takes_too in [false, true] {
        let world = World::with_slots("elevenlabs#concurrent", 2).await;
        let client =
            world.client_with(|settings| settings.leases(Leases::Inline).self_heal(false).max_retries(8));
        let (grant, other) =
            (take(&client, "elevenlabs#concurrent").await, take(&client, "elevenlabs#concurrent").await);
        // While this write is under way, the next release and the take meet in the queue behind it.
        let first = world.dynamo.faults().hold_next(Operation::UpdateItem);
        let first_release = tokio::spawn(other.release());
        first.reached().await;
        let release = tokio::spawn(grant.release());
        let taking = takes_too.then(|| {
            let client = client.clone();
            tokio::spawn(async move { client.acquire("elevenlabs#concurrent").await.unwrap().granted() })
        });
        settle().await;
        world.dynamo.meter().reset();
        for _ in 0..5 {
            world.dynamo.faults().next(Operation::UpdateItem, Fault::throttled());
        }
        first.open();
        assert_eq!(first_release.await.unwrap().unwrap(), Released::GivenBack);
        assert_eq!(release.await.unwrap().unwrap(), Released::GivenBack);
        assert_eq!(world.dynamo.meter().of(Operation::GetItem).requests, 0);
        if let Some(taking) = taking {
            taking.await.unwrap().expect("granted").release().await.unwrap();
        }
        assert_eq!(world.free("elevenlabs#concurrent").await, "2");
    }
}
