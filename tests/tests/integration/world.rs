//! A table in an embedded engine, and what the tests ask of it.

use std::collections::HashMap;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use sluice_core::schema::KEY;
use sluice_core::{Amount, Bucket, Cost, Dimension, Limit, LimitType, Rate, Timestamp};
use sluice_sdk::{Client, ClientBuilder, Grant, Outcome, Request, RetryIn};
use sluice_testkit::{EmbeddedDynamo, Fault, TestClock};

use crate::endpoint::{self, Endpoint};
use crate::kind::Kind;

pub(crate) const TABLE: &str = "ontopix-vendor-buckets-test";
pub(crate) const LEASE_TTL: Duration = Duration::from_secs(60);

/// A table, and what may go wrong on the way to it.
pub(crate) struct World {
    pub(crate) dynamo: EmbeddedDynamo,
    endpoint: Option<Endpoint>,
    /// Which leases its clients write.
    kind: Kind,
    /// Of its clients, if not the default.
    longest_cool_down: Option<Duration>,
}

impl World {
    /// In the engine that `SLUICE_TEST_ENDPOINT` names, or the embedded one.
    pub(crate) async fn new() -> Self {
        let dynamo = EmbeddedDynamo::with_clock(TestClock::new(Timestamp::from_secs(1_709_550_000))).unwrap();
        let endpoint = endpoint::url().map(|_| Endpoint::create());
        if endpoint.is_none() {
            dynamo.create_table(TABLE).await.unwrap();
        }
        Self { dynamo, endpoint, kind: Kind::Rows, longest_cool_down: None }
    }

    /// In the embedded engine always: for tests that count its units, or run its TTL.
    pub(crate) async fn embedded() -> Self {
        let dynamo = EmbeddedDynamo::with_clock(TestClock::new(Timestamp::from_secs(1_709_550_000))).unwrap();
        dynamo.create_table(TABLE).await.unwrap();
        Self { dynamo, endpoint: None, kind: Kind::Rows, longest_cool_down: None }
    }

    /// The same table, with clients that write leases of this kind.
    pub(crate) fn with(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// The same table, with clients that one reply may lower as far as it says: its buckets hardly refill.
    pub(crate) fn lowered_without_a_bound(self) -> Self {
        Self { longest_cool_down: Some(Duration::from_secs(10_000_000_000)), ..self }
    }

    /// The table's name.
    pub(crate) fn table(&self) -> &str {
        self.endpoint.as_ref().map_or(TABLE, |endpoint| &endpoint.table)
    }

    /// A DynamoDB client of the AWS SDK, metered and faulted.
    pub(crate) fn dynamodb(&self) -> aws_sdk_dynamodb::Client {
        match &self.endpoint {
            Some(endpoint) => endpoint.dynamodb(self.dynamo.meter().clone(), self.dynamo.faults().clone()),
            None => self.dynamo.dynamodb(),
        }
    }

    /// With one concurrency bucket.
    pub(crate) async fn with_slots(name: &str, slots: i32) -> Self {
        let world = Self::new().await;
        world.slots(name, slots).await;
        world
    }

    /// With one requests bucket, full.
    pub(crate) async fn with_rate(name: &str, capacity: i32, window_secs: u64) -> Self {
        let world = Self::new().await;
        world.rate(name, capacity, window_secs).await;
        world
    }

    pub(crate) async fn slots(&self, name: &str, slots: i32) {
        let limit = Limit::concurrent(Amount::from_tokens(slots), Cost::ONE).unwrap();
        self.client().ops().apply_limit(&dimension(name), &limit).await.unwrap();
    }

    pub(crate) async fn rate(&self, name: &str, capacity: i32, window_secs: u64) {
        self.client().ops().apply_limit(&dimension(name), &requests(capacity, window_secs)).await.unwrap();
    }

    pub(crate) async fn tokens(&self, name: &str, capacity: i32, window_secs: u64) {
        let capacity = Amount::from_tokens(capacity);
        let rate = Rate::per(capacity, Duration::from_secs(window_secs)).unwrap();
        let limit = Limit::rate(LimitType::Tokens, capacity, rate, Cost::ONE).unwrap();
        self.client().ops().apply_limit(&dimension(name), &limit).await.unwrap();
    }

    /// With a network on which requests take a while, so that callers meet.
    pub(crate) fn distant(self) -> Self {
        self.dynamo.faults().draw(|_| Some(Fault::Delay(Duration::from_millis(5))));
        self
    }

    /// A client as another process would have it.
    pub(crate) fn client(&self) -> Client {
        self.client_with(|settings| settings)
    }

    pub(crate) fn client_with(&self, settings: impl Fn(ClientBuilder) -> ClientBuilder) -> Client {
        let builder =
            Client::builder(self.table()).clock(self.dynamo.clock().off_by(0)).leases(self.kind.leases());
        // A forgotten grant stands for a crashed holder: nobody renews its lease.
        let builder = builder.renew_leases(false);
        let builder = match self.longest_cool_down {
            Some(longest) => builder.longest_cool_down(longest),
            None => builder,
        };
        // Its write a minute is not what tests of other things count.
        let builder = builder.note_use(false);
        settings(builder).dynamodb(self.dynamodb())
    }

    /// A client on a clock that is off by `micros`.
    pub(crate) fn client_off_by(&self, micros: i64) -> Client {
        self.client_with(|settings| settings.clock(self.dynamo.clock().off_by(micros)))
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.dynamo.clock().advance(time);
    }

    /// Until a lease that was written now has ended, for every clock.
    pub(crate) fn pass_lease(&self) {
        self.pass(LEASE_TTL + Duration::from_secs(4));
    }

    pub(crate) async fn bucket(&self, name: &str) -> Bucket {
        self.client().ops().bucket(&dimension(name)).await.unwrap().expect("the bucket is there")
    }

    /// Free slots.
    pub(crate) async fn free(&self, name: &str) -> String {
        self.bucket(name).await.tokens().to_string()
    }

    pub(crate) async fn level(&self, name: &str) -> String {
        self.bucket(name).await.level(self.dynamo.clock().now()).to_string()
    }

    /// The level without the trickle of a bucket that hardly refills.
    pub(crate) async fn whole_level(&self, name: &str) -> String {
        format!("{:.0}", self.level(name).await.parse::<f64>().unwrap())
    }

    pub(crate) async fn leases(&self) -> usize {
        self.client().ops().leases().await.unwrap().len()
    }

    /// Adds to a bucket's tokens past all of Sluice, as a careless client would.
    pub(crate) async fn add_tokens(&self, name: &str, tokens: &str) {
        let request = self.dynamodb().update_item().table_name(self.table()).key(KEY, text(name));
        let request = request.update_expression("SET tokens = tokens + :step");
        request.expression_attribute_values(":step", number(tokens)).send().await.unwrap();
    }

    pub(crate) async fn row(&self, key: &str) -> Option<HashMap<String, AttributeValue>> {
        let request = self.dynamodb().get_item().table_name(self.table()).consistent_read(true);
        request.key(KEY, AttributeValue::S(key.into())).send().await.unwrap().item
    }

    pub(crate) async fn delete(&self, key: &str) {
        self.dynamodb().delete_item().table_name(self.table()).key(KEY, text(key)).send().await.unwrap();
    }

    pub(crate) async fn put(&self, row: HashMap<String, AttributeValue>) {
        self.dynamodb().put_item().table_name(self.table()).set_item(Some(row)).send().await.unwrap();
    }
}

pub(crate) fn dimension(name: &str) -> Dimension {
    Dimension::new(name).unwrap()
}

pub(crate) fn requests(capacity: i32, window_secs: u64) -> Limit {
    let capacity = Amount::from_tokens(capacity);
    let rate = Rate::per(capacity, Duration::from_secs(window_secs)).unwrap();
    Limit::rate(LimitType::Requests, capacity, rate, Cost::ONE).unwrap()
}

pub(crate) fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(crate) fn number(value: &str) -> AttributeValue {
    AttributeValue::N(value.into())
}

/// All of these if all cases are asked for, else the first.
pub(crate) fn all_or_first<T>(cases: &[T]) -> &[T] {
    if sluice_test_extent::is_whole() { cases } else { &cases[..1] }
}

/// Acquires what must be free.
pub(crate) async fn take<'a>(client: &Client, request: impl Into<Request<'a>>) -> Grant {
    client.acquire(request).await.unwrap().granted().expect("granted")
}

/// Is refused what must not be free.
pub(crate) async fn refusal<'a>(client: &Client, request: impl Into<Request<'a>>) -> RetryIn {
    match client.acquire(request).await.unwrap() {
        Outcome::RetryIn(retry) => retry,
        Outcome::Granted(grant) => panic!("it was granted: {grant:?}"),
    }
}

/// Polls a future once, so that its request is on its way, and leaves it there.
pub(crate) async fn begin<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    let is_pending =
        std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await;
    assert!(is_pending, "it had nothing to wait for");
    future
}

/// Lets tasks that were spawned by drops run.
pub(crate) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    while endpoint::waits_for_an_answer().await {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
}

/// What a program has that talks to AWS already; plain HTTP is enough for an endpoint on this machine.
pub(crate) fn sdk_config() -> aws_config::SdkConfig {
    use aws_sdk_dynamodb::config::{
        BehaviorVersion, Credentials, Region, SharedAsyncSleep, SharedCredentialsProvider,
    };
    let credentials = Credentials::new("test", "test", None, None, "test");
    aws_config::SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-central-1"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .sleep_impl(SharedAsyncSleep::new(aws_smithy_async::rt::sleep::TokioSleep::new()))
        .build()
}
