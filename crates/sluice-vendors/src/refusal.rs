//! Classifies refusals.

use std::time::Duration;

use sluice_core::Timestamp;

use crate::body::Body;
use crate::headers::Headers;
use crate::retry_after;
use crate::vendor::Vendor;

/// A refusal because of load, and how to answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VendorRefusal {
    /// Too many calls or tokens in a window of time: the vendor has less than the bucket says.
    Rate {
        /// How long the vendor asks to wait, if it says.
        retry_after: Option<Duration>,
    },
    /// Too many calls at the same time: wait in the queue, because a call that ends makes room.
    Concurrency {
        /// How long the vendor asks to wait, if it says.
        retry_after: Option<Duration>,
    },
    /// The vendor is overloaded, but not because of this quota: back off.
    SystemBusy {
        /// How long the vendor asks to wait, if it says.
        retry_after: Option<Duration>,
    },
    /// The allowance of a day, a month or the account is used up, or not paid for: a wait of minutes does not
    /// help.
    QuotaExhausted,
    /// The call alone is larger than the limit: no wait helps, and the vendor has no less than the bucket says.
    TooLarge,
}

impl VendorRefusal {
    /// How long the vendor asks to wait, if it says.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rate { retry_after } | Self::Concurrency { retry_after } | Self::SystemBusy { retry_after } => {
                *retry_after
            }
            Self::QuotaExhausted | Self::TooLarge => None,
        }
    }
}

/// The meaning of an error code, for any vendor. Each code is the word of one vendor, and other vendors that
/// speak its protocol use it too.
const CODES: &[(&str, Kind)] = &[
    // OpenAI, https://developers.openai.com/api/docs/guides/error-codes and
    // https://help.openai.com/en/articles/5955604-troubleshooting-api-rate-limits-and-429-errors; the last
    // two codes are from older replies.
    ("insufficient_quota", Kind::Exhausted),
    ("credit_balance_exhausted", Kind::Exhausted),
    ("organization_spend_limit_exceeded", Kind::Exhausted),
    ("organization_usage_limit_exceeded", Kind::Exhausted),
    ("project_spend_limit_exceeded", Kind::Exhausted),
    ("billing_hard_limit_reached", Kind::Exhausted),
    ("billing_not_active", Kind::Exhausted),
    // Anthropic, https://platform.claude.com/docs/en/api/rate-limits: usage pauses until the first of the
    // next month.
    ("enforced_spend_limit_reached", Kind::Exhausted),
    // Anthropic, https://platform.claude.com/docs/en/api/errors: 402.
    ("billing_error", Kind::Exhausted),
    // ElevenLabs, https://help.elevenlabs.io/hc/en-us/articles/19571824571921-API-Error-Code-429; the second
    // code is from newer replies.
    ("too_many_concurrent_requests", Kind::Concurrency),
    ("concurrent_limit_exceeded", Kind::Concurrency),
    ("system_busy", Kind::Busy),
    // Anthropic, https://platform.claude.com/docs/en/api/errors: 529.
    ("overloaded_error", Kind::Busy),
    // OpenAI, https://developers.openai.com/api/docs/guides/flex-processing: 429 for lack of resources, not
    // of quota.
    ("resource_unavailable", Kind::Busy),
    // Groq, https://console.groq.com/docs/flex-processing: 498.
    ("capacity_exceeded", Kind::Busy),
    // OpenAI, in a stream that began with 200: https://github.com/openai/codex/issues/43337.
    ("server_is_overloaded", Kind::Busy),
    // Mistral, https://github.com/continuedev/continue/issues/6185: the model's own capacity.
    ("3505", Kind::Busy),
    ("service_tier_capacity_exceeded", Kind::Busy),
    // Google's ErrorInfo, https://github.com/google-gemini/gemini-cli/issues/28772.
    ("MODEL_CAPACITY_EXHAUSTED", Kind::Busy),
    ("QUOTA_EXHAUSTED", Kind::Exhausted),
    // Moonshot, https://platform.moonshot.ai/docs/api/chat#error-codes: the balance.
    ("exceeded_current_quota_error", Kind::Exhausted),
    // OpenRouter, https://github.com/Avarok-Cybersecurity/atlas/pull/543: the day's free calls.
    ("openrouter_free_tier_daily", Kind::Exhausted),
];

/// What a message for people says, where no code says it. Each begins as its vendor writes it.
const MESSAGES: &[(&str, Kind)] = &[
    // OpenAI (429) and Groq (413), https://github.com/vanna-ai/vanna-flask/issues/11: the call needs more tokens than
    // a minute has.
    ("Request too large for", Kind::TooLarge),
    // Anthropic, https://github.com/cline/cline/issues/4351: type rate_limit_error, as for a rate.
    ("Number of concurrent connections", Kind::Concurrency),
    // Amazon Bedrock, https://github.com/minorun365/agent-book/issues/29: type ThrottlingException, as for a rate.
    ("Too many tokens per day", Kind::Exhausted),
    ("Too many requests per day", Kind::Exhausted),
    // OpenRouter, https://github.com/Gitlawb/openclaude/issues/936.
    ("Rate limit exceeded: free-models-per-day", Kind::Exhausted),
    // Mistral, https://github.com/continuedev/continue/issues/6185.
    ("Service tier capacity exceeded", Kind::Busy),
    // Google, https://github.com/google-gemini/gemini-cli/issues/25011.
    ("No capacity available for model", Kind::Busy),
];

#[derive(Clone, Copy)]
enum Kind {
    Rate,
    Concurrency,
    Busy,
    Exhausted,
    TooLarge,
}

/// Classifies the refusal in a reply, at `now`. `None` if the reply is not a refusal because of load.
///
/// [`retry_after()`](crate::retry_after()) returns what could not be read of a `Retry-After`.
#[must_use]
pub fn classify(
    vendor: Vendor,
    status: u16,
    headers: &(impl Headers + ?Sized),
    body: Option<&[u8]>,
    now: Timestamp,
) -> Option<VendorRefusal> {
    if status < 400 {
        return None;
    }
    let body = Body::parse(body);
    let retry_after = retry_after::wait(headers, body.as_ref(), now).wait;
    let kind = body.as_ref().and_then(|body| by_body(vendor, body)).or_else(|| by_status(vendor, status))?;
    Some(match kind {
        Kind::Rate => VendorRefusal::Rate { retry_after },
        Kind::Concurrency => VendorRefusal::Concurrency { retry_after },
        Kind::Busy => VendorRefusal::SystemBusy { retry_after },
        Kind::Exhausted => VendorRefusal::QuotaExhausted,
        Kind::TooLarge => VendorRefusal::TooLarge,
    })
}

fn by_body(vendor: Vendor, body: &Body) -> Option<Kind> {
    // Azure distinguishes lack of capacity from lack of quota by these words alone, and documents them:
    // https://learn.microsoft.com/en-us/azure/foundry/openai/how-to/quota
    const NO_CAPACITY: &[&str] = &["experiencing high demand", "temporarily unable to process your request"];
    let says = |words: &&str| body.message().is_some_and(|message| message.contains(*words));
    if vendor == Vendor::AzureOpenAi && NO_CAPACITY.iter().any(says) {
        return Some(Kind::Busy);
    }
    // A refusal for a day's quota has a `retryDelay` of seconds, after which the quota is still used up:
    // https://github.com/google-gemini/gemini-cli/blob/main/packages/core/src/utils/googleQuotaErrors.ts
    if body.used_up_quotas().any(|quota| quota.contains("PerDay")) {
        return Some(Kind::Exhausted);
    }
    // ElevenLabs uses this code for credits that are used up, other vendors for limits per minute:
    // https://help.elevenlabs.io/hc/en-us/articles/19572237925521-API-Error-Code-400-or-401
    if vendor == Vendor::ElevenLabs && body.codes().any(|code| code == "quota_exceeded") {
        return Some(Kind::Exhausted);
    }
    // The message first: some vendors have one code for all refusals.
    let told = body.message().and_then(|message| MESSAGES.iter().find(|(words, _)| message.starts_with(words)));
    let named = || body.codes().chain(body.reasons()).find_map(|code| CODES.iter().find(|(known, _)| *known == code));
    told.or_else(named).map(|(_, kind)| *kind)
}

fn by_status(vendor: Vendor, status: u16) -> Option<Kind> {
    match (status, vendor) {
        (429, _) => Some(Kind::Rate),
        (529, _) => Some(Kind::Busy),
        // RFC 9110, 15.6.4: overload or maintenance, for a while.
        (503, _) => Some(Kind::Busy),
        // "Flex Tier Capacity Exceeded": https://console.groq.com/docs/errors.
        (498, Vendor::Groq) => Some(Kind::Busy),
        _ => None,
    }
}
