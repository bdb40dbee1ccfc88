//! Who is served beside a clock that is wrong.

use super::*;
use crate::world::all_or_first;

const RPM: &str = "openai#rpm";

/// Calls as they are granted, one every `every`; who is refused comes back exactly when it was told to.
/// Returns the grants of `time`.
async fn calls(client: Client, every: Duration, time: Duration) -> u32 {
    let (began, mut granted) = (Instant::now(), 0);
    let mut next = began;
    while began.elapsed() < time {
        match client.acquire(RPM).await.unwrap() {
            Outcome::Granted(_) => {
                granted += 1;
                next += every;
                tokio::time::sleep_until(next).await;
            }
            Outcome::RetryIn(retry) => sleep(retry.wait()).await,
        }
    }
    granted
}

/// The part of its calls that a caller with an exact clock got, which wants half of the limit, beside one
/// whose clock is `ahead`, and which takes the other half.
async fn served(world: &World, ahead: i64, per_second: f64, time: Duration) -> f64 {
    let every = Duration::from_secs_f64(2.0 / per_second);
    let skewed = tokio::spawn(calls(world.client_off_by(ahead), every, time));
    sleep(every / 2).await;
    let exact = calls(world.client(), every, time).await;
    assert!(skewed.await.unwrap() > 0);
    f64::from(exact) / (time.as_secs_f64() / every.as_secs_f64())
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_an_exact_clock_is_served_beside_one_that_is_ahead() {
    let cases = [(60, 1.0, 24 * HOUR), (60, 1.0, 240 * SECOND), (20, 10.0, 2 * SECOND), (2, 58.8, 100_000)];
    for (capacity, per_second, ahead) in all_or_first(&cases).iter().copied() {
        let world = World::embedded().await.distant();
        rate(&world, RPM, capacity, &per_second.to_string()).await;
        let served = served(&world, ahead, per_second, Duration::from_secs(120)).await;
        assert!(served >= 0.95, "{capacity} at {per_second}/s beside {ahead} µs: {served}");
    }
}

/// The clock of a process that holds tokens ahead of demand is set back: what has run over must not be used.
#[tokio::test(start_paused = true)]
async fn tokens_taken_ahead_are_not_used_by_a_clock_that_was_set() {
    let world = World::embedded().await;
    rate(&world, RPM, 20, "10").await;
    let machine = Machine::default();
    let client = machine.client(&world, |settings| settings.prefetch([RPM]));
    for _ in 0..6 {
        assert!(client.acquire(RPM).await.unwrap().granted().is_some());
    }
    world.dynamo.meter().reset();
    assert!(client.acquire(RPM).await.unwrap().granted().is_some());
    assert_eq!(world.dynamo.meter().reset().requests, 0, "there is stock");
    machine.set_clock_by(-HOUR);
    assert!(client.acquire(RPM).await.unwrap().granted().is_some());
    assert!(
        world.dynamo.meter().reset().requests > 0,
        "nothing is served from stock before the time is known again"
    );
}
