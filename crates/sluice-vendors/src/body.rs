//! The JSON body of a refusal: error codes, and Google's details.

use serde_json::Value;

/// The longest body that is read, in bytes. Refusals have a few hundred; Google's with all details under
/// 4,096.
const MAX_LEN: usize = 64 * 1_024;

/// The body of a refusal: JSON, or a text for people.
pub(crate) struct Body(Value);

impl Body {
    /// Of a list, as Google's streaming calls write it, the first element is read. Returns `None` for a body
    /// that is too long, and for bytes that are no text.
    pub(crate) fn parse(body: Option<&[u8]>) -> Option<Self> {
        let body = body.filter(|body| body.len() <= MAX_LEN)?;
        match serde_json::from_slice(body) {
            Ok(Value::Array(list)) => list.into_iter().next().map(Self),
            Ok(value) => Some(Self(value)),
            Err(_) => std::str::from_utf8(body).ok().map(|text| Self(Value::String(text.to_owned()))),
        }
    }

    /// The values of all fields in which vendors name the kind of an error, in words that programs compare:
    /// OpenAI's and Groq's `error.code` and `error.type`, Anthropic's `error.details.error_code`, Google's
    /// `error.status` and the `reason` of its `ErrorInfo`, ElevenLabs' `detail.status` and `detail.code`,
    /// Mistral's `code` and `type`, OpenRouter's `error.metadata.limit_source`, Amazon's `__type` without its
    /// namespace.
    fn codes(&self) -> impl Iterator<Item = &str> {
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
            "/__type",
        ];
        let named = PLACES.iter().filter_map(|place| self.0.pointer(place)?.as_str());
        named.map(|name| name.rsplit('#').next().unwrap_or(name)).chain(self.reasons())
    }

    /// The error message for people: OpenAI's and most vendors' `error.message`, Mistral's and Amazon's
    /// `message`, ElevenLabs' `detail.message`, or a text in place of the object.
    pub(crate) fn message(&self) -> Option<&str> {
        const PLACES: &[&str] =
            &["/error/message", "/message", "/Message", "/detail/message", "/error", "/detail", ""];
        PLACES.iter().find_map(|place| self.0.pointer(place)?.as_str())
    }

    /// Whether this is an error, and not another reply: it has an `error`, Amazon's `__type`, or the `type`
    /// `error`.
    pub(crate) fn is_error(&self) -> bool {
        let is_told = |place| self.0.pointer(place).is_some_and(|value| !value.is_null());
        is_told("/error") || is_told("/__type") || self.0.pointer("/type").is_some_and(|kind| kind == "error")
    }

    /// The status that the error would have had as a reply of its own.
    pub(crate) fn status(&self) -> Option<u16> {
        self.0.pointer("/error/code")?.as_u64()?.try_into().ok()
    }

    /// Whether one of the [codes](Self::codes) equals `code`.
    pub(crate) fn has_code(&self, code: &str) -> bool {
        self.codes().any(|named| named == code)
    }

    /// Whether the message contains `words`, in upper or lower case. OpenRouter passes on what the vendor
    /// behind it said as `error.metadata.raw`.
    pub(crate) fn says(&self, words: &str) -> bool {
        let passed_on = self.0.pointer("/error/metadata/raw").and_then(Value::as_str);
        let words = words.to_lowercase();
        self.message().into_iter().chain(passed_on).any(|text| text.to_lowercase().contains(&words))
    }

    /// When the quota that is used up is whole again, as OpenRouter repeats it from its header
    /// `X-RateLimit-Reset`.
    pub(crate) fn reset(&self) -> Option<&str> {
        self.0.pointer("/error/metadata/headers/X-RateLimit-Reset")?.as_str()
    }

    fn reasons(&self) -> impl Iterator<Item = &str> {
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
