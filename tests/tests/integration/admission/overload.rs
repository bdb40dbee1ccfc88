//! More is asked for than the vendor serves, as the example of docs/admission.md asks for it.

use std::sync::Mutex;

use super::*;
use sluice_sdk::LimitError;
use tokio::time::Instant;

const LONGEST_CALL: Duration = Duration::from_secs(30);

/// When calls were served, how long after they came.
#[derive(Default)]
struct Served(Mutex<Vec<(Instant, Duration)>>);

async fn handle(client: Client, served: std::sync::Arc<Served>) {
    let came = Instant::now();
    if !client.admit(SLOTS, 1, SLO).await.unwrap().is_admitted() {
        return;
    }
    let slot = client.slot(SLOTS).max_wait(SLO.unwrap()).timeout(SLO.unwrap() + LONGEST_CALL);
    let call = slot.run(async |_| {
        sleep(secs(1)).await;
        Ok::<_, LimitError>(())
    });
    match call.await {
        Ok(()) => served.0.lock().unwrap().push((Instant::now(), came.elapsed())),
        Err(LimitError::Refused(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Five slots and calls of a second serve five a second; eight come. What is shed keeps the vendor busy with
/// what is in time.
#[tokio::test(start_paused = true)]
async fn under_overload_the_vendor_is_kept_busy_and_what_it_serves_is_in_time() {
    let world = World::embedded().await;
    world.slots(SLOTS, 5).await;
    let (client, sweeper) = (world.client(), world.client());
    let served = std::sync::Arc::new(Served::default());
    let began = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for n in 0..8 * 180 {
        callers.spawn(handle(client.clone(), std::sync::Arc::clone(&served)));
        if n % 80 == 0 {
            let _ = sweeper.ops().sweep(SweepOptions::default()).await.unwrap();
        }
        sleep(Duration::from_millis(125)).await;
    }
    while callers.join_next().await.is_some() {}
    let served = served.0.lock().unwrap();
    for minute in 0..3 {
        let (from, to) = (began + secs(60 * minute), began + secs(60 * minute + 60));
        let of_minute: Vec<_> =
            served.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, took)| *took).collect();
        let late = of_minute.iter().filter(|took| **took > SLO.unwrap() + secs(2)).count();
        assert!(of_minute.len() >= 285, "minute {minute}: {} of the 300 that it can serve", of_minute.len());
        assert_eq!(late, 0, "minute {minute}");
    }
}
