//! The embedded engine, and the clients that call it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_smithy_async::time::TimeSource;
use aws_smithy_runtime_api::client::http::{SharedHttpConnector, http_client_fn};
use dynoxide::Database;
use sluice_sdk::core::Put;
use sluice_sdk::core::schema::KEY;
use sluice_sdk::{Client, ClientBuilder, Clock};
use sluice_table::CreateTableError;

use crate::clock::TestClock;
use crate::endpoint;
use crate::engine;
use crate::faults::Faults;
use crate::faulty_server;
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

/// Why the engine could not be opened, or a table not be created in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The engine failed.
    #[error("the embedded DynamoDB engine failed ({step}): {message}")]
    Engine {
        /// The step that failed.
        step: &'static str,
        /// The engine's message.
        message: String,
    },
    /// The table could not be created.
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
    /// [`EngineError`] if SQLite does not start.
    pub fn new() -> Result<Self, EngineError> {
        Self::with_clock(TestClock::system())
    }

    /// An empty engine in memory, at the time of `clock`.
    ///
    /// # Errors
    /// [`EngineError`] if SQLite does not start.
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
    /// [`EngineError`] if the file cannot be opened, or is not one of the engine's.
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

    /// An empty engine in memory, with Sluice's table under this name.
    ///
    /// # Errors
    /// [`EngineError`] if the engine does not start, or rejects the name.
    pub async fn with_table(table: &str) -> Result<Self, EngineError> {
        let dynamo = Self::new()?;
        dynamo.create_table(table).await?;
        Ok(dynamo)
    }

    /// Creates Sluice's table under this name; returns false if the table already exists.
    ///
    /// # Errors
    /// [`EngineError`] if the engine rejects the name.
    pub async fn create_table(&self, table: &str) -> Result<bool, EngineError> {
        Ok(sluice_table::create_table(&self.dynamodb(), table).await?)
    }

    /// Writes rows into `table` directly, without conditions, meter and faults: for tests and benchmarks that
    /// need many rows.
    ///
    /// # Errors
    /// [`EngineError`] if the table does not exist.
    pub fn load(&self, table: &str, rows: impl IntoIterator<Item = Put>) -> Result<usize, EngineError> {
        let item = |put: Put| {
            put.item.into_iter().map(|(name, value)| (name.to_owned(), engine::value(value))).collect()
        };
        let rows = rows.into_iter().map(item).collect();
        let loaded = self.database.import_items(table, rows, dynoxide::ImportOptions::default());
        loaded.map(|loaded| loaded.items_imported).map_err(failed("load"))
    }

    /// Reads a row directly, without meter and faults, as DynamoDB's JSON; `None` if the row does not exist.
    ///
    /// # Errors
    /// [`EngineError`] if the table does not exist.
    pub fn row(&self, table: &str, key: &str) -> Result<Option<serde_json::Value>, EngineError> {
        let request =
            serde_json::json!({ "TableName": table, "Key": { KEY: { "S": key } }, "ConsistentRead": true });
        let (status, reply) = engine::answer(&self.database, "GetItem", request.to_string().as_bytes());
        let mut reply: serde_json::Value = serde_json::from_slice(&reply).unwrap_or_default();
        match status {
            200 => Ok(reply.get_mut("Item").map(serde_json::Value::take)),
            _ => Err(EngineError::Engine { step: "read", message: reply.to_string() }),
        }
    }

    /// The same engine behind a network of its own. Only clients created from the returned value meet
    /// `faults`, and what they use is not metered.
    #[must_use]
    pub fn apart(&self, faults: Faults) -> Self {
        Self { faults, meter: Meter::off(), ..self.clone() }
    }

    /// The same engine behind a modelled service. Clients created from the returned value meet the latencies,
    /// conflicts and limits of the profile. For tokio's paused clock.
    #[must_use]
    pub fn behind(&self, profile: &DynamoProfile) -> Self {
        Self { profile: Some(profile.clone()), ..self.clone() }
    }

    /// The same engine, for clients created from the returned value, with at most so many rows on a page of a
    /// scan, as in a table of large rows.
    #[must_use]
    pub fn with_pages_of(&self, rows: u32) -> Self {
        Self { rows_on_a_page: Some(rows), ..self.clone() }
    }

    /// The same engine with a new meter, which begins at zero.
    #[must_use]
    pub fn metered(&self) -> Self {
        Self { meter: Meter::default(), ..self.clone() }
    }

    /// A DynamoDB client of the AWS SDK that calls the engine directly. Its requests are metered and meet the
    /// faults.
    #[must_use]
    pub fn dynamodb(&self) -> aws_sdk_dynamodb::Client {
        self.dynamodb_on(self.clock.off_by(0))
    }

    /// As [`dynamodb`](Self::dynamodb), on a machine with this clock, which also signs the requests.
    #[must_use]
    pub fn dynamodb_on(&self, clock: Clock) -> aws_sdk_dynamodb::Client {
        let link = self.link();
        let http_client = http_client_fn(move |_, _| link.clone());
        let second = Duration::from_secs(1);
        let config = endpoint::config(http_client)
            .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(second).build())
            .time_source(Signing(clock));
        aws_sdk_dynamodb::Client::from_conf(config.build())
    }

    fn link(&self) -> SharedHttpConnector {
        link::in_process(
            self.database.clone(),
            self.clock.clone(),
            (self.profile.clone(), self.rows_on_a_page),
            self.meter.clone(),
            self.faults.clone(),
        )
    }

    /// A client of Sluice, with its own memory, as another process would have it.
    #[must_use]
    pub fn client(&self, table: &str) -> Client {
        self.client_with(Client::builder(table))
    }

    /// As [`client`](Self::client), with these settings. The client uses the engine's time, unless a later
    /// setting changes it.
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

    /// Deletes the rows whose TTL has ended, as DynamoDB does at a time of its own choice. Returns the number
    /// of rows.
    ///
    /// # Errors
    /// [`EngineError`] if SQLite fails.
    pub fn sweep_ttl(&self) -> Result<usize, EngineError> {
        self.database.sweep_ttl().map_err(failed("TTL sweep"))
    }

    /// Serves the engine on a socket until the server is dropped or stopped. Port 0 takes a free port.
    ///
    /// # Errors
    /// [`ServerError`] if the address is in use, or does not belong to this machine.
    pub async fn serve(&self, address: SocketAddr) -> Result<Server, ServerError> {
        Server::start(self.database.clone(), address).await
    }

    /// As [`serve`](Self::serve), and requests are metered and meet the faults: a lost request or reply is a
    /// connection that breaks. Not all checks of requests are made that `serve` makes.
    ///
    /// # Errors
    /// [`ServerError`] if the address is in use, or does not belong to this machine.
    pub async fn serve_with_faults(&self, address: SocketAddr) -> Result<Server, ServerError> {
        faulty_server::serve(self.link(), address).await
    }

    /// The engine's clock.
    #[must_use]
    pub const fn clock(&self) -> &TestClock {
        &self.clock
    }

    /// The meter of the in-process clients.
    #[must_use]
    pub const fn meter(&self) -> &Meter {
        &self.meter
    }

    /// The faults that the in-process clients meet, and those of
    /// [`serve_with_faults`](Self::serve_with_faults).
    #[must_use]
    pub const fn faults(&self) -> &Faults {
        &self.faults
    }
}

/// The clock that signs requests.
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
