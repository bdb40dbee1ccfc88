//! The recount (design, section 10.3): slots that were lost or minted in ways that nobody foresaw come back,
//! and nothing is put right that is not wrong.
//!
//! What is as in the code: the judgement and the plan, which are `sluice-core`'s own functions; the order of
//! a sweep (a first reading, the scan, what it gives back, a second reading, one write); the conditions of
//! that write; what each write counts.
//!
//! What is less: costs are 1, a note never grows old, the capacity stays, and a reply is never lost (a second
//! application of the recount's writes fails, since each takes away what its condition asks for). What is
//! more: a scan meets the rows in any order, a row that comes while it runs may lie where it has been, and a
//! lease's age is misjudged as far as clocks and slow writes allow.

mod action;
mod judgement;
mod mistake;
mod model;
mod state;
mod sweeping;

pub use mistake::Mistake;
pub use model::Extent;
pub(crate) use model::Recount;
