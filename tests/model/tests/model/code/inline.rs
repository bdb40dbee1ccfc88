//! The same of leases in the bucket's row, whose writes are composed.

use std::time::Duration;

use sluice_core::schema::{INLINE_COST, INLINE_ENDS, LEASES};
use sluice_core::{
    Bucket, Cost, Field, InlineAnswer, InlinePlan, InlinePlanner, InlineRelease, InlineTake, LeaseId, Row,
    Serves, renew_inline,
};

use super::{NEED, NOT_BLOCKED, NOW, ROOM, bucket};

/// A bucket with these slots free, and leases by when they end, in seconds from now.
struct Table<'a> {
    capacity: &'a str,
    free: &'a str,
    leases: Vec<(&'a str, String)>,
}

/// A lease in it.
struct Entry<'a>(&'a str);

impl Row for Table<'_> {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        Some(match name {
            "capacity" => Field::Number(self.capacity),
            "tokens" => Field::Number(self.free),
            "refill_rate" | "last_refill_at" | "version" => Field::Number("0"),
            "cost_per_call" => Field::Number("1"),
            "limit_type" => Field::Text("concurrent"),
            LEASES => Field::Other,
            _ => return None,
        })
    }

    fn entries(&self, name: &str, visit: &mut dyn FnMut(&str, Option<&dyn Row>)) -> bool {
        self.leases.iter().filter(|_| name == LEASES).for_each(|(id, ends)| visit(id, Some(&Entry(ends))));
        name == LEASES
    }
}

impl Row for Entry<'_> {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        match name {
            INLINE_COST => Some(Field::Number("1")),
            INLINE_ENDS => Some(Field::Number(self.0)),
            _ => None,
        }
    }
}

fn row(capacity: &str, free: &str, leases: &[(&str, i64)]) -> Bucket {
    let ends = |ends_in: i64| (NOW.micros() / 1_000_000 + ends_in).to_string();
    let leases = leases.iter().map(|(id, ends_in)| (*id, ends(*ends_in))).collect();
    Bucket::read(bucket(2).dimension(), &Table { capacity, free, leases }).unwrap()
}

fn id(text: &str) -> LeaseId {
    LeaseId::new(text.into()).unwrap()
}

fn plan(bucket: &Bucket, takes: &[&str], releases: &[&str]) -> InlinePlan {
    let ends = NOW.after(Duration::from_secs(60));
    let takes: Vec<_> = takes
        .iter()
        .map(|text| InlineTake {
            id: id(text),
            cost: Cost::ONE,
            ends,
            serves: Serves::default(),
            borrows: None,
        })
        .collect();
    let releases: Vec<_> =
        releases.iter().map(|text| InlineRelease { id: id(text), cost: Cost::ONE }).collect();
    InlinePlanner::new(bucket).plan(&takes, &releases, NOW)
}

fn condition(bucket: &Bucket, takes: &[&str], releases: &[&str]) -> String {
    plan(bucket, takes, releases).update.unwrap().statement.condition.to_string()
}

#[test]
fn a_take_asks_for_a_free_slot_and_a_new_lease() {
    let asked = condition(&row("2", "2", &[]), &["a", "b"], &[]);
    let new = "attribute_exists(#leases) AND attribute_not_exists(#leases.#lease0) AND attribute_not_exists(#leases.#lease1)";
    assert_eq!(asked, format!("{NEED} AND {NOT_BLOCKED} AND {new}"));
}

#[test]
fn the_first_take_of_a_row_asks_that_nobody_made_the_map() {
    assert_eq!(
        condition(&bucket(2), &["a"], &[]),
        format!("{NEED} AND {NOT_BLOCKED} AND attribute_not_exists(#leases)")
    );
}

#[test]
fn a_release_in_the_row_asks_for_the_lease_and_for_room() {
    let asked = condition(&row("2", "1", &[("a", 60)]), &[], &["a"]);
    assert_eq!(asked, format!("{ROOM} AND attribute_exists(#leases.#lease0)"));
}

#[test]
fn a_release_without_room_asks_that_the_row_is_as_it_was_read() {
    let asked = condition(&row("2", "2", &[("a", 60)]), &[], &["a"]);
    assert_eq!(asked, format!("{ROOM} AND #tokens >= :read_tokens AND attribute_exists(#leases.#lease0)"));
}

#[test]
fn a_take_over_asks_for_the_end_that_was_seen_and_a_new_lease() {
    let asked = condition(&row("1", "0", &[("a", -60)]), &["b"], &[]);
    let leases = "#leases.#lease0.#ends = :read_ends0 AND attribute_not_exists(#leases.#lease1)";
    assert_eq!(asked, format!("{ROOM} AND #tokens >= :need AND {NOT_BLOCKED} AND {leases}"));
}

#[test]
fn a_joined_write_asks_for_all_that_its_parts_ask_for() {
    let full = row("3", "0", &[("a", 60), ("b", 60), ("c", 60)]);
    // As many go as come: no room is asked for. More go: it is.
    let one = "attribute_exists(#leases.#lease0) AND attribute_not_exists(#leases.#lease1)";
    assert_eq!(condition(&full, &["d"], &["a"]), format!("{NEED} AND {NOT_BLOCKED} AND {one}"));
    let two = "attribute_exists(#leases.#lease1) AND attribute_not_exists(#leases.#lease2)";
    assert_eq!(
        condition(&full, &["d"], &["a", "b"]),
        format!(
            "{ROOM} AND #tokens >= :need AND {NOT_BLOCKED} AND attribute_exists(#leases.#lease0) AND {two}"
        )
    );
}

#[test]
fn a_reclaim_in_the_row_asks_for_every_end_that_was_seen_and_for_room() {
    let reclaim = InlinePlanner::new(&row("2", "0", &[("a", -60), ("b", -90)])).reclaim(NOW).unwrap();
    let ends = "#leases.#lease0.#ends = :read_ends0 AND #leases.#lease1.#ends = :read_ends1";
    assert_eq!(reclaim.update.statement.condition, format!("{ROOM} AND {ends}"));
}

#[test]
fn a_renewal_in_the_row_asks_that_the_lease_ends_no_later() {
    let renewal =
        renew_inline(bucket(2).dimension().to_string(), &id("a"), NOW.after(Duration::from_secs(60)));
    assert_eq!(renewal.statement.condition, "#leases.#lease0.#ends <= :ends");
}

/// What the model makes of the row that a failure shows, held against what the code makes of it.
#[test]
fn an_own_lease_in_the_row_is_an_earlier_try() {
    let seen = plan(&row("2", "0", &[("a", 60), ("b", 60)]), &["a", "c"], &["d"]);
    assert_eq!(seen.takes[0], InlineAnswer::Held);
    assert!(matches!(seen.takes[1], InlineAnswer::Refused(_)));
    assert_eq!(seen.releases, [sluice_core::ReleaseAnswer::Gone]);
    assert_eq!(seen.update, None);
}
