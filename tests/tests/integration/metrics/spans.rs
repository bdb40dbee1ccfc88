//! Spans, as a tracer of OpenTelemetry would get them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use sluice_ops::SweepOptions;
use sluice_testkit::{Fault, Operation};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::events;
use crate::world::{World, refusal, settle, take};

type Fields = BTreeMap<&'static str, String>;

thread_local! {
    /// Spans of this thread in the order in which they were opened: id, name, the parent's name, fields.
    static SPANS: RefCell<Vec<Seen>> = const { RefCell::new(Vec::new()) };
}

struct Seen {
    id: Id,
    name: &'static str,
    parent: Option<&'static str>,
    fields: Fields,
}

/// Keeps what is opened on each thread, beside the log: the subscriber is the process's.
pub(crate) struct ThreadSpans;

struct Visitor<'a>(&'a mut Fields);

impl Visit for Visitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for ThreadSpans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let parent = context.span(id).and_then(|span| span.parent()).map(|parent| parent.name());
        let mut fields = Fields::new();
        attributes.record(&mut Visitor(&mut fields));
        let seen = Seen { id: id.clone(), name: attributes.metadata().name(), parent, fields };
        SPANS.with_borrow_mut(|spans| spans.push(seen));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _context: Context<'_, S>) {
        SPANS.with_borrow_mut(|spans| {
            // Ids are used again: the last one is meant.
            if let Some(seen) = spans.iter_mut().rev().find(|seen| seen.id == *id) {
                values.record(&mut Visitor(&mut seen.fields));
            }
        });
    }
}

/// The spans of this name since the last time.
fn seen() -> Vec<Seen> {
    SPANS.take()
}

fn named<'a>(seen: &'a [Seen], name: &str) -> Vec<&'a Seen> {
    seen.iter().filter(|seen| seen.name == name).collect()
}

#[tokio::test(start_paused = true)]
async fn a_request_is_a_client_span_of_a_database_under_the_acquire_that_sent_it() {
    events::listen();
    let world = World::embedded().await;
    world.rate("a#rpm", 1, 50).await;
    let client = world.client();
    let _ = take(&client, "a#rpm").await;
    seen();
    world.pass(Duration::from_secs(60));
    let _ = take(&client, "a#rpm").await;
    let spans = seen();
    let acquires = named(&spans, "sluice.acquire");
    assert_eq!(acquires.len(), 1);
    assert_eq!(
        (acquires[0].fields["sluice.dimensions"].as_str(), acquires[0].fields["sluice.outcome"].as_str()),
        ("a#rpm", "granted")
    );
    let requests = named(&spans, "sluice.request");
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].parent, Some("sluice.acquire"));
    for (field, value) in [
        ("otel.name", format!("UpdateItem {}", world.table()).as_str()),
        ("otel.kind", "client"),
        ("db.system.name", "aws.dynamodb"),
        ("db.operation.name", "UpdateItem"),
        ("db.collection.name", world.table()),
        ("server.address", "dynamodb.eu-central-1.amazonaws.com"),
        ("http.request.resend_count", "0"),
    ] {
        assert_eq!(requests[0].fields.get(field).map(String::as_str), Some(value), "{field}");
    }
    assert!(!requests[0].fields.contains_key("otel.status_code"), "it went well");
    let retry = refusal(&client, "a#rpm").await;
    let spans = seen();
    let refused = named(&spans, "sluice.acquire")[0];
    assert_eq!(refused.fields["sluice.outcome"], retry.reason().as_str());
    assert_eq!(refused.fields["sluice.refused_by"], "a#rpm");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_failed_says_how_and_a_false_condition_is_no_failure() {
    events::listen();
    let world = World::embedded().await;
    world.rate("a#rpm", 1, 50).await;
    world.slots("a#concurrent", 1).await;
    let client = world.client();
    let _ = take(&client, "a#rpm").await;
    let _held = take(&client, "a#concurrent").await;
    world.pass(Duration::from_secs(60));
    world.dynamo.faults().next(Operation::UpdateItem, Fault::LoseRequest);
    seen();
    let _ = take(&client, "a#rpm").await;
    let spans = seen();
    let requests = named(&spans, "sluice.request");
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].fields["error.type"], "dispatch");
    assert_eq!(requests[0].fields["otel.status_code"], "ERROR");
    assert_eq!(requests[1].fields["http.request.resend_count"], "1");
    refusal(&world.client(), "a#concurrent").await;
    let missing = world.client().acquire("a#missing").await.unwrap_err();
    assert!(missing.to_string().contains("unknown"));
    let spans = seen();
    assert!(
        named(&spans, "sluice.request")
            .iter()
            .all(|request| !request.fields.contains_key("otel.status_code"))
    );
    let failed = named(&spans, "sluice.acquire").pop().unwrap();
    assert_eq!(
        (failed.fields["error.type"].as_str(), failed.fields["otel.status_code"].as_str()),
        ("unknown_dimension", "ERROR")
    );
}

#[tokio::test(start_paused = true)]
async fn slot_release_and_sweep_are_spans_and_what_a_closure_does_is_within_its_slot() {
    events::listen();
    let world = World::embedded().await;
    world.slots("a#concurrent", 1).await;
    let client = world.client();
    seen();
    let ran = client.slot("a#concurrent").run(async |_slot| {
        tracing::info_span!(target: "sluice_sdk::a_product", "a_call").in_scope(|| {});
        Ok::<_, sluice_sdk::LimitError>(())
    });
    ran.await.unwrap();
    settle().await;
    client.ops().sweep(SweepOptions::default()).await.unwrap();
    let spans = seen();
    let slot = named(&spans, "sluice.slot")[0];
    assert_eq!(
        (slot.fields["sluice.dimensions"].as_str(), slot.fields["sluice.outcome"].as_str()),
        ("a#concurrent", "ok")
    );
    assert!(slot.fields.contains_key("sluice.waited_ms"));
    assert_eq!(named(&spans, "a_call")[0].parent, Some("sluice.slot"));
    let release = named(&spans, "sluice.release")[0];
    assert_eq!(
        (release.parent, release.fields["sluice.outcome"].as_str()),
        (Some("sluice.slot"), "given_back")
    );
    let sweep = named(&spans, "sluice.sweep")[0];
    assert_eq!(
        (sweep.fields["sluice.restored"].as_str(), sweep.fields["sluice.outcome"].as_str()),
        ("0", "ok")
    );
    assert!(named(&spans, "sluice.request").iter().any(|request| request.parent == Some("sluice.sweep")));
}
