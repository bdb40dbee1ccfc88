//! The only code that talks to DynamoDB: translates core's writes, sends a request again if that can help,
//! and separates what was not applied from what may have been.

mod answer;
mod breaker;
mod connection;
mod error;
mod exchange;
mod learning;
mod read;
mod request;
mod retrying;
mod scan;
mod time;
mod translate;
mod tries;
mod watch;
mod write;
mod written;

pub use breaker::{Heard, HeardSince};
pub use connection::Store;
pub use error::StoreError;
pub use exchange::{AttemptTimeout, CREDENTIALS_TIMEOUT};
pub use scan::{Consistency, Page, Scan};
pub use translate::{Attributes, row_key, value_text};
pub use tries::{MOST_TRIES, TryBudget};
pub use write::Transaction;
pub use written::{Attempted, Cancelled, Item, Resend, Transacted, Written};
