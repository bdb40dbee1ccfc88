//! Prefetch (design, section 9): a process takes more of a rate bucket than it is asked for, a *lot*, and
//! uses it later.
//!
//! # The rule
//!
//! A write that takes a lot of K leaves T tokens on the anchor A, and counts the lots of the bucket. At time
//! u, of what is left of the lot as much is there as lies below the brim: `C - (u - A) * R - T`. The rest has
//! run over, as it would have in the bucket, and is gone for good. That holds for uses and for returns; of a
//! return, what others gave back since comes off as well. Tokens go back where the anchor is that of their
//! take, no lot was taken since, and T is as their take left it or the line is above zero.
//!
//! # Why it holds
//!
//! What was taken is a piece of the bucket's line, from T up to T + K, that rises with the line and is cut at
//! the brim. Each piece was taken from the top of what there was, so that pieces do not overlap, and the
//! bucket's own line stays below those of all lots: takes lower it, and a return lifts it no higher than to
//! where its own piece ended. So line and lots together never hold more than the capacity, and that is what a
//! window can use beyond its refill. A full write is no exception: where the line is at the brim, every piece
//! above it has run over, by the receipt's own arithmetic.
//!
//! A return of tokens that were taken *before* a lot would lift the line into the lot's piece, which another
//! process uses and which does not know: so it asks for the count of lots. It does lift the line into the
//! pieces of plain grants taken since. Those are used up but for what goes back, and their returns are cut
//! lower by as much.
//!
//! # What is modelled
//!
//! One bucket in whole tokens and ticks, with no end to the time; every clock off by up to an error that
//! changes from one reading to the next. The time that a request is on its way is such an error too. Everyone
//! who holds something holds it alone: a process with two lots is two holders, for it keeps nothing else that
//! a condition rests on, and a crash is all that it holds dropped, or taken and never seen. Plain grants that
//! give part of their tokens back (a settled estimate, a call that was not made) and booked starts are there
//! too. Every window is judged at once, by a meter: it gains R a tick, never above C, and loses what is used;
//! it is below zero when some window that ends now holds more than it may.
//!
//! # What is not
//!
//! A change of limits, a penalty and a cool-down: a lot taken before one of them is used on for as long as
//! its use-by allows.

mod action;
mod flaw;
mod model;
mod state;

pub use flaw::Flaw;
pub(crate) use model::Prefetch;
pub use model::Stock;
