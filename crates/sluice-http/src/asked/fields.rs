//! The fields of a request's body at its top.

use std::borrow::Cow;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::prompt::{Prompt, Text};

/// The fields that say what is asked for, beside the prompt.
#[derive(Default)]
pub(super) struct Fields {
    pub(super) model: Option<String>,
    pub(super) stream: bool,
    limit: Option<u64>,
    choices: Option<u64>,
}

impl Fields {
    pub(super) fn max_output(&self) -> Option<u64> {
        self.limit.map(|limit| limit.saturating_mul(self.choices.unwrap_or(1).max(1)))
    }

    fn apply(&mut self, key: &str, value: &Value) {
        match key {
            "model" => self.model = value.as_str().map(str::to_owned),
            "stream" => self.stream = value == &Value::Bool(true),
            "n" | "candidateCount" | "candidate_count" => self.choices = value.as_u64(),
            _ if LIMITS.contains(&key) => self.limit = self.limit.max(value.as_u64()),
            _ => {
                let fields = value.as_object().into_iter().flatten();
                fields
                    .filter(|(_, value)| !value.is_object())
                    .for_each(|(key, value)| self.apply(key, value));
            }
        }
    }
}

/// The names of the most output tokens. A request names one; of two, the larger holds.
const LIMITS: &[&str] = &[
    // OpenAI's chat (the older first) and Anthropic's messages.
    "max_tokens",
    "max_completion_tokens",
    // OpenAI's responses.
    "max_output_tokens",
    // In `inferenceConfig` of Bedrock's Converse and of Amazon Nova, and in `generationConfig` of Google.
    "maxTokens",
    "maxOutputTokens",
    // Bedrock's `InvokeModel`, by model: Llama, Titan (in `textGenerationConfig`) and Claude 2.
    "max_gen_len",
    "maxTokenCount",
    "max_tokens_to_sample",
];

/// The objects that contain some of those names.
const CONFIGS: &[&str] =
    &["inferenceConfig", "generationConfig", "generation_config", "textGenerationConfig"];

/// The fields whose text becomes input.
const PROMPTS: &[&str] = &[
    "messages",
    "system",
    "tools",
    "functions",
    "response_format",
    // OpenAI's responses and embeddings.
    "input",
    "instructions",
    "text",
    // Google.
    "contents",
    "systemInstruction",
    "system_instruction",
    // Bedrock's Converse and `InvokeModel`: Llama, Titan, Cohere.
    "toolConfig",
    "prompt",
    "inputText",
    "texts",
];

/// Reads a request's body into its fields and its prompt.
pub(super) struct Request<'a, 'c> {
    pub(super) fields: &'a mut Fields,
    pub(super) prompt: &'a mut Prompt<'c>,
}

impl<'de> Visitor<'de> for Request<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the body of a request")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if PROMPTS.contains(&&*key) {
                map.next_value_seed(Text::of(&mut *self.prompt))?;
            } else if is_read(&key) {
                self.fields.apply(&key, &map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

fn is_read(key: &str) -> bool {
    matches!(key, "model" | "stream" | "n") || LIMITS.contains(&key) || CONFIGS.contains(&key)
}
