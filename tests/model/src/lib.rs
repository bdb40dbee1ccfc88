//! The protocol of Sluice's leases as a model that stateright checks in every state that can be reached, and
//! the mutants of it that the check must catch.
//!
//! # What is modelled
//!
//! One concurrency bucket of capacity 2 and up to four acquisitions, three of them under way at one time;
//! acquire, release, renew and take-over; two sweepers that overlap with everything and with each other, each
//! with its list of what a scan found, reclaiming any part of it in one transaction; DynamoDB's TTL; resizes;
//! crashes of callers and sweepers anywhere. A request may meet `TransactionConflict`. It may stay without an
//! answer, and then arrive at any later time or never: that is a lost reply, a lost request, and a duplicate
//! that comes after its token is forgotten, so that its conditions alone protect. Both kinds of lease: rows
//! of their own (design, section 6) and inline (section 7), where one write may join what several callers ask
//! for, and the first has to make the map. A foreign client may give a slot back twice.
//!
//! Five models stand beside it: the *recount*, around the judgement of `sluice-core`; the *lanes*, in which
//! callers of a process share those joined writes and leave when they like; and, for rate buckets, *prefetch*
//! and *shares*; and *rows of shares*, for slots. What each abstracts stands at its head.
//!
//! # What is not
//!
//! Costs are 1, so that a transaction's sums are counts. A transaction is one step, as DynamoDB promises.
//! Waiting, backing off and giving up are free: a conflict changes nothing, and a caller may give up at any
//! time, so every number of retries is among the ways. The cache is left out, since it never grants.
//! Cool-down and the removal of a bucket are left out. No lease outlives all sweeps of the seven days until
//! `purge_at`; the recount's model has one that does. The budgets of faults and renewals are those of each
//! state space: what takes more of them than the tests give is not looked at.

mod action;
mod caller;
mod check;
mod joined;
mod lane;
mod mutant;
mod prefetch;
mod promises;
mod protocol;
mod recount;
mod shares;
mod slot_rows;
mod state;
mod sweeper;
mod writes;

pub use check::{Trace, Verdict};
pub use lane::{Slip, Traffic};
pub use mutant::{Leases, Mutant};
pub use prefetch::{Flaw, Stock};
pub use protocol::Scope;
pub use recount::{Extent, Mistake};
pub use shares::{Lapse, Split};
pub use slot_rows::{Oversight, Rows};

/// Checks the protocol for one kind of lease, or a mutant of it.
#[must_use]
pub fn check(leases: Leases, scope: Scope, mutant: Option<Mutant>) -> Verdict {
    check::check(protocol::Protocol { leases, mutant, scope })
}

/// Checks the recount, or a mutant of it.
#[must_use]
pub fn check_recount(extent: Extent, mistake: Option<Mistake>) -> Verdict {
    check::check(recount::Recount { extent, mistake })
}

/// Checks prefetch, or one with a flaw.
#[must_use]
pub fn check_prefetch(stock: Stock, flaw: Option<Flaw>) -> Verdict {
    check::check(prefetch::Prefetch { stock, flaw })
}

/// Checks the lanes, or lanes with a slip.
#[must_use]
pub fn check_lanes(traffic: Traffic, slip: Option<Slip>) -> Verdict {
    check::check(lane::Lanes { traffic, slip })
}

/// Checks shares, or shares with a lapse.
#[must_use]
pub fn check_shares(split: Split, lapse: Option<Lapse>) -> Verdict {
    check::check(shares::Shares { split, lapse })
}

/// Checks shares of slots, or those with an oversight.
#[must_use]
pub fn check_slot_rows(rows: Rows, oversight: Option<Oversight>) -> Verdict {
    check::check(slot_rows::SlotRows { rows, oversight })
}
