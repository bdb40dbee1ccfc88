//! What Terraform makes and what the code takes for granted are one: names, key, TTL, and rights that
//! suffice.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use sluice_core::Timestamp;
use sluice_core::schema::{ENVIRONMENTS, KEY, LEASE_PREFIX, PURGE_AT, TICKET_PREFIX, table_name};
use sluice_core::{ClockOffset, Split};
use sluice_ops::SweepOptions;
use sluice_reconciler::{Ended, Published, metrics};
use sluice_sdk::{Outcome, Request, StoreError};
use sluice_table::emf::EmfRecorder;
use sluice_table::metric::{ADMISSION, DYNAMODB_OUT, REFUSALS, UNAVAILABLE, VENDOR_REFUSALS};
use sluice_testkit::Rights;

use crate::world::{World, dimension, take};

const SLOTS: &str = "elevenlabs#concurrent";
const RATE: &str = "openai#rpm";

const LEASES: &[&str] = &[LEASE_PREFIX];
const LEASES_AND_TICKETS: &[&str] = &[LEASE_PREFIX, TICKET_PREFIX];

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The strings of `name = [...]`.
fn list(source: &str, name: &str) -> Vec<String> {
    let start = source.find(&format!("{name} = [")).unwrap_or_else(|| panic!("no list {name}"));
    let list = source[start..].split_once('[').unwrap().1.split_once(']').unwrap().0;
    let strings: Vec<String> = list.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(!strings.is_empty(), "{name} is empty");
    strings
}

/// The line `name = ...` of a source, without the alignment of `terraform fmt`.
fn assigned(source: &str, name: &str) -> String {
    let lines = source.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let line = lines.into_iter().find(|line| line.starts_with(&format!("{name} = ")));
    line.unwrap_or_else(|| panic!("no {name}")).split_once(" = ").unwrap().1.to_owned()
}

#[test]
fn terraform_and_the_schema_name_the_same_table() {
    let table = read("modules/table/main.tf");
    assert_eq!(
        assigned(&table, "name"),
        format!("\"${{var.name_prefix}}{}\"", table_name("${var.environment}"))
    );
    assert_eq!(assigned(&table, "hash_key"), format!("\"{KEY}\""));
    assert_eq!(assigned(&table, "attribute_name"), format!("\"{PURGE_AT}\""));
    let variables = read("variables.tf");
    let environments = list(&variables.replace("contains([", "environments = ["), "environments");
    assert_eq!(environments, ENVIRONMENTS);
    for environment in ENVIRONMENTS {
        assert_eq!(
            assigned(&read(&format!("envs/{environment}.tfvars")), "environment"),
            format!("\"{environment}\"")
        );
    }
    let reconciler = read("modules/reconciler/rights.tf");
    let callers = read("modules/caller-policy/main.tf");
    for (policies, keys) in [(&reconciler, LEASES), (&callers, LEASES), (&callers, LEASES_AND_TICKETS)] {
        let keys: Vec<String> = keys.iter().map(|prefix| format!("\"{prefix}*\"")).collect();
        assert!(policies.contains(&format!("\"dynamodb:LeadingKeys\" = [{}]", keys.join(", "))));
    }
}

/// Names in the lines that a sweep of a busy and damaged table publishes: of the environment, and of its
/// buckets.
async fn published() -> [BTreeSet<String>; 2] {
    let world = damaged().await;
    let client = world.client();
    client.ops().sweep(SweepOptions::default()).await.unwrap();
    let (held, released) = (take(&client, SLOTS).await, take(&client, SLOTS).await);
    world.pass(Duration::from_secs(20));
    client.ops().sweep(SweepOptions::default()).await.unwrap();
    // Something is pending at both ends, and something departed in between: a rate is measured.
    world.pass(Duration::from_secs(20));
    released.release().await.unwrap();
    let mut report = client.ops().sweep(SweepOptions::default()).await.unwrap();
    // Not every engine's replies say a date.
    let noon = Timestamp::from_secs(1_709_550_000);
    report.clock_offset = ClockOffset::of_reply(noon, noon, noon);
    held.release().await.unwrap();
    let mut names = [BTreeSet::new(), BTreeSet::new()];
    for line in metrics("pre", Published::All, &report, Ended::Well, Timestamp::from_secs(0)) {
        let of = usize::from(line["VendorDimension"].is_string());
        let defined = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap();
        names[of].extend(defined.iter().map(|metric| metric["Name"].as_str().unwrap().to_owned()));
    }
    names
}

/// Names in the lines that callers print, whatever happens to them.
fn printed() -> BTreeSet<String> {
    let recorder = EmfRecorder::new("pre");
    ::metrics::with_local_recorder(&recorder, || {
        REFUSALS.counter([RATE.into(), "exhausted".into()]).increment(1);
        VENDOR_REFUSALS.counter([RATE.into(), "rate".into()]).increment(1);
        ADMISSION.counter([RATE.into(), "over_slo".into(), "enforce".into()]).increment(1);
        UNAVAILABLE.counter(["error".into()]).increment(1);
        DYNAMODB_OUT.gauge([]).set(1.0);
    });
    let lines = recorder.take(Timestamp::from_secs(0));
    let defined = lines[0]["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap();
    defined.iter().map(|metric| metric["Name"].as_str().unwrap().to_owned()).collect()
}

/// Each metric that callers print has an alarm, which looks at it by the name that callers give the
/// environment.
#[test]
fn each_metric_of_callers_has_an_alarm() {
    let alarms = read("modules/alarms/main.tf");
    let own = alarms
        .split("metric      = \"")
        .skip(1)
        .filter(|alarm| assigned(alarm, "dimensions") == "local.of_callers");
    let own = own.map(|alarm| alarm.split_once('"').unwrap().0);
    let added = alarms
        .split("metric_name = \"")
        .skip(1)
        .filter(|alarm| assigned(alarm, "dimensions") == "local.of_callers");
    let added = added.map(|alarm| alarm.split_once('"').unwrap().0);
    assert_eq!(own.chain(added).map(str::to_owned).collect::<BTreeSet<_>>(), printed());
}

/// A name that only Terraform knows would be an alarm that stays silent.
#[tokio::test(start_paused = true)]
async fn alarms_and_charts_look_at_metrics_that_are_published() {
    let ([of_environment, of_buckets], of_callers) = (published().await, printed());
    let (alarms, dashboard) = (read("modules/alarms/main.tf"), read("modules/dashboard/main.tf"));
    let of_alarms = alarms.split("namespace   = \"Sluice\"").skip(1).map(|alarm| assigned(alarm, "metric"));
    let of_charts =
        dashboard.split("[\"Sluice\", ").skip(1).map(|chart| chart.split_once(',').unwrap().0.to_owned());
    let looked_at: Vec<String> = of_alarms.chain(of_charts).collect();
    assert!(looked_at.len() > 25, "{looked_at:?}");
    for metric in &looked_at {
        let metric = metric.trim_matches('"');
        assert!(
            of_environment.contains(metric) || of_callers.contains(metric),
            "{metric} is not among {of_environment:?}, {of_callers:?}"
        );
    }
    let searched =
        dashboard.split("MetricName=\\\"").skip(1).map(|search| search.split_once("\\\"").unwrap().0);
    let searched: Vec<&str> = searched.collect();
    assert_eq!(searched.len(), 5, "{searched:?}");
    for metric in searched {
        assert!(of_buckets.contains(metric), "{metric} is not among {of_buckets:?}");
    }
}

/// Whoever is woken by an alarm finds a section of its name.
#[test]
fn each_alarm_has_a_section_in_the_manual() {
    let (alarms, manual) = (read("modules/alarms/main.tf"), read("../docs/operations.md"));
    let names = alarms.lines().filter_map(|line| line.strip_prefix("    ")?.strip_suffix(" = {"));
    let names = names.filter(|name| !name.starts_with(' '));
    let with_expressions = ["no-sweep", "throttles", "hot-key", "system-errors", "dynamodb-unavailable"];
    let names: Vec<&str> = names.chain(with_expressions).collect();
    assert_eq!(names.len(), 24, "{names:?}");
    for name in names {
        assert!(manual.contains(&format!("\n### `{name}`")), "docs/operations.md has no section {name}");
        assert!(
            manual.contains(&format!("\n| [`{name}`](#{name})")),
            "docs/operations.md does not list {name}"
        );
    }
}

fn rights(on_table: &[String], on_leases: &[String]) -> Rights {
    with_rows(on_table.iter().fold(Rights::none(), Rights::allow), on_leases, LEASES)
}

fn with_rows(rights: Rights, actions: &[String], keys: &[&str]) -> Rights {
    let each = actions.iter().flat_map(|action| keys.iter().map(move |prefix| (action, prefix)));
    each.fold(rights, |rights, (action, prefix)| rights.allow_on(action, format!("{prefix}*")))
}

/// What the policy of callers allows, with these on the whole table.
fn rights_of_callers(on_table: &[String]) -> Rights {
    let source = read("modules/caller-policy/main.tf");
    with_rows(
        rights(on_table, &list(&source, "remove_actions")),
        &list(&source, "make_actions"),
        LEASES_AND_TICKETS,
    )
}

/// Everything that a sweep can find: slots, a rate lease, a bucket that is gone, one that is full, a slot
/// that is lost, a share that waits for slots that have come back.
async fn damaged() -> World {
    let world = World::with_slots(SLOTS, 4).await;
    world.rate(RATE, 10, 60).await;
    for name in ["full#concurrent", "gone#concurrent", "leaky#concurrent", "shared#concurrent"] {
        world.slots(name, 3).await;
    }
    world.client().ops().sweep(SweepOptions::default()).await.unwrap();
    let all = Request::from("shared#concurrent").cost("shared#concurrent", 3);
    let held = take(&world.client(), all).await;
    let whole = *world.bucket("shared#concurrent").await.limit();
    let to = Split::new(whole, &[crate::shares::share("search", "0.4")]).unwrap();
    world.client().ops().apply_split(&dimension("shared#concurrent"), &to).await.unwrap_err();
    held.release().await.unwrap();
    let with_leases = world.client_with(|settings| settings.leases(sluice_sdk::Leases::All));
    for name in [SLOTS, RATE, "full#concurrent", "gone#concurrent"] {
        std::mem::forget(take(&with_leases, name).await);
    }
    world.add_tokens("full#concurrent", "1").await;
    world.add_tokens("leaky#concurrent", "-1").await;
    world.client().ops().remove_bucket(&dimension("gone#concurrent")).await.unwrap();
    world.pass_lease();
    world
}

/// Sweeps until all should be healed; whether it was.
async fn heals(world: &World) -> bool {
    for _ in 0..3 {
        if world.client().ops().sweep(SweepOptions::default()).await.is_err() {
            return false;
        }
    }
    world.dynamo.faults().clear();
    let leaky_and_full = (world.free("leaky#concurrent").await, world.free("full#concurrent").await);
    let is_split = world.row("shared#concurrent@search").await.is_some();
    is_split
        && world.leases().await == 0
        && world.free(SLOTS).await == "4"
        && leaky_and_full == ("3".into(), "3".into())
}

#[tokio::test(start_paused = true)]
async fn a_sweep_with_the_documented_rights_alone_does_all_its_work() {
    let source = read("modules/reconciler/rights.tf");
    let (on_table, on_leases) = (list(&source, "table_actions"), list(&source, "lease_actions"));
    let world = damaged().await;
    world.dynamo.faults().allow_only(rights(&on_table, &on_leases));
    world.client().ops().warm_up().await.unwrap();
    assert!(heals(&world).await);
    for left_out in on_table.iter().chain(&on_leases) {
        let without = |actions: &[String]| {
            actions.iter().filter(|action| *action != left_out).cloned().collect::<Vec<_>>()
        };
        let world = damaged().await;
        world.dynamo.faults().allow_only(rights(&without(&on_table), &without(&on_leases)));
        assert!(!heals(&world).await, "{left_out} is granted and not needed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_the_documented_rights_alone_acquires_renews_releases_and_sweeps() {
    let source = read("modules/caller-policy/main.tf");
    let mut on_table = list(&source, "caller_actions");
    on_table.extend(list(&source, "heal_actions"));
    let world = damaged().await;
    world.dynamo.faults().allow_only(rights_of_callers(&on_table));
    let client = world.client();
    let mut held = take(&client, SLOTS).await;
    take(&client, RATE).await.release().await.unwrap();
    let all = client.acquire(Request::from(RATE).cost(RATE, 9)).await.unwrap();
    assert!(all.granted().is_some());
    let Outcome::RetryIn(retry) =
        client.acquire(Request::from(RATE).ticket_within(Duration::from_secs(60))).await.unwrap()
    else {
        panic!("granted")
    };
    world.pass(retry.wait());
    assert!(client.redeem(retry.ticket().unwrap()).await.unwrap().granted().is_some());
    crate::world::settle().await;
    assert!(world.row(&retry.ticket().unwrap().key()).await.unwrap().contains_key("redeemed_by"));
    world.pass(Duration::from_secs(20));
    client.penalize(RATE, 0.5).await.unwrap();
    held.renew().await.unwrap();
    held.release().await.unwrap();
    let both = client.slot([SLOTS, RATE]).timeout(Duration::from_secs(5));
    both.run(async |_| Ok::<_, sluice_sdk::LimitError>(())).await.unwrap();
    let removed = client.ops().remove_bucket(&dimension(RATE)).await.unwrap_err();
    assert!(matches!(removed, StoreError::AccessDenied { .. }), "{removed}");
    assert!(heals(&world).await);
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_the_documented_rights_alone_heals_a_full_bucket() {
    let source = read("modules/caller-policy/main.tf");
    let (calls, heal) = (list(&source, "caller_actions"), list(&source, "heal_actions"));
    for (left_out, free) in [(None, "1"), (Some(&heal[0]), "0")] {
        let world = World::with_slots(SLOTS, 1).await;
        std::mem::forget(take(&world.client(), SLOTS).await);
        world.pass_lease();
        let on_table: Vec<String> =
            calls.iter().chain(&heal).filter(|action| Some(*action) != left_out).cloned().collect();
        world.dynamo.faults().allow_only(rights_of_callers(&on_table));
        let client = world.client();
        assert!(client.acquire(SLOTS).await.unwrap().granted().is_none());
        crate::world::settle().await;
        world.dynamo.faults().clear();
        assert_eq!(world.free(SLOTS).await, free, "without {left_out:?}");
    }
}
