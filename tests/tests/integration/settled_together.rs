//! Calls that are settled at the same time share a write, and lose nothing by it.

use sluice_testkit::Operation;

use crate::settle::{TPM, call, owed, returned, world};
use crate::world::settle;

#[tokio::test(start_paused = true)]
async fn many_settles_at_once_share_a_write() {
    let world = world().await;
    let client = world.client();
    // A bucket in use: near its brim there would be less room for returns.
    let _ = call(&client, 400).await;
    let mut grants = Vec::new();
    for _ in 0..50 {
        grants.push(call(&client, 10).await);
    }
    let world = world.distant();
    world.dynamo.meter().reset();
    let settling = grants.into_iter().enumerate().map(|(n, mut grant)| {
        // Some used more, most less.
        let used = if n % 10 == 0 { 15 } else { 5 };
        tokio::spawn(async move { grant.settle(TPM, used).await.unwrap() })
    });
    for (n, settling) in settling.collect::<Vec<_>>().into_iter().enumerate() {
        let settled = if n % 10 == 0 { owed(5) } else { returned(5) };
        assert_eq!(settling.await.unwrap(), settled, "call {n}");
    }
    let usage = world.dynamo.meter().of(Operation::UpdateItem);
    assert!(usage.requests <= 3, "{usage:?}");
    assert_eq!(world.level(TPM).await.split('.').next(), Some("300"));
}

/// Near the brim each may return only what it found room for, and the others' returns take of that.
#[tokio::test(start_paused = true)]
async fn settles_at_once_return_as_much_as_one_after_the_other() {
    for newest_first in [false, true] {
        let world = world().await;
        let client = world.client();
        let mut grants = Vec::new();
        for _ in 0..50 {
            grants.push(call(&client, 10).await);
        }
        if newest_first {
            grants.reverse();
        }
        let gate = world.dynamo.faults().hold_next(Operation::UpdateItem);
        let settling: Vec<_> = grants
            .into_iter()
            .map(|mut grant| tokio::spawn(async move { grant.settle(TPM, 5).await.unwrap() }))
            .collect();
        gate.reached().await;
        settle().await;
        gate.open();
        let mut back = 0;
        for settling in settling {
            back += i32::from(settling.await.unwrap() == returned(5));
        }
        assert_eq!((back, world.level(TPM).await.as_str()), (50, "750"), "newest first: {newest_first}");
    }
}

#[tokio::test(start_paused = true)]
async fn settles_of_several_processes_and_takes_in_between_add_up() {
    let world = world().await;
    let clients = [world.client(), world.client(), world.client()];
    let _ = call(&clients[0], 300).await;
    let mut grants = Vec::new();
    for client in &clients {
        for _ in 0..5 {
            grants.push(call(client, 20).await);
        }
    }
    let _ = call(&clients[2], 100).await;
    let settling: Vec<_> = grants
        .into_iter()
        .map(|mut grant| tokio::spawn(async move { grant.settle(TPM, 8).await.unwrap() }))
        .collect();
    for settling in settling {
        assert_eq!(settling.await.unwrap(), returned(12));
    }
    assert_eq!(world.level(TPM).await, "480");
}
