//! The protocol as it is.

use sluice_model::{Extent, Leases, Scope, Trouble, check, check_recount};

const THREE: Scope = Scope { claims: 3, faults: 0, renewals: 0, trouble: Trouble::Network };

fn holds(name: &str, leases: Leases, scope: Scope) {
    let verdict = check(leases, scope, None);
    let Scope { claims, faults, renewals, .. } = scope;
    println!("{name}: {claims} acquisitions, {faults} faults, {renewals} renewals\n  {verdict}\n");
    assert!(verdict.broken.is_none(), "{name}: {verdict}");
}

fn recount_holds(extent: Extent) {
    let verdict = check_recount(extent, None);
    let Extent { claims, sweeps, faults, .. } = extent;
    let foreign = if extent.foreign { ", foreign callers" } else { "" };
    println!("recount: {claims} acquisitions, {sweeps} sweeps, {faults} faults{foreign}\n  {verdict}\n");
    assert!(verdict.broken.is_none(), "recount: {verdict}");
}

#[test]
fn lease_rows_keep_every_promise_with_two_faults() {
    holds("lease rows", Leases::Rows, Scope { faults: 2, ..THREE });
}

#[test]
fn lease_rows_keep_every_promise_with_renewals() {
    holds("lease rows", Leases::Rows, Scope { faults: 1, renewals: 1, ..THREE });
}

#[test]
fn lease_rows_keep_every_promise_with_a_client_that_comes_again() {
    holds("lease rows", Leases::Rows, Scope { claims: 4, faults: 1, ..THREE });
}

#[test]
fn lease_rows_keep_every_promise_beside_a_client_that_gives_back_twice() {
    let scope = Scope { faults: 2, trouble: Trouble::Foreign, ..THREE };
    holds("lease rows, foreign client", Leases::Rows, scope);
}

#[test]
fn inline_leases_keep_every_promise_with_two_faults() {
    holds("inline leases", Leases::Inline, Scope { faults: 2, ..THREE });
}

#[test]
fn inline_leases_keep_every_promise_with_renewals() {
    holds("inline leases", Leases::Inline, Scope { faults: 1, renewals: 1, ..THREE });
}

#[test]
fn a_recount_corrects_nothing_that_is_right_and_brings_back_what_was_lost() {
    recount_holds(Extent { claims: 2, sweeps: 2, faults: 1, foreign: false });
}

#[test]
fn a_recount_holds_its_peace_beside_clients_that_do_not_count() {
    recount_holds(Extent { claims: 2, sweeps: 2, faults: 0, foreign: true });
}

/// What the promises leave out: a duplicate that comes after its token is forgotten, beside a foreign client that gives a slot
/// back twice, costs a slot. The recount finds it.
#[test]
fn a_very_late_duplicate_beside_a_minted_slot_costs_a_slot_until_the_recount() {
    let verdict = check(Leases::Rows, Scope { faults: 2, trouble: Trouble::Both, ..THREE }, None);
    println!("beyond the promises: {verdict}\n");
    assert!(verdict.broken.is_some_and(|trace| trace.promise == "each slot is free or leased, and once"));
}

#[test]
#[ignore = "minutes, and a gigabyte: the same with more of everything"]
fn every_promise_holds_deeper_down() {
    holds("lease rows", Leases::Rows, Scope { faults: 2, renewals: 1, ..THREE });
    holds("lease rows", Leases::Rows, Scope { faults: 1, renewals: 2, ..THREE });
    holds("lease rows", Leases::Rows, Scope { faults: 3, ..THREE });
    let foreign = Scope { faults: 2, renewals: 1, trouble: Trouble::Foreign, ..THREE };
    holds("lease rows, foreign client", Leases::Rows, foreign);
    recount_holds(Extent { claims: 2, sweeps: 3, faults: 1, foreign: false });
    recount_holds(Extent { claims: 2, sweeps: 2, faults: 2, foreign: false });
}
