//! What a request asks for.

use http::Method;
use sluice_http::{Asked, Route, tokens_of};

use crate::said::exchange;

fn asked(path: &str, request: &str) -> Asked {
    exchange(path, request).asked().clone()
}

fn max_output(path: &str, request: &str) -> Option<u64> {
    asked(path, request).max_output
}

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const CONVERSE: &str = "/model/m/converse";
const GEMINI: &str = "/v1beta/models/m:generateContent";

#[test]
fn model_and_stream_come_from_the_body_or_the_path() {
    let chat = asked(CHAT, r#"{"model": "gpt-4o", "stream": true, "messages": []}"#);
    assert_eq!((chat.model.as_deref(), chat.stream), (Some("gpt-4o"), true));
    let azure = asked("/openai/deployments/mine/chat/completions", r#"{"model": "gpt-4o"}"#);
    assert_eq!((azure.model.as_deref(), azure.stream), (Some("mine"), false));
    let gemini = asked("/v1beta/models/gemini-2.5-flash:streamGenerateContent", "{}");
    assert_eq!((gemini.model.as_deref(), gemini.stream), (Some("gemini-2.5-flash"), true));
}

#[test]
fn the_most_output_is_found_under_every_name() {
    assert_eq!(max_output(CHAT, r#"{"max_tokens": 100}"#), Some(100));
    assert_eq!(max_output(CHAT, r#"{"max_completion_tokens": 100}"#), Some(100));
    assert_eq!(max_output("/v1/responses", r#"{"max_output_tokens": 100}"#), Some(100));
    assert_eq!(max_output(MESSAGES, r#"{"max_tokens": 100}"#), Some(100));
    assert_eq!(max_output(CONVERSE, r#"{"inferenceConfig": {"maxTokens": 100, "topP": 1}}"#), Some(100));
    assert_eq!(max_output(GEMINI, r#"{"generationConfig": {"maxOutputTokens": 100}}"#), Some(100));
    assert_eq!(max_output("/model/meta.llama3/invoke", r#"{"prompt": "Hi", "max_gen_len": 100}"#), Some(100));
    let titan = r#"{"inputText": "Hi", "textGenerationConfig": {"maxTokenCount": 100}}"#;
    assert_eq!(max_output("/model/amazon.titan/invoke", titan), Some(100));
    assert_eq!(max_output(CHAT, r#"{"messages": []}"#), None);
}

#[test]
fn several_choices_multiply_the_most_output() {
    assert_eq!(max_output(CHAT, r#"{"n": 3, "max_tokens": 100}"#), Some(300));
    assert_eq!(
        max_output(GEMINI, r#"{"generationConfig": {"candidateCount": 2, "maxOutputTokens": 100}}"#),
        Some(200)
    );
    assert_eq!(max_output(CHAT, r#"{"n": 0, "max_tokens": 100}"#), Some(100));
    assert_eq!(max_output(CHAT, r#"{"n": 18446744073709551615, "max_tokens": 100}"#), Some(u64::MAX));
}

#[test]
fn a_token_is_four_bytes_of_text() {
    assert_eq!([tokens_of(""), tokens_of("a"), tokens_of("abcd"), tokens_of("abcde")], [0, 1, 1, 2]);
    let words = "x ".repeat(2_000);
    let one = asked(CHAT, r#"{"messages": [{"role": "user", "content": ""}]}"#).input;
    let chat = asked(CHAT, &format!(r#"{{"messages": [{{"role": "user", "content": "{words}"}}]}}"#)).input;
    assert_eq!(chat - one, 1_000);
    // What a message costs beside its text: "role", "user" and "content", as OpenAI's own three or four
    // tokens.
    assert_eq!(one, 4);
}

#[test]
fn every_place_of_text_counts_once() {
    let text = "word ".repeat(400);
    let places = [
        (CHAT, r#"{"messages": [{"content": [{"type": "text", "text": "@"}]}]}"#),
        (CHAT, r#"{"tools": [{"function": {"description": "@"}}]}"#),
        ("/v1/responses", r#"{"input": "@"}"#),
        ("/v1/responses", r#"{"instructions": "@"}"#),
        ("/v1/embeddings", r#"{"input": ["@"]}"#),
        (MESSAGES, r#"{"system": [{"type": "text", "text": "@"}]}"#),
        (
            MESSAGES,
            r#"{"messages": [{"content": [{"type": "document", "source": {"type": "text", "data": "@"}}]}]}"#,
        ),
        (CONVERSE, r#"{"system": [{"text": "@"}]}"#),
        (CONVERSE, r#"{"toolConfig": {"tools": [{"toolSpec": {"description": "@"}}]}}"#),
        (GEMINI, r#"{"contents": [{"parts": [{"text": "@"}]}]}"#),
        (GEMINI, r#"{"systemInstruction": {"parts": [{"text": "@"}]}}"#),
        ("/model/m/invoke", r#"{"prompt": "@"}"#),
    ];
    for (path, request) in places {
        let with = asked(path, &request.replace('@', &text)).input;
        assert_eq!(with - asked(path, &request.replace('@', "")).input, 500, "{request}");
    }
    assert_eq!(asked(CHAT, &r#"{"metadata": {"note": "@"}, "user": "@"}"#.replace('@', &text)).input, 0);
}

#[test]
fn the_tokens_of_an_embedding_count_as_they_are() {
    assert_eq!(asked("/v1/embeddings", r#"{"input": [[1, 2, 3], [40000]]}"#).input, 4);
}

#[test]
fn media_count_as_a_flat_figure_however_long_they_are() {
    let base64 = "iVBORw0KGgoAAAANSUhEUgAA".repeat(10_000);
    let media = [
        (CHAT, r#"[{"type": "image_url", "image_url": {"url": "data:image/png;base64,@"}}]"#, 765),
        (CHAT, r#"[{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]"#, 765),
        (CHAT, r#"[{"type": "input_audio", "input_audio": {"data": "@", "format": "wav"}}]"#, 765),
        (CHAT, r#"[{"type": "file", "file": {"file_data": "data:application/pdf;base64,@"}}]"#, 765),
        (
            MESSAGES,
            r#"[{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "@"}}]"#,
            1_600,
        ),
        (CONVERSE, r#"[{"image": {"format": "png", "source": {"bytes": "@"}}}]"#, 1_600),
    ];
    for (path, content, flat) in media {
        let request = format!(r#"{{"messages": [{{"role": "user", "content": {content}}}]}}"#);
        let input = asked(path, &request.replace('@', &base64)).input;
        assert!((flat..flat + 40).contains(&input), "{content}: {input}");
    }
    let inline = r#"{"contents": [{"parts": [{"inlineData": {"mimeType": "image/png", "data": "@"}}]}]}"#;
    assert!((258..298).contains(&asked(GEMINI, &inline.replace('@', &base64)).input));
}

#[test]
fn signatures_count_as_nothing() {
    let signed = r#"{"messages": [{"content": [{"type": "thinking", "thinking": "Hm", "signature": "@"}]}]}"#;
    let input = |signature: &str| asked(MESSAGES, &signed.replace('@', signature)).input;
    assert_eq!(input(&"EqoBCkgIARAB".repeat(500)), input(""));
}

#[test]
fn a_caller_may_count_with_its_own_tokenizer() {
    let route = Route::of(&Method::POST, CHAT).expect("a known path");
    let mut texts = Vec::new();
    let mut count = |text: &str| {
        texts.push(text.to_owned());
        7
    };
    let request = br#"{"model": "m", "messages": [{"role": "user", "content": "Hello\u0021"}]}"#;
    assert_eq!(Asked::counted(&route, request, &mut count).input, 28);
    assert_eq!(texts, ["role", "user", "content", "Hello!"]);
}

#[test]
fn an_unknown_shape_gives_less_knowledge_and_no_error() {
    for request in [
        "",
        "null",
        "[]",
        "\"text\"",
        "{",
        "\u{feff}{}",
        r#"{"model": 4, "stream": "yes", "max_tokens": -1}"#,
    ] {
        assert_eq!(asked(CHAT, request), Asked::default(), "{request}");
    }
    let cut_off = r#"{"model": "gpt-4o", "max_tokens": 9, "messages": [{"role": "user", "content": "Hel"#;
    assert_eq!((asked(CHAT, cut_off).model.as_deref(), max_output(CHAT, cut_off)), (Some("gpt-4o"), Some(9)));
    let deep = format!(r#"{{"model": "m", "messages": {}"#, "[".repeat(100_000));
    assert_eq!(asked(CHAT, &deep).model.as_deref(), Some("m"));
    assert_eq!(asked("/v1/models", r#"{"model": "m"}"#), Asked::default());
}
