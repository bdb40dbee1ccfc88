//! A DynamoDB behind a socket, in place of the embedded engine: ministack, DynamoDB Local, AWS.
//!
//! `SLUICE_TEST_ENDPOINT` names it. Time stays virtual for Sluice, and the faults are those of the testkit:
//! only what answers is another. Requests run on a runtime of their own, in real time, each inside a blocking
//! task: while one is under way, paused time does not move on.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::Client as Dynamo;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use sluice_core::schema::KEY;
use sluice_testkit::{Faults, Meter, metered};
use tokio::runtime::{Builder, Runtime};

/// No request to a healthy DynamoDB takes longer, in real time.
const LONGEST: Duration = Duration::from_secs(30);

/// The endpoint to test against; `None` for the embedded engine.
pub(crate) fn url() -> Option<String> {
    let url = std::env::var("SLUICE_TEST_ENDPOINT").ok().filter(|url| !url.is_empty())?;
    let is_url = url.starts_with("http://") || url.starts_with("https://");
    assert!(
        is_url,
        "SLUICE_TEST_ENDPOINT={url:?} is no URL: it takes http://HOST:PORT, or the https:// of a Region's DynamoDB"
    );
    Some(url)
}

/// A table of one test, deleted when the test ends.
pub(crate) struct Endpoint {
    pub(crate) table: String,
}

impl Endpoint {
    /// # Panics
    /// Where nothing answers there: a missing server fails, it never skips.
    pub(crate) fn create() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let (process, count) = (std::process::id(), MADE.fetch_add(1, Ordering::SeqCst));
        let table = format!("sluice-test-{since_epoch}-{process}-{count}");
        let name = table.clone();
        in_real_time(async move { create(&client(&shared().await), &name).await });
        Self { table }
    }

    /// A client whose requests are metered and meet the faults.
    pub(crate) fn dynamodb(&self, meter: Meter, faults: Faults) -> Dynamo {
        let shared = in_real_time(shared());
        let bridged = http_client_fn({
            let http = shared.http_client().expect("an HTTP client");
            move |settings, components| {
                use aws_smithy_runtime_api::client::http::HttpClient as _;
                SharedHttpConnector::new(Bridge(http.http_connector(settings, components)))
            }
        });
        // Its time is not the tests', which is virtual.
        faults.hide_date();
        let second = Duration::from_secs(1);
        let config = config(&shared).http_client(metered(bridged, meter, faults));
        let config =
            config.timeout_config(TimeoutConfig::builder().operation_attempt_timeout(second).build());
        Dynamo::from_conf(config.build())
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let table = std::mem::take(&mut self.table);
        in_real_time(async move {
            // Best effort: the name says what it was.
            let _ = client(&shared().await).delete_table().table_name(table).send().await;
        });
    }
}

/// Without a TTL: the time of the tests is years ago.
async fn create(dynamo: &Dynamo, table: &str) {
    let attribute =
        AttributeDefinition::builder().attribute_name(KEY).attribute_type(ScalarAttributeType::S).build();
    let key = KeySchemaElement::builder().attribute_name(KEY).key_type(KeyType::Hash).build();
    let created = dynamo.create_table().table_name(table).billing_mode(BillingMode::PayPerRequest);
    let created =
        created.attribute_definitions(attribute.expect("valid")).key_schema(key.expect("valid")).send().await;
    created.expect("SLUICE_TEST_ENDPOINT makes a table: is the server there?");
    for _ in 0..200 {
        let described =
            dynamo.describe_table().table_name(table).send().await.expect("the table is described");
        if described
            .table()
            .and_then(|table| table.table_status())
            .is_some_and(|status| status.as_str() == "ACTIVE")
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("{table} did not become active");
}

/// Credentials of the environment for AWS; any do for a server on this machine.
async fn shared() -> SdkConfig {
    static SHARED: tokio::sync::OnceCell<SdkConfig> = tokio::sync::OnceCell::const_new();
    let load = async || {
        let url = url().expect("SLUICE_TEST_ENDPOINT");
        let plain = url.starts_with("http://");
        let region = std::env::var("AWS_REGION").unwrap_or_else(|_| "eu-central-1".into());
        let loader =
            aws_config::defaults(BehaviorVersion::latest()).region(Region::new(region)).endpoint_url(url);
        if plain {
            let credentials =
                SharedCredentialsProvider::new(Credentials::new("test", "test", None, None, "test"));
            let http = aws_smithy_http_client::Builder::new().build_http();
            return loader.http_client(http).credentials_provider(credentials).load().await;
        }
        use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
        let tls = Provider::Rustls(CryptoMode::Ring);
        loader
            .http_client(aws_smithy_http_client::Builder::new().tls_provider(tls).build_https())
            .load()
            .await
    };
    SHARED.get_or_init(load).await.clone()
}

fn config(shared: &SdkConfig) -> aws_sdk_dynamodb::config::Builder {
    aws_sdk_dynamodb::config::Builder::from(shared).retry_config(RetryConfig::disabled())
}

fn client(shared: &SdkConfig) -> Dynamo {
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(LONGEST).build();
    Dynamo::from_conf(config(shared).timeout_config(timeouts).build())
}

fn real_time() -> &'static Runtime {
    static REAL: OnceLock<Runtime> = OnceLock::new();
    REAL.get_or_init(|| {
        Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
    })
}

/// Runs to its end beside the test's own runtime.
fn in_real_time<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let task = real_time().spawn(work);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| real_time().block_on(task));
        waits.join().expect("no panic").expect("the endpoint answers")
    })
}

/// Requests that are not answered yet.
static UNDER_WAY: AtomicU64 = AtomicU64::new(0);

/// Whether a request was under way; waits a moment of real time for it, in which paused time stands still.
pub(crate) async fn waits_for_an_answer() -> bool {
    let under_way = UNDER_WAY.load(Ordering::SeqCst) > 0;
    if under_way {
        let _ = tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(1))).await;
    }
    under_way
}

/// Sends each request in real time, while the test's own time stands still.
#[derive(Clone, Debug)]
struct Bridge(SharedHttpConnector);

impl HttpConnector for Bridge {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let connector = self.0.clone();
        UNDER_WAY.fetch_add(1, Ordering::SeqCst);
        let sent = tokio::task::spawn_blocking(move || {
            real_time().block_on(async move {
                let answer = tokio::time::timeout(LONGEST, connector.call(request)).await;
                let slow = |elapsed: tokio::time::error::Elapsed| ConnectorError::timeout(elapsed.into());
                let mut response = answer.map_err(slow)??;
                // The body is read here too: it comes over the same socket.
                let body = std::mem::replace(response.body_mut(), SdkBody::empty());
                let bytes = read(body).await.map_err(|error| ConnectorError::io(error.into()))?;
                *response.body_mut() = bytes.into();
                Ok(response)
            })
        });
        HttpConnectorFuture::new(async move {
            let _answered = Answered;
            match sent.await {
                Ok(answer) => answer,
                Err(error) => Err(ConnectorError::other(error.into(), None)),
            }
        })
    }
}

/// Counts a request as answered, however that went.
struct Answered;

impl Drop for Answered {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn read(body: SdkBody) -> Result<Vec<u8>, std::io::Error> {
    let stream = aws_smithy_types::byte_stream::ByteStream::new(body);
    stream.collect().await.map(|bytes| bytes.to_vec()).map_err(std::io::Error::other)
}
