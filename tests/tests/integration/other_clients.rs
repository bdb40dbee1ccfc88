//! Clients in other languages share the table: their rows are read, their writes lose nothing, and their
//! attributes are kept.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use sluice_ops::SweepOptions;
use sluice_sdk::{Client, Leases, Released};
use sluice_testkit::Operation;

use crate::world::{World, number, refusal, take, text};

const RPM: &str = "openai#rpm";

/// The bucket row of `reference/architecture.txt`, with what floats make of it.
fn their_row(tokens: &str, last_refill_at: &str) -> HashMap<String, AttributeValue> {
    HashMap::from([
        ("vendor_dimension".into(), text(RPM)),
        ("capacity".into(), number("100")),
        ("tokens".into(), number(tokens)),
        ("refill_rate".into(), number("1.667")),
        ("last_refill_at".into(), number(last_refill_at)),
        ("cost_per_call".into(), number("1")),
        ("limit_type".into(), text("requests")),
        ("version".into(), number("42")),
    ])
}

/// Their acquire: versioned, absolute, whole seconds.
pub(crate) async fn their_acquire(world: &World) -> bool {
    let row = world.row(RPM).await.unwrap();
    let read = |name: &str| row[name].as_n().unwrap().parse::<f64>().unwrap();
    let now = (world.dynamo.clock().now().micros() / 1_000_000) as f64;
    let tokens =
        (read("tokens") + (now - read("last_refill_at")) * read("refill_rate")).min(read("capacity"));
    if tokens < 1.0 {
        return false;
    }
    let request = world.dynamodb().update_item().table_name(world.table()).key("vendor_dimension", text(RPM));
    let request =
        request.update_expression("SET tokens = :tokens, last_refill_at = :now, version = version + :1");
    let request = request
        .condition_expression("version = :read_version")
        .expression_attribute_values(":read_version", row["version"].clone());
    let request = request.expression_attribute_values(":tokens", number(&format!("{:?}", tokens - 1.0)));
    let request = request.expression_attribute_values(":now", number(&format!("{now}")));
    request.expression_attribute_values(":1", number("1")).send().await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn their_row_works_and_their_writes_in_between_lose_nothing() {
    let world = World::new().await;
    world.put(their_row("46.99999999999999", "1709550000")).await;
    let client = world.client();
    let _ = take(&client, RPM).await;
    assert!(their_acquire(&world).await);
    let _ = take(&client, RPM).await;
    assert_eq!(world.bucket(RPM).await.version(), 45, "every write counts");
    assert_eq!(world.level(RPM).await, "43.999999");
}

#[tokio::test(start_paused = true)]
async fn their_versioned_write_that_was_overtaken_by_ours_fails() {
    let world = World::new().await;
    world.put(their_row("47", "1709550000")).await;
    let gate = world.dynamo.faults().hold_next(Operation::UpdateItem);
    let (theirs, ()) = tokio::join!(their_acquire(&world), async {
        gate.reached().await;
        let _ = take(&world.client(), RPM).await;
        gate.open();
    });
    assert!(!theirs, "their version check saw our write");
    assert_eq!(world.level(RPM).await, "46");
}

#[tokio::test(start_paused = true)]
async fn a_rate_or_anchor_with_more_digits_than_ours_is_compared_as_it_was_read() {
    let world = World::new().await;
    let mut row = their_row("3.0000000000000004", "1709549999.1234567891");
    row.insert("refill_rate".into(), number("0.00000016666666666"));
    world.put(row).await;
    let client = world.client();
    for _ in 0..3 {
        let _ = take(&client, RPM).await;
    }
    let _ = refusal(&client, RPM).await;
    let limit = crate::world::requests(100, 60);
    client.ops().apply_limit(&crate::world::dimension(RPM), &limit).await.unwrap();
    assert_eq!(world.row(RPM).await.unwrap()["refill_rate"], number("1.666666666666"));
}

#[tokio::test(start_paused = true)]
async fn with_leases_for_all_every_type_writes_the_documented_row() {
    let world = World::with_rate(RPM, 100, 60).await;
    world.rate("openai#tpm", 100, 60).await;
    world.slots("elevenlabs#concurrent", 3).await;
    let client = world.client_with(|settings| settings.leases(Leases::All).caller("audit-service"));
    for name in [RPM, "openai#tpm", "elevenlabs#concurrent"] {
        let before = world.level(name).await;
        let grant = take(&client, name).await;
        let rows = client.ops().leases().await.unwrap();
        assert_eq!(rows.len(), 1);
        let row = world.row(&rows[0].key).await.unwrap();
        let id = rows[0].key.strip_prefix(&format!("lease#{name}#")).unwrap();
        assert!(!id.contains('#') && !id.is_empty());
        let expected = HashMap::from([
            ("vendor_dimension".to_owned(), text(&rows[0].key)),
            ("dimension".into(), text(name)),
            ("cost".into(), number("1")),
            ("created_at".into(), number(&world.dynamo.clock().now().to_string())),
            ("ttl".into(), number("1709550060")),
            ("caller".into(), text("audit-service")),
            ("purge_at".into(), number("1710154860")),
        ]);
        assert_eq!(row, expected);
        assert_eq!(grant.release().await.unwrap(), Released::GivenBack);
        assert_eq!(client.ops().leases().await.unwrap().len(), 0);
        let spent = if name == "elevenlabs#concurrent" { 0 } else { 1 };
        let left: i32 = before.parse::<i32>().unwrap() - spent;
        assert_eq!(world.level(name).await, left.to_string(), "tokens stay spent, a slot comes back");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_lease_of_a_crashed_caller_is_only_deleted() {
    let world = World::with_rate(RPM, 100, 1_000_000).await;
    let client = world.client_with(|settings| settings.leases(Leases::All));
    std::mem::forget(take(&client, RPM).await);
    world.pass_lease();
    let level = world.level(RPM).await;
    let report = world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    assert_eq!((report.restored, world.leases().await), (1, 0));
    assert_eq!(world.level(RPM).await, level);
}

#[tokio::test(start_paused = true)]
async fn booked_starts_in_transactions_are_as_exact_as_alone() {
    let world = World::with_rate(RPM, 2, 2).await;
    let client = |_| world.client_with(|settings| settings.leases(Leases::All));
    let clients: Vec<Client> = (0..6).map(client).collect();
    let began = tokio::time::Instant::now();
    let calls = clients.iter().map(|client| {
        let client = client.clone();
        tokio::spawn(async move {
            let start = client
                .slot(RPM)
                .run(async |slot| Ok::<_, sluice_sdk::LimitError>(slot.start_at()))
                .await
                .unwrap();
            (start, began.elapsed())
        })
    });
    let mut starts = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        starts.push(call.await.unwrap().1.as_secs());
    }
    starts.sort_unstable();
    assert_eq!(starts, [0, 0, 1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn their_lease_without_purge_at_or_caller_is_reclaimed_too() {
    let world = World::with_slots("elevenlabs#v2#concurrent", 3).await;
    std::mem::forget(take(&world.client(), "elevenlabs#v2#concurrent").await);
    let key = world.client().ops().leases().await.unwrap()[0].key.clone();
    let mut row = world.row(&key).await.unwrap();
    for attribute in ["purge_at", "caller", "created_at", "dimension"] {
        row.remove(attribute);
    }
    row.insert("ttl".into(), number("1709550060.75"));
    world.put(row).await;
    world.pass(Duration::from_secs(64));
    assert_eq!(world.client().ops().sweep(SweepOptions::default()).await.unwrap().restored, 1);
    assert_eq!(world.free("elevenlabs#v2#concurrent").await, "3");
}
