//! The limiter in each HTTP client, against a vendor that judges for itself.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod adapters;
mod bedrock;
mod calls;
mod ends;
mod found;
mod programs;
mod refusals;
mod shadow;
mod steps;
mod world;
