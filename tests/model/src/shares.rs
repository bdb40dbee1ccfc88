//! Shares (ADR 9): one product of several has a part of a rate bucket that the others may borrow of, and
//! never empty.
//!
//! # The rule
//!
//! The row has a line for the share beside its own, the *common* line; both follow the rules of a bucket. A
//! call of the share takes from the share's line, or waits on it. Any other call takes from the common line,
//! or waits on it; if that has too little *now*, the call may borrow from the share's line, as long as the
//! floor stays there, and never ahead. One write may take what the common line has and borrow the rest. What
//! was borrowed goes back to where it came from. A share is declared with a part of the level of the common
//! line, and removed into it; both move both anchors.
//!
//! # Why it holds
//!
//! The lines together never hold more than the bucket would: each gains its own rate and is cut at its own
//! brim, and the rates and capacities add up to those of the bucket. Nothing that is not taken from one line
//! comes to the other, except when a share is declared or removed, and then the sum stays. So for the vendor
//! it is one bucket. For the share: whatever others do, they leave the floor. So its line is never below one
//! that begins at the floor, gains the share's rate up to the floor, and pays only what the share itself
//! takes.
//!
//! # What is modelled
//!
//! Both lines in whole tokens and ticks, with no end to the time; clocks that are off, as in the model of
//! prefetch; grants, lots and booked starts of both products, borrowing, and returns; an operator who
//! declares and removes the share at any moment. The vendor's meter gains the whole rate a tick, never above
//! the whole capacity, and loses what is used. The share's meter is the line of the paragraph before. The
//! rules of one line (brim, returns, lots) are written without flaws here; the model of prefetch has those.
//!
//! # What is not
//!
//! A second share: no write touches more than the line of its caller and one other. Background shares: only
//! the floor differs that borrowers leave (none in the line of such a share, one call more where it borrows),
//! and the floor of this model is any. Shares of concurrency buckets have a model of their own (`slot_rows`).

mod action;
mod lapse;
mod line;
mod model;
mod state;

pub use lapse::Lapse;
pub(crate) use model::Shares;
pub use model::Split;
