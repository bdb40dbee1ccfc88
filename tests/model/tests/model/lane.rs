//! Lanes as they are, and with a slip.

use sluice_model::{Slip, Traffic, check_lanes};

use crate::mutants::survivor;

const TWO: Traffic = Traffic { capacity: 1, callers: 2, losses: 1, crashes: 0 };

fn holds(traffic: Traffic) {
    let verdict = check_lanes(traffic, None);
    println!("lanes: {traffic:?}\n  {verdict}\n");
    assert!(verdict.broken.is_none(), "lanes: {verdict}");
}

#[test]
fn lanes_answer_everyone_with_lost_replies() {
    holds(TWO);
}

#[test]
fn lanes_answer_everyone_with_lost_replies_and_two_slots() {
    holds(Traffic { capacity: 2, ..TWO });
}

#[test]
fn lanes_answer_everyone_with_a_crash() {
    holds(Traffic { losses: 0, crashes: 1, ..TWO });
}

#[test]
fn lanes_answer_everyone_with_three_callers() {
    holds(Traffic { callers: 3, losses: 0, ..TWO });
}

#[test]
fn lanes_answer_everyone_with_lost_replies_and_a_crash() {
    holds(Traffic { crashes: 1, ..TWO });
}

#[test]
fn every_slip_of_a_lane_is_caught() {
    let check = |slip: Slip| survivor("lanes", slip.slip(), &check_lanes(slip.shows_in(), Some(slip)));
    let survivors: Vec<&str> = Slip::ALL.into_iter().filter_map(check).collect();
    assert_eq!(survivors, [""; 0]);
}
