//! Rows in and out of DynamoDB. This crate alone names the AWS SDK, alone retries a request, and alone knows the time: a caller hands
//! it a write of `sluice-core` and receives what became of it, within a time that is stated.
//!
//! It knows no bucket, no lease and no grant.

mod clock;
mod connect;
#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a measurement tells its figure")]
mod cost;
mod create;
mod dates;
pub mod metric;
mod operation;
mod requests;
mod retry;
mod span;
mod store;
mod table_clock;

pub use clock::Clock;
pub use connect::{DynamoClient, SdkConfig, client_of, environment};
pub use create::{CreateTableError, create_table};
pub use requests::clock_offset as tell_clock_offset;
pub use retry::{Backoff, random_up_to};
pub use store::{
    ATTEMPT_TIMEOUT, AttemptTimeout, Attributes, Cancelled, Consistency, IfAmbiguous, Item, Page, Scan, Settings,
    Store, StoreError, Transacted, Transaction, Tries, Written, row_key, value_text,
};
pub use table_clock::TableClock;
