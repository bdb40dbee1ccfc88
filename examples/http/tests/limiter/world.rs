//! A vendor, a table with its buckets, and clients of both.

use std::time::Duration;

use sluice_http::Limiter;
use sluice_http_examples::vendor::Vendor;
use sluice_sdk::core::{
    Amount, Bucket, Cost, DeclaredShare, Dimension, Limit, LimitType, Rate, Split, Timestamp,
};
use sluice_sdk::{Client, ClientBuilder};
use sluice_testkit::{EmbeddedDynamo, TestClock};

pub(crate) const TABLE: &str = "sluice-http";

/// A table whose time stands still, so that levels are exact, and a vendor.
pub(crate) struct World {
    pub(crate) dynamo: EmbeddedDynamo,
    pub(crate) vendor: Vendor,
    pub(crate) url: String,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with_clock(TestClock::new(Timestamp::from_secs(1_709_550_000))).await
    }

    /// A table on the time of this machine.
    pub(crate) async fn in_real_time() -> Self {
        Self::with_clock(TestClock::system()).await
    }

    async fn with_clock(clock: TestClock) -> Self {
        let dynamo = EmbeddedDynamo::with_clock(clock).unwrap();
        dynamo.create_table(TABLE).await.unwrap();
        let vendor = Vendor::default();
        let url = vendor.serve().await.unwrap();
        Self { dynamo, vendor, url }
    }

    pub(crate) fn sluice(&self) -> Client {
        self.sluice_with(|settings| settings)
    }

    pub(crate) fn sluice_with(&self, settings: impl Fn(ClientBuilder) -> ClientBuilder) -> Client {
        self.dynamo.client_with(settings(Client::builder(TABLE)))
    }

    /// A limiter of the buckets of `acme`.
    pub(crate) fn limiter(&self) -> Limiter {
        Limiter::new(self.sluice()).vendor("acme").patience(Duration::from_millis(200))
    }

    /// A bucket that hardly refills.
    pub(crate) async fn bucket(&self, name: &str, limit_type: LimitType, capacity: i32) {
        self.refilling(name, limit_type, capacity, Duration::from_secs(1_000_000_000)).await;
    }

    /// A bucket that fills within `window`.
    pub(crate) async fn refilling(&self, name: &str, limit_type: LimitType, capacity: i32, window: Duration) {
        let capacity = Amount::from_tokens(capacity);
        let rate = Rate::per(capacity, window).unwrap();
        self.apply(name, &Limit::rate(limit_type, capacity, rate, Cost::ONE).unwrap()).await;
    }

    /// A bucket that hardly refills, of which a share has a part.
    pub(crate) async fn bucket_with_share(
        &self,
        name: &str,
        limit_type: LimitType,
        capacity: i32,
        (share, part): (&str, &str),
    ) {
        let capacity = Amount::from_tokens(capacity);
        let rate = Rate::per(capacity, Duration::from_secs(1_000_000_000)).unwrap();
        let whole = Limit::rate(limit_type, capacity, rate, Cost::ONE).unwrap();
        let share = DeclaredShare {
            name: share.parse().unwrap(),
            part: part.parse().unwrap(),
            floor: None,
            background: false,
        };
        let split = Split::new(whole, &[share]).unwrap();
        self.sluice().ops().apply_split(&Dimension::new(name).unwrap(), &split).await.unwrap();
    }

    /// What is left in a line of a bucket with shares, the common line first.
    pub(crate) async fn line_left(&self, name: &str, line: usize) -> i64 {
        let line = self.row(name).await.every_line().swap_remove(line);
        line.level(self.dynamo.clock().now()).micros() / 1_000_000
    }

    pub(crate) async fn slots(&self, name: &str, slots: i32) {
        self.apply(name, &Limit::concurrent(Amount::from_tokens(slots), Cost::ONE).unwrap()).await;
    }

    async fn apply(&self, name: &str, limit: &Limit) {
        self.sluice().ops().apply_limit(&Dimension::new(name).unwrap(), limit).await.unwrap();
    }

    /// What is left in a bucket, to the nearest token: what comes back is rounded down to a millionth.
    pub(crate) async fn left(&self, name: &str) -> i64 {
        (self.row(name).await.level(self.dynamo.clock().now()).micros() + 500_000).div_euclid(1_000_000)
    }

    /// The slots that calls hold.
    pub(crate) async fn in_use(&self, name: &str) -> i64 {
        let bucket = self.row(name).await;
        (bucket.limit().capacity().micros() - bucket.tokens().micros()) / 1_000_000
    }

    /// The end of the cool-down of a bucket.
    pub(crate) async fn blocked_until(&self, name: &str) -> Option<Timestamp> {
        self.row(name).await.blocked_until()
    }

    async fn row(&self, name: &str) -> Bucket {
        let dimension = Dimension::new(name).unwrap();
        self.sluice().ops().bucket(&dimension).await.unwrap().unwrap()
    }

    /// Waits until `is_so`, at most 5 s.
    pub(crate) async fn until(&self, what: &str, is_so: impl AsyncFn(&Self) -> bool) {
        for _ in 0..500 {
            if is_so(self).await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {what}");
    }
}

/// The body of a chat completion.
pub(crate) fn chat(stream: bool) -> String {
    let message = r#"[{"role": "user", "content": "Good morning"}]"#;
    format!(r#"{{"model": "small", "max_tokens": 50, "stream": {stream}, "messages": {message}}}"#)
}

/// A client of reqwest that the limiter stands in.
pub(crate) fn reqwest_with(limiter: Limiter) -> reqwest_middleware::ClientWithMiddleware {
    reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).with(limiter).build()
}
