//! A survey tells all there is in a table, by one scan.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use sluice_core::schema::{DIRECTORY_KEY, KEY, LEASES, LOAD_PREFIX};
use sluice_core::{Amount, Timestamp};
use sluice_sdk::{Leases, Outcome, Request};
use sluice_testkit::{Fault, Operation};

use crate::metrics::{Listening, gauge};
use crate::world::{World, dimension, number, take, text};

const RPM: &str = "openai#rpm";
const SLOTS: &str = "elevenlabs#concurrent";
const INLINE: &str = "vendor#inline#concurrent";

#[tokio::test(start_paused = true)]
async fn a_survey_tells_every_kind_of_row() {
    let world = World::with_rate(RPM, 10, 10).await;
    world.slots(SLOTS, 3).await;
    world.slots(INLINE, 3).await;
    let client = world.client_with(|settings| settings.caller("worker-7"));
    assert!(client.acquire(Request::from(RPM).cost(RPM, 10)).await.unwrap().granted().is_some());
    let _slot = take(&client, SLOTS).await;
    let inline = world.client_with(|settings| settings.leases(Leases::Inline));
    let _inline = take(&inline, INLINE).await;
    let refused = client.acquire(Request::from(RPM).ticket_within(Duration::from_secs(60))).await.unwrap();
    let Outcome::RetryIn(retry) = refused else { panic!("granted") };
    assert!(retry.ticket().is_some(), "{retry:?}");
    world.put([(KEY.into(), text("broken#rpm")), ("capacity".into(), text("many"))].into()).await;
    world.put([(KEY.into(), text("lease#broken#rpm#1"))].into()).await;
    world.put([(KEY.into(), text("settings"))].into()).await;
    world.put([(KEY.into(), text("load#later"))].into()).await;
    world.put([(KEY.into(), text(DIRECTORY_KEY))].into()).await;

    let survey = client.ops().survey().await.unwrap();
    let names: Vec<_> = survey.buckets.iter().map(|row| (row.key.as_str(), row.bucket.is_ok())).collect();
    assert_eq!(names, [("broken#rpm", false), (SLOTS, true), (RPM, true), (INLINE, true)]);
    assert_eq!(survey.buckets[1].bucket.as_ref().unwrap().tokens(), Amount::from_tokens(2));
    let mut leases: Vec<_> = survey.leases.iter().map(|row| (row.is_inline, &row.lease)).collect();
    leases.sort_by_key(|(is_inline, lease)| (*is_inline, lease.is_err()));
    let [(false, Ok(slot)), (false, Err(_)), (true, Ok(inline))] = leases[..] else { panic!("{leases:?}") };
    assert_eq!((slot.dimension().as_str(), slot.caller()), (SLOTS, Some("worker-7")));
    assert_eq!((inline.dimension().as_str(), inline.caller()), (INLINE, None));
    let mut unknown = survey.unknown.clone();
    unknown.sort();
    assert_eq!(unknown, ["load#later", "settings"]);
    assert_eq!((survey.tickets, survey.rows, survey.pages, survey.is_whole), (1, 10, 1, true));
    assert_eq!(survey.at, world.dynamo.clock().now());
}

/// A load row as a sweep leaves it, with slots taken and nothing moving for a day.
fn load(name: &str, taken: AttributeValue) -> HashMap<String, AttributeValue> {
    let row = [("pending", "2"), ("drain_rate", "0.5"), ("measured_at", "1709550000"), ("sequence", "7")];
    let mut row: HashMap<_, _> = row.map(|(attribute, value)| (attribute.to_owned(), number(value))).into();
    row.insert("taken".into(), taken);
    row.insert("still_since".into(), number("1709463600"));
    row.insert("refused".into(), number("9"));
    row.insert(KEY.into(), text(&format!("{LOAD_PREFIX}{name}")));
    row
}

#[tokio::test(start_paused = true)]
async fn a_survey_tells_what_sweeps_measured() {
    let world = World::with_rate(RPM, 1, 60).await;
    world.slots(SLOTS, 3).await;
    world.slots(INLINE, 3).await;
    world.put(load(SLOTS, number("3"))).await;
    world.put(load(INLINE, text("many"))).await;
    let survey = world.client().ops().survey().await.unwrap();
    let [slots, inline] = &survey.loads[..] else { panic!("{:?}", survey.loads) };
    assert_eq!((&slots.dimension, &inline.dimension), (&dimension(SLOTS), &dimension(INLINE)));
    let read = slots.load.as_ref().unwrap();
    assert_eq!((read.pending(), read.sequence(), read.refused()), (Amount::from_tokens(2), 7, 9));
    assert_eq!(read.measured_at(), Some(Timestamp::from_secs(1_709_550_000)));
    assert_eq!(inline.load.as_ref().unwrap_err().attribute, "taken");
}

/// A sweep that was under way when a bucket was removed writes its load anew; and a bucket that was made anew
/// may be one of a rate.
#[tokio::test(start_paused = true)]
async fn a_load_row_without_its_bucket_of_slots_is_not_told() {
    let world = World::with_rate(RPM, 1, 60).await;
    world.slots(SLOTS, 3).await;
    for name in [SLOTS, INLINE, RPM] {
        world.put(load(name, number("3"))).await;
    }
    let client = world.client();
    let listening = Listening::begin();
    let leaked = || {
        let recorded = listening.recorded();
        [SLOTS, INLINE, RPM].map(|name| gauge(&recorded, "sluice.load.leaked", &[("dimension", name)]))
    };
    let survey = client.ops().survey().await.unwrap();
    let told: Vec<_> = survey.loads.iter().map(|row| row.dimension.as_str()).collect();
    assert_eq!(told, [SLOTS]);
    survey.publish();
    assert_eq!(leaked(), [Some(3.0), None, None]);
    assert!(client.ops().remove_bucket(&dimension(SLOTS)).await.unwrap());
    assert!(world.row(&format!("{LOAD_PREFIX}{SLOTS}")).await.is_none(), "it goes with its bucket");
    assert!(world.row(&format!("{LOAD_PREFIX}{RPM}")).await.is_some(), "and no other does");
    assert!(client.ops().remove_bucket(&dimension(RPM)).await.unwrap());
    assert!(world.row(&format!("{LOAD_PREFIX}{RPM}")).await.is_none(), "a rate bucket's too");
    world.put(load(SLOTS, number("3"))).await;
    assert!(client.ops().survey().await.unwrap().loads.is_empty());
}

/// Who may delete no other row has removed the bucket all the same.
#[tokio::test(start_paused = true)]
async fn a_bucket_is_removed_though_its_load_row_stays() {
    let world = World::with_rate(RPM, 1, 60).await;
    world.slots(SLOTS, 3).await;
    world.put(load(SLOTS, number("3"))).await;
    let deletes = AtomicUsize::new(0);
    world.dynamo.faults().draw(move |call| {
        let is_second =
            call.operation == Operation::DeleteItem && deletes.fetch_add(1, Ordering::Relaxed) > 0;
        is_second.then(Fault::throttled)
    });
    assert!(world.client().ops().remove_bucket(&dimension(SLOTS)).await.unwrap());
    assert!(world.row(SLOTS).await.is_none() && world.row(&format!("{LOAD_PREFIX}{SLOTS}")).await.is_some());
}

/// What stands there under the name is none of ours.
#[tokio::test(start_paused = true)]
async fn a_rate_bucket_has_no_inline_leases() {
    let world = World::with_rate(RPM, 1, 60).await;
    let mut row = world.row(RPM).await.unwrap();
    row.insert(LEASES.into(), text("none"));
    world.put(row).await;
    let survey = world.client().ops().survey().await.unwrap();
    assert!(survey.leases.is_empty() && survey.buckets[0].bucket.is_ok(), "{survey:?}");
}

#[tokio::test(start_paused = true)]
async fn a_survey_says_what_it_cost_and_where_it_stopped() {
    let world = World::embedded().await;
    for n in 0..4 {
        let row = [(KEY.into(), text(&format!("big#{n}"))), ("padding".into(), text(&"x".repeat(390_000)))];
        world.put(row.into()).await;
    }
    let client = world.client();
    world.dynamo.meter().reset();
    let whole = client.ops().survey().await.unwrap();
    let metered = world.dynamo.meter().of(Operation::Scan);
    assert_eq!((whole.rows, whole.pages, whole.is_whole), (4, 2, true));
    assert_eq!((metered.requests, metered.read_units), (2, whole.read_units.unwrap()));
    let part = client.ops().survey_within(NonZeroUsize::MIN).await.unwrap();
    assert_eq!((part.pages, part.is_whole), (1, false));
    assert!(part.rows < whole.rows && part.read_units < whole.read_units, "{part:?}");
}

#[tokio::test(start_paused = true)]
async fn a_survey_of_a_table_that_does_not_answer_is_an_error() {
    let world = World::with_rate(RPM, 1, 60).await;
    world.dynamo.faults().always(Operation::Scan, Fault::throttled());
    let error = world.client().ops().survey().await.unwrap_err();
    assert!(error.to_string().contains("Scan"), "{error}");
}
