//! The protocol with one condition left out, or one reply misread.

use sluice_model::{Leases, Mistake, Mutant, Verdict, check, check_recount};

/// Prints how the mutant was caught, and gives its name where it was not.
fn survivor(kind: &str, mistake: &'static str, verdict: &Verdict) -> Option<&'static str> {
    println!("{kind}: {mistake}\n  {verdict}\n");
    verdict.broken.is_none().then_some(mistake)
}

fn all_are_caught(kind: &str, leases: Leases) {
    let check = |mutant: Mutant| survivor(kind, mutant.mistake(), &check(leases, mutant.shows_in(), Some(mutant)));
    let survivors: Vec<&str> = Mutant::of(leases).filter_map(check).collect();
    assert_eq!(survivors, [""; 0]);
}

#[test]
fn every_mutant_of_lease_rows_is_caught() {
    all_are_caught("lease rows", Leases::Rows);
}

#[test]
fn every_mutant_of_inline_leases_is_caught() {
    all_are_caught("inline leases", Leases::Inline);
}

#[test]
fn every_mutant_of_the_recount_is_caught() {
    let check =
        |mistake: Mistake| survivor("recount", mistake.mistake(), &check_recount(mistake.shows_in(), Some(mistake)));
    let survivors: Vec<&str> = Mistake::ALL.into_iter().filter_map(check).collect();
    assert_eq!(survivors, [""; 0]);
}

/// Without this, a mutant that is caught at once for the wrong reason would pass for a good one.
#[test]
fn no_trace_is_cut_short() {
    for leases in [Leases::Rows, Leases::Inline] {
        for mutant in Mutant::of(leases) {
            let trace = check(leases, mutant.shows_in(), Some(mutant)).broken.unwrap();
            assert_eq!(trace.steps.len(), trace.length, "{mutant:?}");
        }
    }
}
