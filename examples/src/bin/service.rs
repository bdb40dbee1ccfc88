//! A web service that passes on a vendor's streamed replies.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::TryStreamExt as _;
use http::{StatusCode, header};
use sluice_examples::{BoxError, Vendor, VendorError, sluice};
use sluice_sdk::{AcquireError, Client, Decision, Dimension, LimitError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const RPM: Dimension = Dimension::constant("acme#rpm");
const TPM: Dimension = Dimension::constant("acme#tpm");

struct App {
    vendor: Vendor,
    sluice: Client,
}

#[derive(Debug, thiserror::Error)]
enum AppError {
    #[error(transparent)]
    Vendor(#[from] VendorError),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error("the vendor is busy")]
    Refused(Decision),
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        let text = self.to_string();
        let seconds = match self {
            Self::Limit(LimitError::Acquire(AcquireError::NeverSatisfiable { .. })) => {
                return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
            }
            Self::Limit(error) => Some(error.delay_seconds()),
            Self::Refused(decision) => decision.delay_seconds(),
            Self::Vendor(_) => None,
        };
        match seconds.map(|seconds| [(header::RETRY_AFTER, seconds.to_string())]) {
            Some(retry_after) => (StatusCode::SERVICE_UNAVAILABLE, retry_after, text).into_response(),
            None => (StatusCode::BAD_GATEWAY, text).into_response(),
        }
    }
}

async fn chat(State(app): State<Arc<App>>, prompt: String) -> Result<Response, AppError> {
    let slot = app.sluice.slot([RPM, TPM]).cost(TPM, prompt.len() + 20).max_wait(Duration::from_secs(60));
    let reply = slot.stream(async |grant| -> Result<_, AppError> {
        let (parts, pieces) = app.vendor.chat(&prompt).await?.into_parts();
        match grant.reply(&parts, ()).await?.decision {
            Decision::NotRefused if parts.status.is_success() => Ok(pieces.map_err(AppError::from)),
            Decision::NotRefused => Err(VendorError(parts.status.as_u16()).into()),
            refused => Err(AppError::Refused(refused)),
        }
    });
    let reply = reply.await?.used(TPM, |piece| piece.used).idle_timeout(Duration::from_secs(30));
    Ok(Body::from_stream(reply.map_ok(|piece| piece.text)).into_response())
}

async fn serve(
    app: Arc<App>,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = Router::new().route("/chat", post(chat)).with_state(Arc::clone(&app));
    axum::serve(listener, router).with_graceful_shutdown(stop).await?;
    app.sluice.close(Duration::from_secs(10)).await;
    Ok(())
}

#[tokio::main]
#[allow(clippy::print_stdout, reason = "the result of the example")]
async fn main() -> Result<(), BoxError> {
    let second = Duration::from_secs(1);
    let vendor = Vendor::new(second, 50, 5_000);
    let app = Arc::new(App { vendor, sluice: sluice(second, (RPM, 50), (TPM, 5_000)).await? });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(serve(Arc::clone(&app), listener, async { drop(stopped.await) }));
    let readers: Vec<_> =
        (0..200).map(|at| tokio::spawn(ask(address, format!("a question, number {at}")))).collect();
    let mut answered = 0;
    for reader in readers {
        answered += usize::from(reader.await??.starts_with("HTTP/1.1 200"));
    }
    drop(stop);
    server.await??;
    let refused = app.vendor.refused().await.above;
    println!("{answered} of 200 questions answered, {refused} refused by the vendor");
    assert_eq!((answered, refused), (200, 0));
    Ok(())
}

/// What a browser does.
async fn ask(address: std::net::SocketAddr, prompt: String) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    let length = prompt.len();
    let request = format!(
        "POST /chat HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{prompt}"
    );
    connection.write_all(request.as_bytes()).await?;
    let mut reply = String::new();
    connection.read_to_string(&mut reply).await?;
    Ok(reply)
}
