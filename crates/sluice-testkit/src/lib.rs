//! A real DynamoDB engine in process, to test code against Sluice without Docker, network or AWS account.
//!
//! [`EmbeddedDynamo`] holds the engine (`dynoxide`: SQLite underneath, DynamoDB's own expression and
//! transaction semantics). Clients call it through the AWS SDK, with an HTTP client that calls the engine
//! directly, or over a socket. [`TestClock`] moves the time of engine and clients. [`Meter`] counts what AWS
//! would bill. [`Faults`] loses requests and replies, and adds the conflicts and throttling that the engine
//! never has by itself. [`DynamoProfile`] models conflicts and throttling as load causes them. [`yardstick`]
//! has limiters to compare Sluice with.
//!
//! ```
//! use sluice_sdk::Outcome;
//! use sluice_sdk::core::{Amount, Cost, Dimension, Limit};
//! use sluice_testkit::EmbeddedDynamo;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dynamo = EmbeddedDynamo::with_table("my-test-table").await?;
//! let sluice = dynamo.client("my-test-table");
//! let one_slot = Limit::concurrent(Amount::from_tokens(1), Cost::ONE)?;
//! sluice.ops().apply_limit(&Dimension::new("elevenlabs#concurrent")?, &one_slot).await?;
//!
//! // Your code under test gets `sluice`. Here, two callers meet one slot:
//! let first = sluice.acquire("elevenlabs#concurrent").await?.granted().expect("the slot is free");
//! assert!(matches!(sluice.acquire("elevenlabs#concurrent").await?, Outcome::RetryIn(_)));
//! first.release().await?;
//! # Ok(())
//! # }
//! ```

mod broken_body;
mod clock;
mod dates;
mod embedded;
mod endpoint;
mod engine;
mod faults;
mod faulty_server;
mod item_size;
mod link;
mod meter;
mod operation;
mod profile;
mod rights;
mod server;
pub mod yardstick;

pub use clock::TestClock;
pub use embedded::{EmbeddedDynamo, EngineError};
pub use endpoint::dynamodb_at;
pub use faults::{Alteration, Answered, Call, Fault, Faults, Gate};
pub use link::metered;
pub use meter::{Meter, Usage};
pub use operation::Operation;
pub use profile::DynamoProfile;
pub use rights::Rights;
pub use server::{Server, ServerError};
