//! Rows in and out of DynamoDB. Only this crate names the AWS SDK, retries a request, and knows the time. It
//! knows no bucket, no lease and no grant: it takes a write of `sluice-core`, and returns the result within a
//! stated time.

mod clock;
#[cfg(feature = "aws-config")]
mod connect;
#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a measurement prints its figure")]
mod cost;
mod create;
#[cfg(feature = "aws-config")]
mod credentials;
mod dates;
pub mod emf;
#[cfg(feature = "aws-config")]
mod http;
pub mod metric;
mod misspelt;
mod operation;
mod probe;
mod requests;
mod retry;
mod settings;
mod span;
mod store;
mod table_clock;

pub use aws_sdk_dynamodb::Client as DynamoClient;
pub use clock::Clock;
#[cfg(feature = "aws-config")]
pub use connect::{SdkConfig, client_of, environment};
pub use create::{CreateTableError, create_table};
#[cfg(feature = "aws-config")]
pub use credentials::{AwsCredentials, CredentialsSource};
pub use misspelt::warn_of_misspelt_variables;
pub use probe::{Probe, Probed, Provisioned, RowState, TableDescription};
pub use requests::clock_offset as publish_clock_offset;
pub use retry::{Backoff, random_up_to, random_wait_around, random_wait_up_to};
pub use settings::{
    ANSWER_WITHIN, ATTEMPT_TIMEOUT, ConfigError, LONGEST_ANSWER, LONGEST_ATTEMPT, LONGEST_SETTING,
    MOST_RETRIES, SHORTEST_ANSWER, SHORTEST_ATTEMPT, Settings, Variable, duration, log_level,
};
pub use store::{
    AttemptTimeout, Attempted, Attributes, CREDENTIALS_TIMEOUT, Cancelled, Consistency, Heard, HeardSince,
    Item, MOST_TRIES, Page, Resend, Scan, Store, StoreError, Transacted, Transaction, TryBudget, Written,
    row_key, value_text,
};
pub use table_clock::TableClock;
