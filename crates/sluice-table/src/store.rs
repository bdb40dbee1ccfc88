//! The table: the only place that talks to DynamoDB. Translates core's writes, retries what is worth it, and tells apart what
//! did not happen from what may have.

mod answer;
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
mod write;
mod written;

pub use connection::Store;
pub use error::StoreError;
pub use exchange::AttemptTimeout;
pub use scan::{Consistency, Page, Scan};
pub use translate::{Attributes, row_key, value_text};
pub use tries::Tries;
pub use write::Transaction;
pub use written::{Cancelled, IfAmbiguous, Item, Transacted, Written};
