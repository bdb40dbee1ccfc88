//! How a client is created: its settings, and how its parts are wired.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Dimension, Factor, ShareName};
use sluice_table::metric::describe_metrics;
use sluice_table::{
    Clock, ConfigError, DynamoClient, LONGEST_ANSWER, LONGEST_ATTEMPT, LONGEST_SETTING, MOST_RETRIES,
    SHORTEST_ANSWER, SHORTEST_ATTEMPT, Settings, Store,
};
#[cfg(feature = "aws-config")]
use sluice_table::{CredentialsSource, SdkConfig};
use sluice_vendors::Vendors;

use crate::bucket::near_limit::WarnAt;
use crate::client::Client;
use crate::config::admission_mode::AdmissionMode;
use crate::config::heal_budget::HealBudget;
use crate::config::lease_ids::LeaseIds;
use crate::config::mode::Mode;
use crate::config::on_unavailable::OnUnavailable;
use crate::config::{Config, Leases, debt};
use crate::extensions::Extensions;
use crate::heal::Healer;
use crate::lane::background::Background;
use crate::lane::cache::Cache;
use crate::lane::fallback::Fallback;
use crate::lane::inner::Inner;
use crate::telemetry::{self, emf};

impl Client {
    /// Creates a client from the `SLUICE_*` variables and the AWS credentials of the environment. Makes no
    /// request.
    ///
    /// # Errors
    /// [`ConfigError`] for a variable that cannot be used. Credentials are fetched at the first request, and
    /// missing ones are reported there.
    #[cfg(feature = "aws-config")]
    pub async fn from_env() -> Result<Self, ConfigError> {
        Ok(ClientBuilder { config: Config::from_env()? }.connect().await)
    }

    /// Creates a builder for a client of `table`, with settings in code.
    #[must_use]
    pub fn builder(table: impl Into<String>) -> ClientBuilder {
        ClientBuilder { config: Config::new(Settings::new(table.into())) }
    }
}

/// Settings of a [`Client`]. The default of each setting is that of its variable.
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    config: Config,
}

impl ClientBuilder {
    /// Creates a builder with the settings of the `SLUICE_*` variables, which code may change.
    ///
    /// # Errors
    /// [`ConfigError`] for a variable that cannot be used.
    pub fn from_env() -> Result<Self, ConfigError> {
        Config::from_env().map(|config| Self { config })
    }

    /// Region of the table; `eu-central-1` by default.
    #[must_use]
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.config.connection.region = region.into();
        self
    }

    /// An endpoint other than AWS's, such as `http://localhost:4566`.
    #[must_use]
    pub fn endpoint_url(mut self, url: impl Into<String>) -> Self {
        self.config.connection.endpoint_url = Some(url.into());
        self
    }

    /// How long a lease lasts if it is not renewed; 60 s by default, at least 1 s. A shorter lease brings a
    /// crashed holder's slot back sooner, and takes a renewal more often.
    #[must_use]
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.config.lease_ttl = ttl.clamp(Duration::from_secs(1), LONGEST_SETTING);
        self
    }

    /// How often a request is sent again, and how often a write is planned again after a conflict; 3 by
    /// default, at most 20. More retries outlast longer trouble, and each takes up to 200 ms (and
    /// [`attempt_timeout`](Self::attempt_timeout) if it hangs).
    #[must_use]
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.config.connection.max_retries = retries.min(MOST_RETRIES);
        self
    }

    /// How long one attempt of a request may take, from the connection to the last byte of the reply
    /// (`SLUICE_ATTEMPT_TIMEOUT`); 1 s by default, 50 ms to one minute. A page of a scan and a batch of rows
    /// have five times as long. Credentials have 5 s of their own.
    ///
    /// With a longer timeout, callers wait longer for a connection that hangs, and the longest time of every
    /// call grows (`docs/semantics.md`). A shorter one fails requests on slow networks, in cold functions (a
    /// TLS handshake takes 0.75 s in 128 MB) and in DynamoDB's own slow moments.
    #[must_use]
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.config.connection.attempt_timeout = timeout.clamp(SHORTEST_ATTEMPT, LONGEST_ATTEMPT);
        self
    }

    /// The longest time until a caller that does not wait has its answer (`SLUICE_ANSWER_WITHIN`), whatever
    /// hangs; 3 s by default, 100 ms to one minute, and never less than
    /// [`attempt_timeout`](Self::attempt_timeout). If DynamoDB has answered nothing for nine tenths of this
    /// time, it counts as out: until it answers a probe, no request is sent, and callers have the answer of
    /// [`on_unavailable`](Self::on_unavailable) at once.
    ///
    /// With a longer time, callers wait longer at the beginning of an outage. With a shorter one, DynamoDB's
    /// own slow moments count as outages.
    #[must_use]
    pub fn answer_within(mut self, time: Duration) -> Self {
        self.config.connection.answer_within = time.clamp(SHORTEST_ANSWER, LONGEST_ANSWER);
        self
    }

    /// How long a `slot` waits for its start if it names no wait of its own (`SLUICE_DEFAULT_SLOT_TIMEOUT`);
    /// 30 s by default.
    #[must_use]
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.config.max_wait = wait.min(LONGEST_SETTING);
        self
    }

    /// Whether the leases of grants from [`Client::acquire`] and
    /// [`SlotBuilder::grant`](crate::SlotBuilder::grant) are renewed while the grants are held; on by
    /// default. If off, such a call must end before its lease does, or call
    /// [`Grant::renew`](crate::Grant::renew): a slot whose holder forgot it comes back after the lease time.
    /// The leases of slots, streams and tracked grants are always renewed.
    #[must_use]
    pub const fn renew_leases(mut self, on: bool) -> Self {
        self.config.renew_leases = on;
        self
    }

    /// Whether the limits hold for the calls of this client (`SLUICE_MODE`); they do by default. In shadow
    /// mode every call goes on at once, and what the limits would have refused is counted: for a trial on
    /// production traffic.
    #[must_use]
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.config.mode = mode;
        self
    }

    /// For which grants a lease is written, and where.
    #[must_use]
    pub fn leases(mut self, leases: Leases) -> Self {
        self.config.leases = leases;
        self
    }

    /// What an acquire returns while DynamoDB is out.
    #[must_use]
    pub fn on_unavailable(mut self, answer: OnUnavailable) -> Self {
        self.config.on_unavailable = answer;
        self
    }

    /// What [`Client::admit`] does (`SLUICE_ADMISSION`); by default it sheds requests.
    #[must_use]
    pub const fn admission(mut self, mode: AdmissionMode) -> Self {
        self.config.admission = mode;
        self
    }

    /// How long slots may be held with none given back until admission considers the vendor down
    /// (`SLUICE_STALENESS`); 60 s by default, at least 1 s. Keep it above the longest call: a shorter time
    /// mistakes a slow vendor for one that is down, a longer time detects an outage later.
    #[must_use]
    pub fn staleness(mut self, staleness: Duration) -> Self {
        self.config.staleness = staleness.clamp(Duration::from_secs(1), LONGEST_SETTING);
        self
    }

    /// Whether a process that a full concurrency bucket refuses looks for ended leases (`SLUICE_SELF_HEAL`);
    /// on by default. One process of the fleet scans the table at a time, at most every 8 s. A crashed
    /// holder's slots are back within the lease time and 15 s while callers ask for them, or later if a scan
    /// costs more than the [budget](Self::heal_budget) of 8 s. If off, the slots wait for the reconciler, and
    /// processes that wait for slots do not know of each other.
    #[must_use]
    pub const fn self_heal(mut self, on: bool) -> Self {
        self.config.self_heal = on;
        self
    }

    /// Read units per minute that the healing scans of this table may use, all processes together
    /// (`SLUICE_HEAL_BUDGET`); 1,500 by default. 0 switches the scans off; other values are clamped to
    /// between 10 and 1,000,000.
    ///
    /// A larger budget finds crashed holders of a large table sooner: within the table's read units divided
    /// by the budget. A smaller one costs less. The default costs $8.2 a month if callers want slots all the
    /// time and the table is large enough to use the budget. The process that scans applies its own budget.
    #[must_use]
    pub fn heal_budget(mut self, units_per_minute: u32) -> Self {
        self.config.heal_budget = HealBudget::of(units_per_minute);
        self
    }

    /// Whether a debt ends at minus the capacity of its bucket (`SLUICE_CAP_DEBT`); on by default. A call
    /// that used more than it reserved is charged the rest when it settles. If that number counts another
    /// unit than the bucket (dollars, characters, a sum over many calls), an uncapped debt stops all
    /// processes until refill has paid it. With the cap, it costs at most about one refill time. An overrun
    /// of at most what the call had reserved is always charged in full. What the cap cuts off is logged
    /// (`settle.capped`).
    #[must_use]
    pub const fn cap_debt(mut self, on: bool) -> Self {
        self.config.debt = debt(on);
        self
    }

    /// Number of unused buckets that the process remembers (`SLUICE_MAX_BUCKETS`); 10,000 by default, at
    /// least 1. The least recently used are forgotten first. A bucket in use (grants, callers in the queue,
    /// stock, booked starts) is never forgotten. A larger number takes more memory, about 2 kB for each
    /// bucket; a smaller one costs a read for each bucket that is asked for again after it was forgotten.
    #[must_use]
    pub fn max_buckets(mut self, most: usize) -> Self {
        self.config.max_buckets = most.max(1);
        self
    }

    /// How vendors' replies are read (`SLUICE_VENDORS`): with profiles of your own, which take the place of
    /// those that are compiled in.
    #[must_use]
    pub fn vendors(mut self, vendors: Vendors) -> Self {
        self.config.vendors = vendors;
        self
    }

    /// The longest cool-down that one reply of a vendor may set for all processes
    /// (`SLUICE_LONGEST_COOL_DOWN`); 15 minutes by default. The call itself still waits as long as the vendor
    /// says. A cool-down that is set by [`Client::cool_down`] is not cut.
    #[must_use]
    pub const fn longest_cool_down(mut self, longest: Duration) -> Self {
        self.config.longest_cool_down = longest;
        self
    }

    /// The name that leases state as their holder; by default the Lambda function's or the program's.
    #[must_use]
    pub fn caller(mut self, caller: impl Into<String>) -> Self {
        self.config.caller = caller.into();
        self
    }

    /// The share of buckets that pays for the calls of this client (`SLUICE_SHARE`), unless a request names
    /// another ([`Request::share`](crate::Request::share)); by default, and with `None`, the part that no
    /// share has. A bucket that does not have this share is asked as if none was named.
    #[must_use]
    pub fn share(mut self, share: impl Into<Option<ShareName>>) -> Self {
        self.config.share = share.into();
        self
    }

    /// The part of a limit at whose use the process warns (`SLUICE_WARN_AT`), as in `"0.8".parse()?`; 0.8 by
    /// default, `None` for no warnings. A smaller part warns earlier and more often; 1 never warns.
    /// `docs/semantics.md` says what counts as used.
    #[must_use]
    pub const fn warn_at(mut self, part: Option<Factor>) -> Self {
        self.config.warn_at = part;
        self
    }

    /// Whether the process notes what it uses of each bucket (`SLUICE_NOTE_USE`), for operators; on by
    /// default. Costs a write a minute for each bucket that it uses.
    #[must_use]
    pub const fn note_use(mut self, on: bool) -> Self {
        self.config.note_use = on;
        self
    }

    /// Whether this process prints its refusals and outages as metrics of CloudWatch (`SLUICE_METRICS=emf`),
    /// for callers in AWS Lambda; off by default. As [`emf::install`](crate::emf::install); a recorder that
    /// the program has installed stays, with a warning.
    #[must_use]
    pub const fn emf(mut self, on: bool) -> Self {
        self.config.emf = on;
        self
    }

    /// The clock from which the client reads the time; tests move it.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.config.connection.clock = clock;
        self
    }

    /// The source of lease ids, which must differ from those of every other process. A simulation makes them
    /// repeatable. An id that is empty or contains a `#` is replaced by one of the client's own.
    #[must_use]
    pub fn lease_ids(mut self, next: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.config.lease_ids = LeaseIds::from_fn(next);
        self
    }

    /// Keeps some tokens of these rate buckets in stock, taken up to a second before they are asked for, so
    /// that most grants need no request: for long-lived processes that call often. None by default.
    ///
    /// The stock is as large as what the process took recently, and is never taken from the lower half of the
    /// capacity. Unused tokens go back. The limit holds as exactly as without stock. A crash loses up to a
    /// second's worth of tokens, which refill. A cool-down that another process sets reaches the stock up to
    /// a second late. Names that are not those of a rate bucket are ignored.
    #[must_use]
    pub fn prefetch(mut self, dimensions: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let named = dimensions.into_iter().filter_map(|name| Dimension::new(name.as_ref()).ok());
        self.config.prefetch.extend(named);
        self
    }

    /// Connects with the AWS credentials of the environment.
    ///
    /// Makes no request.
    #[cfg(feature = "aws-config")]
    pub async fn connect(self) -> Client {
        let store = self.config.connection.clone().connect().await;
        self.over(store)
    }

    /// Connects with credentials that the program has, where an [`SdkConfig`] is not at hand: for programs in
    /// other languages.
    ///
    /// Makes no request.
    #[cfg(feature = "aws-config")]
    pub async fn connect_with_credentials(self, source: impl CredentialsSource) -> Client {
        let store = self.config.connection.clone().connect_with_credentials(source).await;
        self.over(store)
    }

    /// Connects with an AWS configuration that the program already has: its credentials, Region, endpoint and
    /// HTTP client. Timeouts, retries and stalled-stream protection are the client's own.
    #[cfg(feature = "aws-config")]
    #[must_use]
    pub fn connect_with(self, shared: &SdkConfig) -> Client {
        let store = self.config.connection.clone().connect_with(shared);
        self.over(store)
    }

    /// Uses the connection of this DynamoDB client: its HTTP client, endpoint, Region and credentials. The
    /// client replaces the timeouts, retries and stalled-stream protection by its own, so that no
    /// configuration lets a call wait without end.
    #[must_use]
    pub fn dynamodb(self, dynamo: DynamoClient) -> Client {
        let store = Store::new(&dynamo, self.config.connection.clone());
        self.over(store)
    }

    fn over(self, store: Store) -> Client {
        let config = self.config;
        if config.emf
            && let Err(error) = emf::install_for_table(store.table())
        {
            tracing::warn!(event = "metrics.not_printed", %error);
        }
        describe_metrics();
        telemetry::begin();
        if config.on_unavailable == OnUnavailable::EqualShare && !config.note_use {
            tracing::warn!(
                event = "unavailable.no_share",
                table = store.table(),
                "SLUICE_ON_UNAVAILABLE is `share`, and SLUICE_NOTE_USE is off: processes do not know how many they are, \
                 and get the error in an outage; switch it on, or set a factor as in share:0.1"
            );
        }
        if config.mode.is_shadow() {
            tracing::info!(
                event = "mode.shadow",
                table = store.table(),
                "every call goes on at once, and is counted"
            );
        }
        let warn_at = WarnAt { part: config.warn_at, caller: config.caller.clone() };
        let cache = Cache::new(config.prefetch.clone(), config.max_buckets, config.vendors.clone(), warn_at);
        let fallback = Fallback::default();
        let (refusals, extensions) = (Box::new(Healer), Extensions::default());
        let (patient, background) = (store.patient(), Background::default());
        let inner = Inner { store, patient, config, cache, fallback, background, refusals, extensions };
        Client { inner: Arc::new(inner) }
    }
}
