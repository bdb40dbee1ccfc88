//! Which API a request speaks, by its method and path. The host does not matter: many vendors serve the same
//! APIs.

use http::Method;
use percent_encoding::percent_decode_str;

/// An API of an LLM vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Api {
    /// OpenAI's chat completions, and those of every vendor that serves `.../chat/completions`
    /// (<https://platform.openai.com/docs/api-reference/chat>).
    ChatCompletions,
    /// OpenAI's responses (<https://platform.openai.com/docs/api-reference/responses>).
    Responses,
    /// OpenAI's embeddings (<https://platform.openai.com/docs/api-reference/embeddings>).
    Embeddings,
    /// Anthropic's messages (<https://docs.anthropic.com/en/api/messages>), on Vertex too.
    Messages,
    /// Amazon Bedrock's `Converse`
    /// (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html>).
    Converse,
    /// Amazon Bedrock's `ConverseStream`.
    ConverseStream,
    /// Amazon Bedrock's `InvokeModel`: the body is in the model's own format.
    Invoke,
    /// Amazon Bedrock's `InvokeModelWithResponseStream`.
    InvokeStream,
    /// Google's `generateContent`, of Gemini and Vertex (<https://ai.google.dev/api/generate-content>).
    GenerateContent,
    /// Google's `streamGenerateContent`.
    StreamGenerateContent,
}

impl Api {
    /// Whether it is an API of Amazon Bedrock.
    #[must_use]
    pub const fn is_of_bedrock(self) -> bool {
        matches!(self, Self::Converse | Self::ConverseStream | Self::Invoke | Self::InvokeStream)
    }

    /// Whether the path alone says that the reply is a stream. The other APIs say it in the body.
    #[must_use]
    pub const fn streams(self) -> bool {
        matches!(self, Self::ConverseStream | Self::InvokeStream | Self::StreamGenerateContent)
    }
}

/// An API, and the model if the path names it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// The API.
    pub api: Api,
    /// The model, percent-decoded: of Bedrock, Google, and the deployment of Azure OpenAI. The other APIs
    /// name the model in the body.
    pub model: Option<String>,
}

impl Route {
    /// Finds the API of a request. A query after `?` and a `/` at the end are ignored, and the path may begin
    /// with anything, as in `/openai/v1/chat/completions`.
    ///
    /// `None` for any other path or method: such a request still may count as one request.
    #[must_use]
    pub fn of(method: &Method, path: &str) -> Option<Self> {
        if method != Method::POST {
            return None;
        }
        let path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
        bedrock(path).or_else(|| google(path)).or_else(|| open_ai(path))
    }
}

/// Whether a `POST` to `path` is no call of a model. Vendors limit files, batches and the counting of tokens
/// apart, if at all (<https://platform.claude.com/docs/en/api/rate-limits>).
#[cfg(feature = "limiter")]
pub(crate) fn is_no_call(path: &str) -> bool {
    const PARTS: &[&str] = &["files", "uploads", "batches", "count_tokens", "count-tokens"];
    let path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
    // Google's: `/v1beta/models/{model}:countTokens`.
    let is_google = path.ends_with(":countTokens") || path.ends_with(":batchGenerateContent");
    let is_apart = || path.split('/').any(|part| PARTS.contains(&part));
    is_google || (is_apart() && Route::of(&Method::POST, path).is_none())
}

/// `/model/{id}/converse`. The id of an inference profile contains `/`, which some clients do not encode.
fn bedrock(path: &str) -> Option<Route> {
    let (_, rest) = path.split_once("/model/")?;
    let (model, operation) = rest.rsplit_once('/')?;
    let api = match operation {
        "converse" => Api::Converse,
        "converse-stream" => Api::ConverseStream,
        "invoke" => Api::Invoke,
        "invoke-with-response-stream" => Api::InvokeStream,
        _ => return None,
    };
    Some(Route { api, model: named(model) })
}

/// `/v1beta/models/{model}:generateContent`, and `.../publishers/{publisher}/models/{model}:{operation}` of
/// Vertex, where the models of Anthropic are called by `rawPredict`
/// (<https://cloud.google.com/vertex-ai/generative-ai/docs/partner-models/claude/use-claude>).
fn google(path: &str) -> Option<Route> {
    let (before, last) = path.rsplit_once('/')?;
    let (model, operation) = last.rsplit_once(':')?;
    let api = match operation {
        "generateContent" => Api::GenerateContent,
        "streamGenerateContent" => Api::StreamGenerateContent,
        "rawPredict" | "streamRawPredict" if before.ends_with("/publishers/anthropic/models") => {
            Api::Messages
        }
        _ => return None,
    };
    Some(Route { api, model: named(model) })
}

/// The paths of OpenAI, Azure OpenAI, Anthropic and of those who serve their APIs.
fn open_ai(path: &str) -> Option<Route> {
    const ENDS: &[(&str, Api)] = &[
        ("/chat/completions", Api::ChatCompletions),
        ("/responses", Api::Responses),
        ("/embeddings", Api::Embeddings),
        // A thread of OpenAI's assistants has messages too: /v1/threads/{id}/messages.
        ("/v1/messages", Api::Messages),
    ];
    let (end, api) = ENDS.iter().find(|(end, _)| path.ends_with(end))?;
    let model = path.strip_suffix(end).and_then(|base| base.rsplit_once("/deployments/"));
    Some(Route { api: *api, model: model.and_then(|(_, deployment)| named(deployment)) })
}

fn named(encoded: &str) -> Option<String> {
    let name = percent_decode_str(encoded).decode_utf8().ok()?;
    (!name.is_empty()).then(|| name.into_owned())
}
