//! What a reply used, in tokens.

use http::HeaderMap;
use serde_json::Value;

use crate::api::Api;

mod names;

use names::{CACHE_READS, CACHE_WRITES, INPUT, OUTPUT, REASONING, TOOL_INPUT, TOTAL};

/// What a call used, in tokens, counted in the same way for every API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Used {
    /// Input that was not read from a cache. It includes [`cache_writes`](Self::cache_writes), and the
    /// results of tools that the vendor itself ran. `None` if the vendor does not say.
    pub input: Option<u64>,
    /// Input that was read from a cache. Not part of [`input`](Self::input). 0 if the vendor does not say.
    pub cached: u64,
    /// The part of [`input`](Self::input) that was written to a cache. 0 if the vendor does not say.
    pub cache_writes: u64,
    /// All output, reasoning included. `None` if the vendor does not say, as for embeddings.
    pub output: Option<u64>,
    /// The part of [`output`](Self::output) that is reasoning. 0 if the vendor does not count it apart.
    pub reasoning: u64,
}

impl Used {
    /// Reads the object in which a reply of `api` states its usage: `usage`, or Google's `usageMetadata`.
    ///
    /// `None` if it states neither input nor output.
    #[must_use]
    pub fn of(api: Api, usage: &Value) -> Option<Self> {
        let mut counts = Counts::default();
        counts.apply(usage);
        counts.used(api)
    }
}

/// The most tokens that one call can use. Chosen with room: a mistaken count would be charged to the bucket.
/// A larger bound charges more of such a count; a smaller one ignores long calls.
const MOST_TOKENS: u64 = 20_000_000;

const fn is_plausible(count: &u64) -> bool {
    *count <= MOST_TOKENS
}

/// The counts as a vendor states them. Later ones replace earlier ones: each is a sum of the whole reply.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    input: Option<u64>,
    tool_input: Option<u64>,
    cache_reads: Option<u64>,
    cache_writes: Option<u64>,
    output: Option<u64>,
    reasoning: Option<u64>,
    total: Option<u64>,
}

impl Counts {
    /// The headers of Bedrock's `InvokeModel`, for models whose body says nothing. The input is without the
    /// cache, as in a body.
    pub(crate) fn of_headers(headers: &HeaderMap) -> Self {
        let count = |name| headers.get(name)?.to_str().ok()?.trim().parse().ok().filter(is_plausible);
        Self {
            input: count("x-amzn-bedrock-input-token-count"),
            output: count("x-amzn-bedrock-output-token-count"),
            cache_reads: count("x-amzn-bedrock-cache-read-input-token-count"),
            cache_writes: count("x-amzn-bedrock-cache-write-input-token-count"),
            ..Self::default()
        }
    }

    pub(crate) fn apply(&mut self, usage: &Value) {
        let stated =
            |names: &[&str]| names.iter().find_map(|name| usage.pointer(name)?.as_u64()).filter(is_plausible);
        self.input = stated(INPUT).or(self.input);
        self.tool_input = stated(TOOL_INPUT).or(self.tool_input);
        self.cache_reads = stated(CACHE_READS).or(self.cache_reads);
        self.cache_writes = stated(CACHE_WRITES).or(self.cache_writes);
        self.output = stated(OUTPUT).or(self.output);
        self.reasoning = stated(REASONING).or(self.reasoning);
        self.total = stated(TOTAL).or(self.total);
    }

    /// The counts of `api`, made the same for every API. `None` if neither input nor output is known.
    pub(crate) fn used(self, api: Api) -> Option<Used> {
        let used = Used {
            input: self.input_not_cached(api),
            cached: self.cache_reads.unwrap_or(0),
            cache_writes: self.cache_writes.unwrap_or(0),
            output: self.output_with_reasoning(api),
            reasoning: self.reasoning.unwrap_or(0),
        };
        (used.input.is_some() || used.output.is_some()).then_some(used)
    }

    fn input_not_cached(self, api: Api) -> Option<u64> {
        let input = self.input?;
        let own = if counts_cache_apart(api) {
            input.saturating_add(self.cache_writes.unwrap_or(0))
        } else {
            input.saturating_sub(self.cache_reads.unwrap_or(0))
        };
        Some(own.saturating_add(self.tool_input.unwrap_or(0)))
    }

    /// Google counts reasoning beside the output, and so does xAI, which its total shows
    /// (<https://docs.x.ai/docs/key-information/consumption-and-rate-limits>). All others count it as output.
    fn output_with_reasoning(self, api: Api) -> Option<u64> {
        let reasoning = self.reasoning.unwrap_or(0);
        let is_google = matches!(api, Api::GenerateContent | Api::StreamGenerateContent);
        let Some(output) = self.output else { return self.reasoning.filter(|_| is_google) };
        let sum = output.saturating_add(reasoning);
        let is_beside =
            || self.total.is_some() && self.total == self.input.map(|input| input.saturating_add(sum));
        Some(if is_google || is_beside() { sum } else { output })
    }
}

/// Anthropic (<https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching>: the input is the sum of
/// the three) and Bedrock (<https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html>) count
/// as input only what was neither read from a cache nor written to one. OpenAI and Google count all input.
const fn counts_cache_apart(api: Api) -> bool {
    matches!(api, Api::Messages | Api::Converse | Api::ConverseStream | Api::Invoke | Api::InvokeStream)
}
