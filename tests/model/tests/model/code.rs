//! The model speaks of the conditions that the code sends. Where one of them changes, the model has to be
//! thought through again.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_core::{
    Amount, Bucket, CancellationCause, CancellationReason, Change, Chunk, ChunkStep, Correction, Cost,
    Dimension, Drift, Field, InlinePlanner, InlineRelease, InlineTake, Lease, LeaseId, Limit, Plan, Row,
    Serves, SlotPlanner, Take, Timestamp, Write,
};

mod inline;
mod order;
mod shares;
mod slot_rows;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

fn bucket(capacity: i32) -> Bucket {
    let limit = Limit::concurrent(Amount::from_tokens(capacity), Cost::ONE).unwrap();
    Bucket::full(Dimension::new("vendor#concurrent").unwrap(), limit, NOW)
}

fn lease() -> Lease {
    let id = LeaseId::new("a".into()).unwrap();
    let ends = NOW.after(Duration::from_secs(60));
    Lease::new(Dimension::new("vendor#concurrent").unwrap(), &id, Cost::ONE, NOW, ends, "model")
}

fn condition(write: &Write) -> String {
    match write {
        Write::Update(update) => update.statement.condition.to_string(),
        Write::Put(put) => put.statement.condition.to_string(),
        Write::Delete(delete) => delete.statement.condition.to_string(),
    }
}

fn conditions(chunk: &Chunk) -> Vec<String> {
    chunk.writes().iter().map(condition).collect()
}

const AS_READ: &str = "#limit_type = :concurrent AND #capacity = :read_capacity";
const ROOM: &str = "#limit_type = :concurrent AND #capacity = :read_capacity AND #tokens < :above";
const NEED: &str = "#limit_type = :concurrent AND #tokens >= :need";
const NOT_BLOCKED: &str = "(attribute_not_exists(#blocked_until) OR #blocked_until <= :now)";

#[test]
fn an_acquire_asks_for_a_free_slot_and_a_new_lease() {
    let take = Take { cost: Cost::ONE, now: NOW, patience: Duration::ZERO };
    let Plan::Write(update) = SlotPlanner::new(&bucket(2)).plan(take) else { panic!() };
    let free = format!("#limit_type = :concurrent AND #tokens >= :cost AND {NOT_BLOCKED}");
    assert_eq!(update.statement.condition, free);
    assert_eq!(lease().put().statement.condition, "attribute_not_exists(#key)");
}

#[test]
fn a_release_asks_for_the_lease_and_for_room() {
    let asked = conditions(&Chunk::release(&bucket(2), vec![lease()]));
    assert_eq!(asked, ["attribute_exists(#key)", &format!("{AS_READ} AND #tokens <= :highest")]);
}

#[test]
fn a_reclaim_asks_for_the_end_that_was_seen_and_for_room() {
    let chunk = Chunk::reclaim(Some(&bucket(2)), vec![lease()]).remove(0);
    assert_eq!(conditions(&chunk), ["#ttl = :read_ends", &format!("{AS_READ} AND #tokens <= :highest")]);
}

#[test]
fn a_lease_of_a_full_bucket_is_deleted_while_the_bucket_is_as_it_was_read() {
    let chunk = Chunk::reclaim(Some(&bucket(2)), vec![lease()]).remove(0);
    let reason = |cause| CancellationReason { cause, message: String::new() };
    let full = [reason(CancellationCause::Passed), reason(CancellationCause::ConditionFailed)];
    let ChunkStep::Continue { chunks, .. } = chunk.after(&full, Some(Ok(bucket(2)))) else { panic!() };
    let full = format!("{AS_READ} AND #tokens >= :read_tokens AND #tokens < :above");
    assert_eq!(conditions(&chunks[0]), ["#ttl = :read_ends", &full]);
}

#[test]
fn a_resize_asks_for_the_capacity_that_it_was_planned_from() {
    let update = Change::plan(&bucket(2), bucket(3).limit(), NOW).unwrap();
    // The model has no shares, whose rows would have some of the slots.
    let none = "attribute_not_exists(#shares) AND attribute_not_exists(#changes_to)";
    assert_eq!(update.statement.condition, format!("{AS_READ} AND {none}"));
}

/// A bucket as a recount reads it.
struct Noted(BTreeMap<&'static str, &'static str>);

impl Row for Noted {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        let text = self.0.get(name)?;
        Some(if name == "limit_type" { Field::Text(text) } else { Field::Number(text) })
    }
}

/// The condition of a correction of what one sweep noted and the next found, lost or (below zero) minted.
fn correction(noted: &'static str, found: Drift) -> String {
    let mut row = BTreeMap::from([
        ("capacity", "2"),
        ("tokens", "1"),
        ("refill_rate", "0"),
        ("last_refill_at", "0"),
        ("cost_per_call", "1"),
        ("limit_type", "concurrent"),
        ("version", "0"),
    ]);
    row.extend([("drift", noted), ("drift_seen_at", "1700000000")]);
    let noted = Bucket::read(bucket(2).dimension(), &Noted(row)).unwrap();
    let plan = Correction::plan(&noted, &noted, found, NOW);
    let Correction::Correct { update, .. } = plan else { panic!("{plan:?}") };
    update.statement.condition.to_string()
}

const NOTE_AS_READ: &str =
    "#drift = :read_drift AND #drift_seen_at = :read_drift_seen_at AND #capacity = :read_capacity";
const NONE_CAPPED_SINCE: &str = "(attribute_not_exists(#capped) OR #capped = :read_capped)";

#[test]
fn a_correction_of_lost_slots_asks_for_the_note_that_was_read_and_for_room() {
    let asked = correction("1", Drift::Lost(Amount::from_tokens(1)));
    assert_eq!(asked, format!("{NOTE_AS_READ} AND #tokens <= :highest AND {NONE_CAPPED_SINCE}"));
}

#[test]
fn a_correction_of_minted_slots_asks_for_the_note_that_was_read_and_for_no_room() {
    let asked = correction("-1", Drift::Minted(Amount::from_tokens(1)));
    assert_eq!(asked, format!("{NOTE_AS_READ} AND {NONE_CAPPED_SINCE}"));
}

#[test]
fn a_renewal_asks_that_the_lease_ends_no_later() {
    let update = sluice_core::renew(lease().key().to_owned(), NOW.after(Duration::from_secs(60)));
    assert_eq!(update.statement.condition, "#ttl <= :ends");
}

/// A bucket whose row has these inline leases, of one slot each, that ended long ago.
fn with_inline(capacity: i32, ids: &[&str]) -> Bucket {
    let free = bucket(capacity);
    let take = |id: &&str| InlineTake {
        id: LeaseId::new((*id).into()).unwrap(),
        cost: Cost::ONE,
        ends: NOW,
        serves: Serves::default(),
        borrows: None,
    };
    let takes: Vec<_> = ids.iter().map(take).collect();
    InlinePlanner::new(&free).plan(&takes, &[], NOW).after(&free)
}

/// The condition of one write that serves these takes and releases, ten minutes later.
fn inline_condition(bucket: &Bucket, takes: &[&str], releases: &[&str]) -> String {
    let now = NOW.after(Duration::from_secs(600));
    let id = |id: &&str| LeaseId::new((*id).into()).unwrap();
    let takes: Vec<_> = takes
        .iter()
        .map(|take| InlineTake {
            id: id(take),
            cost: Cost::ONE,
            ends: now,
            serves: Serves::default(),
            borrows: None,
        })
        .collect();
    let release = |text: &&str| InlineRelease { id: id(text), cost: Cost::ONE };
    let releases: Vec<_> = releases.iter().map(release).collect();
    InlinePlanner::new(bucket).plan(&takes, &releases, now).update.unwrap().statement.condition.to_string()
}

#[test]
fn an_inline_acquire_asks_for_a_free_slot_and_a_new_lease() {
    let first = inline_condition(&bucket(2), &["a"], &[]);
    assert_eq!(first, format!("{NEED} AND {NOT_BLOCKED} AND attribute_not_exists(#leases)"));
    let next = inline_condition(&with_inline(2, &["a"]), &["b"], &[]);
    let asked = "AND attribute_exists(#leases) AND attribute_not_exists(#leases.#lease0)";
    assert_eq!(next, format!("{NEED} AND {NOT_BLOCKED} {asked}"));
}

/// The model's release in the bucket's row needs the lease alone; it also asks for room and capacity.
#[test]
fn an_inline_release_asks_for_the_lease_and_for_room() {
    let asked = inline_condition(&with_inline(2, &["a"]), &[], &["a"]);
    assert_eq!(asked, format!("{ROOM} AND attribute_exists(#leases.#lease0)"));
}

#[test]
fn an_inline_reclaim_asks_for_the_end_that_was_seen_and_for_room() {
    let reclaim =
        InlinePlanner::new(&with_inline(2, &["a"])).reclaim(NOW.after(Duration::from_secs(1))).unwrap();
    assert_eq!(reclaim.update.statement.condition, format!("{ROOM} AND #leases.#lease0.#ends = :read_ends0"));
}

#[test]
fn a_take_over_asks_for_the_end_that_was_seen_a_free_slot_and_a_new_lease() {
    let asked = inline_condition(&with_inline(1, &["a"]), &["b"], &[]);
    let leases = "AND #leases.#lease0.#ends = :read_ends0 AND attribute_not_exists(#leases.#lease1)";
    assert_eq!(asked, format!("{ROOM} AND #tokens >= :need AND {NOT_BLOCKED} {leases}"));
}

#[test]
fn an_inline_renewal_asks_that_the_lease_ends_no_later() {
    let update =
        sluice_core::renew_inline("vendor#concurrent".into(), &LeaseId::new("a".into()).unwrap(), NOW);
    assert_eq!(update.statement.condition, "#leases.#lease0.#ends <= :ends");
}

/// What the model makes of each answer to the release or the reclaim of one lease, held against what the code
/// makes of it.
#[test]
fn every_cancellation_is_read_as_in_the_model() {
    let causes = [
        CancellationCause::Passed,
        CancellationCause::ConditionFailed,
        CancellationCause::Conflict,
        CancellationCause::Throttled,
    ];
    let chunks = [
        Chunk::release(&bucket(2), vec![lease()]),
        Chunk::reclaim(Some(&bucket(2)), vec![lease()]).remove(0),
    ];
    for chunk in chunks {
        for (on_lease, on_bucket, now) in answers(&causes) {
            let reason = |cause| CancellationReason { cause, message: String::new() };
            let reasons = [reason(on_lease), reason(on_bucket)];
            let step = chunk.clone().after(&reasons, Some(Ok(bucket(now))));
            let expected = match (on_lease, on_bucket) {
                // Someone else gave it back, or renewed it.
                (CancellationCause::ConditionFailed, _) => {
                    ChunkStep::Continue { chunks: vec![], lost_races: 1 }
                }
                (_, CancellationCause::ConditionFailed) => {
                    let ChunkStep::Continue { chunks, lost_races: 0 } = &step else { panic!("{step:?}") };
                    // Planned again where the capacity changed, deleted alone where it is full.
                    assert_eq!(chunks[0].is_already_capped(), now == 2);
                    assert_eq!(chunks[0].restores_slots(), now != 2);
                    continue;
                }
                // Nothing happened: the same again, later.
                _ => ChunkStep::BackOff(vec![chunk.clone()]),
            };
            assert_eq!(step, expected, "{on_lease:?} {on_bucket:?} {now}");
        }
    }
}

/// Every answer on the lease, on the bucket, and every capacity that the bucket may have by now.
fn answers(
    causes: &[CancellationCause],
) -> impl Iterator<Item = (CancellationCause, CancellationCause, i32)> {
    let pairs = causes.iter().flat_map(|lease| causes.iter().map(|bucket| (*lease, *bucket)));
    pairs.flat_map(|(lease, bucket)| [1, 2, 3].map(|capacity| (lease, bucket, capacity)))
}
