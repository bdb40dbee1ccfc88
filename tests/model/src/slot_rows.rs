//! Shares of slots (ADR 11): the common row and one share's row of a concurrency bucket, which operators
//! change while callers take, borrow, wait and give back.
//!
//! # The rule
//!
//! Each row has a capacity C and free slots T. A call takes a free slot of its own row; or it borrows one of
//! the other row by a reading that may be old, if the floor stays there and nobody waits for that row. It
//! gives the slot back where it took it; so does a sweep, for a call that crashed. An operator reads the rows
//! and the name, and writes the first step that they lack: name, shrink, grow as slots come back, remove. A
//! sweep (or a caller that finds no slot) goes on with what the rows say is wanted: it only grows. The growth
//! that leaves all as wanted ends the change. Each write has the conditions of `sluice-core`'s
//! `plan/slot_rows.rs`.
//!
//! # Why it holds
//!
//! With H = C - T, max(C, H) of a row is what it may have in use at once. Only growth raises it. A growing
//! write is one transaction over both rows: C as read, and T no lower than it was read, if that is below
//! zero, or than zero. So neither C nor H is more than was counted, and the sum is at the limit or below. A
//! row is made in the write that opens its name, and goes in the write that takes the name away, and both ask
//! for the name as it was read. So whoever read a name that has no row, and finds the name as it was, finds
//! no row either.
//!
//! Each write of a change asks for the name, what is wanted, and the common row's C as it read them. So none
//! lands after the change has ended, unless the same change was begun anew.
//!
//! # What is modelled
//!
//! Two to four slots; a share that is wanted with one or two of them, or not at all, and a limit that
//! changes, by two operators and a sweep, or by three operators, whose readings are of any age; one borrower;
//! waiting callers of both rows, whose mark ends at any time; crashes. An operator may crash after any write:
//! nothing compels it to go on.
//!
//! # What is not
//!
//! Costs other than 1, and more than one share: the random runs of
//! `crates/sluice-core/tests/inline/slot_rows` have those. How a sweep finds what has ended is the model of
//! leases. That an operator comes to its end is shown by the random runs and the simulation.

mod action;
mod model;
mod oversight;
mod state;

pub use model::Rows;
pub(crate) use model::SlotRows;
pub use oversight::Oversight;
