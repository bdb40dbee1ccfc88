//! A vendor that judges its callers by its own books, without any code of Sluice. It speaks the chat
//! completions of OpenAI, the messages of Anthropic and the converse calls of Amazon Bedrock.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// Calls at the same time, and calls a second.
const AT_ONCE: usize = 4;
const PER_SECOND: f64 = 20.0;

/// A running vendor. Clones are the same vendor.
#[derive(Clone, Debug, Default)]
pub struct Vendor {
    books: Arc<Mutex<Books>>,
}

/// What the vendor saw.
#[derive(Clone, Debug)]
pub struct Books {
    /// Calls that were answered.
    pub answered: usize,
    /// Calls that were refused.
    pub refused: usize,
    /// Calls that run.
    pub running: usize,
    /// Tokens of all answered calls, input and output.
    pub billed: u64,
    /// What the next call is answered with, in place of an answer.
    pub next: Option<(u16, &'static str)>,
    /// Whether streams break off in the middle.
    pub breaks_off: bool,
    /// The error that takes the place of the second half of each stream: its JSON, or for Bedrock its name.
    pub fails: Option<&'static str>,
    /// What it could take now.
    level: f64,
    at: Instant,
}

impl Default for Books {
    fn default() -> Self {
        Self {
            answered: 0,
            refused: 0,
            running: 0,
            billed: 0,
            next: None,
            breaks_off: false,
            fails: None,
            level: PER_SECOND,
            at: Instant::now(),
        }
    }
}

/// A call that runs until its body has ended.
struct Running(Arc<Mutex<Books>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
    }
}

impl Vendor {
    /// Starts the vendor. Returns its address.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn serve(&self) -> std::io::Result<String> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let routes = axum::Router::new()
            .route("/books", get(books))
            .route("/v1/chat/completions", post(chat))
            .route("/v1/responses", post(responses))
            .route("/v1/messages", post(messages))
            .route("/v1beta/models/{call}", post(generate_content))
            .route("/model/{model}/converse", post(converse))
            .route("/model/{model}/converse-stream", post(converse_stream))
            .with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Ok(url)
    }

    /// The vendor's books.
    pub fn books(&self) -> parking_lot::MutexGuard<'_, Books> {
        self.books.lock()
    }

    /// Begins a call, or refuses it.
    fn begin(&self) -> Result<(Running, u64, u64), Box<Response>> {
        let mut books = self.books.lock();
        let now = Instant::now();
        books.level = (books.level + (now - books.at).as_secs_f64() * PER_SECOND).min(PER_SECOND);
        books.at = now;
        if let Some((status, body)) = books.next.take() {
            books.refused += 1;
            let status = StatusCode::from_u16(status).unwrap_or_default();
            let kind = if body.starts_with("event:") || body.starts_with("data:") {
                "text/event-stream"
            } else {
                "application/json"
            };
            return Err(Box::new((status, [(header::CONTENT_TYPE, kind)], body).into_response()));
        }
        if books.level < 1.0 || books.running >= AT_ONCE {
            books.refused += 1;
            let error = r#"{"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}"#;
            let headers = [(header::CONTENT_TYPE, "application/json"), (header::RETRY_AFTER, "1")];
            return Err(Box::new((StatusCode::TOO_MANY_REQUESTS, headers, error).into_response()));
        }
        books.level -= 1.0;
        books.running += 1;
        books.answered += 1;
        let (input, output) = (fastrand::u64(5..40), fastrand::u64(5..40));
        books.billed += input + output;
        drop(books);
        Ok((Running(Arc::clone(&self.books)), input, output))
    }

    /// A reply in pieces. The call runs until the last one is sent, or the connection is dropped.
    fn stream(&self, content_type: &'static str, pieces: Vec<Vec<u8>>, running: Running) -> Response {
        let breaks_off = self.books.lock().breaks_off;
        let pieces = futures_util::stream::unfold(
            (pieces.into_iter(), running),
            move |(mut pieces, running)| async move {
                let piece = pieces.next()?;
                sleep(Duration::from_millis(5)).await;
                if breaks_off && pieces.len() == 1 {
                    // Never comes: the client is expected to leave.
                    std::future::pending::<()>().await;
                }
                Some((Ok::<_, Infallible>(Bytes::from(piece)), (pieces, running)))
            },
        );
        ([(header::CONTENT_TYPE, content_type)], Body::from_stream(pieces)).into_response()
    }
}

/// What the vendor saw, for programs that are not in this process.
async fn books(State(vendor): State<Vendor>) -> Response {
    let books = vendor.books();
    axum::Json(json!({"answered": books.answered, "refused": books.refused, "billed": books.billed}))
        .into_response()
}

async fn chat(State(vendor): State<Vendor>, body: Bytes) -> Response {
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (running, input, output) = match vendor.begin() {
        Ok(begun) => begun,
        Err(refusal) => return *refusal,
    };
    let usage = json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
    if asked["stream"] == true {
        let event = |event: Value| format!("data: {event}\n\n").into_bytes();
        let chunk = |choices: Value, usage: Value| {
            event(json!({
                "id": "1", "object": "chat.completion.chunk", "created": 1, "model": "small",
                "choices": choices, "usage": usage,
            }))
        };
        let piece = |text: &str| chunk(json!([{"index": 0, "delta": {"content": text}}]), Value::Null);
        let mut pieces = vec![piece("Good "), piece("morning")];
        let fails = vendor.books.lock().fails;
        if let Some(error) = fails {
            pieces = vec![piece("Good "), format!("data: {error}\n\n").into_bytes()];
        } else if asked["stream_options"]["include_usage"] == true {
            pieces.push(chunk(json!([]), usage));
        }
        pieces.push(b"data: [DONE]\n\n".to_vec());
        return vendor.stream("text/event-stream", pieces, running);
    }
    sleep(Duration::from_millis(20)).await;
    drop(running);
    let choice = json!({"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Good morning"}});
    let reply = json!({
        "id": "1", "object": "chat.completion", "created": 1, "model": "small", "choices": [choice], "usage": usage,
    });
    axum::Json(reply).into_response()
}

/// OpenAI's responses.
async fn responses(State(vendor): State<Vendor>) -> Response {
    let (running, input, output) = match vendor.begin() {
        Ok(begun) => begun,
        Err(refusal) => return *refusal,
    };
    drop(running);
    let usage = json!({"input_tokens": input, "output_tokens": output, "total_tokens": input + output});
    axum::Json(json!({"object": "response", "status": "completed", "output": [], "usage": usage}))
        .into_response()
}

/// Google's.
async fn generate_content(State(vendor): State<Vendor>) -> Response {
    let (running, input, output) = match vendor.begin() {
        Ok(begun) => begun,
        Err(refusal) => return *refusal,
    };
    drop(running);
    let usage =
        json!({"promptTokenCount": input, "candidatesTokenCount": output, "totalTokenCount": input + output});
    axum::Json(json!({"candidates": [{"finishReason": "STOP"}], "usageMetadata": usage})).into_response()
}

async fn messages(State(vendor): State<Vendor>, body: Bytes) -> Response {
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (running, input, output) = match vendor.begin() {
        Ok(begun) => begun,
        Err(refusal) => return *refusal,
    };
    let event = |kind: &str, event: Value| format!("event: {kind}\ndata: {event}\n\n").into_bytes();
    if asked["stream"] == true {
        let usage = json!({"input_tokens": input, "output_tokens": 1});
        let pieces = vec![
            event("message_start", json!({"type": "message_start", "message": {"usage": usage}})),
            event(
                "content_block_delta",
                json!({"type": "content_block_delta", "delta": {"text": "Good morning"}}),
            ),
            event(
                "message_delta",
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": output}}),
            ),
            event("message_stop", json!({"type": "message_stop"})),
        ];
        return vendor.stream("text/event-stream", pieces, running);
    }
    sleep(Duration::from_millis(20)).await;
    drop(running);
    let usage = json!({"input_tokens": input, "output_tokens": output});
    axum::Json(json!({"type": "message", "content": [], "stop_reason": "end_turn", "usage": usage}))
        .into_response()
}

async fn converse(State(vendor): State<Vendor>) -> Response {
    let (running, input, output) = match vendor.begin() {
        Ok(begun) => begun,
        Err(refusal) => {
            let mut refusal = *refusal;
            refusal
                .headers_mut()
                .insert("x-amzn-errortype", header::HeaderValue::from_static("ThrottlingException"));
            return refusal;
        }
    };
    sleep(Duration::from_millis(20)).await;
    drop(running);
    let message = json!({"message": {"role": "assistant", "content": [{"text": "Good morning"}]}});
    let usage = json!({"inputTokens": input, "outputTokens": output, "totalTokens": input + output});
    let metrics = json!({"latencyMs": 20});
    axum::Json(json!({"output": message, "stopReason": "end_turn", "usage": usage, "metrics": metrics}))
        .into_response()
}

async fn converse_stream(State(vendor): State<Vendor>) -> Response {
    let (running, input, output) = match vendor.begin() {
        Ok(begun) => begun,
        Err(refusal) => return *refusal,
    };
    let usage = json!({"inputTokens": input, "outputTokens": output, "totalTokens": input + output});
    let event = |kind: &str, payload: &Value| frame(("event", ":event-type", kind), payload);
    let mut pieces = vec![
        event("messageStart", &json!({"role": "assistant"})),
        event("contentBlockDelta", &json!({"contentBlockIndex": 0, "delta": {"text": "Good morning"}})),
        event("messageStop", &json!({"stopReason": "end_turn"})),
        event("metadata", &json!({"usage": usage, "metrics": {"latencyMs": 20}})),
    ];
    let fails = vendor.books.lock().fails;
    if let Some(name) = fails {
        pieces.truncate(2);
        pieces.push(frame(("exception", ":exception-type", name), &json!({"message": "Too many requests"})));
    }
    vendor.stream("application/vnd.amazon.eventstream", pieces, running)
}

/// A frame of `application/vnd.amazon.eventstream`: lengths, headers, payload, checksums.
fn frame((message, header, kind): (&str, &str, &str), payload: &Value) -> Vec<u8> {
    let mut headers = Vec::new();
    for (name, value) in [(":message-type", message), (header, kind), (":content-type", "application/json")] {
        headers.push(u8::try_from(name.len()).unwrap_or_default());
        headers.extend_from_slice(name.as_bytes());
        headers.push(7);
        headers.extend_from_slice(&u16::try_from(value.len()).unwrap_or_default().to_be_bytes());
        headers.extend_from_slice(value.as_bytes());
    }
    let payload = payload.to_string().into_bytes();
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or_default().to_be_bytes();
    let mut frame = Vec::new();
    frame.extend_from_slice(&length(16 + headers.len() + payload.len()));
    frame.extend_from_slice(&length(headers.len()));
    frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
    frame.extend_from_slice(&headers);
    frame.extend_from_slice(&payload);
    frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
    frame
}
