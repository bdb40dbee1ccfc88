//! Asks for the usage of a chat stream of OpenAI, which does not state it otherwise.

use serde::de::IgnoredAny;

use crate::json_scan::{JsonScan, Want};

/// Returns the body of a chat completion with `stream_options.include_usage` set. All other bytes stay as
/// they are.
///
/// `None` if nothing has to change: the reply is not a stream, the body says `include_usage` already (`false`
/// too), or it is not understood. The stream then has one more event, whose `choices` are empty: a client
/// that reads `choices[0]` without a check fails at it. Azure OpenAI knows the field in stable API versions
/// since 2024-10-21; older ones reject the call (<https://github.com/griptape-ai/griptape/issues/1640>).
/// Source: <https://platform.openai.com/docs/api-reference/chat/create>.
#[must_use]
pub fn with_usage_asked(body: &[u8]) -> Option<Vec<u8>> {
    serde_json::from_slice::<IgnoredAny>(body).ok()?;
    match Stream::of(body)? {
        Stream { is_stream: false, .. } | Stream { options: Options::Twice, .. } => None,
        Stream { options: Options::Absent, .. } => {
            let end = body.iter().rposition(|byte| *byte == b'}')?;
            Some(spliced(body, end..end, r#","stream_options":{"include_usage":true}"#))
        }
        Stream { options: Options::At { json, end }, .. } => {
            let start = end.checked_sub(json.len())?;
            with_options(body, &json, start)
        }
    }
}

/// The fields of a body that matter here.
#[derive(Default)]
struct Stream {
    is_stream: bool,
    options: Options,
}

#[derive(Default)]
enum Options {
    #[default]
    Absent,
    At {
        json: Vec<u8>,
        end: usize,
    },
    Twice,
}

#[derive(Clone, Copy)]
enum Field {
    Stream,
    Options,
}

const WANTS: &[Want<Field>] = &[(&["stream"], Field::Stream), (&["stream_options"], Field::Options)];

impl Stream {
    fn of(body: &[u8]) -> Option<Self> {
        let mut stream = Self::default();
        let mut scan = JsonScan::new(WANTS);
        if !body.trim_ascii_start().starts_with(b"{") {
            return None;
        }
        scan.feed(body, |found| match (found.field, &stream.options) {
            (Field::Stream, _) => stream.is_stream = found.json == b"true",
            (Field::Options, Options::Absent) => {
                stream.options = Options::At { json: found.json.to_vec(), end: found.end };
            }
            (Field::Options, _) => stream.options = Options::Twice,
        });
        Some(stream)
    }
}

fn with_options(body: &[u8], json: &[u8], start: usize) -> Option<Vec<u8>> {
    let options: serde_json::Value = serde_json::from_slice(json).ok()?;
    if options.is_null() {
        return Some(spliced(body, start..start + json.len(), r#"{"include_usage":true}"#));
    }
    let options = options.as_object().filter(|options| !options.contains_key("include_usage"))?;
    let field = if options.is_empty() { r#""include_usage":true"# } else { r#","include_usage":true"# };
    let end = start + json.len() - 1;
    Some(spliced(body, end..end, field))
}

fn spliced(body: &[u8], place: std::ops::Range<usize>, text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + text.len());
    bytes.extend_from_slice(&body[..place.start]);
    bytes.extend_from_slice(text.as_bytes());
    bytes.extend_from_slice(&body[place.end..]);
    bytes
}
