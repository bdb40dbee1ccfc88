//! Lanes (design, section 9): the callers of a process share one write at a time, and may leave whenever they like.
//!
//! # What is modelled
//!
//! Two processes over one bucket with inline leases. A caller joins the queue of its process. The lane's worker, a task of its
//! own, takes the whole queue as a batch, in order, with every lease that is to be given back, and sends one write for as many as
//! the row had room for when it was last seen, and for one at least. From the reply it answers those that were granted, plans again
//! where the row shows another picture (slots free, leases that have ended, own leases that an earlier try put there), and
//! refuses the rest where it shows none. A caller may be dropped while it waits, while the write is in flight, and after it was
//! answered, before or after it took the answer. The grant of one that left goes to the first that waits, or back with the next
//! write. A reply may be lost, and the write it was for may arrive at any later time or never. Processes crash; leases end; who is
//! refused takes over what has ended.
//!
//! # What is not
//!
//! The conditions of the joined write one by one, renewals, resizes and minted slots: the protocol's own space has them. Costs
//! are 1, so that every grant is what the next caller needs. Callers do not wait for slots: a refusal is an answer.

mod action;
mod model;
mod slip;
mod state;
mod worker;

pub(crate) use model::Lanes;
pub use model::Traffic;
pub use slip::Slip;
