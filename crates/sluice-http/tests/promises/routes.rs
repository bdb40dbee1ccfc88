//! Which API a path speaks.

use http::Method;
use sluice_http::{Api, Route};

fn route(path: &str) -> Option<(Api, Option<String>)> {
    Route::of(&Method::POST, path).map(|route| (route.api, route.model))
}

#[test]
fn the_paths_of_vendors_that_serve_openais_apis_are_known() {
    for path in [
        "/v1/chat/completions",
        "/v1/chat/completions/",
        "/openai/v1/chat/completions",        // Groq, Azure OpenAI's newer API
        "/inference/v1/chat/completions",     // Fireworks
        "/api/v1/chat/completions",           // OpenRouter
        "/chat/completions",                  // DeepSeek
        "/v1beta/openai/chat/completions",    // Gemini
        "/v1/chat/completions?api-version=1", // any query
    ] {
        assert_eq!(route(path), Some((Api::ChatCompletions, None)), "{path}");
    }
    assert_eq!(route("/v1/responses"), Some((Api::Responses, None)));
    assert_eq!(route("/openai/responses?api-version=2025-04-01-preview"), Some((Api::Responses, None)));
    assert_eq!(route("/v1/embeddings"), Some((Api::Embeddings, None)));
    assert_eq!(route("/anthropic/v1/messages"), Some((Api::Messages, None)));
}

/// <https://learn.microsoft.com/en-us/azure/ai-foundry/openai/reference>.
#[test]
fn azures_path_names_the_deployment() {
    let path = "/openai/deployments/gpt-4o%20eu/chat/completions?api-version=2024-10-21";
    assert_eq!(route(path), Some((Api::ChatCompletions, Some("gpt-4o eu".into()))));
    let path = "/openai/deployments/small/embeddings";
    assert_eq!(route(path), Some((Api::Embeddings, Some("small".into()))));
}

/// <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html>: the model is its id
/// or its ARN, percent-encoded.
#[test]
fn bedrocks_path_names_the_model_encoded_or_not() {
    let id = Some("anthropic.claude-3-5-sonnet-20241022-v2:0".to_owned());
    assert_eq!(
        route("/model/anthropic.claude-3-5-sonnet-20241022-v2%3A0/converse"),
        Some((Api::Converse, id.clone()))
    );
    assert_eq!(
        route("/model/anthropic.claude-3-5-sonnet-20241022-v2:0/converse-stream"),
        Some((Api::ConverseStream, id))
    );
    let arn = "arn:aws:bedrock:us-east-1:111122223333:inference-profile/us.meta.llama3-2-1b";
    let encoded = arn.replace(':', "%3A").replace('/', "%2F");
    for written in [arn, &encoded] {
        assert_eq!(route(&format!("/model/{written}/invoke")), Some((Api::Invoke, Some(arn.into()))));
        let stream = format!("/model/{written}/invoke-with-response-stream");
        assert_eq!(route(&stream), Some((Api::InvokeStream, Some(arn.into()))));
    }
}

/// <https://ai.google.dev/api/generate-content>, and
/// <https://cloud.google.com/vertex-ai/generative-ai/docs/reference/rest/v1/projects.locations.publishers.models>.
#[test]
fn googles_path_names_the_model() {
    let model = Some("gemini-2.5-flash".to_owned());
    let gemini = "/v1beta/models/gemini-2.5-flash";
    let vertex = "/v1/projects/p/locations/us-central1/publishers/google/models/gemini-2.5-flash";
    for base in [gemini, vertex] {
        assert_eq!(route(&format!("{base}:generateContent")), Some((Api::GenerateContent, model.clone())));
        let stream = route(&format!("{base}:streamGenerateContent?alt=sse"));
        assert_eq!(stream, Some((Api::StreamGenerateContent, model.clone())));
    }
    let claude = "/v1/projects/p/locations/global/publishers/anthropic/models/claude-sonnet-4-5@20250929";
    let named = Some("claude-sonnet-4-5@20250929".to_owned());
    assert_eq!(route(&format!("{claude}:streamRawPredict")), Some((Api::Messages, named)));
}

#[test]
fn other_paths_and_methods_have_no_api() {
    for path in [
        "",
        "/",
        "/v1/models",
        "/v1/messages/count_tokens",
        "/v1/threads/thread_1/messages",
        "/v1/responses/resp_1",
        "/model/m/count-tokens",
        "/v1beta/models/gemini-2.5-flash:countTokens",
        "/v1/projects/p/locations/l/publishers/mistralai/models/m:rawPredict",
    ] {
        assert_eq!(route(path), None, "{path}");
    }
    assert_eq!(Route::of(&Method::GET, "/v1/chat/completions"), None);
}
