//! What calls take and what they used, as each vendor counts. The page of each is named in its profile.

use http::StatusCode;
use sluice_core::Amount;
use sluice_http::{Asked, Costs, Exchange, Replied, UNSTATED_OUTPUT};
use sluice_vendors::{Quota, Vendors};

use crate::said::{JSON, exchange, of_type, read};

const CLAUDE_4: &str = "us.anthropic.claude-sonnet-4-20250514-v1:0";

fn costs(vendor: &str, model: &str) -> Costs<'static> {
    Costs::of(Vendors::builtin().named(vendor).expect("the vendor is known"), model)
}

/// A request with this input, and the most output that it allows.
fn asked(input: u64, max_output: Option<u64>) -> Asked {
    let mut asked = Asked::default();
    asked.input = input;
    asked.max_output = max_output;
    asked
}

fn replied(exchange: &Exchange, body: &str) -> Replied {
    read(exchange, StatusCode::OK, &of_type(JSON), body.as_bytes())
}

fn tokens(amount: i32) -> Option<Amount> {
    Some(Amount::from_tokens(amount))
}

/// <https://docs.aws.amazon.com/bedrock/latest/userguide/quotas-token-burndown.html>: the input and `max_tokens` are taken
/// when the call arrives, and at its end the input, what was written to the cache, and the output times the
/// model's rate.
#[test]
fn bedrock_reserves_max_tokens_as_they_are_and_counts_output_fivefold() {
    let costs = costs("bedrock", CLAUDE_4);
    let taken = costs.reserve(Quota::Tokens, &asked(1_000, Some(4_000)), None);
    assert_eq!(taken, tokens(5_000));
    let exchange = exchange("/model/m/converse", "{}");
    let body = r#"{"stopReason": "end_turn", "usage": {"inputTokens": 1000, "outputTokens": 100,
        "cacheReadInputTokens": 20000, "cacheWriteInputTokens": 300, "totalTokens": 21400}}"#;
    let reply = replied(&exchange, body);
    assert_eq!(costs.used(Quota::Tokens, &reply, Amount::from_tokens(5_000)), tokens(1_000 + 300 + 5 * 100));
    let body = r#"{"stopReason": "max_tokens", "usage": {"inputTokens": 1000, "outputTokens": 4000, "totalTokens": 5000}}"#;
    let whole = replied(&exchange, body);
    let used = costs.used(Quota::Tokens, &whole, Amount::from_tokens(5_000));
    assert_eq!(used, tokens(21_000), "more than was taken: the rest is charged at the end");
}

#[test]
fn a_call_that_will_cost_more_than_its_vendor_reserves_takes_what_it_will_cost() {
    let costs = costs("bedrock", CLAUDE_4);
    let taken = |likely| costs.reserve(Quota::Tokens, &asked(1_000, Some(4_000)), Some(likely));
    assert_eq!(taken(100), tokens(5_000), "the vendor takes that much at first");
    assert_eq!(taken(2_000), tokens(11_000));
    assert_eq!(taken(9_000), tokens(21_000), "no output is above max_tokens");
    let unstated = costs.reserve(Quota::Tokens, &asked(1_000, None), None);
    assert_eq!(
        unstated,
        Some(Amount::from_tokens(1_000).plus(UNSTATED_OUTPUT.to_string().parse().expect("a number")))
    );
}

#[test]
fn bedrocks_rate_is_that_of_the_model() {
    let body = r#"{"usage": {"inputTokens": 10, "outputTokens": 100, "totalTokens": 110}}"#;
    let reply = replied(&exchange("/model/m/converse", "{}"), body);
    let used = |model| costs("bedrock", model).used(Quota::Tokens, &reply, Amount::ZERO);
    assert_eq!(used("global.anthropic.claude-opus-4-8"), tokens(1_510));
    assert_eq!(used("anthropic.claude-opus-5"), tokens(1_010));
    assert_eq!(used("amazon.nova-pro-v1:0"), tokens(110));
    let nova = costs("bedrock", "amazon.nova-pro-v1:0");
    assert_eq!(nova.reserve(Quota::Tokens, &asked(10, Some(100)), Some(20)), tokens(110));
}

/// <https://platform.claude.com/docs/en/api/rate-limits>: output counts as it is made, and `max_tokens` does not matter.
#[test]
fn anthropic_counts_output_as_it_is_made() {
    let costs = costs("anthropic", "claude-sonnet-4-6");
    let taken = |quota, likely| costs.reserve(quota, &asked(1_000, Some(64_000)), likely);
    assert_eq!(taken(Quota::OutputTokens, Some(500)), tokens(500));
    assert_eq!(taken(Quota::InputTokens, Some(500)), tokens(1_000));
    assert_eq!(taken(Quota::OutputTokens, None), tokens(64_000), "nothing is known of such calls yet");
}

/// <https://ai.google.dev/gemini-api/docs/rate-limits>: "Tokens per minute (input) (TPM)".
#[test]
fn geminis_tokens_a_minute_are_input() {
    let costs = costs("gemini", "gemini-2.5-flash");
    assert_eq!(costs.reserve(Quota::Tokens, &asked(1_000, Some(8_000)), Some(500)), tokens(1_000));
    let exchange = exchange("/v1beta/models/m:generateContent", "{}");
    let body = r#"{"usageMetadata": {"promptTokenCount": 900, "candidatesTokenCount": 300, "totalTokenCount": 1200},
        "candidates": [{"finishReason": "STOP"}]}"#;
    let reply = replied(&exchange, body);
    assert_eq!(costs.used(Quota::Tokens, &reply, Amount::from_tokens(1_000)), tokens(900));
}
