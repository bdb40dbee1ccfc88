//! Inline leases as they stand in the table: what they are, how they are listed, and that a real engine takes
//! the writes that core plans for them.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use sluice_core::schema::{CAPACITY, INLINE_COST, INLINE_ENDS, KEY, LEASES};
use sluice_core::{
    Amount, CLOCK_ERROR, Cost, InlineAnswer, InlinePlanner, InlineRelease, InlineTake, LeaseId, Limit,
    MOST_INLINE_LEASES, Operand, ReleaseAnswer, Serves, Timestamp, Update, renew_inline,
};
use sluice_ops::{Applied, LimitsError};
use sluice_sdk::Leases;

use crate::world::{World, dimension, number, text};

const SLOTS: &str = "elevenlabs#concurrent";

/// Makes inline leases of one slot each, as a client would that ends them so many seconds from now.
pub(crate) async fn lease(world: &World, ids: &[&str], ends_in: i64) {
    let update = world.dynamodb().update_item().table_name(world.table()).key(KEY, text(SLOTS));
    let update = update.update_expression("SET leases = if_not_exists(leases, :none)");
    update.expression_attribute_values(":none", AttributeValue::M(HashMap::new())).send().await.unwrap();
    let ends =
        Timestamp::from_micros(world.dynamo.clock().now().micros() + ends_in * 1_000_000).ceil_to_second();
    for id in ids {
        let entry = [(INLINE_COST, number("1")), (INLINE_ENDS, number(&ends.to_string()))];
        put(world, id, AttributeValue::M(entry.map(|(name, value)| (name.to_owned(), value)).into())).await;
        let update = world.dynamodb().update_item().table_name(world.table()).key(KEY, text(SLOTS));
        let update = update.update_expression(
            "SET tokens = tokens - :1, version = version + :1, counted = if_not_exists(counted, :0) + :1, \
             admitted = if_not_exists(admitted, :0) + :1, admitted_inline = if_not_exists(admitted_inline, :0) + :1",
        );
        let update = update.expression_attribute_values(":0", number("0"));
        update.expression_attribute_values(":1", number("1")).send().await.unwrap();
    }
}

/// Puts an entry into the map, past all of Sluice.
pub(crate) async fn put(world: &World, id: &str, entry: AttributeValue) {
    let update = world.dynamodb().update_item().table_name(world.table()).key(KEY, text(SLOTS));
    let update = update.update_expression("SET leases.#id = :entry").expression_attribute_names("#id", id);
    update.expression_attribute_values(":entry", entry).send().await.unwrap();
}

/// Lets an inline lease end then, as its holder's renewal does.
pub(crate) async fn renew(world: &World, id: &str, ends: Timestamp) {
    assert!(apply(world, &renew_inline(SLOTS.into(), &LeaseId::new(id.into()).unwrap(), ends)).await);
}

/// The ids of the readable inline leases.
pub(crate) async fn held(world: &World) -> Vec<String> {
    let bucket = world.bucket(SLOTS).await;
    bucket.inline().map(|all| all.iter().map(|(id, _)| id.as_str().to_owned()).collect()).unwrap_or_default()
}

fn value(operand: &Operand) -> AttributeValue {
    match operand {
        Operand::Text(value) => text(value),
        Operand::Number(value) => number(value),
        Operand::Map(entries) => {
            AttributeValue::M(entries.iter().map(|(name, entry)| (name.to_string(), value(entry))).collect())
        }
    }
}

/// Sends a planned write by hand; whether its condition held.
pub(crate) async fn apply(world: &World, update: &Update) -> bool {
    let mut request = world.dynamodb().update_item().table_name(world.table()).key(KEY, text(&update.key));
    request = request.update_expression(update.statement.update.as_ref());
    request = request.condition_expression(update.statement.condition.as_ref());
    for (placeholder, name) in update.statement.names.iter() {
        request = request.expression_attribute_names(placeholder, name);
    }
    for (short, operand) in &update.values {
        request = request.expression_attribute_values(*short, value(operand));
    }
    match request.send().await {
        Ok(_) => true,
        Err(error) => {
            let error = error.into_service_error();
            assert!(error.is_conditional_check_failed_exception(), "{error:?}");
            false
        }
    }
}

fn take(world: &World, id: &str, slots: i32) -> InlineTake {
    let ends = world.dynamo.clock().now().after(Duration::from_secs(60));
    InlineTake {
        id: LeaseId::new(id.into()).unwrap(),
        cost: Cost::new(Amount::from_tokens(slots)).unwrap(),
        ends,
        serves: Serves::default(),
        borrows: None,
    }
}

/// Plans from the row as it is, applies it, and holds the row against what the plan says of it.
async fn serve(
    world: &World,
    takes: &[(&str, i32)],
    releases: &[&str],
) -> (Vec<InlineAnswer>, Vec<ReleaseAnswer>) {
    let bucket = world.bucket(SLOTS).await;
    let takes: Vec<_> = takes.iter().map(|(id, slots)| take(world, id, *slots)).collect();
    let release = |text: &&str| {
        let id = LeaseId::new((*text).into()).unwrap();
        let cost = bucket.inline().unwrap().get(&id).unwrap().cost;
        InlineRelease { id, cost }
    };
    let releases: Vec<_> = releases.iter().map(release).collect();
    let plan = InlinePlanner::new(&bucket).plan(&takes, &releases, world.dynamo.clock().now());
    let update = plan.update.as_ref().unwrap();
    assert!(apply(world, update).await, "{update:?}");
    assert_eq!(world.bucket(SLOTS).await, plan.after(&bucket));
    assert!(!apply(world, update).await, "a second application: {update:?}");
    (plan.takes, plan.releases)
}

#[tokio::test(start_paused = true)]
async fn an_engine_takes_every_form_of_the_writes() {
    let world = World::with_slots(SLOTS, 3).await;
    serve(&world, &[("a", 1), ("b-1", 1)], &[]).await;
    assert_eq!(held(&world).await, ["a", "b-1"]);
    serve(&world, &[("c", 1)], &[]).await;
    serve(&world, &[("d", 2)], &["a", "b-1"]).await;
    serve(&world, &[], &["d"]).await;
    assert_eq!((held(&world).await, world.free(SLOTS).await.as_str()), (vec!["c".to_owned()], "2"));
    serve(&world, &[("e", 2)], &[]).await;
    world.pass_lease();
    serve(&world, &[("f", 1)], &[]).await;
    assert_eq!((held(&world).await, world.free(SLOTS).await.as_str()), (vec!["f".to_owned()], "2"));
    world.add_tokens(SLOTS, "1").await;
    let (_, releases) = serve(&world, &[], &["f"]).await;
    assert_eq!((&releases[..], world.free(SLOTS).await.as_str()), (&[ReleaseAnswer::Capped][..], "3"));
}

#[tokio::test(start_paused = true)]
async fn an_engine_takes_the_longest_writes() {
    let world = World::with_slots(SLOTS, 200).await;
    let ids: Vec<String> = (0..64).map(|n| format!("{n:022}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let takes: Vec<_> = ids.iter().map(|id| (*id, 1)).collect();
    serve(&world, &[("first", 1)], &[]).await;
    serve(&world, &takes, &[]).await;
    serve(&world, &[], &ids).await;
    serve(&world, &takes, &[]).await;
    world.pass_lease();
    let cutoff = world.dynamo.clock().now().before(CLOCK_ERROR);
    let reclaim = InlinePlanner::new(&world.bucket(SLOTS).await).reclaim(cutoff).unwrap();
    assert_eq!((reclaim.leases.len(), reclaim.more), (64, true));
    assert!(apply(&world, &reclaim.update).await);
    assert_eq!(world.free(SLOTS).await, "199");
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_a_row_made_anew_is_refused_and_no_error() {
    let world = World::with_slots(SLOTS, 3).await;
    serve(&world, &[("a", 1)], &[]).await;
    let bucket = world.bucket(SLOTS).await;
    let plan = InlinePlanner::new(&bucket).plan(&[take(&world, "b", 1)], &[], world.dynamo.clock().now());
    let update = plan.update.unwrap();
    world.delete(SLOTS).await;
    assert!(!apply(&world, &update).await);
    world.slots(SLOTS, 3).await;
    assert!(!apply(&world, &update).await);
    assert!(world.row(SLOTS).await.unwrap().keys().all(|name| name != LEASES));
}

#[tokio::test(start_paused = true)]
async fn inline_leases_are_listed_with_the_others() {
    let world = World::with_slots(SLOTS, 3).await;
    let by_row = crate::world::take(&world.client(), SLOTS).await;
    lease(&world, &["b"], 60).await;
    put(&world, "spoiled", number("1")).await;
    let listed = world.client().ops().leases().await.unwrap();
    let shown: Vec<_> = listed.iter().map(|row| (row.key.as_str(), row.is_inline)).collect();
    let of_row = listed[2].key.as_str();
    let inline = ["elevenlabs#concurrent leases.spoiled", "elevenlabs#concurrent leases.b"];
    assert_eq!(shown, [(inline[0], true), (inline[1], true), (of_row, false)]);
    let (lease, error) = (listed[1].lease.as_ref().unwrap(), listed[0].lease.as_ref().unwrap_err());
    assert_eq!((lease.id(), lease.dimension().as_str(), lease.caller()), ("b", SLOTS, None));
    assert_eq!((lease.cost(), lease.created_at()), (Cost::ONE, None));
    assert!(error.to_string().contains("spoiled"), "{error}");
    assert!(listed[2].lease.as_ref().unwrap().caller().is_some());
    drop(by_row);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_too_large_for_inline_leases_is_refused() {
    let world = World::new().await;
    let most = i32::try_from(MOST_INLINE_LEASES).unwrap();
    let limit = |capacity: i32, cost: i32| {
        Limit::concurrent(Amount::from_tokens(capacity), Cost::new(Amount::from_tokens(cost)).unwrap())
            .unwrap()
    };
    let inline = world.client_with(|settings| settings.leases(Leases::Inline));
    let name = dimension(SLOTS);
    let error = inline.ops().apply_limit(&name, &limit(most + 1, 1)).await.unwrap_err();
    assert!(matches!(&error, LimitsError::TooLargeForInline { calls: 201, most: 200, .. }), "{error}");
    for part in [SLOTS, "201", "200", "SLUICE_LEASES=concurrent"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(world.row(SLOTS).await.is_none(), "nothing was applied");
    assert_eq!(world.client().ops().apply_limit(&name, &limit(most + 1, 1)).await.unwrap(), Applied::Created);
    assert!(
        inline.ops().apply_limit(&name, &limit(most + 1, 1)).await.is_err(),
        "though it is there already"
    );
    inline.ops().apply_limit(&name, &limit(most * 2, 2)).await.unwrap();
    inline.ops().apply_limit(&dimension("openai#rpm"), &crate::world::requests(10_000, 60)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_resize_keeps_inline_leases_and_counts_their_slots() {
    let world = World::with_slots(SLOTS, 3).await;
    serve(&world, &[("a", 1), ("b", 1)], &[]).await;
    world.slots(SLOTS, 1).await;
    assert_eq!((world.free(SLOTS).await.as_str(), held(&world).await.len()), ("-1", 2));
    let (takes, _) = serve(&world, &[("c", 1)], &["a"]).await;
    assert!(matches!(takes[..], [InlineAnswer::Refused(_)]), "what comes back is owed");
    serve(&world, &[], &["b"]).await;
    let row = world.row(SLOTS).await.unwrap();
    assert_eq!((&row[CAPACITY], world.free(SLOTS).await.as_str()), (&number("1"), "1"));
}

/// What a look of a waiting caller costs.
#[tokio::test(start_paused = true)]
async fn a_reading_costs_one_unit_up_to_99_leases_and_two_up_to_the_most() {
    let world = World::embedded().await;
    world.slots(SLOTS, 200).await;
    let client = world.client_with(|settings| settings.leases(Leases::Inline));
    let mut held = Vec::new();
    for (leases, units) in [(99, 1.0), (MOST_INLINE_LEASES, 2.0)] {
        while held.len() < leases {
            held.push(crate::world::take(&client, SLOTS).await);
        }
        world.dynamo.meter().reset();
        client.ops().bucket(&dimension(SLOTS)).await.unwrap();
        assert_eq!(world.dynamo.meter().total().read_units, units, "{leases} leases");
    }
    held.into_iter().for_each(std::mem::forget);
}
