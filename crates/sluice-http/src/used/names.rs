//! Where the objects of usage name their counts: of several names, the first that is there holds.

pub(super) const INPUT: &[&str] = &[
    "/prompt_tokens",    // OpenAI's chat and embeddings
    "/input_tokens",     // OpenAI's responses, Anthropic
    "/inputTokens",      // Bedrock
    "/promptTokenCount", // Google
    "/inputTokenCount",  // the last event of Bedrock's InvokeModelWithResponseStream
];

/// Google: "the number of tokens in the results from tool executions, which are provided back to the model as
/// input"
/// (<https://googleapis.github.io/js-genai/release_docs/classes/types.GenerateContentResponseUsageMetadata.html>),
/// beside `promptTokenCount`.
pub(super) const TOOL_INPUT: &[&str] = &["/toolUsePromptTokenCount"];

pub(super) const CACHE_READS: &[&str] = &[
    "/prompt_tokens_details/cached_tokens",
    "/input_tokens_details/cached_tokens",
    "/cache_read_input_tokens",
    "/cacheReadInputTokens",
    "/cacheReadInputTokenCount",
    "/cachedContentTokenCount",
    "/prompt_cache_hit_tokens", // DeepSeek: https://api-docs.deepseek.com/guides/kv_cache
];

pub(super) const CACHE_WRITES: &[&str] = &[
    "/prompt_tokens_details/cache_write_tokens", // OpenAI from GPT-5.6 on
    "/input_tokens_details/cache_write_tokens",
    "/cache_creation_input_tokens",
    "/cacheWriteInputTokens",
    "/cacheWriteInputTokenCount",
];

pub(super) const OUTPUT: &[&str] =
    &["/completion_tokens", "/output_tokens", "/outputTokens", "/candidatesTokenCount", "/outputTokenCount"];

pub(super) const REASONING: &[&str] = &[
    "/completion_tokens_details/reasoning_tokens",
    "/output_tokens_details/reasoning_tokens",
    "/thoughtsTokenCount",
];

pub(super) const TOTAL: &[&str] = &["/total_tokens"];
