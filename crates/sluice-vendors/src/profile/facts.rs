//! The facts about vendors, each with the page that states it.

use std::time::Duration;

use sluice_core::Amount;

use super::{Counted, Kept, Profile, Stated};
use crate::quota::Quota;
use crate::vendor::Vendor;

const SECOND: Duration = Duration::from_secs(1);
const TEN_SECONDS: Duration = Duration::from_secs(10);

const fn stated<T: Copy>(value: T, source: &'static str) -> Stated<T> {
    Stated { value, source: Some(source) }
}

const fn assumed<T: Copy>(value: T) -> Stated<T> {
    Stated { value, source: None }
}

/// The assumptions about a vendor that does not say: a failed call was a request, and used no tokens.
pub(super) static OTHER: Profile = Profile {
    vendor: Vendor::Other,
    failed_requests: assumed(Kept::All),
    failed_tokens: assumed(Kept::Nothing),
    tokens: assumed(Counted::Used),
    enforced_over: assumed(&[]),
    reports: assumed(&[]),
    remaining_rounded_to: None,
};

/// "Unsuccessful requests contribute to your per-minute limit"; OpenAI does not say whether a failed
/// request's tokens count. A request counts "the maximum of `max_tokens` and the estimated number of tokens
/// based on the character count".
pub(super) static OPENAI: Profile = Profile {
    vendor: Vendor::OpenAi,
    failed_requests: stated(Kept::All, OPENAI_LIMITS),
    tokens: stated(Counted::Estimated, OPENAI_LIMITS),
    enforced_over: stated(
        &[SECOND],
        "https://help.openai.com/en/articles/6891753-what-are-the-best-practices-for-managing-my-rate-limits-in-the-api",
    ),
    reports: stated(&[Quota::Requests, Quota::Tokens, Quota::ProjectTokens], OPENAI_LIMITS),
    ..OTHER
};

const OPENAI_LIMITS: &str = "https://developers.openai.com/api/docs/guides/rate-limits";

/// "Unsuccessful requests still count toward your per-minute rate limit". What a request may use is counted
/// when it is received, "including requests that are later rejected or never billed", over "typically 1 or 10
/// seconds".
pub(super) static AZURE_OPENAI: Profile = Profile {
    vendor: Vendor::AzureOpenAi,
    failed_requests: stated(Kept::All, AZURE_QUOTA),
    failed_tokens: stated(Kept::All, AZURE_QUOTA),
    tokens: stated(Counted::Estimated, AZURE_QUOTA),
    enforced_over: stated(&[SECOND, TEN_SECONDS], AZURE_QUOTA),
    reports: stated(&[Quota::Requests, Quota::Tokens], AZURE_QUOTA),
    ..OTHER
};

const AZURE_QUOTA: &str = "https://learn.microsoft.com/en-us/azure/foundry/openai/how-to/quota";

/// Token buckets; "60 requests per minute might be enforced as 1 request per second". Output counts as it is
/// produced; `max_tokens` and cached input do not count. Anthropic does not say what failed calls count.
pub(super) static ANTHROPIC: Profile = Profile {
    vendor: Vendor::Anthropic,
    tokens: stated(Counted::Used, ANTHROPIC_LIMITS),
    enforced_over: stated(&[SECOND], ANTHROPIC_LIMITS),
    reports: stated(&[Quota::Requests, Quota::Tokens, Quota::InputTokens, Quota::OutputTokens], ANTHROPIC_LIMITS),
    remaining_rounded_to: Some(stated(Amount::from_tokens(1_000), ANTHROPIC_LIMITS)),
    ..OTHER
};

const ANTHROPIC_LIMITS: &str = "https://platform.claude.com/docs/en/api/rate-limits";

/// The limit is on calls at the same time; no limit per minute is published.
pub(super) static ELEVENLABS: Profile = Profile {
    vendor: Vendor::ElevenLabs,
    reports: stated(&[Quota::Concurrency], "https://elevenlabs.io/docs/overview/models#concurrency-and-priority"),
    ..OTHER
};

/// "If your request fails with a 400 or 500 error, you won't be charged for the tokens used. However, the
/// request will still count against your quota." Gemini reports no quota in headers.
pub(super) static GEMINI: Profile = Profile {
    vendor: Vendor::Gemini,
    failed_requests: stated(Kept::All, GEMINI_BILLING),
    failed_tokens: stated(Kept::Nothing, GEMINI_BILLING),
    ..OTHER
};

const GEMINI_BILLING: &str = "https://ai.google.dev/gemini-api/docs/billing";

/// Groq reports requests per day and tokens per minute. It does not say what failed calls count.
pub(super) static GROQ: Profile = Profile {
    vendor: Vendor::Groq,
    reports: stated(&[Quota::Requests, Quota::Tokens], "https://console.groq.com/docs/rate-limits"),
    ..OTHER
};
