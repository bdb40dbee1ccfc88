//! Processes that are killed with SIGKILL, at random moments and by the hundred: a caller, a sweep, and the
//! engine with a file behind it. Whenever a process dies, each slot is free or held by a lease; once the
//! leases have ended, two sweeps bring every bucket back to what its limits say.
//!
//! The moments are random, and their seed is printed: it repeats the draws, though not the schedule of the
//! machine. `cargo test -p sluice-cli --test crash -- --nocapture` shows how many kills met their victim at
//! work.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod caller;
mod engine;
mod program;
mod sweep;
mod table;
