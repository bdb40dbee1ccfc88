//! Right after an outage, a process with a share policy waits before it heals; it must not try again and again.

use std::sync::mpsc::channel;
use std::thread;

use tokio::runtime::Builder;

use super::*;

/// A bucket of two slots that crashed holders have; a client that asks for one, and sees an outage that ends
/// `out_until` after its first refusal. How long until it got the slot.
async fn back_after(out_until: Duration) -> Duration {
    let world = World::embedded().await;
    world.slots(SLOTS, 2).await;
    crash(&world, 2).await;
    let client = world.client_with(|settings| settings.on_unavailable("share:0.5".parse().unwrap()));
    refusal(&client, SLOTS).await;
    let began = Instant::now();
    settle().await;
    world.dynamo.faults().draw(|_| Some(Fault::Hang));
    client.acquire("openai#rpm").await.unwrap_err();
    sleep(out_until - began.elapsed()).await;
    world.dynamo.faults().draw(|_| None);
    polled_until_granted(&client).await
}

/// Without the pause, the task that scans is due again at once, and no other task of its thread runs any more:
/// hence a thread of its own, and a time by the machine's clock.
#[test]
fn a_scan_that_is_due_right_after_an_outage_waits_for_the_holders() {
    let (done, ended) = channel();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        for tenths in 60..90 {
            let out_until = Duration::from_millis(100 * tenths);
            let took = runtime.block_on(back_after(out_until));
            assert!(took < BACK_WITHIN, "out until {out_until:?}: back after {took:?}");
        }
        done.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(60)).expect("every outage ends, and the slot comes back");
}
