//! The command as a person or a script meets it: the built program, against a sandbox that it serves itself.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

mod buckets;
mod calls;
mod clock;
mod dashboard;
mod help;
mod operations;
mod rules;
mod sandbox;
mod watch;

fn sluice() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    for (name, _) in
        std::env::vars().filter(|(name, _)| name.starts_with("SLUICE_") || name.starts_with("AWS_"))
    {
        command.env_remove(name);
    }
    command.env("AWS_EC2_METADATA_DISABLED", "true").stdin(Stdio::null());
    command
}

/// A sandbox on a free port. Dropped, it is killed.
struct Sandbox {
    process: Child,
    endpoint: String,
    printed: Vec<String>,
}

impl Sandbox {
    fn start(options: &[&str]) -> Self {
        Self::at("0", options)
    }

    fn at(port: &str, options: &[&str]) -> Self {
        let mut process =
            sluice().args(["sandbox", "--port", port]).args(options).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (mut printed, mut endpoint) = (Vec::new(), None);
        for line in lines.by_ref() {
            let line = line.unwrap();
            endpoint =
                endpoint.or_else(|| line.strip_prefix("export SLUICE_ENDPOINT_URL=").map(str::to_owned));
            let ready = line.starts_with("Ctrl-C");
            printed.push(line);
            if ready {
                break;
            }
        }
        // What it prints while stopping must find a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, endpoint: endpoint.expect("the sandbox prints its endpoint"), printed }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = sluice();
        command.env("SLUICE_ENV", "sandbox").env("SLUICE_ENDPOINT_URL", &self.endpoint);
        command.env("AWS_ACCESS_KEY_ID", "sandbox").env("AWS_SECRET_ACCESS_KEY", "sandbox").args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn stdout(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Sets a text of a row, past all of Sluice, as any client of the table could.
    fn set(&self, key: &str, attribute: &str, text: &str) {
        let body = serde_json::json!({
            "TableName": "ontopix-vendor-buckets-sandbox",
            "Key": { "vendor_dimension": { "S": key } },
            "UpdateExpression": "SET #name = :value",
            "ExpressionAttributeNames": { "#name": attribute },
            "ExpressionAttributeValues": { ":value": { "S": text } },
        });
        let (body, address) = (body.to_string(), self.endpoint.strip_prefix("http://").unwrap());
        let mut stream = TcpStream::connect(address).unwrap();
        let signature =
            "AWS4-HMAC-SHA256 Credential=a/20260101/b/dynamodb/aws4_request, SignedHeaders=host, Signature=0";
        let head = format!(
            "POST / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\nAuthorization: {signature}\r\n\
             X-Amz-Date: 20260101T000000Z\r\nX-Amz-Target: DynamoDB_20120810.UpdateItem\r\n\
             Content-Type: application/x-amz-json-1.0\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.stdout(arguments)).unwrap()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a command on a terminal, which `script` gives it, and types. What it writes is all in `stdout`.
#[cfg(target_os = "linux")]
fn on_a_terminal(command: &Command, typed: &str) -> Output {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect::<Vec<_>>().join(" ");
    let mut terminal = Command::new("script");
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => terminal.env(name, value),
            None => terminal.env_remove(name),
        };
    }
    terminal.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut terminal = terminal.spawn().expect("`script`, of util-linux");
    terminal.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    terminal.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file of its own for each test.
fn file(name: &str, content: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::File::create(&path).unwrap().write_all(content.as_bytes()).unwrap();
    path
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "waited for: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

const LIMITS: &str = r#"
[[bucket]]
dimension = "openai#rpm"
type = "requests"
capacity = 2
window = "1h"

[[bucket]]
dimension = "elevenlabs#concurrent"
type = "concurrent"
capacity = 1
"#;
