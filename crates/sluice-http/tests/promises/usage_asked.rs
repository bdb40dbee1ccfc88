//! Asking a chat stream for its usage.

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_http::with_usage_asked;

use crate::said::exchange;

fn asked(body: &str) -> Option<String> {
    with_usage_asked(body.as_bytes()).map(|bytes| String::from_utf8(bytes).expect("text stays text"))
}

#[test]
fn the_option_is_added_at_the_end_and_all_else_stays() {
    let body = "{ \"stream\" : true,\r\n\t\"b\": [1.0, 1e3, \"}\"], \"a\":{ } }\n";
    let expected = "{ \"stream\" : true,\r\n\t\"b\": [1.0, 1e3, \"}\"], \"a\":{ } ,\"stream_options\":{\"include_usage\":true}}\n";
    assert_eq!(asked(body).as_deref(), Some(expected));
}

#[test]
fn other_options_stay() {
    let added = [
        (r#"{}"#, r#"{"include_usage":true}"#),
        (r#"{ }"#, r#"{ "include_usage":true}"#),
        (r#"null"#, r#"{"include_usage":true}"#),
        (r#"{"include_obfuscation": false}"#, r#"{"include_obfuscation": false,"include_usage":true}"#),
        (r#"{"a": {"include_usage": true}}"#, r#"{"a": {"include_usage": true},"include_usage":true}"#),
    ];
    for (before, after) in added {
        for body in [r#"{"stream": true, "stream_options": @}"#, r#" {"stream_options":@ , "stream":true}"#] {
            assert_eq!(asked(&body.replace('@', before)), Some(body.replace('@', after)), "{body} {before}");
        }
    }
}

#[test]
fn a_body_that_says_it_or_is_no_stream_or_is_not_understood_stays() {
    for body in [
        r#"{"stream": true, "stream_options": {"include_usage": true}}"#,
        r#"{"stream": true, "stream_options": {"include_usage": false}}"#,
        r#"{"stream": true, "stream_options": {}, "stream_options": {}}"#,
        r#"{"stream": true, "stream_options": 5}"#,
        r#"{"stream": false}"#,
        r#"{"stream": "true"}"#,
        r#"{"a": {"stream": true}}"#,
        r#"[{"stream": true}]"#,
        r#"{"stream": true"#,
        r#"{"stream": true} {}"#,
        r#"{"stream": true,}"#,
        "",
    ] {
        assert_eq!(asked(body), None, "{body}");
    }
}

#[test]
fn only_a_chat_stream_is_asked() {
    let body = r#"{"stream": true, "messages": []}"#;
    let of = |path| exchange(path, body).with_usage_asked(body.as_bytes());
    assert!(of("/v1/chat/completions").is_some());
    for path in ["/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/models"] {
        assert_eq!(of(path), None, "{path}");
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".*".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(".{0,8}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn every_stream_without_options_has_them_afterwards(fields in prop::collection::hash_map(".{0,12}", value(), 0..6), pretty: bool) {
        let mut body = Value::Object(fields.into_iter().collect());
        body["stream"] = json!(true);
        body.as_object_mut().expect("an object").remove("stream_options");
        let text = if pretty { serde_json::to_vec_pretty(&body) } else { serde_json::to_vec(&body) }.expect("JSON");
        let asked = with_usage_asked(&text).expect("a stream");
        prop_assert_eq!(with_usage_asked(&asked), None);
        let asked: Value = serde_json::from_slice(&asked).expect("still JSON");
        body["stream_options"] = json!({"include_usage": true});
        prop_assert_eq!(asked, body);
    }
}
