//! Shares as they are, and with a lapse.

use sluice_model::{Lapse, Split, check_shares};

use crate::mutants::survivor;

fn hold(split: Split) {
    let verdict = check_shares(split, None);
    println!("shares: {split:?}\n  {verdict}\n");
    assert!(verdict.broken.is_none(), "shares: {verdict}");
}

#[test]
fn the_vendor_sees_one_bucket_and_the_share_gets_what_it_was_promised() {
    hold(Split::SMALL);
    hold(Split { capacity: (1, 3), floor: 2, ..Split::SMALL });
}

#[test]
fn shares_hold_with_booked_starts() {
    hold(Split { patience: 2, ..Split::SMALL });
}

#[test]
fn shares_hold_with_clocks_that_are_off() {
    hold(Split { clock_error: 1, holders: 1, patience: 1, ..Split::SMALL });
}

#[test]
fn every_lapse_of_shares_is_caught() {
    let check =
        |lapse: Lapse| survivor("shares", lapse.lapse(), &check_shares(lapse.shows_in(), Some(lapse)));
    let survivors: Vec<&str> = Lapse::ALL.into_iter().filter_map(check).collect();
    assert_eq!(survivors, [""; 0]);
}
