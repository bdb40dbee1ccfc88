//! What a request asks for, read from its JSON body.

use serde::Deserializer as _;

use crate::api::{Api, Route};

mod fields;
mod prompt;

/// What a request asks for. What the body does not say stays `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Asked {
    /// The model: the path's, else the body's.
    pub model: Option<String>,
    /// Whether the reply is a stream.
    pub stream: bool,
    /// The most output tokens that the reply may have: the limit of one choice, times the choices asked for.
    pub max_output: Option<u64>,
    /// An estimate of the input tokens. See [`Asked::of`].
    pub input: u64,
}

impl Asked {
    /// Reads a request. A body that is not JSON, or is cut off, gives what stands before the fault.
    ///
    /// Input is estimated from the messages, the system prompt, the tools and the format of the reply:
    /// [`tokens_of`] for each text in them and for each name of a field (which covers what a vendor adds for
    /// each message), and one token for each number (an embedding's input may be tokens).
    ///
    /// Images, audio and files are not counted by their length: each counts as one image. Anthropic states
    /// about 1,600 tokens for a large one before Claude Opus 4.7
    /// (<https://docs.anthropic.com/en/docs/build-with-claude/vision>), OpenAI 765 for 1024 x 1024 pixels
    /// (<https://platform.openai.com/docs/guides/images-vision>), Google 258 for a small one or for each tile
    /// (<https://ai.google.dev/gemini-api/docs/tokens>). A long recording or document uses more than that.
    /// Signatures and encrypted reasoning count as nothing.
    #[must_use]
    pub fn of(route: &Route, body: &[u8]) -> Self {
        Self::counted(route, body, &mut tokens_of)
    }

    /// As [`Asked::of`], but `count` returns the tokens of each text, for example with the model's own
    /// tokenizer.
    #[must_use]
    pub fn counted(route: &Route, body: &[u8], count: &mut dyn FnMut(&str) -> u64) -> Self {
        let mut fields = fields::Fields::default();
        let mut prompt = prompt::Prompt { tokens: 0, media_tokens: media_tokens(route.api), count };
        let visitor = fields::Request { fields: &mut fields, prompt: &mut prompt };
        // A fault ends the reading, and what was read before it stays.
        let _ = serde_json::Deserializer::from_slice(body).deserialize_map(visitor);
        Self {
            input: prompt.tokens,
            max_output: fields.max_output(),
            stream: fields.stream || route.api.streams(),
            model: route.model.clone().or(fields.model),
        }
    }
}

/// An estimate of the tokens of a text: one for every four bytes, rounded up.
///
/// OpenAI names four characters for English text
/// (<https://help.openai.com/en/articles/4936856-what-are-tokens-and-how-to-count-them>). Bytes of UTF-8 are
/// the same for English, and are nearer to the truth for other scripts: one Chinese character is about one
/// token, not a quarter.
#[must_use]
pub fn tokens_of(text: &str) -> u64 {
    u64::try_from(text.len().div_ceil(4)).unwrap_or(u64::MAX)
}

/// The tokens of one image: see [`Asked::of`].
const fn media_tokens(api: Api) -> u64 {
    match api {
        Api::ChatCompletions | Api::Responses | Api::Embeddings => 765,
        Api::Messages | Api::Converse | Api::ConverseStream | Api::Invoke | Api::InvokeStream => 1_600,
        Api::GenerateContent | Api::StreamGenerateContent => 258,
    }
}
