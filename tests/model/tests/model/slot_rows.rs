//! Shares of slots as they are, and with an oversight.

use sluice_model::{Oversight, Rows, check_slot_rows};

use crate::mutants::survivor;

pub(crate) fn hold(rows: Rows) {
    let verdict = check_slot_rows(rows, None);
    println!("slot rows: {rows:?}\n  {verdict}\n");
    assert!(verdict.broken.is_none(), "slot rows: {verdict}");
}

#[test]
fn a_borrower_leaves_what_stays_and_what_others_wait_for() {
    hold(Rows::LENT);
}

#[test]
fn a_share_that_is_closed_while_its_slots_are_lent_leaves_the_limit_as_it_is() {
    hold(Rows::CLOSED);
}

#[test]
fn operators_keep_to_the_limit_whatever_they_read() {
    hold(Rows::CHANGED_BY_TWO);
    hold(Rows::LIMIT_CHANGED);
    hold(Rows::SHARE_CHANGED);
    hold(Rows { wanted: &[(2, 3), (0, 3)], first: 0, ..Rows::CHANGED_BY_TWO });
}

#[test]
fn every_oversight_of_slot_rows_is_caught() {
    let check = |oversight: Oversight| {
        survivor("slot rows", oversight.oversight(), &check_slot_rows(oversight.shows_in(), Some(oversight)))
    };
    let survivors: Vec<&str> = Oversight::ALL.into_iter().filter_map(check).collect();
    assert_eq!(survivors, [""; 0]);
}
