//! The engine on a socket, behind faults: a lost request or reply is a connection that breaks.

use std::net::SocketAddr;

use aws_smithy_runtime_api::client::http::{HttpConnector as _, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::server::{Server, ServerError};

type Broken = Box<dyn std::error::Error + Send + Sync>;

pub(crate) async fn serve(link: SharedHttpConnector, address: SocketAddr) -> Result<Server, ServerError> {
    Server::run(address, |listener, stopped| async move {
        accept(link, listener, stopped).await;
        Ok(())
    })
    .await
}

/// Serves connections until it is stopped. Connections that are open then are cut.
async fn accept(link: SharedHttpConnector, listener: TcpListener, mut stopped: oneshot::Receiver<()>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => return,
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(converse(link.clone(), stream));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn converse(link: SharedHttpConnector, stream: TcpStream) {
    let service = service_fn(move |request| answer(link.clone(), request));
    // An error is a fault, or a client that left.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    link: SharedHttpConnector,
    request: http::Request<Incoming>,
) -> Result<http::Response<SdkBody>, Broken> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let request = HttpRequest::try_from(http::Request::from_parts(head, SdkBody::from(body)))?;
    Ok(link.call(request).await?.try_into_http1x()?)
}
