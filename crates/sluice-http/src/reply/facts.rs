//! What a reply has said so far.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::MAX_ERROR_LEN;
use super::fields::Field;
use super::frames::{Frame, Kind};
use crate::api::Api;
use crate::json_scan::JsonScan;
use crate::used::Counts;

/// What a reply has said so far.
pub(super) struct Facts {
    pub(super) api: Option<Api>,
    pub(super) counts: Counts,
    pub(super) cut: bool,
    pub(super) error: Option<Vec<u8>>,
    /// Whether the stream had its last event, or an error.
    pub(super) ended: bool,
    /// Whether an event came that is no error.
    pub(super) began: bool,
    event: Event,
}

/// What the event that is read now has said so far, as it is written.
#[derive(Default)]
struct Event {
    kind: Vec<u8>,
    code: Option<Vec<u8>>,
    message: Option<Vec<u8>>,
    has_error: bool,
}

impl Facts {
    pub(super) fn new(api: Option<Api>) -> Self {
        Self {
            api,
            counts: Counts::default(),
            cut: false,
            error: None,
            ended: false,
            began: false,
            event: Event::default(),
        }
    }

    /// The memory in use, in bytes.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let Event { kind, code, message, .. } = &self.event;
        let texts = [&self.error, code, message].into_iter().flatten().map(Vec::capacity);
        kind.capacity() + texts.sum::<usize>()
    }

    pub(super) fn apply(&mut self, field: Field, json: &[u8]) {
        if json == b"null" {
            return;
        }
        match field {
            Field::Usage => self.apply_usage(json),
            Field::LastUsage => {
                self.apply_usage(json);
                self.ended = true;
            }
            Field::StopReason => self.apply_stop(json),
            Field::Error => {
                self.event.has_error = true;
                self.fail([br#"{"error":"#, json, b"}"].concat());
            }
            Field::Kind => self.event.kind = json.to_vec(),
            Field::Code => self.event.code = Some(json.to_vec()),
            Field::Message => self.event.message = Some(json.to_vec()),
        }
    }

    fn apply_usage(&mut self, json: &[u8]) {
        if let Ok(usage) = serde_json::from_slice(json) {
            self.counts.apply(&usage);
        }
    }

    fn apply_stop(&mut self, json: &[u8]) {
        const CUT: &[&[u8]] =
            &[br#""length""#, br#""max_tokens""#, br#""max_output_tokens""#, br#""MAX_TOKENS""#];
        self.cut |= CUT.contains(&json);
        // Google's stream has no other sign of its end.
        self.ended |= self.api == Some(Api::StreamGenerateContent);
    }

    fn fail(&mut self, error: Vec<u8>) {
        self.ended = true;
        self.error = Some(error).filter(|error| error.len() <= MAX_ERROR_LEN);
    }

    /// Ends an event: its fields may stand in any order.
    pub(super) fn end_event(&mut self) {
        const LAST: &[&[u8]] = &[
            br#""message_stop""#,
            br#""response.completed""#,
            br#""response.incomplete""#,
            br#""response.failed""#,
        ];
        let Event { kind, code, message, has_error } = std::mem::take(&mut self.event);
        self.ended |= LAST.contains(&kind.as_slice());
        if kind == br#""error""# && !has_error {
            let null = || b"null".to_vec();
            let (code, message) = (code.unwrap_or_else(null), message.unwrap_or_else(null));
            self.fail([br#"{"error":{"code":"#, &*code, br#","message":"#, &*message, b"}}"].concat());
        }
    }

    /// Reads a frame of Bedrock.
    pub(super) fn apply_frame(&mut self, scan: &mut JsonScan<Field>, frame: &Frame<'_>) {
        match (frame.kind, self.api) {
            (Kind::Exception(named), _) => self.fail(exception(named, message_of(frame.payload).as_deref())),
            (Kind::Error { code, message }, _) => self.fail(exception(code, Some(message))),
            (Kind::Event, Some(Api::InvokeStream)) => {
                if let Some(json) = unwrapped(frame.payload) {
                    self.apply_event(scan, &json);
                }
            }
            (Kind::Event, _) => self.apply_event(scan, frame.payload),
        }
    }

    fn apply_event(&mut self, scan: &mut JsonScan<Field>, json: &[u8]) {
        scan.reset();
        scan.feed(json, |found| self.apply(found.field, found.json));
        self.end_event();
        self.began |= self.error.is_none();
    }
}

/// The body that the same refusal has outside a stream: `throttlingException` is the `ThrottlingException` of
/// the header `x-amzn-errortype`.
fn exception(named: &str, message: Option<&str>) -> Vec<u8> {
    let mut letters = named.chars();
    let name: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
    serde_json::json!({ "__type": name, "message": message }).to_string().into_bytes()
}

fn message_of(payload: &[u8]) -> Option<String> {
    let payload: serde_json::Value = serde_json::from_slice(payload).ok()?;
    payload.get("message").or_else(|| payload.get("Message"))?.as_str().map(str::to_owned)
}

/// The JSON in an event of `InvokeModelWithResponseStream`: `{"bytes": "<base64>"}`
/// (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_PayloadPart.html>).
fn unwrapped(payload: &[u8]) -> Option<Vec<u8>> {
    #[derive(Deserialize)]
    struct Part<'a> {
        #[serde(borrow)]
        bytes: std::borrow::Cow<'a, str>,
    }
    let part: Part<'_> = serde_json::from_slice(payload).ok()?;
    STANDARD.decode(part.bytes.as_bytes()).ok()
}
