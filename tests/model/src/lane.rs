//! Lanes (design, section 9): the callers of a process share one write at a time, and may leave whenever they
//! like.
//!
//! # What is modelled
//!
//! Two processes over one bucket with inline leases. A caller joins the queue of its process. The lane's
//! worker, a task of its own, takes the whole queue as a batch, in order, with every lease that is to be
//! given back, and sends one write for as many as the row had room for when it was last seen, and for one at
//! least. From the reply it answers those that were granted, plans again where the row shows another picture
//! (slots free, leases that have ended, own leases that an earlier try put there), and refuses the rest where
//! it shows none. A caller may be dropped while it waits, while the write is in flight, and after it was
//! answered, before or after it took the answer. The grant of one that left goes to the first that waits, or
//! back with the next write. A reply may be lost, and the write it was for may arrive at any later time or
//! never. Processes crash; leases end; who is refused takes over what has ended.
//!
//! # What it takes
//!
//! - A grant is handed on when the next batch is made, or the reply told: not past callers that are in
//!   flight.
//! - Only a lease that the last reply showed, that has not ended, and that no write without a reply has
//!   named, in whichever way: a release that got no answer may have been applied, or arrive at any later
//!   time.
//! - The leases of a write without a reply stay the worker's: the next write on the same ids finds out. That
//!   of a caller that leaves meanwhile goes on the list of what is to be given back.
//! - An own lease in the row is a grant of an earlier try; one that has ended is not. Its caller is refused:
//!   it has lost its turn, and who came after it may be served.
//!
//! # What is not
//!
//! The conditions of the joined write one by one, renewals, resizes and minted slots: the protocol's own
//! space has them. Costs are 1, so that every grant is what the next caller needs. Callers do not wait for
//! slots: a refusal is an answer. What a late write puts in that its lane has given up is nobody's until it
//! ends.

mod action;
mod model;
mod slip;
mod state;
mod worker;

pub(crate) use model::Lanes;
pub use model::Traffic;
pub use slip::Slip;
