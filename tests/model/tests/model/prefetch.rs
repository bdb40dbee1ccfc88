//! Prefetch as it is, and with a flaw.

use sluice_model::{Flaw, Stock, check_prefetch};

use crate::mutants::survivor;

/// A bucket of three tokens, of which one flows back a tick.
pub(crate) const THREE: Stock = Stock {
    capacity: 3,
    rate: 1,
    holders: 3,
    use_by: 2,
    clock_error: 0,
    settles: true,
    patience: 0,
    largest: 1,
};

pub(crate) fn holds(stock: Stock) {
    let verdict = check_prefetch(stock, None);
    println!("prefetch: {stock:?}\n  {verdict}\n");
    assert!(verdict.broken.is_none(), "prefetch: {verdict}");
}

#[test]
fn no_window_uses_more_with_lots_than_without() {
    holds(THREE);
    holds(Stock { capacity: 4, rate: 2, ..THREE });
}

#[test]
fn no_window_uses_more_with_lots_and_booked_starts() {
    holds(Stock { patience: 2, ..THREE });
    // Calls of the whole capacity.
    holds(Stock { patience: 3, largest: 3, ..THREE });
}

#[test]
fn clocks_that_are_off_add_twice_their_error_once() {
    holds(Stock { holders: 2, clock_error: 1, patience: 1, ..THREE });
}

#[test]
#[ignore = "a minute and 0.8 GB"]
fn no_window_uses_more_with_three_holders_and_clocks_that_are_off() {
    holds(Stock { clock_error: 1, use_by: 1, ..THREE });
    holds(Stock { capacity: 4, use_by: 3, ..THREE });
    holds(Stock { patience: 4, capacity: 4, largest: 2, use_by: 1, ..THREE });
}

#[test]
fn every_flaw_of_prefetch_is_caught() {
    let check = |flaw: Flaw| survivor("prefetch", flaw.flaw(), &check_prefetch(flaw.shows_in(), Some(flaw)));
    let survivors: Vec<&str> = Flaw::BREAKING.into_iter().filter_map(check).collect();
    assert_eq!(survivors, [""; 0]);
}

#[test]
fn a_receipt_is_its_own_proof() {
    for flaw in Flaw::HARMLESS {
        let verdict = check_prefetch(flaw.shows_in(), Some(flaw));
        println!("prefetch: {}\n  {verdict}\n", flaw.flaw());
        assert!(verdict.broken.is_none(), "{verdict}");
    }
}

/// Lots alone take the counter of lots, and nothing else, where nobody books.
#[test]
fn where_no_call_leaves_tokens_unused_or_is_booked_returns_need_no_count() {
    let verdict = check_prefetch(Stock { settles: false, ..THREE }, Some(Flaw::ReturnsUncounted));
    println!("prefetch without settles: {}\n  {verdict}\n", Flaw::ReturnsUncounted.flaw());
    assert!(verdict.broken.is_none(), "{verdict}");
}
