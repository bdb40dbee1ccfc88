//! A slot together with rates: all of them or none.

use tokio::time::Instant;

use super::KIND;
use crate::world::{settle, take};

const RPM: &str = "openai#rpm";
const TPM: &str = "openai#tpm";
const SLOTS: &str = "openai#concurrent";

#[tokio::test(start_paused = true)]
async fn a_slot_over_rates_and_slots_uses_every_token_when_it_is_taken() {
    let world = KIND.with_rate(RPM, 1, 2).await;
    world.rate(TPM, 3, 3).await;
    world.slots(SLOTS, 4).await;
    let client = world.client();
    let began = Instant::now();
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                client.slot([RPM, TPM, SLOTS]).run(async |_| Ok::<_, std::io::Error>(began.elapsed())).await.unwrap()
            })
        })
        .collect();
    let mut starts = Vec::new();
    for call in calls {
        starts.push(call.await.unwrap().as_secs());
    }
    starts.sort_unstable();
    assert_eq!(starts, [0, 2, 4, 6]);
    settle().await;
    assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("4", 0));
    assert_eq!(world.level(TPM).await, "2", "the tokens of each call were taken at its start");
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_cannot_book_its_rate_gives_its_slot_back() {
    let world = KIND.with_rate(RPM, 1, 3_600).await;
    world.slots(SLOTS, 1).await;
    let client = world.client();
    let _ = take(&client, RPM).await;
    let refused = client.slot([RPM, SLOTS]).run(async |_| Ok::<_, std::io::Error>(())).await;
    assert!(refused.is_err());
    settle().await;
    assert_eq!(
        (world.free(SLOTS).await.as_str(), world.leases().await, world.level(RPM).await.as_str()),
        ("1", 0, "0")
    );
}
