//! Shares of slots beside a product that always wants more than there is.

use super::*;
use crate::world::{TABLE, all_or_first};

/// Two products that always want more than there is: each has what it was promised, and no slot is idle for
/// long.
#[tokio::test(start_paused = true)]
async fn a_noisy_product_takes_nothing_that_another_asks_for() {
    beside_a_noisy_product(Kind::Rows, Duration::from_millis(200)).await;
}

/// A caller that waits sees in time that a slot of another share came back.
#[tokio::test(start_paused = true)]
async fn a_slot_that_is_lent_is_soon_lent_again() {
    fastrand::seed(7);
    let idle = beside_a_noisy_product(Kind::Rows, Duration::from_millis(500)).await;
    assert!(idle <= 0.035, "idle for {idle} of the time");
}

#[tokio::test(start_paused = true)]
#[ignore = "takes a minute: task test:long"]
async fn a_noisy_product_takes_nothing_of_inline_leases() {
    beside_a_noisy_product(Kind::Inline, Duration::from_millis(200)).await;
}

/// Returns the part of the time in which the slot that batch lends is free. Somebody always waits for it. In
/// the embedded engine: a look at its rows takes no time.
async fn beside_a_noisy_product(kind: Kind, hold: Duration) -> f64 {
    let world = split_in(World::embedded().await.with(kind)).await.distant();
    let search = world.client_with(|settings| settings.share(name("search")));
    let (noisy, other) = (world.client(), world.client());
    let ends = Instant::now() + Duration::from_secs(60);
    // Slots times seconds.
    let caller = |client: Client| async move {
        let mut held = Duration::ZERO;
        while Instant::now() < ends {
            let slot = client.slot(CONCURRENT).max_wait(Duration::from_secs(60));
            // What is held after the end does not count.
            held += slot
                .run(async |_| {
                    let counts = ends.saturating_duration_since(Instant::now()).min(hold);
                    sleep(hold).await;
                    Ok::<_, LimitError>(counts)
                })
                .await
                .unwrap();
        }
        held.as_secs_f64()
    };
    let crowd = |client: &Client, callers: usize| {
        let all: Vec<_> = (0..callers).map(|_| tokio::spawn(caller(client.clone()))).collect();
        async move {
            let mut sum = 0.0;
            for one in all {
                sum += one.await.unwrap();
            }
            sum / 60.0
        }
    };
    let of_batch = async {
        let (mut free, mut looks) = (0.0, 0.0);
        while Instant::now() < ends {
            sleep(Duration::from_millis(10)).await;
            // One of its two is kept.
            let row = world.dynamo.row(TABLE, BATCH).unwrap().unwrap();
            free += row["tokens"]["N"].as_str().unwrap().parse::<f64>().unwrap() - 1.0;
            looks += 1.0;
        }
        free / looks
    };
    let (of_noisy, of_other, of_search) = (crowd(&noisy, 20), crowd(&other, 20), crowd(&search, 6));
    let (noisy, other, search, idle) = tokio::join!(of_noisy, of_other, of_search, of_batch);
    assert!(search > 4.75, "{kind:?}: {search} of its 5");
    assert!(noisy + other > 3.2, "{kind:?}: {} of their 3 and what is lent", noisy + other);
    idle
}

/// The wait of 99 in 100 calls of a share, which come at random for twenty seconds.
async fn wait_of(client: Client, per_sec: f64, seed: u64) -> Duration {
    const PATIENCE: Duration = Duration::from_secs(10);
    let (mut random, mut calls) = (fastrand::Rng::with_seed(seed), Vec::new());
    let ends = Instant::now() + Duration::from_secs(20);
    while Instant::now() < ends {
        let client = client.clone();
        calls.push(tokio::spawn(async move {
            let asked = Instant::now();
            let called = client.slot(CONCURRENT).max_wait(PATIENCE).run(async |_| {
                let waited = asked.elapsed();
                sleep(Duration::from_millis(200)).await;
                Ok::<_, LimitError>(waited)
            });
            called.await.unwrap_or(PATIENCE)
        }));
        sleep(Duration::from_secs_f64(-(1.0 - random.f64()).ln() / per_sec)).await;
    }
    let mut waits = Vec::new();
    for call in calls {
        waits.push(call.await.unwrap());
    }
    waits.sort_unstable();
    waits[waits.len() * 99 / 100]
}

/// Both ask for twice the slots together, the critical product for two thirds of its share.
#[tokio::test(start_paused = true)]
#[allow(clippy::print_stdout, reason = "a measurement prints its figures")]
async fn critical_calls_wait_for_slots_a_tenth_of_what_background_calls_wait() {
    let draws = [(Kind::Rows, 1), (Kind::Inline, 2), (Kind::Rows, 3), (Kind::Inline, 4)];
    for (kind, seed) in all_or_first(&draws).iter().copied() {
        let world = World::embedded().await.with(kind).distant();
        let background = DeclaredShare { background: true, ..share("batch", "0.2") };
        apply(&world, &split(&[share("search", "0.5"), background])).await.unwrap();
        let of_share = |of: &str| world.client_with(|settings| settings.share(name(of)));
        let (critical, background) = tokio::join!(
            wait_of(of_share("search"), 16.0, seed),
            wait_of(of_share("batch"), 84.0, seed + 10)
        );
        println!(
            "{kind:?}: 99 in 100 critical calls wait less than {critical:?}, background calls {background:?}"
        );
        assert!(critical * 10 <= background, "{kind:?}: {critical:?} and {background:?}");
    }
}
