//! The words for outcomes, which are the same in every language, with the amounts that belong to them.

use sluice_sdk::core::Amount;
use sluice_sdk::ops::Applied;
use sluice_sdk::reactions::{ObservedLevel, ObservedLimit};
use sluice_sdk::{Basis, Decision, Settled};

/// An amount in tokens: the nearest number of 53 bits.
#[must_use]
pub fn tokens(amount: Amount) -> f64 {
    amount.to_string().parse().unwrap_or(f64::NAN)
}

/// What a grant is based on.
#[must_use]
pub const fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Table => "table",
        Basis::LocalShare => "local_share",
        Basis::Shadow => "shadow",
        _ => "unchecked",
    }
}

/// How a call was settled, what it returned or took, and what was not charged.
#[must_use]
pub fn settled(settled: Settled) -> (&'static str, f64, f64) {
    let (outcome, amount, not_charged) = match settled {
        Settled::AsTaken => ("as_taken", Amount::ZERO, Amount::ZERO),
        Settled::Returned(amount) => ("returned", amount, Amount::ZERO),
        Settled::Owed(amount) => ("owed", amount, Amount::ZERO),
        Settled::Capped { taken, not_charged } => ("capped", taken, not_charged),
        _ => ("unknown", Amount::ZERO, Amount::ZERO),
    };
    (outcome, tokens(amount), tokens(not_charged))
}

/// What a caller does about a reply.
#[must_use]
pub const fn action(decision: Decision) -> &'static str {
    match decision {
        Decision::RetryInline { .. } => "retry_inline",
        Decision::Requeue { .. } => "requeue",
        Decision::GiveUp => "give_up",
        _ => "not_refused",
    }
}

/// What a reply did to the level, and by how much it lowered it.
#[must_use]
pub fn level(observed: ObservedLevel) -> (&'static str, Option<f64>) {
    match observed {
        ObservedLevel::NotSaid => ("not_said", None),
        ObservedLevel::NoGrant => ("no_grant", None),
        ObservedLevel::Agrees => ("agrees", None),
        ObservedLevel::Lowered(amount) => ("lowered", Some(tokens(amount))),
        _ => ("stale", None),
    }
}

/// What a reply says of the limit, and the lower limit that it reports.
#[must_use]
pub fn limit(observed: ObservedLimit) -> (&'static str, Option<f64>) {
    match observed {
        ObservedLimit::NotSaid => ("not_said", None),
        ObservedLimit::NotLower => ("not_lower", None),
        ObservedLimit::Lower(amount) => ("lower", Some(tokens(amount))),
        ObservedLimit::Adopted(amount) => ("adopted", Some(tokens(amount))),
        _ => ("unknown", None),
    }
}

/// What applying a limit did.
#[must_use]
pub const fn applied(applied: &Applied) -> &'static str {
    match applied {
        Applied::Created => "created",
        Applied::Unchanged => "unchanged",
        Applied::Repaired => "repaired",
        _ => "changed",
    }
}
