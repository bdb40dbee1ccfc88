//! Shadow mode: every call goes on at once, and what the limits would have refused is counted.

mod beside;
mod failing;
mod product;

use std::time::Duration;

use metrics_util::debugging::DebugValue;
use sluice_sdk::{Basis, Client, LimitError, Mode};
use tokio::time::Instant;

use crate::events::{lines_of, listen};
use crate::kind::Kind;
use crate::metrics::{Listening, Recorded, counted, value};
use crate::world::{World, take};

const RPM: &str = "openai#rpm";
const SLOTS: &str = "elevenlabs#concurrent";

fn shadow(world: &World) -> Client {
    world.client_with(|settings| settings.mode(Mode::Shadow))
}

fn refused(recorded: &Recorded, dimension: &str, reason: &str) -> u64 {
    counted(recorded, "sluice.shadow.refusals", &[("dimension", dimension), ("reason", reason)])
}

/// The waits that slots would have had, in whole seconds.
fn waits(recorded: &Recorded, dimension: &str) -> Vec<f64> {
    match value(recorded, "sluice.shadow.wait", &[("dimension", dimension)]) {
        Some(DebugValue::Histogram(waits)) => waits.iter().map(|wait| wait.into_inner().round()).collect(),
        _ => Vec::new(),
    }
}

/// A bucket as arithmetic on paper has it: 60 tokens, one a second.
struct ExactBucket {
    millis_of_tokens: i64,
}

impl ExactBucket {
    fn passes(&mut self, millis: i64) {
        self.millis_of_tokens = (self.millis_of_tokens + millis).min(60_000);
    }

    fn takes(&mut self) -> bool {
        let has = self.millis_of_tokens >= 1_000;
        self.millis_of_tokens -= if has { 1_000 } else { 0 };
        has
    }
}

#[tokio::test(start_paused = true)]
async fn at_ten_times_the_limit_nobody_waits_and_what_an_exact_bucket_refuses_is_counted() {
    let listening = Listening::begin();
    let world = World::with_rate(RPM, 60, 60).await;
    let client = shadow(&world);
    let (began, mut exact, mut would_refuse) = (Instant::now(), ExactBucket { millis_of_tokens: 60_000 }, 0);
    for call in 0..3_000 {
        let grant = take(&client, RPM).await;
        let has = exact.takes();
        would_refuse += u64::from(!has);
        assert_eq!(grant.basis(), if has { Basis::Table } else { Basis::Shadow }, "call {call}");
        assert_eq!(grant.dimensions().count(), usize::from(has), "it holds nothing of what refused");
        grant.release().await.unwrap();
        world.pass(Duration::from_millis(100));
        exact.passes(100);
    }
    assert_eq!(began.elapsed(), Duration::ZERO, "nobody waits");
    assert!(would_refuse > 2_500, "ten times the limit: {would_refuse}");
    let recorded = listening.recorded();
    assert_eq!(refused(&recorded, RPM, "exhausted"), would_refuse);
    let grants = |source| counted(&recorded, "sluice.grants", &[("dimension", RPM), ("source", source)]);
    assert_eq!((grants("shadow"), grants("table")), (would_refuse, 3_000 - would_refuse));
    assert_eq!(counted(&recorded, "sluice.refusals", &[("dimension", RPM), ("reason", "exhausted")]), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slot_starts_now_and_its_wait_is_counted_and_books_nothing() {
    let listening = Listening::begin();
    let world = World::with_rate(RPM, 1, 60).await;
    let client = shadow(&world);
    let began = Instant::now();
    let _first = take(&client, RPM).await;
    for _ in 0..5 {
        let now = world.dynamo.clock().now();
        let slot = client.slot(RPM).max_wait(Duration::from_secs(90));
        let (starts, basis) = slot
            .run(async |slot| Ok::<_, LimitError>(((slot.start_in(RPM), slot.start_at()), slot.basis())))
            .await
            .unwrap();
        assert_eq!((starts, basis), ((Some(now), now), Basis::Shadow));
    }
    let impatient = client.slot(RPM).max_wait(Duration::from_secs(10)).grant().await.unwrap();
    assert_eq!((impatient.basis(), impatient.booked_wait()), (Basis::Shadow, Duration::ZERO));
    assert_eq!(began.elapsed(), Duration::ZERO);
    let recorded = listening.recorded();
    assert_eq!(waits(&recorded, RPM), [60.0; 5], "no backlog: each would have been the next");
    assert_eq!(refused(&recorded, RPM, "exhausted"), 1, "the one whose patience is shorter than the wait");
    assert_eq!(world.level(RPM).await, "0", "nothing is booked");
}

#[tokio::test(start_paused = true)]
async fn slots_above_the_capacity_run_and_each_gives_back_what_it_holds() {
    for kind in [Kind::Rows, Kind::Inline] {
        let listening = Listening::begin();
        let world = World::with_slots(SLOTS, 2).await.with(kind);
        world.rate(RPM, 100, 1_000_000_000).await;
        let client = shadow(&world);
        let together = std::sync::Arc::new(tokio::sync::Barrier::new(6));
        let calls = (0..5).map(|_| {
            let (client, together) = (client.clone(), std::sync::Arc::clone(&together));
            tokio::spawn(async move {
                let slot = client.slot([SLOTS, RPM]).max_call(Duration::from_secs(1_000));
                let call = slot.run(async |slot| {
                    together.wait().await;
                    together.wait().await;
                    Ok::<_, LimitError>(slot.basis())
                });
                call.await.unwrap()
            })
        });
        let calls: Vec<_> = calls.collect();
        together.wait().await;
        // All five run.
        assert_eq!((world.free(SLOTS).await.as_str(), world.leases().await), ("0", 2), "{kind:?}");
        assert_eq!(world.whole_level(RPM).await, "95", "a bucket that has something counts every call");
        together.wait().await;
        let mut of_table = 0;
        for call in calls {
            of_table += u32::from(call.await.unwrap() == Basis::Table);
        }
        assert_eq!(
            (of_table, world.free(SLOTS).await.as_str(), world.leases().await),
            (2, "2", 0),
            "{kind:?}"
        );
        let recorded = listening.recorded();
        assert_eq!(
            waits(&recorded, SLOTS).len() as u64 + refused(&recorded, SLOTS, "no_free_slot"),
            3,
            "{kind:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_names_a_bucket_once_in_a_while_and_not_each_call() {
    listen();
    let world = World::with_rate(RPM, 1, 1_000_000).await;
    let client = shadow(&world);
    for minute in 0..2 {
        for _ in 0..50 {
            let _ = take(&client, RPM).await;
        }
        if minute == 0 {
            tokio::time::advance(Duration::from_secs(61)).await;
        }
    }
    let lines = lines_of("shadow.let_through");
    let calls: Vec<_> = lines.iter().map(|line| line["calls"].as_u64().unwrap()).collect();
    assert_eq!(calls, [1, 49], "{lines:?}");
    assert_eq!((&lines[1]["dimension"], &lines[1]["reason"]), (&RPM.into(), &"exhausted".into()));
}
