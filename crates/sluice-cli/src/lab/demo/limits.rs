//! The limits of the demo's three vendors, the limits of the buckets, and the cost of a call.

use std::time::Duration;

use sluice_sdk::Client;
use sluice_sdk::core::{Amount, Cost, Dimension, Limit, LimitType, OnLowerLimit, Rate};

use crate::failure::Failure;

pub(crate) const TABLE: &str = "ontopix-vendor-buckets-demo";

/// The first vendor's API. Its limits are known exactly: it rejects no call that arrives in time.
pub(crate) const ANTHROPIC: Api = Api {
    path: "/anthropic",
    limits: &["anthropic#requests", "anthropic#tokens", "anthropic#concurrent"],
    starts_by: Some("anthropic#requests"),
    tokens: Some(TokensOfACall {
        limit: "anthropic#tokens",
        used: (50, 150),
        reserved: 150,
        counts: Counts::Used,
    }),
};

/// The second vendor's API. It allows less than the buckets grant, and even less later.
pub(crate) const OPENAI: Api = Api {
    path: "/openai",
    limits: &["openai#requests", "openai#tokens"],
    starts_by: None,
    tokens: Some(TokensOfACall {
        limit: "openai#tokens",
        used: (100, 300),
        reserved: 400,
        counts: Counts::Reserved,
    }),
};

/// The third vendor's API. It accepts fewer calls at once than the bucket grants, and is busy for a while.
pub(crate) const ELEVENLABS: Api =
    Api { path: "/elevenlabs", limits: &["elevenlabs#concurrent"], starts_by: None, tokens: None };

/// The three vendors, in the order of the output.
pub(crate) const APIS: [Api; 3] = [ANTHROPIC, OPENAI, ELEVENLABS];

/// The vendors' names, in the same order.
pub(crate) const NAMES: [&str; 3] = ["anthropic", "openai", "elevenlabs"];

/// The vendor of one kind of call, and the cost of a call.
#[derive(Clone, Copy)]
pub(crate) struct Api {
    pub(crate) path: &'static str,
    pub(crate) limits: &'static [&'static str],
    /// The limit whose starts are judged.
    pub(crate) starts_by: Option<&'static str>,
    pub(crate) tokens: Option<TokensOfACall>,
}

/// The tokens of a call.
#[derive(Clone, Copy)]
pub(crate) struct TokensOfACall {
    pub(crate) limit: &'static str,
    /// The fewest and the most tokens that a call really uses.
    pub(crate) used: (u32, u32),
    /// Tokens that are reserved before the use is known.
    pub(crate) reserved: u32,
    pub(crate) counts: Counts,
}

/// Which tokens of a call the vendor counts.
#[derive(Clone, Copy)]
pub(crate) enum Counts {
    /// Those that the call used: the rest of the reserved tokens goes back to the bucket.
    Used,
    /// Those that the call may use at most, as OpenAI does on arrival: nothing goes back.
    Reserved,
}

impl TokensOfACall {
    /// What the vendor counts of a call that used so many tokens.
    pub(crate) fn counted(&self, used: u32) -> u32 {
        match self.counts {
            Counts::Used => used,
            Counts::Reserved => self.reserved,
        }
    }
}

/// Anthropic counts calls and tokens in any window of this length. The callers are compared over one window:
/// without Sluice they may use all of it at once, and then get no more than with Sluice.
pub(crate) const WINDOW_SECS: u32 = 6;
/// Calls that the vendor accepts in a window.
pub(crate) const REQUESTS_PER_WINDOW: u32 = 360;
/// Tokens that the vendor accepts in a window.
pub(crate) const TOKENS_PER_WINDOW: u32 = 43_200;
/// Calls that the vendor accepts at once: one and a half times the callers of a process, so that the others
/// go on when one is killed.
pub(crate) const AT_ONCE: u32 = 24;

/// R = (N - C) / (W + j) of docs/buckets.md, with one clock: (360 - 2) / (6 s + 170 ms).
pub(crate) const REQUEST_BURST: u32 = 2;
pub(crate) const REQUEST_RATE: f64 = 58.0;
/// The j that this rate leaves room for.
pub(crate) const ARRIVES_WITHIN: Duration = Duration::from_millis(170);
/// Without settling, these would be used up by 43 calls a second.
const TOKEN_BURST: f64 = 3_000.0;
const TOKEN_RATE: f64 = 6_500.0;

/// OpenAI's limits are by the minute, and this many seconds' worth accumulate; in the demo, this time stands
/// for a minute.
pub(crate) const MINUTE_SECS: u32 = 3;
/// Calls a minute: what the bucket grants, and what the vendor accepts at first and after the drop.
pub(crate) const OPENAI_REQUESTS: Lowered = Lowered { configured: 1_200, at_first: 900, later: 600 };
/// Tokens a minute, as the vendor accepts: enough for the reserved tokens of all calls it accepts.
pub(crate) const OPENAI_TOKENS: u32 = 480_000;

/// Calls at once that the bucket of ElevenLabs grants, and calls that the vendor accepts.
pub(crate) const ELEVENLABS_CONFIGURED: u32 = 6;
pub(crate) const ELEVENLABS_AT_ONCE: u32 = 4;

/// A limit that differs from the assumed one.
#[derive(Clone, Copy)]
pub(crate) struct Lowered {
    pub(crate) configured: u32,
    pub(crate) at_first: u32,
    pub(crate) later: u32,
}

/// Applies the limits. The buckets of vendors that allow less adopt a lower limit from the headers.
pub(crate) async fn apply(client: &Client) -> Result<(), Failure> {
    let rate = |kind, burst: f64, rate: f64| -> Result<Limit, Failure> {
        Ok(Limit::rate(kind, burst.to_string().parse()?, rate.to_string().parse::<Rate>()?, Cost::ONE)?)
    };
    let by_the_minute = |kind, limit: u32| {
        let second = f64::from(limit) / 60.0;
        rate(kind, second * f64::from(MINUTE_SECS), second)
    };
    let at_once = |calls: u32| -> Result<Limit, Failure> {
        Ok(Limit::concurrent(Amount::from_tokens(i32::try_from(calls)?), Cost::ONE)?)
    };
    let report = |limit: Limit| (limit, OnLowerLimit::Report);
    let adopt = |limit: Limit| (limit, OnLowerLimit::Adopt { at_least: limit.default_floor() });
    let limits = [
        ("anthropic#requests", report(rate(LimitType::Requests, REQUEST_BURST.into(), REQUEST_RATE)?)),
        ("anthropic#tokens", report(rate(LimitType::Tokens, TOKEN_BURST, TOKEN_RATE)?)),
        ("anthropic#concurrent", report(at_once(AT_ONCE)?)),
        ("openai#requests", adopt(by_the_minute(LimitType::Requests, OPENAI_REQUESTS.configured)?)),
        ("openai#tokens", adopt(by_the_minute(LimitType::Tokens, OPENAI_TOKENS)?)),
        ("elevenlabs#concurrent", adopt(at_once(ELEVENLABS_CONFIGURED)?)),
    ];
    for (name, (limit, on_lower)) in limits {
        let dimension = Dimension::new(name)?;
        client.ops().apply_limit(&dimension, &limit).await?;
        client.ops().on_lower_limit(&dimension, on_lower).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_bucket_allows_and_what_may_arrive_late_fit_the_window() {
        let longest = f64::from(WINDOW_SECS) + ARRIVES_WITHIN.as_secs_f64();
        let calls = f64::from(REQUEST_BURST) + REQUEST_RATE * longest;
        assert!(
            calls <= f64::from(REQUESTS_PER_WINDOW) && calls > f64::from(REQUESTS_PER_WINDOW) - 1.0,
            "{calls}"
        );
        let tokens = TOKEN_BURST + TOKEN_RATE * longest;
        assert!(tokens <= f64::from(TOKENS_PER_WINDOW), "{tokens}");
    }
}
