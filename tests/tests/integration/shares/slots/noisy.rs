//! Shares of slots beside a product that always wants more than there is.

use super::*;
use crate::world::TABLE;

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
