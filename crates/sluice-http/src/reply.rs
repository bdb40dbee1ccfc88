//! Reads a reply as its body passes by.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};

use crate::api::Api;
use crate::json_scan::JsonScan;
use crate::used::{Counts, Used};

mod event_lines;
mod facts;
mod fields;
mod frames;
#[cfg(test)]
mod tests;

use event_lines::{EventLines, Line};
use facts::Facts;
use fields::Field;
use frames::Frames;

/// The longest error that is kept, in bytes: as much as `sluice_vendors` reads.
pub const MAX_ERROR_LEN: usize = 64 * 1_024;

/// What a reply said, as far as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replied {
    /// What the call used. `None` if the reply did not say. If the reply is not [complete](Self::complete),
    /// this is what the vendor had said until then, and the output is too low.
    pub used: Option<Used>,
    /// Whether the model stopped because it reached the most output tokens that the request allows
    /// (`finish_reason: length`, `stop_reason: max_tokens`).
    pub cut: bool,
    /// The error that the vendor reports: the body of a reply whose status is not a success, as it came; or
    /// an error inside a stream or an object that began with 200, as JSON in the form of a refusal's body. Of
    /// the latter, `sluice_vendors::classify_event` tells whether it is a refusal because of load. `None` if
    /// there is none, and if it is longer than [`MAX_ERROR_LEN`].
    pub error: Option<Vec<u8>>,
    /// Whether an event came before the end, or before the error: the vendor had begun to answer. False for a
    /// reply that is no stream.
    pub began: bool,
    /// Whether the reply came to its own end: the JSON is whole, or the stream had its last event or an
    /// error. False if the connection was dropped in the middle, and if the body could not be read.
    pub complete: bool,
}

/// Reads one reply. Made by [`Exchange::reply`](crate::Exchange::reply).
///
/// Chunks may be split anywhere. The body is not kept: the reader holds the values that it looks for (each at
/// most 64 KiB), one frame of Bedrock (at most 1 MiB), and an error (at most [`MAX_ERROR_LEN`]): a few
/// hundred bytes for most replies, and under 2 MiB whatever a vendor sends. What is longer is skipped, and
/// the rest of the reply is read.
pub struct ReplyReader {
    scan: JsonScan<Field>,
    facts: Facts,
    body: Body,
}

/// How the facts are packed in the body.
enum Body {
    /// One JSON document, or a list of them.
    Json,
    /// Server-sent events.
    Events(EventLines),
    /// `application/vnd.amazon.eventstream`.
    Frames(Frames),
    /// The body of an error, kept as it is. `None` if it is too long.
    Error(Option<Vec<u8>>),
    /// Compressed.
    Unreadable,
}

impl ReplyReader {
    pub(crate) fn new(api: Option<Api>, streamed: bool, status: StatusCode, headers: &HeaderMap) -> Self {
        let mut facts = Facts::new(api);
        if matches!(api, Some(Api::Invoke | Api::InvokeStream)) {
            facts.counts = Counts::of_headers(headers);
        }
        Self {
            scan: JsonScan::new(fields::wanted(api)),
            facts,
            body: Body::of(api, streamed, status, headers),
        }
    }

    /// Whether the body is compressed, so that nothing can be read of it.
    #[cfg(feature = "limiter")]
    pub(crate) const fn is_unreadable(&self) -> bool {
        matches!(self.body, Body::Unreadable)
    }

    /// Reads the next chunk of the body.
    pub fn feed(&mut self, chunk: &[u8]) {
        let Self { scan, facts, body } = self;
        match body {
            Body::Json => scan.feed(chunk, |found| facts.apply(found.field, found.json)),
            Body::Events(lines) => lines.feed(chunk, |line| read_line(scan, facts, line)),
            Body::Frames(frames) => frames.feed(chunk, |frame| facts.apply_frame(scan, &frame)),
            Body::Error(kept) => {
                scan.feed(chunk, |_| ());
                keep(kept, chunk);
            }
            Body::Unreadable => (),
        }
    }

    /// Ends the reading, at the end of the body or when the connection was dropped.
    #[must_use]
    pub fn finish(mut self) -> Replied {
        if let Body::Events(lines) = &mut self.body {
            lines.finish(|line| read_line(&mut self.scan, &mut self.facts, line));
        }
        self.facts.end_event();
        let (error, complete) = match self.body {
            Body::Json => (self.facts.error, self.scan.is_whole()),
            Body::Events(_) | Body::Frames(_) => (self.facts.error, self.facts.ended),
            Body::Error(kept) => (kept.filter(|kept| !kept.is_empty()), self.scan.is_whole()),
            Body::Unreadable => (None, false),
        };
        let used = self.facts.api.and_then(|api| self.facts.counts.used(api));
        Replied { used, cut: self.facts.cut, error, began: self.facts.began, complete }
    }
}

impl Body {
    fn of(api: Option<Api>, streamed: bool, status: StatusCode, headers: &HeaderMap) -> Self {
        let text =
            |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_ascii_lowercase);
        if text(CONTENT_ENCODING).is_some_and(|encoding| !matches!(encoding.trim(), "" | "identity")) {
            return Self::Unreadable;
        }
        if !status.is_success() {
            return Self::Error(Some(Vec::new()));
        }
        let content_type = text(CONTENT_TYPE).unwrap_or_default();
        match content_type.split(';').next().unwrap_or_default().trim() {
            "text/event-stream" => Self::Events(EventLines::default()),
            "application/vnd.amazon.eventstream" => Self::Frames(Frames::default()),
            json if json.ends_with("json") => Self::Json,
            _ => Self::expected(api, streamed),
        }
    }

    /// What the request makes likely, for a reply that does not name its type, or names it wrongly.
    fn expected(api: Option<Api>, streamed: bool) -> Self {
        match api {
            Some(Api::ConverseStream | Api::InvokeStream) => Self::Frames(Frames::default()),
            Some(Api::ChatCompletions | Api::Responses | Api::Messages) if streamed => {
                Self::Events(EventLines::default())
            }
            _ => Self::Json,
        }
    }
}

fn read_line(scan: &mut JsonScan<Field>, facts: &mut Facts, line: Line<'_>) {
    match line {
        Line::Data(data) => scan.feed(data, |found| facts.apply(found.field, found.json)),
        Line::EventEnd { is_done } => {
            scan.reset();
            facts.ended |= is_done;
            facts.end_event();
            facts.began |= facts.error.is_none();
        }
    }
}

fn keep(kept: &mut Option<Vec<u8>>, chunk: &[u8]) {
    match kept {
        Some(bytes) if bytes.len() + chunk.len() <= MAX_ERROR_LEN => bytes.extend_from_slice(chunk),
        _ => *kept = None,
    }
}

impl std::fmt::Debug for ReplyReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ReplyReader").field("api", &self.facts.api).finish_non_exhaustive()
    }
}
