//! The entry: a table, and the observer that learns what is done to it.

use std::sync::Arc;

use sluice_core::schema::DIRECTORY_KEY;
use sluice_core::{ClockOffset, Timestamp};
#[cfg(feature = "aws-config")]
use sluice_table::{ConfigError, Settings};
use sluice_table::{Store, StoreError};

use crate::observer::{NoObserver, Observer};

/// Operates one table. Cheap to clone.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use sluice_ops::{Ops, SweepOptions};
///
/// let ops = Ops::from_env().await?;
/// let report = ops.sweep(SweepOptions::from_env()?).await?;
/// println!("{} leases were given back", report.restored);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Ops {
    pub(crate) store: Store,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) has_inline_leases: bool,
}

impl Ops {
    /// Operates the table of `store`.
    #[must_use]
    pub fn new(store: Store) -> Self {
        // Operations wait for the return of DynamoDB.
        Self { store: store.patient(), observer: Arc::new(NoObserver), has_inline_leases: false }
    }

    /// Operates the table of the `SLUICE_*` variables with the environment's credentials. Makes no request.
    ///
    /// # Errors
    /// [`ConfigError`] for a variable that cannot be used, or if no table is named.
    #[cfg(feature = "aws-config")]
    pub async fn from_env() -> Result<Self, ConfigError> {
        let store = Settings::from_env()?.connect().await;
        let has_inline_leases = std::env::var("SLUICE_LEASES").is_ok_and(|leases| leases == "inline");
        Ok(Self::new(store).with_inline_leases(has_inline_leases))
    }

    /// Tells `observer` what is done from now on.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer, ..self }
    }

    /// Sets whether callers write inline leases (`SLUICE_LEASES=inline`); by default they do not. If they do,
    /// limits that are too large for these are rejected.
    #[must_use]
    pub fn with_inline_leases(self, has_inline_leases: bool) -> Self {
        Self { has_inline_leases, ..self }
    }

    /// The name of the table.
    #[must_use]
    pub fn table(&self) -> &str {
        self.store.table()
    }

    /// DynamoDB's time, to the best of this process's knowledge.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.store.clock().now()
    }

    /// DynamoDB's clock minus this one, by the replies of the last one to two minutes; `None` before the
    /// first.
    #[must_use]
    pub fn clock_offset(&self) -> Option<ClockOffset> {
        self.store.clock().offset()
    }

    /// Opens the connection with one cheap request: a strongly consistent read of half a KB. Takes at most
    /// the time of a request (4.2 s).
    ///
    /// # Errors
    /// [`StoreError`] if the table does not answer.
    pub async fn warm_up(&self) -> Result<(), StoreError> {
        self.store.read(DIRECTORY_KEY).await.map(drop)
    }
}
