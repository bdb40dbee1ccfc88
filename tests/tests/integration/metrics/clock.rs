//! The offset of a clock, by what the replies say.

use std::time::Duration;

use super::{Listening, gauge};
use crate::events;
use crate::world::{World, take};

const RPM: &str = "a#rpm";

async fn world() -> World {
    let world = World::embedded().await;
    world.rate(RPM, 100, 60).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_right_is_known_to_be_and_nobody_is_warned() {
    events::listen();
    let world = world().await;
    let client = world.client();
    assert_eq!(client.clock_offset(), None, "before the first reply");
    for _ in 0..20 {
        let _ = take(&client, RPM).await;
        world.pass(Duration::from_millis(370));
    }
    let offset = client.clock_offset().unwrap();
    assert!((offset.lower_micros()..=offset.upper_micros()).contains(&0), "{offset:?}");
    assert!(offset.upper_micros() - offset.lower_micros() < 100_000, "{offset:?}");
    assert!(!events::events().contains_key("clock.offset"));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_off_by_two_seconds_is_warned_of_and_told() {
    for (off_by, ahead) in [(2_000_000, true), (-2_000_000, false)] {
        events::listen();
        let listening = Listening::begin();
        let world = world().await;
        let client = world.client_off_by(off_by);
        for _ in 0..20 {
            let _ = take(&client, RPM).await;
            world.pass(Duration::from_millis(370));
        }
        let offset = client.clock_offset().unwrap();
        assert!((offset.lower_micros()..=offset.upper_micros()).contains(&-off_by), "{offset:?}");
        assert!(offset.micros().abs() > 1_900_000 && (offset.micros() < 0) == ahead, "{offset:?}");
        let told = gauge(&listening.recorded(), "sluice.clock.offset", &[]).unwrap();
        assert!((told.abs() - 2.0).abs() < 0.1 && (told < 0.0) == ahead, "{told}");
        let warned = events::events().remove("clock.offset").unwrap();
        assert!(warned["offset_ms"].as_i64().unwrap().abs() > 1_000, "{warned}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_off_is_warned_of_once_a_minute() {
    events::listen();
    let world = world().await;
    let client = world.client_off_by(5_000_000);
    let mut warned = 0;
    for _ in 0..30 {
        let _ = take(&client, RPM).await;
        warned += usize::from(events::events().contains_key("clock.offset"));
        events::listen();
        // Both clocks: warnings are spaced by the runtime's.
        tokio::time::advance(Duration::from_secs(10)).await;
    }
    assert_eq!(warned, 5);
}

#[tokio::test(start_paused = true)]
async fn a_sweep_reports_the_offset_of_its_clock() {
    let world = world().await;
    let report =
        world.client_off_by(3_000_000).ops().sweep(sluice_ops::SweepOptions::default()).await.unwrap();
    let offset = report.clock_offset.unwrap();
    assert!((-3_000..=-1_990).contains(&offset.millis()), "{offset:?}");
    let line = serde_json::to_value(&report).unwrap();
    assert_eq!(line["clock_offset_ms"].as_i64(), Some(offset.millis()));
}
