//! The limiter of HTTP calls, in the steps that a client in another language makes.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_http::{Limiter, OpenReply, Started, StartedCall};
use sluice_sdk::{Client, Dimension};

use crate::answer::{Answer, Bytes, Kind, Operation, begin, operation};
use crate::arguments::{Head, Inside, read, time};
use crate::client::{Kept, Limiting};
use crate::failure::Failure;

pub(crate) fn limiter(client: Client, asked: Limiting) -> Limiter {
    let mut limiter = Limiter::new(client);
    if let Some(vendor) = asked.vendor {
        limiter = limiter.vendor(vendor);
    }
    if let Some(buckets) = asked.buckets {
        limiter = limiter.buckets(buckets.iter().filter_map(|name| Dimension::new(name).ok()));
    }
    if let Some(share) = asked.share {
        limiter = limiter.share(share);
    }
    if let Some(patience) = time(asked.patience_ms) {
        limiter = limiter.patience(patience);
    }
    if asked.ask_usage { limiter.ask_usage() } else { limiter }
}

#[derive(Deserialize)]
struct Request {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(default)]
    inside: Inside,
}

/// Waits until the call may start. Nothing is made if nothing limits it, or if there is a reply beyond the
/// patience.
pub(crate) fn start(
    limiter: &Limiter,
    client: &Client,
    name: &str,
    arguments: Value,
    body: Bytes,
) -> Option<Operation> {
    if name != "start" {
        return None;
    }
    let limiter = limiter.clone();
    Some(begin(read::<Request>(name, arguments), |Request { method, url, headers, inside }| {
        operation(client.inside_slots(&inside.limits(), async move {
            let wrong = |error: &dyn std::fmt::Display| Failure::argument(format!("{method} {url}: {error}"));
            let parsed_method: Method =
                method.parse().map_err(|error: http::method::InvalidMethod| wrong(&error))?;
            let parsed_url: Uri = url.parse().map_err(|error: http::uri::InvalidUri| wrong(&error))?;
            let started =
                limiter.start(&parsed_method, &parsed_url, &header_map(&headers), body.as_deref()).await?;
            Ok::<_, Failure>(match started {
                Started::Granted(call) => {
                    let bytes = call.other_body().map(<[u8]>::to_vec);
                    Answer { bytes, ..Answer::made(Kind::Call(Arc::new(Mutex::new(Some(*call))))) }
                }
                Started::Refused(reply) => refused(reply.map(|body| body.to_vec())),
                _ => Answer::default(),
            })
        }))
    }))
}

fn refused(reply: Response<Vec<u8>>) -> Answer {
    let (head, body) = reply.into_parts();
    let pair = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.to_string(), value.to_str().ok().map(str::to_owned))
    };
    let headers: Vec<_> = head.headers.iter().map(pair).collect();
    let value = json!({ "status": head.status.as_u16(), "headers": headers });
    Answer { value, bytes: Some(body), ..Answer::default() }
}

/// Headers as they were sent or came; those that are not valid are left out.
fn header_map(pairs: &[(String, String)]) -> HeaderMap {
    let parse = |(name, value): &(String, String)| {
        Some((name.parse::<HeaderName>().ok()?, HeaderValue::from_bytes(value.as_bytes()).ok()?))
    };
    let mut headers = HeaderMap::new();
    pairs.iter().filter_map(parse).for_each(|(name, value)| {
        headers.append(name, value);
    });
    headers
}

fn head(of: Head) -> Result<Response<()>, Failure> {
    let mut head = Response::new(());
    let wrong = |_| Failure::argument(format!("status = {}: it is no status of HTTP", of.status));
    *head.status_mut() = StatusCode::from_u16(of.status).map_err(wrong)?;
    *head.headers_mut() = header_map(&of.headers);
    Ok(head)
}

fn take(call: &Kept<StartedCall>) -> Result<StartedCall, Failure> {
    call.lock().take().ok_or_else(|| Failure::argument("the call was answered before"))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Unanswered {
    was_sent: bool,
}

pub(crate) fn call(call: &Kept<StartedCall>, name: &str, arguments: Value, body: Bytes) -> Option<Operation> {
    let call = Arc::clone(call);
    Some(match name {
        "unanswered" => begin(read::<Unanswered>(name, arguments), |Unanswered { was_sent }| {
            operation(async move {
                take(&call)?.unanswered(was_sent).await;
                Ok::<_, Failure>(())
            })
        }),
        "failed" => begin(read::<Head>(name, arguments).and_then(head), |head| {
            operation(async move {
                take(&call)?.failed(head.map(|()| body.unwrap_or_default())).await;
                Ok::<_, Failure>(())
            })
        }),
        _ => return None,
    })
}

/// The head of a reply with a status of success.
pub(crate) fn look(call: &Kept<StartedCall>, name: &str, arguments: Value) -> Result<Answer, Failure> {
    if name != "answered" {
        return Err(Failure::argument(format!("a call has no operation {name:?}")));
    }
    let head = head(read(name, arguments)?)?;
    let reply = take(call)?.answered(head);
    Ok(Answer::made(Kind::Reply(Arc::new(Mutex::new(Some(reply))))))
}

/// Ends the call of a reply: settles what it used, and gives back what it held. Waits for its slots, 3 s at
/// most.
pub(crate) fn reply(reply: &Kept<OpenReply>, name: &str) -> Option<Operation> {
    let reply = Arc::clone(reply);
    (name == "end").then(|| {
        operation(async move {
            let ended = reply.lock().take();
            if let Some(reply) = ended {
                reply.end().await;
            }
            Ok::<_, Failure>(())
        })
    })
}

/// The same, and nobody waits: for a body that is not read to its end.
pub(crate) fn end_without_wait(reply: &Kept<OpenReply>, name: &str) -> Result<Answer, Failure> {
    if name != "abandon" {
        return Err(Failure::argument(format!("a reply has no operation {name:?}")));
    }
    drop(reply.lock().take());
    Ok(Answer::default())
}
