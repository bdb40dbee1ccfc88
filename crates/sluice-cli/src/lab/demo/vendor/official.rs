//! Calls in the form of the real APIs, as the vendors' own packages send them: chat completions of OpenAI,
//! messages of Anthropic, each also as a stream. They are judged by the same books as the demo's own calls.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answers::Answer;
use super::{Call, VendorReply, Vendors, anthropic, openai, takes, unix_micros};

/// Below these paths are the APIs: the packages add `/chat/completions` and `/v1/messages`.
pub(super) const OPENAI: &str = "/openai/v1";
pub(super) const ANTHROPIC: &str = "/anthropic";

/// The shortest and the longest time of a call, in milliseconds, so that calls at once are many.
const CALL_MILLIS: (u64, u64) = (400, 600);
/// The time between two events of a stream.
const PAUSE: Duration = Duration::from_millis(40);

pub(super) fn routes(vendors: &Vendors) -> Router {
    let state = Official { vendors: vendors.clone(), counted: Arc::default() };
    Router::new()
        .route(&format!("{OPENAI}/chat/completions"), post(chat_completion))
        .route(&format!("{ANTHROPIC}/v1/messages"), post(message))
        .route("/books", get(books))
        .with_state(state)
}

#[derive(Clone)]
struct Official {
    vendors: Vendors,
    counted: Arc<Mutex<Counted>>,
}

/// The tokens that each vendor counted of all accepted calls.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    openai: u64,
    anthropic: u64,
}

/// A request: what both APIs have in common.
#[derive(Debug, Deserialize)]
struct Asked {
    model: String,
    messages: Value,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

impl Asked {
    fn max_tokens(&self) -> u32 {
        self.max_tokens.or(self.max_completion_tokens).unwrap_or(400)
    }

    fn is_stream(&self) -> bool {
        self.stream == Some(true)
    }

    fn includes_usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|options| options.include_usage == Some(true))
    }
}

/// The tokens of a call.
#[derive(Clone, Copy, Debug)]
struct Tokens {
    input: u32,
    output: u32,
}

impl Tokens {
    /// A token is about four letters; the answer has a token a word.
    fn of(asked: &Asked) -> Self {
        let letters = u32::try_from(asked.messages.to_string().len()).unwrap_or(u32::MAX);
        Self { input: letters.div_ceil(4), output: fastrand::u32(10..=20).min(asked.max_tokens()) }
    }

    const fn total(self) -> u32 {
        self.input.saturating_add(self.output)
    }

    /// One event's worth for each token.
    fn words(self) -> impl Iterator<Item = &'static str> {
        std::iter::repeat_n("word ", self.output as usize)
    }

    fn text(self) -> String {
        self.words().collect()
    }
}

/// A call of which the summary knows nothing.
const fn call(tokens: u32) -> Call {
    Call { tokens, start_at: 0, process: 0 }
}

async fn chat_completion(State(official): State<Official>, Json(asked): Json<Asked>) -> Response {
    let tokens = Tokens::of(&asked);
    // Whichever is larger, on arrival: https://platform.openai.com/docs/guides/rate-limits
    let counted = tokens.input.max(asked.max_tokens());
    let headers = match openai::judged(&official.vendors.openai, &call(counted)) {
        Ok(headers) => headers,
        Err(refused) => return refusal(refused),
    };
    official.counted.lock().openai += u64::from(counted);
    let created = unix_micros() / 1_000_000;
    let usage = json!({
        "prompt_tokens": tokens.input, "completion_tokens": tokens.output, "total_tokens": tokens.total(),
    });
    if !asked.is_stream() {
        takes(CALL_MILLIS).await;
        let message = json!({ "role": "assistant", "content": tokens.text() });
        let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
        let body = json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": created, "model": asked.model,
            "choices": [choice], "usage": usage,
        });
        return (headers, Json(body)).into_response();
    }
    let chunk = |choices: Value, usage: &Value| {
        let chunk = json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": created, "model": asked.model,
            "choices": choices, "usage": usage,
        });
        format!("data: {chunk}\n\n")
    };
    let piece = |delta: Value, finish: Value| {
        chunk(json!([{ "index": 0, "delta": delta, "finish_reason": finish }]), &Value::Null)
    };
    let mut events: Vec<String> = tokens
        .words()
        .map(|word| piece(json!({ "role": "assistant", "content": word }), Value::Null))
        .collect();
    events.push(piece(json!({}), json!("stop")));
    if asked.includes_usage() {
        events.push(chunk(json!([]), &usage));
    }
    events.push("data: [DONE]\n\n".to_owned());
    streamed(headers, events, ())
}

async fn message(State(official): State<Official>, Json(asked): Json<Asked>) -> Response {
    let tokens = Tokens::of(&asked);
    let (headers, under_way) = match anthropic::judged(&official.vendors.anthropic, &call(tokens.total())) {
        Ok(accepted) => accepted,
        Err(refused) => return refusal(refused),
    };
    official.counted.lock().anthropic += u64::from(tokens.total());
    let message = |content: Value, stop_reason: Value, output: u32| {
        json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": asked.model, "content": content,
            "stop_reason": stop_reason, "stop_sequence": null,
            "usage": { "input_tokens": tokens.input, "output_tokens": output },
        })
    };
    if !asked.is_stream() {
        takes(CALL_MILLIS).await;
        let content = json!([{ "type": "text", "text": tokens.text() }]);
        return (headers, Json(message(content, json!("end_turn"), tokens.output))).into_response();
    }
    let event = |name: &str, mut data: Value| {
        data["type"] = json!(name);
        format!("event: {name}\ndata: {data}\n\n")
    };
    let start = message(json!([]), Value::Null, 1);
    let mut events = vec![
        event("message_start", json!({ "message": start })),
        event("content_block_start", json!({ "index": 0, "content_block": { "type": "text", "text": "" } })),
    ];
    events.extend(tokens.words().map(|word| {
        event("content_block_delta", json!({ "index": 0, "delta": { "type": "text_delta", "text": word } }))
    }));
    let end = json!({ "stop_reason": "end_turn", "stop_sequence": null });
    events.extend([
        event("content_block_stop", json!({ "index": 0 })),
        event("message_delta", json!({ "delta": end, "usage": { "output_tokens": tokens.output } })),
        event("message_stop", json!({})),
    ]);
    streamed(headers, events, under_way)
}

fn refusal((status, mut headers, body): VendorReply) -> Response {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    (status, headers, body).into_response()
}

/// Sends the events one by one. `under_way` ends with the last of them, or when the caller leaves.
fn streamed(mut headers: HeaderMap, events: Vec<String>, under_way: impl Send + 'static) -> Response {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    let pieces = stream::unfold((events.into_iter(), under_way), |(mut left, under_way)| async {
        let event = left.next()?;
        tokio::time::sleep(PAUSE).await;
        Some((Ok::<_, Infallible>(event), (left, under_way)))
    });
    (headers, Body::from_stream(pieces)).into_response()
}

/// What a vendor saw, for tests.
#[derive(Debug, Serialize)]
struct Seen {
    taken: usize,
    refused: usize,
    tokens: u64,
    /// Calls at this moment; of OpenAI not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    under_way: Option<u32>,
}

async fn books(State(official): State<Official>) -> Json<Value> {
    let [anthropic_refused, openai_refused, _] =
        official.vendors.answers(|answers| answers.count(Answer::Refused));
    let [anthropic_taken, openai_taken, _] = official.vendors.taken();
    let counted = *official.counted.lock();
    let openai =
        Seen { taken: openai_taken, refused: openai_refused, tokens: counted.openai, under_way: None };
    let anthropic = Seen {
        taken: anthropic_taken,
        refused: anthropic_refused,
        tokens: counted.anthropic,
        under_way: Some(official.vendors.anthropic().concurrency().0),
    };
    Json(json!({ "openai": openai, "anthropic": anthropic }))
}
