//! Where the replies of each API say what is looked for.

use crate::api::Api;
use crate::json_scan::Want;

/// What a value in a reply is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// Usage, as the API counts it.
    Usage,
    /// Usage in the last event of a stream.
    LastUsage,
    /// Why the model stopped.
    StopReason,
    /// The kind of an event.
    Kind,
    /// An error.
    Error,
    /// The code of an error that stands at the top of an event.
    Code,
    /// The message of such an error.
    Message,
}

pub(super) const fn wanted(api: Option<Api>) -> &'static [Want<Field>] {
    match api {
        None => &[],
        Some(Api::ChatCompletions) => CHAT,
        Some(Api::Responses) => RESPONSES,
        Some(Api::Embeddings) => EMBEDDINGS,
        Some(Api::Messages) => MESSAGES,
        Some(Api::Converse) => CONVERSE,
        Some(Api::ConverseStream) => CONVERSE_STREAM,
        Some(Api::Invoke | Api::InvokeStream) => INVOKE,
        Some(Api::GenerateContent | Api::StreamGenerateContent) => GOOGLE,
    }
}

/// <https://platform.openai.com/docs/api-reference/chat-streaming>. Groq's stream has its usage in `x_groq`
/// (<https://console.groq.com/docs/api-reference>), Moonshot's in the last choice
/// (<https://platform.moonshot.ai/docs/api/chat>).
const CHAT: &[Want<Field>] = &[
    (&["usage"], Field::Usage),
    (&["x_groq", "usage"], Field::Usage),
    (&["choices", "*", "usage"], Field::Usage),
    (&["choices", "*", "finish_reason"], Field::StopReason),
    (&["error"], Field::Error),
];

/// <https://platform.openai.com/docs/api-reference/responses-streaming>. The documented error has its fields
/// at the top of the event, the real one an object
/// (<https://community.openai.com/t/responses-bug-error-event-shape-is-wrong-between-documentation-and-sdks-and-reality/1358301>).
const RESPONSES: &[Want<Field>] = &[
    (&["usage"], Field::Usage),
    (&["response", "usage"], Field::Usage),
    (&["incomplete_details", "reason"], Field::StopReason),
    (&["response", "incomplete_details", "reason"], Field::StopReason),
    (&["error"], Field::Error),
    (&["response", "error"], Field::Error),
    (&["type"], Field::Kind),
    (&["code"], Field::Code),
    (&["message"], Field::Message),
];

const EMBEDDINGS: &[Want<Field>] = &[(&["usage"], Field::Usage), (&["error"], Field::Error)];

/// <https://docs.anthropic.com/en/docs/build-with-claude/streaming>.
const MESSAGES: &[Want<Field>] = &[
    (&["usage"], Field::Usage),
    (&["message", "usage"], Field::Usage),
    (&["stop_reason"], Field::StopReason),
    (&["delta", "stop_reason"], Field::StopReason),
    (&["error"], Field::Error),
    (&["type"], Field::Kind),
];

/// <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html>.
const CONVERSE: &[Want<Field>] = &[(&["usage"], Field::Usage), (&["stopReason"], Field::StopReason)];

/// The last event is `metadata`
/// (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStreamMetadataEvent.html>).
const CONVERSE_STREAM: &[Want<Field>] =
    &[(&["usage"], Field::LastUsage), (&["stopReason"], Field::StopReason)];

/// By the format of the model: Claude, Nova, Mistral and models that write OpenAI's format. The last event of
/// every model's stream has `amazon-bedrock-invocationMetrics`, whose input is without the cache
/// (<https://github.com/BerriAI/litellm/pull/36878>).
const INVOKE: &[Want<Field>] = &[
    (&["usage"], Field::Usage),
    (&["message", "usage"], Field::Usage),
    (&["amazon-bedrock-invocationMetrics"], Field::LastUsage),
    (&["stop_reason"], Field::StopReason),
    (&["delta", "stop_reason"], Field::StopReason),
    (&["stopReason"], Field::StopReason),
    (&["messageStop", "stopReason"], Field::StopReason),
    (&["metadata", "usage"], Field::Usage),
    (&["outputs", "*", "stop_reason"], Field::StopReason),
    (&["choices", "*", "stop_reason"], Field::StopReason),
    (&["choices", "*", "finish_reason"], Field::StopReason),
    (&["error"], Field::Error),
    (&["type"], Field::Kind),
];

/// <https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse>. A blocked prompt has no
/// candidates.
const GOOGLE: &[Want<Field>] = &[
    (&["usageMetadata"], Field::Usage),
    (&["candidates", "*", "finishReason"], Field::StopReason),
    (&["promptFeedback", "blockReason"], Field::StopReason),
    (&["error"], Field::Error),
];
