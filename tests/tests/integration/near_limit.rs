//! The warning that most of a limit is used.

use std::time::Duration;

use sluice_sdk::{ClientBuilder, Request};

use crate::events::{lines_of, listen};
use crate::kind::Kind;
use crate::metrics::{Listening, counted};
use crate::world::{World, take};

const RPM: &str = "openai#rpm";
const SLOTS: &str = "elevenlabs#concurrent";

fn warned(listening: &Listening, name: &str) -> u64 {
    counted(&listening.recorded(), "sluice.limit.near", &[("dimension", name)])
}

#[tokio::test(start_paused = true)]
async fn a_rate_bucket_warns_once_at_its_part_and_again_after_it_recovered() {
    listen();
    let listening = Listening::begin();
    let world = World::with_rate(RPM, 100, 100).await;
    let client = world.client_with(|settings| settings.caller("api"));
    let requests = world.dynamo.meter();
    let _ = take(&client, Request::from(RPM).cost(RPM, 79)).await;
    assert_eq!(warned(&listening, RPM), 0, "79 %");
    requests.reset();
    let _ = take(&client, RPM).await;
    assert_eq!(requests.reset().requests, 1, "its own write, and nothing for the warning");
    assert_eq!(warned(&listening, RPM), 1, "80 %");
    for _ in 0..15 {
        let _ = take(&client, RPM).await;
    }
    assert_eq!(warned(&listening, RPM), 0, "it has said so");
    // Half of the part is the border of recovery: 60 s later 36 are used, and one.
    world.pass(Duration::from_secs(60));
    let _ = take(&client, RPM).await;
    let _ = take(&client, Request::from(RPM).cost(RPM, 50)).await;
    assert_eq!(warned(&listening, RPM), 1, "it recovered, and is near again");
    let lines = lines_of("limit.near");
    let line = lines.first().unwrap();
    assert_eq!((lines.len(), &line["dimension"], &line["caller"]), (2, &RPM.into(), &"api".into()));
    assert_eq!((&line["used"], &line["capacity"]), (&"80".into(), &"100".into()));
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_has_not_recovered_or_warned_just_now_is_quiet() {
    let listening = Listening::begin();
    let world = World::with_rate(RPM, 100, 1_000_000).await;
    let client = world.client();
    let _ = take(&client, Request::from(RPM).cost(RPM, 85)).await;
    assert_eq!(warned(&listening, RPM), 1);
    world.pass(Duration::from_secs(600));
    let _ = take(&client, RPM).await;
    assert_eq!(warned(&listening, RPM), 0, "it is near as before");
    let world = World::with_rate(RPM, 100, 10).await;
    let client = world.client();
    // It fills within ten seconds, so it recovers and is near again many times a minute.
    for _ in 0..12 {
        let _ = take(&client, Request::from(RPM).cost(RPM, 90)).await;
        world.pass(Duration::from_secs(10));
        let _ = take(&client, Request::from(RPM).cost(RPM, 1)).await;
        world.pass(Duration::from_millis(100));
    }
    assert_eq!(warned(&listening, RPM), 2, "once a minute");
}

#[tokio::test(start_paused = true)]
async fn slots_warn_when_so_many_are_held() {
    for kind in [Kind::Rows, Kind::Inline] {
        let listening = Listening::begin();
        let world = World::with_slots(SLOTS, 10).await.with(kind);
        let client = world.client();
        let mut held = Vec::new();
        for _ in 0..7 {
            held.push(take(&client, SLOTS).await);
        }
        assert_eq!(warned(&listening, SLOTS), 0, "{kind:?}");
        held.push(take(&client, SLOTS).await);
        assert_eq!(warned(&listening, SLOTS), 1, "{kind:?}");
        held.push(take(&client, SLOTS).await);
        assert_eq!(warned(&listening, SLOTS), 0, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bucket_for_a_few_calls_and_a_client_without_the_setting_never_warn() {
    let part = |part: Option<&'static str>| {
        move |settings: ClientBuilder| settings.warn_at(part.map(|part| part.parse().unwrap()))
    };
    for (capacity, setting, expected) in
        [(4, Some("0.8"), 0), (5, Some("0.8"), 1), (100, None, 0), (100, Some("1"), 0)]
    {
        let listening = Listening::begin();
        let world = World::with_rate(RPM, capacity, 1_000).await;
        let client = world.client_with(part(setting));
        let _ = take(&client, Request::from(RPM).cost(RPM, capacity)).await;
        assert_eq!(warned(&listening, RPM), expected, "{capacity} {setting:?}");
    }
}
