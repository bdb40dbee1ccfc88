//! The protocol as it is.

use sluice_model::{Extent, Leases, Scope, check, check_recount};

const THREE: Scope = Scope { claims: 3, faults: 0, renewals: 0 };

pub(crate) fn holds(name: &str, leases: Leases, scope: Scope) {
    let verdict = check(leases, scope, None);
    let Scope { claims, faults, renewals, .. } = scope;
    println!("{name}: {claims} acquisitions, {faults} faults, {renewals} renewals\n  {verdict}\n");
    assert!(verdict.broken.is_none(), "{name}: {verdict}");
}

pub(crate) fn recount_holds(extent: Extent) {
    let verdict = check_recount(extent, None);
    let Extent { claims, sweeps, faults, .. } = extent;
    let foreign = if extent.foreign { ", foreign callers" } else { "" };
    println!("recount: {claims} acquisitions, {sweeps} sweeps, {faults} faults{foreign}\n  {verdict}\n");
    assert!(verdict.broken.is_none(), "recount: {verdict}");
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
fn inline_leases_keep_every_promise_with_a_fault() {
    holds("inline leases", Leases::Inline, Scope { faults: 1, ..THREE });
}

#[test]
fn a_recount_corrects_nothing_that_is_right() {
    recount_holds(Extent { claims: 2, sweeps: 2, faults: 0, foreign: false });
}

#[test]
fn a_recount_holds_its_peace_beside_clients_that_do_not_count() {
    recount_holds(Extent { claims: 2, sweeps: 2, faults: 0, foreign: true });
}

#[test]
#[ignore = "two minutes and 1.3 GB"]
fn lease_rows_keep_every_promise_with_two_faults_and_a_renewal() {
    holds("lease rows", Leases::Rows, Scope { faults: 2, renewals: 1, ..THREE });
}

#[test]
#[ignore = "three minutes and 1.6 GB"]
fn lease_rows_keep_every_promise_with_three_faults() {
    holds("lease rows", Leases::Rows, Scope { faults: 3, ..THREE });
}

#[test]
#[ignore = "two minutes"]
fn inline_leases_keep_every_promise_with_three_callers_and_a_renewal() {
    holds("inline leases", Leases::Inline, Scope { faults: 1, renewals: 1, ..THREE });
}

#[test]
#[ignore = "three minutes and 1.9 GB"]
fn inline_leases_keep_every_promise_with_three_callers_and_two_faults() {
    holds("inline leases", Leases::Inline, Scope { faults: 2, ..THREE });
}

#[test]
#[ignore = "two minutes"]
fn a_recount_stays_right_with_three_sweeps_and_with_two_faults() {
    recount_holds(Extent { claims: 2, sweeps: 3, faults: 1, foreign: false });
    recount_holds(Extent { claims: 2, sweeps: 2, faults: 2, foreign: false });
}
