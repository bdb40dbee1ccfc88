//! The client that product code holds.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{ClockOffset, Timestamp};
use sluice_table::DynamoClient;

use crate::lane::inner::Inner;

/// Shares vendors' quotas through one DynamoDB table. Cheap to clone; clones share what they know of buckets.
///
/// ```no_run
/// # async fn call_vendor() -> Result<String, std::io::Error> { Ok(String::new()) }
/// # async fn handler() -> Result<(), Box<dyn std::error::Error>> {
/// use sluice_sdk::{Client, Outcome};
///
/// let sluice = Client::from_env().await?;
/// match sluice.acquire("openai#rpm").await? {
///     Outcome::Granted(grant) => {
///         let reply = call_vendor().await;
///         grant.release().await?;
///     }
///     Outcome::RetryIn(retry) => println!("try again in {:?}", retry.wait()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

impl Client {
    /// The table's name.
    #[must_use]
    pub fn table(&self) -> &str {
        self.inner.store.table()
    }

    /// The DynamoDB client that this client uses.
    #[must_use]
    pub fn dynamodb(&self) -> &DynamoClient {
        self.inner.store.dynamo()
    }

    /// The longest wait that is worth sleeping through, rather than putting the work back into its queue
    /// (`SLUICE_INLINE_RETRY_THRESHOLD`).
    #[must_use]
    pub fn inline_retry_threshold(&self) -> Duration {
        self.inner.config.inline_retry_threshold
    }

    /// DynamoDB's clock minus this process's, as bounded by the replies of the last one to two minutes;
    /// `None` before the first. The client corrects its clock by it, so it does no harm to limits. Above one
    /// second the client warns (event `clock.offset`), once a minute, for the sake of other programs on the
    /// machine.
    #[must_use]
    pub fn clock_offset(&self) -> Option<ClockOffset> {
        self.inner.store.clock().offset()
    }

    /// The time by which this client decides: this machine's clock, corrected by DynamoDB's replies.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.inner.now()
    }
}
