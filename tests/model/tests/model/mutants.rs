//! The protocol with one condition left out, or one reply misread.

use sluice_model::{Leases, Mistake, Mutant, Verdict, check, check_recount};

/// Prints how the mutant was caught, and gives its name where it was not.
pub(crate) fn survivor(kind: &str, mistake: &'static str, verdict: &Verdict) -> Option<&'static str> {
    println!("{kind}: {mistake}\n  {verdict}\n");
    // A trace that cannot be told to its end would be one that the protocol does not have.
    assert!(
        verdict.broken.as_ref().is_none_or(|trace| trace.steps.len() == trace.length),
        "{mistake}: a trace cut short"
    );
    verdict.broken.is_none().then_some(mistake)
}

fn all_are_caught(kind: &str, leases: Leases) {
    let check =
        |mutant: Mutant| survivor(kind, mutant.mistake(), &check(leases, mutant.shows_in(), Some(mutant)));
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
    let check = |mistake: Mistake| {
        survivor("recount", mistake.mistake(), &check_recount(mistake.shows_in(), Some(mistake)))
    };
    let survivors: Vec<&str> = Mistake::BREAKING.into_iter().filter_map(check).collect();
    assert_eq!(survivors, [""; 0]);
}

#[test]
fn the_conditions_of_notes_only_save_a_sweep() {
    for mistake in Mistake::HARMLESS {
        let verdict = check_recount(mistake.shows_in(), Some(mistake));
        println!("recount: {}\n  {verdict}\n", mistake.mistake());
        assert!(verdict.broken.is_none(), "{verdict}");
    }
}
