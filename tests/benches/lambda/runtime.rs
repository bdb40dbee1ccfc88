//! A stand-in for Lambda's Runtime API, for one function process.
//!
//! Source: "Using the Lambda runtime API for custom runtimes", AWS Lambda Developer Guide.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, mpsc};

/// The longest that anything may take here.
const PATIENCE: Duration = Duration::from_secs(900);

/// A function process and the API that it talks to. Dropped, both end.
pub(crate) struct Runtime {
    child: Child,
    started: Instant,
    asked: mpsc::UnboundedReceiver<Instant>,
    events: mpsc::UnboundedSender<Duration>,
    replies: mpsc::UnboundedReceiver<Value>,
    server: tokio::task::JoinHandle<()>,
}

struct Api {
    asked: mpsc::UnboundedSender<Instant>,
    events: Mutex<mpsc::UnboundedReceiver<Duration>>,
    replies: mpsc::UnboundedSender<Value>,
}

impl Runtime {
    pub(crate) async fn start(bootstrap: &Path, endpoint: &str, table: &str) -> Self {
        let (asked_sender, asked) = mpsc::unbounded_channel();
        let (events, event_receiver) = mpsc::unbounded_channel();
        let (reply_sender, replies) = mpsc::unbounded_channel();
        let api = Api { asked: asked_sender, events: Mutex::new(event_receiver), replies: reply_sender };
        let router = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/response", post(reply))
            .route("/2018-06-01/runtime/invocation/{id}/error", post(reply))
            .with_state(Arc::new(api));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let started = Instant::now();
        let child = Command::new(bootstrap)
            .env_clear()
            .env("AWS_LAMBDA_RUNTIME_API", address.to_string())
            .env("AWS_LAMBDA_FUNCTION_NAME", "sluice-reconciler-bench")
            .env("AWS_LAMBDA_FUNCTION_VERSION", "1")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128")
            .env("AWS_LAMBDA_LOG_GROUP_NAME", "bench")
            .env("AWS_LAMBDA_LOG_STREAM_NAME", "bench")
            .env("AWS_ACCESS_KEY_ID", "bench")
            .env("AWS_SECRET_ACCESS_KEY", "bench")
            .env("SLUICE_TABLE_NAME", table)
            .env("SLUICE_ENDPOINT_URL", endpoint)
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { child, started, asked, events, replies, server }
    }

    /// How long the process took to ask for its first event.
    pub(crate) async fn first_next(&mut self) -> Duration {
        let asked =
            tokio::time::timeout(PATIENCE, self.asked.recv()).await.expect("the function starts").unwrap();
        asked - self.started
    }

    /// What the function answers to an event that leaves it so much time.
    pub(crate) async fn invoke(&mut self, time: Duration) -> Value {
        self.events.send(time).unwrap();
        tokio::time::timeout(PATIENCE, self.replies.recv()).await.expect("the function answers").unwrap()
    }

    /// The most memory that the process has had resident.
    pub(crate) fn peak_memory_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id().unwrap())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn next(State(api): State<Arc<Api>>) -> (HeaderMap, &'static str) {
    let _ = api.asked.send(Instant::now());
    let Some(time) = api.events.lock().await.recv().await else { std::future::pending().await };
    let deadline = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + time;
    let mut headers = HeaderMap::new();
    headers.insert("lambda-runtime-aws-request-id", "bench".parse().unwrap());
    headers.insert("lambda-runtime-deadline-ms", deadline.as_millis().to_string().parse().unwrap());
    headers.insert("lambda-runtime-invoked-function-arn", "arn:aws:lambda:bench".parse().unwrap());
    (headers, "{}")
}

async fn reply(State(api): State<Arc<Api>>, body: String) -> StatusCode {
    let _ = api.replies.send(serde_json::from_str(&body).unwrap_or(Value::String(body)));
    StatusCode::ACCEPTED
}
