//! The client that product code holds.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{ClockOffset, Limit, Timestamp};
use sluice_table::DynamoClient;
use sluice_vendors::Vendors;

use crate::api::error::AcquireError;
use crate::api::request::Request;
use crate::config::mode::Mode;
use crate::config::on_unavailable::OnUnavailable;
use crate::lane::inner::Inner;
use crate::lane::reading::{known, of_share};

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

    /// Whether the limits hold for the calls of this client (`SLUICE_MODE`).
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.inner.config.mode
    }

    /// The longest wait that is worth sleeping through, rather than putting the work back into its queue
    /// (`SLUICE_INLINE_RETRY_THRESHOLD`).
    #[must_use]
    pub fn inline_retry_threshold(&self) -> Duration {
        self.inner.config.inline_retry_threshold
    }

    /// How long a slot waits for its start if it names no wait (`SLUICE_DEFAULT_SLOT_TIMEOUT`).
    #[must_use]
    pub fn max_wait(&self) -> Duration {
        self.inner.config.max_wait
    }

    /// What an acquire returns while DynamoDB is out (`SLUICE_ON_UNAVAILABLE`).
    #[must_use]
    pub fn on_unavailable(&self) -> OnUnavailable {
        self.inner.config.on_unavailable
    }

    /// DynamoDB's clock minus this process's, as bounded by the replies of the last one to two minutes;
    /// `None` before the first. The client corrects its clock by it, so it does no harm to limits. Above one
    /// second the client warns (event `clock.offset`), once a minute, for the sake of other programs on the
    /// machine.
    #[must_use]
    pub fn clock_offset(&self) -> Option<ClockOffset> {
        self.inner.store.clock().offset()
    }

    /// The vendors whose replies this client reads: those of this crate, and its own (`SLUICE_VENDORS`).
    #[must_use]
    pub fn vendors(&self) -> &Vendors {
        &self.inner.config.vendors
    }

    /// The limit of a bucket (of a bucket with shares: of the client's own), as last seen by this process, or
    /// read now. `None` if the table has no such bucket. Takes at most an attempt (1 s) and a request (4.2
    /// s); no request for a bucket that is known.
    ///
    /// # Errors
    /// [`AcquireError`]: a malformed dimension, a row that cannot be read, or a table that does not answer.
    pub async fn limit(&self, dimension: &str) -> Result<Option<Limit>, AcquireError> {
        self.limit_by(dimension, None).await
    }

    /// As [`limit`](Self::limit), of another share than the client's own; `common` is the part that no share
    /// has. Of a bucket that does not have this share, the part that no share has.
    ///
    /// # Errors
    /// As of [`limit`](Self::limit), and for a malformed share.
    pub async fn limit_of_share(&self, dimension: &str, share: &str) -> Result<Option<Limit>, AcquireError> {
        self.limit_by(dimension, Some(share)).await
    }

    async fn limit_by(&self, dimension: &str, share: Option<&str>) -> Result<Option<Limit>, AcquireError> {
        let inner = &self.inner;
        let _asking = inner.background.begin()?;
        let entry = match inner.known_entry(dimension, share) {
            Some(entry) => entry,
            None => {
                let request = share.into_iter().fold(Request::from(dimension), Request::share);
                inner.entry_for(&request.parse()?.remove(0))
            }
        };
        let reading = match of_share(inner, entry).await {
            Ok(entry) => known(inner, &entry).await,
            Err(error) => Err(error),
        };
        match reading {
            Ok(reading) => Ok(Some(*reading.bucket.limit())),
            Err(AcquireError::UnknownDimension { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The time by which this client decides: this machine's clock, corrected by DynamoDB's replies.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.inner.now()
    }
}
