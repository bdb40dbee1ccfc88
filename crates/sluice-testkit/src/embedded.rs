//! The engine, and the clients that talk to it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_smithy_async::time::TimeSource;
use dynoxide::Database;
use sluice_sdk::core::Put;
use sluice_sdk::core::schema::KEY;
use sluice_sdk::{Client, ClientBuilder, Clock, CreateTableError};

use crate::clock::TestClock;
use crate::engine;
use crate::faults::Faults;
use crate::link;
use crate::meter::Meter;
use crate::profile::DynamoProfile;
use crate::server::{Server, ServerError};

/// A DynamoDB engine in this process. Clones are one engine.
#[derive(Clone)]
pub struct EmbeddedDynamo {
    database: Database,
    clock: TestClock,
    meter: Meter,
    faults: Faults,
    profile: Option<DynamoProfile>,
    rows_on_a_page: Option<u32>,
}

/// Why the engine could not be opened, or a table in it not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The engine itself.
    #[error("the embedded DynamoDB engine failed ({step}): {message}")]
    Engine {
        /// What was being done.
        step: &'static str,
        /// What it said.
        message: String,
    },
    /// The table.
    #[error(transparent)]
    Table(#[from] CreateTableError),
}

fn failed(step: &'static str) -> impl Fn(dynoxide::DynoxideError) -> EngineError {
    move |error| EngineError::Engine { step, message: error.to_string() }
}

impl EmbeddedDynamo {
    /// An empty engine in memory, at the present time.
    ///
    /// # Errors
    /// [`EngineError`] where SQLite does not start.
    pub fn new() -> Result<Self, EngineError> {
        Self::with_clock(TestClock::system())
    }

    /// An empty engine in memory, at the time of `clock`.
    ///
    /// # Errors
    /// [`EngineError`] where SQLite does not start.
    pub fn with_clock(clock: TestClock) -> Result<Self, EngineError> {
        let database = Database::memory_with_clock(Arc::new(clock.clone())).map_err(failed("open"))?;
        Ok(Self {
            database,
            clock,
            meter: Meter::default(),
            faults: Faults::default(),
            profile: None,
            rows_on_a_page: None,
        })
    }

    /// An engine that keeps its data in `file`, at the system's time.
    ///
    /// # Errors
    /// [`EngineError`] where the file cannot be opened or is none of the engine's.
    pub fn open(file: &Path) -> Result<Self, EngineError> {
        let database = Database::new(&file.to_string_lossy()).map_err(failed("open"))?;
        Ok(Self {
            database,
            clock: TestClock::system(),
            meter: Meter::default(),
            faults: Faults::default(),
            profile: None,
            rows_on_a_page: None,
        })
    }

    /// An engine in memory with Sluice's table of this name.
    ///
    /// # Errors
    /// [`EngineError`] where the engine does not start or refuses the name.
    pub async fn with_table(table: &str) -> Result<Self, EngineError> {
        let dynamo = Self::new()?;
        dynamo.create_table(table).await?;
        Ok(dynamo)
    }

    /// Makes Sluice's table under this name; false where it is there already.
    ///
    /// # Errors
    /// [`EngineError`] where the engine refuses the name.
    pub async fn create_table(&self, table: &str) -> Result<bool, EngineError> {
        Ok(sluice_sdk::create_table(&self.dynamodb(), table).await?)
    }

    /// Writes rows into `table` at once, past conditions, meter and faults: for tests and benchmarks that need many.
    ///
    /// # Errors
    /// [`EngineError`] where there is no such table.
    pub fn load(&self, table: &str, rows: impl IntoIterator<Item = Put>) -> Result<usize, EngineError> {
        let item =
            |put: Put| put.item.into_iter().map(|(name, value)| (name.to_owned(), engine::value(value))).collect();
        let rows = rows.into_iter().map(item).collect();
        let loaded = self.database.import_items(table, rows, dynoxide::ImportOptions::default());
        loaded.map(|loaded| loaded.items_imported).map_err(failed("load"))
    }

    /// A row as it is, past meter and faults, as DynamoDB's JSON has it; `None` where there is none.
    ///
    /// # Errors
    /// [`EngineError`] where there is no such table.
    pub fn row(&self, table: &str, key: &str) -> Result<Option<serde_json::Value>, EngineError> {
        let request = serde_json::json!({ "TableName": table, "Key": { KEY: { "S": key } }, "ConsistentRead": true });
        let (status, reply) = engine::answer(&self.database, "GetItem", request.to_string().as_bytes());
        let mut reply: serde_json::Value = serde_json::from_slice(&reply).unwrap_or_default();
        match status {
            200 => Ok(reply.get_mut("Item").map(serde_json::Value::take)),
            _ => Err(EngineError::Engine { step: "read", message: reply.to_string() }),
        }
    }

    /// The same engine behind a network of its own: clients made from here meet `faults` and nobody else does, and what they
    /// use is not metered.
    #[must_use]
    pub fn apart(&self, faults: Faults) -> Self {
        Self { faults, meter: Meter::off(), ..self.clone() }
    }

    /// The same engine behind a service that is modelled: clients made from here meet its latencies, conflicts and limits. On
    /// tokio's paused clock.
    #[must_use]
    pub fn behind(&self, profile: &DynamoProfile) -> Self {
        Self { profile: Some(profile.clone()), ..self.clone() }
    }

    /// The same engine with so many rows, at most, on a page of a scan, as in a table of large rows: for clients made from here.
    #[must_use]
    pub fn with_pages_of(&self, rows: u32) -> Self {
        Self { rows_on_a_page: Some(rows), ..self.clone() }
    }

    /// The same with a meter of its own, which begins at zero.
    #[must_use]
    pub fn metered(&self) -> Self {
        Self { meter: Meter::default(), ..self.clone() }
    }

    /// A DynamoDB client of the AWS SDK that calls the engine directly. What it does is metered, and meets the faults.
    #[must_use]
    pub fn dynamodb(&self) -> aws_sdk_dynamodb::Client {
        self.dynamodb_on(self.clock.off_by(0))
    }

    /// The same on a machine with this clock, by which its requests are signed.
    #[must_use]
    pub fn dynamodb_on(&self, clock: Clock) -> aws_sdk_dynamodb::Client {
        let http_client = link::in_process(
            self.database.clone(),
            self.clock.clone(),
            (self.profile.clone(), self.rows_on_a_page),
            self.meter.clone(),
            self.faults.clone(),
        );
        let second = Duration::from_secs(1);
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "sluice-testkit"))
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(second).build())
            .time_source(Signing(clock))
            .http_client(http_client);
        aws_sdk_dynamodb::Client::from_conf(config.build())
    }

    /// A client of Sluice as another process would have it, with a memory of its own.
    #[must_use]
    pub fn client(&self, table: &str) -> Client {
        self.client_with(Client::builder(table))
    }

    /// As [`client`](Self::client), with these settings. Time, unless they set it later, is the engine's.
    #[must_use]
    pub fn client_with(&self, settings: ClientBuilder) -> Client {
        settings.clock(self.clock.off_by(0)).dynamodb(self.dynamodb())
    }

    /// As [`client_with`](Self::client_with), on a clock that is off by `micros`.
    #[must_use]
    pub fn client_off_by(&self, settings: ClientBuilder, micros: i64) -> Client {
        let clock = self.clock.off_by(micros);
        settings.clock(clock.clone()).dynamodb(self.dynamodb_on(clock))
    }

    /// Deletes what its TTL says is over, as DynamoDB does at a time of its own choosing; returns how many rows.
    ///
    /// # Errors
    /// [`EngineError`] where SQLite fails.
    pub fn sweep_ttl(&self) -> Result<usize, EngineError> {
        self.database.sweep_ttl().map_err(failed("TTL sweep"))
    }

    /// Serves the engine on a socket until the server is dropped or stopped. Port 0 takes a free one.
    ///
    /// # Errors
    /// [`ServerError`] where the address is in use, or not this machine's.
    pub async fn serve(&self, address: SocketAddr) -> Result<Server, ServerError> {
        Server::start(self.database.clone(), address).await
    }

    /// Its time.
    #[must_use]
    pub const fn clock(&self) -> &TestClock {
        &self.clock
    }

    /// What its in-process clients have used.
    #[must_use]
    pub const fn meter(&self) -> &Meter {
        &self.meter
    }

    /// What its in-process clients meet.
    #[must_use]
    pub const fn faults(&self) -> &Faults {
        &self.faults
    }
}

/// The clock that requests are signed by.
#[derive(Debug)]
struct Signing(Clock);

impl TimeSource for Signing {
    fn now(&self) -> SystemTime {
        let micros = u64::try_from(self.0.now().micros()).unwrap_or(0);
        SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
    }
}

impl std::fmt::Debug for EmbeddedDynamo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedDynamo").field("clock", &self.clock).finish_non_exhaustive()
    }
}
