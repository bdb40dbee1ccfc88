//! The promises of Sluice, held against a real DynamoDB engine.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::missing_panics_doc)]
// Small numbers of tests, and closures that only sleep.
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss, clippy::unit_arg)]

mod acquire;
mod contention;
mod cost;
mod endpoint;
mod engines;
mod events;
mod infra;
mod inline_leases;
mod inline_sweep;
mod interleavings;
mod limits;
mod lost_replies;
mod other_clients;
mod outage;
mod reconciler;
mod recount;
mod recount_races;
mod slots;
mod sweep;
mod together;
mod world;
