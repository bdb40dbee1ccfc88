//! What a product sees of shadow mode beyond its grants: retries, settlements, admission, stock, nested
//! slots.

use std::cell::Cell;
use std::time::Duration;

use sluice_sdk::{Basis, LimitError, Mode, Reply, Request};
use tokio::time::Instant;

use super::{RPM, SLOTS, shadow};
use crate::metrics::{Listening, counted};
use crate::world::{World, take};

const TPM: &str = "openai#tpm";

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_not_made_again_and_sleeps_nowhere() {
    let world = World::with_rate(RPM, 100, 60).await;
    let (calls, began) = (Cell::new(0), Instant::now());
    let headers = [("retry-after", "2")];
    let slot = shadow(&world).slot(RPM).retry(3);
    let decision = slot.run(async |slot| {
        calls.set(calls.get() + 1);
        Ok::<_, LimitError>(slot.reply(Reply::new(429, &headers), ()).await?.decision)
    });
    assert_eq!(decision.await.unwrap().wait(), Some(Duration::from_secs(2)), "the decision is the product's");
    assert_eq!((calls.get(), began.elapsed()), (1, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn what_a_call_used_is_settled_where_it_holds_tokens_and_ignored_where_it_holds_none() {
    let world = World::with_rate(RPM, 1, 1_000_000_000).await;
    world.tokens(TPM, 1_000, 1_000_000_000).await;
    let client = shadow(&world);
    let _last = take(&client, RPM).await;
    // Nothing of requests, all of its tokens.
    let slot = client.slot([RPM, TPM]).cost(TPM, 500);
    let call = slot.run(async |slot| {
        assert_eq!(slot.basis(), Basis::Shadow);
        slot.used(RPM, 1)?;
        slot.used(TPM, 200)
    });
    call.await.unwrap();
    assert_eq!(world.whole_level(TPM).await, "500", "OpenAI counts what was reserved on arrival");
    let mut grant = take(&client, Request::from([RPM, TPM]).cost(TPM, 100)).await;
    assert_eq!((grant.cost(RPM), grant.cost(TPM).unwrap().to_string()), (None, "100".to_owned()));
    grant.settle(RPM, 1).await.unwrap();
    grant.settle(TPM, 300).await.unwrap();
    assert_eq!(world.whole_level(TPM).await, "200");
}

#[tokio::test(start_paused = true)]
async fn admission_admits_and_counts_as_in_its_own_shadow_mode() {
    let listening = Listening::begin();
    let world = World::with_rate(RPM, 1, 60).await;
    let client = shadow(&world);
    let _last = take(&client, RPM).await;
    let answer = client.admit(RPM, 1, Some(Duration::from_secs(1))).await.unwrap();
    let sluice_sdk::admission::Admission::Admitted(admitted) = answer else { panic!("shed") };
    assert!(admitted.would_shed().is_some());
    let labels = [("dimension", RPM), ("decision", "over_slo"), ("mode", "shadow")];
    assert_eq!(counted(&listening.recorded(), "sluice.admission", &labels), 1);
}

#[tokio::test(start_paused = true)]
async fn stock_is_used_and_its_end_stops_nobody() {
    let world = World::with_rate(RPM, 40, 1_000_000_000).await;
    let client = world.client_with(|settings| settings.mode(Mode::Shadow).prefetch([RPM]));
    let mut of_table = 0;
    for _ in 0..100 {
        of_table += u32::from(take(&client, RPM).await.basis() == Basis::Table);
    }
    assert_eq!(of_table, 40);
}

/// It cannot wait for itself here, and would with SLUICE_MODE=enforce: that is counted.
#[tokio::test(start_paused = true)]
async fn a_slot_inside_of_a_slot_of_the_same_bucket_goes_on_and_is_counted() {
    let listening = Listening::begin();
    let world = World::with_slots(SLOTS, 1).await;
    let client = shadow(&world);
    let outer =
        client.slot(SLOTS).run(async |_| client.slot(SLOTS).run(async |_| Ok::<_, LimitError>(7)).await);
    assert_eq!(outer.await.unwrap(), 7);
    assert_eq!(counted(&listening.recorded(), "sluice.shadow.errors", &[("reason", "request")]), 1);
    assert_eq!(world.free(SLOTS).await, "1");
}

/// The product's own limits of time hold: the wait is none, and the call may take as long as it says.
#[tokio::test(start_paused = true)]
async fn a_call_that_outlasts_its_own_time_is_cut_off_as_ever() {
    let world = World::with_rate(RPM, 1, 60).await;
    let slot = shadow(&world).slot(RPM).max_call(Duration::from_secs(1));
    let call = slot.run(async |_| Ok::<_, LimitError>(tokio::time::sleep(Duration::from_secs(5)).await));
    assert!(matches!(call.await, Err(LimitError::TimedOut(_))));
}
