//! The JSON body of a refusal: error codes, and Google's details.

use serde_json::Value;

/// The longest body that is read, in bytes. Refusals have a few hundred; Google's with all details under
/// 4,096.
const MAX_LEN: usize = 64 * 1_024;

/// The body of a refusal, if it is JSON.
pub(crate) struct Body(Value);

impl Body {
    /// Returns `None` for what is not a JSON object (or a list of one, as Google's streaming calls write it),
    /// and for a body that is too long.
    pub(crate) fn parse(body: Option<&[u8]>) -> Option<Self> {
        let body = body.filter(|body| body.len() <= MAX_LEN)?;
        match serde_json::from_slice(body).ok()? {
            Value::Array(list) => list.into_iter().next().map(Self),
            value => Some(Self(value)),
        }
    }

    /// The values of all fields in which vendors name the kind of an error, in words that programs compare:
    /// OpenAI's and Groq's `error.code` and `error.type`, Anthropic's `error.type` and
    /// `error.details.error_code`, Google's `error.status`, ElevenLabs' `detail.status` and `detail.code`, Mistral's
    /// `code` and `type`, OpenRouter's `error.metadata.limit_source`.
    pub(crate) fn codes(&self) -> impl Iterator<Item = &str> {
        const PLACES: &[&str] = &[
            "/error/code",
            "/error/type",
            "/error/status",
            "/error/details/error_code",
            "/detail/status",
            "/detail/code",
            "/code",
            "/type",
            "/error/metadata/limit_source",
        ];
        PLACES.iter().filter_map(|place| self.0.pointer(place)?.as_str())
    }

    /// The error message for people: OpenAI's and most vendors' `error.message`, Mistral's and Bedrock's `message`.
    pub(crate) fn message(&self) -> Option<&str> {
        ["/error/message", "/message"].iter().find_map(|place| self.0.pointer(place)?.as_str())
    }

    /// The `reason` of Google's `ErrorInfo`, as in `MODEL_CAPACITY_EXHAUSTED`.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = &str> {
        self.details("google.rpc.ErrorInfo").filter_map(|detail| detail.get("reason")?.as_str())
    }

    /// `retryDelay` of Google's `RetryInfo`, as it is written.
    pub(crate) fn retry_delay(&self) -> Option<&str> {
        self.details("google.rpc.RetryInfo").find_map(|detail| detail.get("retryDelay")?.as_str())
    }

    /// The quotas that Google's `QuotaFailure` says were used up, as in
    /// `GenerateRequestsPerMinutePerProjectPerModel`.
    pub(crate) fn used_up_quotas(&self) -> impl Iterator<Item = &str> {
        self.details("google.rpc.QuotaFailure")
            .filter_map(|detail| detail.get("violations")?.as_array())
            .flatten()
            .filter_map(|violation| violation.get("quotaId")?.as_str())
    }

    fn details(&self, kind: &'static str) -> impl Iterator<Item = &Value> {
        let details = self.0.pointer("/error/details").and_then(Value::as_array);
        details.into_iter().flatten().filter(move |detail| {
            detail.get("@type").and_then(Value::as_str).is_some_and(|named| named.ends_with(kind))
        })
    }
}
