//! The limiter in each HTTP client, against a vendor that judges for itself.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod calls;
mod programs;
mod refusals;
mod shadow;
mod world;
