//! The headers that report each quota, by vendor.

use std::time::Duration;

use crate::quota::Quota;
use crate::vendor::Vendor;

/// The headers that report one quota.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderNames {
    pub(crate) limit: Option<&'static str>,
    pub(crate) remaining: Option<&'static str>,
    pub(crate) in_use: Option<&'static str>,
    pub(crate) reset: Option<(&'static str, Form)>,
    pub(crate) unknown: Unknown,
    pub(crate) window: Window,
}

/// The format of a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `6m0s`.
    Span,
    /// `6m0s`, or `60` for seconds.
    SpanOrSeconds,
    /// `2026-01-31T12:00:00Z`.
    Instant,
}

/// How a vendor states that a value is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// By leaving the header out.
    Absent,
    /// Also by -1, and by 0 beside a limit that is unknown.
    MinusOneOrZero,
}

/// The window of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// The vendor documents it.
    Documented(Duration),
    /// The quota flows back evenly, so the window follows from the figures.
    Implied,
    /// Unknown.
    Unknown,
}

const MINUTE: Window = Window::Documented(Duration::from_secs(60));
const DAY: Window = Window::Documented(Duration::from_secs(86_400));

/// OpenAI: <https://developers.openai.com/api/docs/guides/rate-limits>. OpenAI does not say whether a limit
/// is per minute or per day, and both occur.
const X_REQUESTS: HeaderNames = HeaderNames {
    limit: Some("x-ratelimit-limit-requests"),
    remaining: Some("x-ratelimit-remaining-requests"),
    in_use: None,
    reset: Some(("x-ratelimit-reset-requests", Form::Span)),
    unknown: Unknown::Absent,
    window: Window::Implied,
};
const X_TOKENS: HeaderNames = HeaderNames {
    limit: Some("x-ratelimit-limit-tokens"),
    remaining: Some("x-ratelimit-remaining-tokens"),
    reset: Some(("x-ratelimit-reset-tokens", Form::Span)),
    ..X_REQUESTS
};
const X_PROJECT_TOKENS: HeaderNames = HeaderNames {
    limit: Some("x-ratelimit-limit-project-tokens"),
    remaining: Some("x-ratelimit-remaining-project-tokens"),
    reset: Some(("x-ratelimit-reset-project-tokens", Form::Span)),
    ..X_REQUESTS
};

/// Azure, limits per minute: OpenAI's names, resets as bare numbers of seconds
/// (<https://learn.microsoft.com/en-us/azure/foundry/openai/how-to/quota>), and -1 or 0 for "unknown"
/// (<https://github.com/openai/openai-dotnet/issues/838>).
const AZURE_REQUESTS: HeaderNames = HeaderNames {
    reset: Some(("x-ratelimit-reset-requests", Form::SpanOrSeconds)),
    unknown: Unknown::MinusOneOrZero,
    window: MINUTE,
    ..X_REQUESTS
};
const AZURE_TOKENS: HeaderNames = HeaderNames {
    reset: Some(("x-ratelimit-reset-tokens", Form::SpanOrSeconds)),
    unknown: Unknown::MinusOneOrZero,
    window: MINUTE,
    ..X_TOKENS
};

/// Groq: OpenAI's names, but "always" requests per day and tokens per minute:
/// <https://console.groq.com/docs/rate-limits>.
const GROQ_REQUESTS: HeaderNames = HeaderNames { window: DAY, ..X_REQUESTS };
const GROQ_TOKENS: HeaderNames = HeaderNames { window: MINUTE, ..X_TOKENS };

/// Anthropic, each limit per minute: <https://platform.claude.com/docs/en/api/rate-limits>.
const ANTHROPIC_REQUESTS: HeaderNames = HeaderNames {
    limit: Some("anthropic-ratelimit-requests-limit"),
    remaining: Some("anthropic-ratelimit-requests-remaining"),
    in_use: None,
    reset: Some(("anthropic-ratelimit-requests-reset", Form::Instant)),
    unknown: Unknown::Absent,
    window: MINUTE,
};
const ANTHROPIC_TOKENS: HeaderNames = HeaderNames {
    limit: Some("anthropic-ratelimit-tokens-limit"),
    remaining: Some("anthropic-ratelimit-tokens-remaining"),
    reset: Some(("anthropic-ratelimit-tokens-reset", Form::Instant)),
    ..ANTHROPIC_REQUESTS
};
const ANTHROPIC_INPUT: HeaderNames = HeaderNames {
    limit: Some("anthropic-ratelimit-input-tokens-limit"),
    remaining: Some("anthropic-ratelimit-input-tokens-remaining"),
    reset: Some(("anthropic-ratelimit-input-tokens-reset", Form::Instant)),
    ..ANTHROPIC_REQUESTS
};
const ANTHROPIC_OUTPUT: HeaderNames = HeaderNames {
    limit: Some("anthropic-ratelimit-output-tokens-limit"),
    remaining: Some("anthropic-ratelimit-output-tokens-remaining"),
    reset: Some(("anthropic-ratelimit-output-tokens-reset", Form::Instant)),
    ..ANTHROPIC_REQUESTS
};

/// ElevenLabs: <https://elevenlabs.io/docs/overview/models#concurrency-and-priority>.
const CONCURRENCY: HeaderNames = HeaderNames {
    limit: Some("maximum-concurrent-requests"),
    remaining: None,
    in_use: Some("current-concurrent-requests"),
    reset: None,
    unknown: Unknown::Absent,
    window: Window::Unknown,
};

/// An unknown vendor: OpenAI's names, and no window is assumed.
const ANY_REQUESTS: HeaderNames = HeaderNames {
    reset: Some(("x-ratelimit-reset-requests", Form::SpanOrSeconds)),
    window: Window::Unknown,
    ..X_REQUESTS
};
const ANY_TOKENS: HeaderNames =
    HeaderNames { reset: Some(("x-ratelimit-reset-tokens", Form::SpanOrSeconds)), window: Window::Unknown, ..X_TOKENS };

/// The families of headers that may report `quota`. The first family that is present is used.
pub(crate) const fn of(vendor: Vendor, quota: Quota) -> &'static [HeaderNames] {
    match (vendor, quota) {
        (Vendor::OpenAi, Quota::Requests) => &[X_REQUESTS],
        (Vendor::OpenAi, Quota::Tokens) => &[X_TOKENS],
        (Vendor::OpenAi | Vendor::Other, Quota::ProjectTokens) => &[X_PROJECT_TOKENS],
        (Vendor::AzureOpenAi, Quota::Requests) => &[AZURE_REQUESTS],
        (Vendor::AzureOpenAi, Quota::Tokens) => &[AZURE_TOKENS],
        (Vendor::Groq, Quota::Requests) => &[GROQ_REQUESTS],
        (Vendor::Groq, Quota::Tokens) => &[GROQ_TOKENS],
        (Vendor::Anthropic, Quota::Requests) => &[ANTHROPIC_REQUESTS],
        (Vendor::Anthropic, Quota::Tokens) => &[ANTHROPIC_TOKENS],
        (Vendor::Anthropic | Vendor::Other, Quota::InputTokens) => &[ANTHROPIC_INPUT],
        (Vendor::Anthropic | Vendor::Other, Quota::OutputTokens) => &[ANTHROPIC_OUTPUT],
        (Vendor::ElevenLabs | Vendor::Other, Quota::Concurrency) => &[CONCURRENCY],
        (Vendor::Other, Quota::Requests) => &[ANY_REQUESTS, ANTHROPIC_REQUESTS],
        (Vendor::Other, Quota::Tokens) => &[ANY_TOKENS, ANTHROPIC_TOKENS],
        _ => &[],
    }
}
