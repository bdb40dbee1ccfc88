//! Spaces of five to twenty seconds each. `cargo test` leaves them out; CI checks them
//! (`cargo test --workspace --test model -- --ignored larger::`).

use sluice_model::{Extent, Leases, Rows, Scope, Stock};

use crate::{holds, lane, prefetch, slot_rows};

#[test]
#[ignore = "CI checks it"]
fn lease_rows_keep_every_promise_with_two_faults() {
    holds::holds("lease rows", Leases::Rows, Scope { claims: 3, faults: 2, renewals: 0 });
}

#[test]
#[ignore = "CI checks it"]
fn inline_leases_keep_every_promise_with_two_faults_and_a_renewal() {
    holds::holds("inline leases", Leases::Inline, Scope { claims: 2, faults: 2, renewals: 1 });
}

#[test]
#[ignore = "CI checks it"]
fn a_recount_corrects_nothing_that_is_right_and_brings_back_what_was_lost() {
    holds::recount_holds(Extent { claims: 2, sweeps: 2, faults: 1, foreign: false });
}

#[test]
#[ignore = "CI checks it"]
fn three_operators_keep_to_the_limit_whatever_they_read() {
    slot_rows::hold(Rows::CHANGED_BY_THREE);
}

#[test]
#[ignore = "CI checks it"]
fn no_window_uses_more_with_starts_that_are_booked_far_ahead() {
    prefetch::holds(Stock { patience: 4, use_by: 1, ..prefetch::THREE });
}

#[test]
#[ignore = "CI checks it"]
fn clocks_that_are_off_add_twice_their_error_once_beside_lots_that_nobody_settles() {
    prefetch::holds(Stock { settles: false, clock_error: 1, use_by: 1, ..prefetch::THREE });
}

#[test]
#[ignore = "CI checks it"]
fn lanes_answer_everyone_and_forget_nothing_with_a_loss_and_a_crash() {
    lane::holds(lane::TWO);
}
