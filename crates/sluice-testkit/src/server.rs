//! The engine on a socket.

use std::net::SocketAddr;

use dynoxide::Database;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The engine, served on a socket. Dropping the server stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), String>>,
}

/// Why the engine cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Another program listens at the address.
    #[error("{address} is in use: stop what listens there, or choose another port with --port")]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// The server cannot listen on the address.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's message.
        source: std::io::Error,
    },
    /// The server failed while it was serving.
    #[error("the server failed: {0}")]
    Serving(String),
}

impl Server {
    pub(crate) async fn start(database: Database, address: SocketAddr) -> Result<Self, ServerError> {
        Self::run(address, |listener, stopped| {
            let shutdown = async move {
                let _ = stopped.await;
            };
            dynoxide::server::serve_with_shutdown(listener, database, shutdown)
        })
        .await
    }

    /// Runs `serve`, which serves until it is stopped.
    pub(crate) async fn run<F>(
        address: SocketAddr,
        serve: impl FnOnce(TcpListener, oneshot::Receiver<()>) -> F,
    ) -> Result<Self, ServerError>
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let bound = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::AddrInUse => ServerError::InUse { address },
            _ => ServerError::Bind { address, source },
        };
        let listener = TcpListener::bind(address).await.map_err(bound)?;
        let address = listener.local_addr().map_err(bound)?;
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(listener, stopped));
        Ok(Self { address, stop: Some(stop), task })
    }

    /// The address at which the server listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The endpoint to give to clients.
    #[must_use]
    pub fn endpoint_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops the server: it takes no new connections, and answers the requests under way.
    ///
    /// # Errors
    /// [`ServerError::Serving`] if the server had already failed.
    pub async fn stop(mut self) -> Result<(), ServerError> {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        match (&mut self.task).await {
            Ok(result) => result.map_err(ServerError::Serving),
            Err(error) => Err(ServerError::Serving(error.to_string())),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}
