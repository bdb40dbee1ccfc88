//! The statements of the order in which callers wait for slots (ADR 10). There is no model of the order: it
//! is advice, and a wrong count loses no slot. Here is which condition each statement has, and why it needs
//! no other.

use sluice_core::{Cost, InlinePlanner, InlineTake, Serves, Statement, catch_up, draw, mark_waiting};

use super::{NEED, NOT_BLOCKED, NOW, bucket};

fn text(statement: &Statement) -> (&str, &str) {
    (&statement.update, &statement.condition)
}

/// Every draw that is applied has numbers of its own, whatever others draw: it adds, and asks for nothing but
/// that there is a number to add to. Applied twice, it draws numbers that nobody uses, which are passed over.
#[test]
fn a_draw_adds_to_the_count_and_asks_only_for_a_number() {
    let update = draw(bucket(2).dimension(), 3);
    let asked = "attribute_not_exists(#drawn) OR attribute_type(#drawn, :number)";
    assert_eq!(text(&update.statement), ("SET #drawn = if_not_exists(#drawn, :0) + :callers", asked));
}

/// It sets the count, so it asks for the count as read: others that drew since would draw the same numbers
/// again.
#[test]
fn a_count_that_catches_up_is_set_from_what_was_read() {
    let update = catch_up(bucket(2).dimension(), 3, 7, 1);
    assert_eq!(text(&update.statement), ("SET #drawn = :drawn", "#drawn = :read_drawn"));
}

/// It asks that the row is that of a concurrency bucket: a row that was removed would be made again, without
/// a limit. And that nobody has marked it: of all who see an old mark, one writes. It leaves `version` alone,
/// so no other write is planned again because of it.
#[test]
fn a_mark_is_made_once_and_in_no_other_row() {
    let update = mark_waiting(bucket(2).dimension(), NOW);
    let asked = "#limit_type = :concurrent AND \
                 (attribute_not_exists(#waited_until) OR #waited_until < :soon OR #waited_until > :far)";
    assert_eq!(text(&update.statement), ("SET #waited_until = :until", asked));
}

fn take(serves: Serves) -> (String, String) {
    let id = sluice_core::LeaseId::new("a".into()).unwrap();
    let lease = InlineTake { id, cost: Cost::ONE, ends: NOW, serves, borrows: None };
    let update = InlinePlanner::new(&bucket(2)).plan(&[lease], &[], NOW).update.unwrap();
    (update.statement.update.to_string(), update.statement.condition.to_string())
}

/// A grant counts what it serves in the write that takes the slot, and asks for nothing more: two that serve
/// the same number take two slots, so two callers less wait. It asks for the count as read only if it passes
/// over numbers that nobody seems to use: two that passed over the same numbers would pass over numbers after
/// them, whose callers wait.
#[test]
fn a_grant_asks_for_the_count_as_read_only_if_it_passes_over_numbers() {
    let free = format!("{NEED} AND {NOT_BLOCKED} AND attribute_not_exists(#leases)");
    let counts = ", #served = if_not_exists(#served, :0) + :served";
    let (update, condition) = take(Serves::default());
    assert_eq!((update.contains("#served"), condition), (false, free.clone()), "nobody waits");
    let (update, condition) = take(Serves { numbers: 1, passes_over: false });
    assert_eq!((update.contains(counts), condition), (true, free), "its own number");
    let (update, condition) = take(Serves { numbers: 4, passes_over: true });
    let need = "#limit_type = :concurrent AND (attribute_not_exists(#served) OR #served = :read_served)";
    let asked = format!("{need} AND #tokens >= :need AND {NOT_BLOCKED} AND attribute_not_exists(#leases)");
    assert_eq!((update.contains(counts), condition), (true, asked), "numbers of others, too");
}
