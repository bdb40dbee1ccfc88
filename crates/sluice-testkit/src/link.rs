//! The HTTP client between the AWS SDK and an engine: meter, faults, and the call itself.

use std::fmt;
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpClient as _, HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector,
    http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::{AggregatedBytes, ByteStream};
use bytes::Bytes;
use dynoxide::Database;

use crate::broken_body::{Arrival, broken_body};
use crate::clock::TestClock;
use crate::dates::{date, signed_at};
use crate::engine;
use crate::faults::{Answered, Call, Fault, Faults};
use crate::meter::{self, Meter, Usage};
use crate::operation::Operation;
use crate::profile::DynamoProfile;
use crate::rights;

/// A connection that calls `database` directly, or through a modelled service.
pub(crate) fn in_process(
    database: Database,
    clock: TestClock,
    (profile, rows_on_a_page): (Option<DynamoProfile>, Option<u32>),
    meter: Meter,
    faults: Faults,
) -> SharedHttpConnector {
    let end = match profile {
        None => End::Engine(database),
        Some(profile) => End::Modelled(database, profile),
    };
    SharedHttpConnector::new(Link { end, clock: Some(clock), rows_on_a_page, meter, faults })
}

/// `http_client`, with its requests counted and with faults.
#[must_use]
pub fn metered(http_client: SharedHttpClient, meter: Meter, faults: Faults) -> SharedHttpClient {
    http_client_fn(move |settings, components| {
        let connector = http_client.http_connector(settings, components);
        SharedHttpConnector::new(Link {
            end: End::Socket(connector),
            clock: None,
            rows_on_a_page: None,
            meter: meter.clone(),
            faults: faults.clone(),
        })
    })
}

#[derive(Clone)]
enum End {
    Engine(Database),
    Modelled(Database, DynamoProfile),
    Socket(SharedHttpConnector),
}

#[derive(Clone)]
struct Link {
    end: End,
    /// The engine's clock, for the `Date` of its replies; a socket has its own.
    clock: Option<TestClock>,
    rows_on_a_page: Option<u32>,
    meter: Meter,
    faults: Faults,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

impl HttpConnector for Link {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let name = target.rsplit('.').next().unwrap_or_default().to_owned();
        let operation = Operation::from_name(&name);
        if let Some(refusal) = self.skewed(&request) {
            return HttpConnectorFuture::ready(Ok(self.dated(refusal)));
        }
        if let Some(action) = self.faults.denied(&name, request.body().bytes().unwrap_or_default()) {
            return HttpConnectorFuture::ready(Ok(self.dated(response(400, rights::refusal(&action)))));
        }
        let call = Call { operation, body: request.body().bytes().unwrap_or_default() };
        match self.faults.take(call) {
            None if matches!(self.end, End::Engine(_)) => {
                HttpConnectorFuture::ready(Ok(self.apply(&name, operation, &request)))
            }
            fault => {
                let link = self.clone();
                HttpConnectorFuture::new(async move {
                    let reply = link.meet(fault, &name, operation, request).await?;
                    Ok(link.dated(reply))
                })
            }
        }
    }
}

impl Link {
    async fn meet(
        &self,
        fault: Option<Fault>,
        name: &str,
        operation: Operation,
        request: HttpRequest,
    ) -> Result<HttpResponse, ConnectorError> {
        match fault {
            Some(Fault::LoseRequest) => Err(broken("before the request arrived")),
            Some(Fault::LoseReply) => {
                self.send(name, operation, request).await?;
                Err(broken("before the reply arrived"))
            }
            Some(Fault::LoseReplyAndToken) => {
                self.send(name, operation, without_token(request)).await?;
                Err(broken("before the reply arrived"))
            }
            Some(Fault::Repeat) => {
                if let Some(again) = request.try_clone() {
                    self.send(name, operation, again).await?;
                }
                self.send(name, operation, request).await
            }
            Some(Fault::NewToken) => self.send(name, operation, without_token(request)).await,
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Delay(by)) => {
                tokio::time::sleep(by).await;
                self.send(name, operation, request).await
            }
            Some(Fault::DelayReply(by)) => {
                let reply = self.send(name, operation, request).await;
                tokio::time::sleep(by).await;
                reply
            }
            Some(Fault::Alter(alteration)) => {
                let (status, body) = whole(self.send(name, operation, request).await?).await?;
                Ok(response(status, alteration.apply(&body)))
            }
            Some(Fault::StallBody) => self.send_breaking(name, operation, request, Arrival::Stalls).await,
            Some(Fault::CutBody) => self.send_breaking(name, operation, request, Arrival::Breaks).await,
            Some(Fault::Trickle(every)) => {
                self.send_breaking(name, operation, request, Arrival::Trickles(every)).await
            }
            Some(Fault::Late(by)) => {
                let (link, name) = (self.clone(), name.to_owned());
                tokio::spawn(async move {
                    tokio::time::sleep(by).await;
                    let _ = link.send(&name, operation, request).await;
                });
                Err(broken("while the request was on its way"))
            }
            Some(Fault::FailAfterwards) => {
                self.send(name, operation, request).await?;
                let body = br#"{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"injected"}"#;
                Ok(response(500, body.to_vec()))
            }
            Some(Fault::Answer { status, body }) => {
                self.count_unapplied(operation, status);
                Ok(response(status, body.into_bytes()))
            }
            Some(Fault::Hold(gate)) => {
                gate.wait().await;
                self.send(name, operation, request).await
            }
            None => self.send(name, operation, request).await,
        }
    }

    /// Sends the request, and breaks the body of its reply.
    async fn send_breaking(
        &self,
        name: &str,
        operation: Operation,
        request: HttpRequest,
        arrival: Arrival,
    ) -> Result<HttpResponse, ConnectorError> {
        let mut reply = self.send(name, operation, request).await?;
        let body = std::mem::replace(reply.body_mut(), SdkBody::taken());
        *reply.body_mut() = broken_body(collected(body).await?, arrival);
        Ok(reply)
    }

    async fn send(
        &self,
        name: &str,
        operation: Operation,
        request: HttpRequest,
    ) -> Result<HttpResponse, ConnectorError> {
        match &self.end {
            End::Engine(_) => Ok(self.apply(name, operation, &request)),
            End::Modelled(database, profile) => {
                let written = || meter::written(database, name, request.body().bytes().unwrap_or_default());
                let apply = || self.apply(name, operation, &request);
                let refuse = |fault| match fault {
                    Fault::Answer { status, body } => {
                        self.count_unapplied(operation, status);
                        response(status, body.into_bytes())
                    }
                    _ => response(500, Vec::new()),
                };
                Ok(profile.carry(operation, written, apply, refuse).await)
            }
            End::Socket(connector) => {
                self.meter.count(operation, Usage { requests: 1, ..Usage::default() });
                let reply = connector.call(request).await?;
                self.meter.count_answer(operation, reply.status().as_u16());
                Ok(reply)
            }
        }
    }

    /// Counts a request that was answered before it reached the engine.
    fn count_unapplied(&self, operation: Operation, status: u16) {
        self.meter.count(operation, Usage { requests: 1, ..Usage::default() });
        self.meter.count_answer(operation, status);
    }

    fn apply(&self, name: &str, operation: Operation, request: &HttpRequest) -> HttpResponse {
        let (End::Engine(database) | End::Modelled(database, _)) = &self.end else {
            return response(500, Vec::new());
        };
        let body = request.body().bytes().unwrap_or_default();
        let page = self.rows_on_a_page.filter(|_| operation == Operation::Scan);
        let paged = page.map(|rows| limited(body, rows));
        let body = paged.as_deref().unwrap_or(body);
        let (status, reply) = if !operation.is_metered() || self.meter.is_off() {
            engine::answer(database, name, body)
        } else {
            let (status, reply, usage) = meter::metered(database, name, body);
            self.meter.count(operation, usage);
            self.meter.count_answer(operation, status);
            (status, reply)
        };
        self.faults.answered(Answered { call: Call { operation, body }, status, reply: &reply });
        self.dated(response(status, reply))
    }

    /// The reply with a `Date`: the time at which the reply was made, unless it already has one.
    fn dated(&self, mut reply: HttpResponse) -> HttpResponse {
        if !self.faults.sends_date() {
            reply.headers_mut().remove("date");
            return reply;
        }
        let clock = self.clock.as_ref();
        if reply.headers().get("date").is_none()
            && let Some(date) = clock.and_then(date)
        {
            reply.headers_mut().insert("date", date);
        }
        reply
    }

    /// The error reply if the request was signed at another time than the engine's.
    fn skewed(&self, request: &HttpRequest) -> Option<HttpResponse> {
        let (clock, most) = (self.clock.as_ref()?, self.faults.signature_skew()?);
        let signed = request.headers().get("x-amz-date").and_then(signed_at)?;
        let apart = Duration::from_micros(signed.micros_since(clock.now()).unsigned_abs());
        (apart > most).then(|| {
            self.faults.refused_signature();
            let fault = Fault::service(
                "InvalidSignatureException",
                400,
                serde_json::json!({ "message": format!("Signature is {} s off", apart.as_secs()) }),
            );
            let Fault::Answer { status, body } = fault else {
                unreachable!("an error of the service is an answer")
            };
            response(status, body.into_bytes())
        })
    }
}

/// The same scan, limited to `rows` rows.
fn limited(scan: &[u8], rows: u32) -> Vec<u8> {
    let mut scan: serde_json::Value = serde_json::from_slice(scan).unwrap_or_default();
    let asked = scan["Limit"].as_u64().unwrap_or(u64::MAX);
    scan["Limit"] = asked.min(rows.into()).into();
    scan.to_string().into_bytes()
}

/// The same request without its `ClientRequestToken`. The signature no longer fits the body; DynamoDB itself
/// would not accept it.
fn without_token(mut request: HttpRequest) -> HttpRequest {
    let body = request.body().bytes().and_then(|body| serde_json::from_slice::<serde_json::Value>(body).ok());
    if let Some(mut body) = body {
        body.as_object_mut().and_then(|fields| fields.remove("ClientRequestToken"));
        let body = body.to_string();
        request.headers_mut().insert("content-length", body.len().to_string());
        *request.body_mut() = SdkBody::from(body);
    }
    request
}

/// Status and body of a reply, once the body is complete.
async fn whole(reply: HttpResponse) -> Result<(u16, Bytes), ConnectorError> {
    let status = reply.status().as_u16();
    Ok((status, collected(reply.into_body()).await?))
}

async fn collected(body: SdkBody) -> Result<Bytes, ConnectorError> {
    let body = ByteStream::new(body).collect().await;
    body.map(AggregatedBytes::into_bytes).map_err(|error| ConnectorError::io(error.into()))
}

fn response(status: u16, body: Vec<u8>) -> HttpResponse {
    let status = status.try_into().unwrap_or_else(|_| {
        aws_smithy_runtime_api::http::StatusCode::try_from(500)
            .unwrap_or_else(|_| unreachable!("500 is a status"))
    });
    let mut response = HttpResponse::new(status, SdkBody::from(body));
    response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
    response.headers_mut().insert("x-amzn-requestid", "EMBEDDED");
    response
}

fn broken(when: &str) -> ConnectorError {
    ConnectorError::io(
        std::io::Error::new(std::io::ErrorKind::ConnectionReset, format!("the connection broke {when}"))
            .into(),
    )
}
