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
fn a_busy_port_is_told_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = sluice().args(["sandbox", "--port", &port]).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains(&port) && error.contains("in use") && error.contains("--port"), "{error}");
}
