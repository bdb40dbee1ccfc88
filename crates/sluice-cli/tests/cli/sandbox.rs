//! The sandbox.

use super::*;

#[test]
fn a_sandbox_prints_the_environment_and_its_buckets() {
    let sandbox = Sandbox::start(&[]);
    let printed = sandbox.printed.join("\n");
    for expected in ["export SLUICE_ENV=sandbox", "export AWS_ACCESS_KEY_ID=", "+ openai#rpm", "in memory"] {
        assert!(printed.contains(expected), "{expected}:\n{printed}");
    }
    let listed = sandbox.json(&["buckets", "list", "--json"]);
    assert_eq!(listed.as_array().unwrap().len(), 4);
    let table = sandbox.stdout(&["buckets", "list"]);
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert!(!table.contains('\u{1b}'), "no colour where there is no terminal");
}

#[test]
fn a_sandbox_stops_at_a_signal_and_keeps_a_file() {
    let data = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sandbox.db");
    let _ = std::fs::remove_file(&data);
    let limits = file("kept.toml", LIMITS);
    let options = ["--data", data.to_str().unwrap(), "--buckets", limits.to_str().unwrap()];
    let mut first = Sandbox::start(&options);
    first.stdout(&["acquire", "openai#rpm"]);
    Command::new("kill").arg(first.process.id().to_string()).status().unwrap();
    assert!(first.process.wait().unwrap().success(), "SIGTERM is a clean end");
    let second = Sandbox::start(&options);
    let bucket = second.json(&["buckets", "show", "openai#rpm", "--json"]);
    assert_eq!((bucket["version"].as_i64(), bucket["tokens"].as_i64()), (Some(1), Some(1)));
}

/// Two engines on one file would not see each other's writes.
#[test]
fn a_data_file_belongs_to_one_sandbox() {
    let data = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("one.db");
    let options = ["--data", data.to_str().unwrap()];
    let mut first = Sandbox::start(&options);
    let second = sluice().args(["sandbox", "--port", "0"]).args(options).output().unwrap();
    let error = text(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{error}");
    assert!(
        error.contains("one.db is in use by another `sluice sandbox`") && error.contains("--data"),
        "{error}"
    );
    // However the first ends, its lock ends with it.
    first.process.kill().unwrap();
    first.process.wait().unwrap();
    drop(Sandbox::start(&options));
}

#[test]
fn a_data_file_in_a_folder_that_is_not_there_is_named_with_what_to_do() {
    let output =
        sluice().args(["sandbox", "--port", "0", "--data", "/no/such/folder/one.db"]).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("/no/such/folder/one.db cannot be used") && error.contains("a folder that exists"),
        "{error}"
    );
}

#[test]
fn a_data_file_of_another_program_is_left_alone() {
    let data = file("run.ndjson", "{\"event\":\"granted\"}\n");
    let lock = data.with_extension("ndjson.lock");
    let _ = std::fs::remove_file(&lock);
    let output =
        sluice().args(["sandbox", "--port", "0", "--data", data.to_str().unwrap()]).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("run.ndjson is not a file of `sluice sandbox`: name one that it created"),
        "{error}"
    );
    assert!(!error.contains("database") && !lock.exists(), "{error}");
}

#[test]
fn a_busy_port_is_told_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = sluice().args(["sandbox", "--port", &port]).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains(&port) && error.contains("in use") && error.contains("--port"), "{error}");
}

/// As the packages of OpenAI and Anthropic call them.
#[test]
fn the_sandbox_serves_vendors_that_refuse_above_their_limits() {
    let sandbox = Sandbox::start(&["--vendors"]);
    let url = |name: &str| {
        let printed = sandbox.printed.iter().find_map(|line| line.strip_prefix(&format!("export {name}=")));
        printed.unwrap_or_else(|| panic!("{name} is not printed: {:?}", sandbox.printed)).to_owned()
    };
    let body = r#"{"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "Hello"}]}"#;
    let streamed = body.replacen('{', r#"{"stream": true, "stream_options": {"include_usage": true}, "#, 1);
    let (openai, anthropic) = (url("OPENAI_BASE_URL"), url("ANTHROPIC_BASE_URL"));
    let (chat, messages) = (format!("{openai}/chat/completions"), format!("{anthropic}/v1/messages"));
    for (address, body, expected) in [
        (&chat, body, r#""total_tokens":"#),
        (&chat, &streamed, "data: [DONE]"),
        (&messages, body, r#""output_tokens":"#),
        (&messages, &streamed, "event: message_stop"),
    ] {
        let reply = post(address, body);
        assert!(reply.starts_with("HTTP/1.1 200") && reply.contains(expected), "{address}: {reply}");
        assert!(reply.contains("ratelimit-"), "{reply}");
    }
    let large = body.replace("50", "25000");
    let refused = post(&chat, &large);
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("retry-after: 1"), "{refused}");
    assert!(refused.contains(r#""type":"tokens","code":"rate_limit_exceeded""#), "{refused}");
    let nothing = body.replacen('{', r#"{"stream": null, "stream_options": null, "#, 1).replace("50", "null");
    let reply = post(&chat, &nothing);
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    let buckets = sandbox.stdout(&["buckets", "list"]);
    assert!(buckets.contains("anthropic#concurrent") && buckets.contains("openai#tpm"), "{buckets}");
}

/// Sends a request, and returns all that comes back.
fn post(url: &str, body: &str) -> String {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /{path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}
