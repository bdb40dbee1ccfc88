//! Lanes as they are, and with a slip.

use sluice_model::{Slip, Traffic, check_lanes};

use crate::mutants::survivor;

pub(crate) const TWO: Traffic = Traffic { capacity: 1, callers: 2, losses: 1, crashes: 1 };

pub(crate) fn holds(traffic: Traffic) {
    let verdict = check_lanes(traffic, None);
    println!("lanes: {traffic:?}\n  {verdict}\n");
    assert!(verdict.broken.is_none(), "lanes: {verdict}");
}

#[test]
fn lanes_answer_everyone_and_forget_nothing() {
    holds(Traffic { crashes: 0, ..TWO });
    holds(Traffic { losses: 0, ..TWO });
}

#[test]
fn lanes_with_two_slots_answer_everyone_and_forget_nothing() {
    holds(Traffic { capacity: 2, losses: 0, ..TWO });
}

#[test]
#[ignore = "two minutes and 2.1 GB"]
fn lanes_with_two_slots_or_three_callers_answer_everyone_and_forget_nothing() {
    holds(Traffic { capacity: 2, crashes: 0, ..TWO });
    holds(Traffic { callers: 3, losses: 0, crashes: 0, ..TWO });
}

#[test]
fn every_slip_of_a_lane_is_caught() {
    let check = |slip: Slip| survivor("lanes", slip.slip(), &check_lanes(slip.shows_in(), Some(slip)));
    let survivors: Vec<&str> = Slip::ALL.into_iter().filter_map(check).collect();
    assert_eq!(survivors, [""; 0]);
}
