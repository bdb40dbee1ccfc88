//! The command as a person or a script meets it: the built program, against a sandbox that it serves itself.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn sluice() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SLUICE_") || name.starts_with("AWS_")) {
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
        let mut process =
            sluice().args(["sandbox", "--port", "0"]).args(options).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (mut printed, mut endpoint) = (Vec::new(), None);
        for line in lines.by_ref() {
            let line = line.unwrap();
            endpoint = endpoint.or_else(|| line.strip_prefix("export SLUICE_ENDPOINT_URL=").map(str::to_owned));
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
    assert_eq!((bucket["version"].as_i64(), bucket["tokens"].as_str()), (Some(1), Some("1")));
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

#[test]
fn applying_a_file_shows_the_difference_and_keeps_levels() {
    let limits = file("apply.toml", LIMITS);
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    sandbox.stdout(&["acquire", "openai#rpm"]);
    let again = sandbox.stdout(&["buckets", "apply", limits.to_str().unwrap()]);
    assert!(again.contains("= openai#rpm") && !again.contains('~'), "{again}");
    let raised = file("raised.toml", &LIMITS.replace("capacity = 2", "capacity = 50"));
    let dry = sandbox.json(&["buckets", "apply", "--dry-run", "--json", raised.to_str().unwrap()]);
    assert_eq!(dry[0]["change"], "changed");
    let changed = sandbox.stdout(&["buckets", "apply", raised.to_str().unwrap()]);
    assert!(changed.contains("~ openai#rpm") && changed.contains("-> 50 requests"), "{changed}");
    let bucket = sandbox.json(&["buckets", "show", "openai#rpm", "--json"]);
    assert_eq!(bucket["capacity"], "50");
    assert!(bucket["level"].as_str().unwrap().starts_with("1."), "{bucket}");
    let kind =
        LIMITS.replace("capacity = 2", "capacity = 70").replace("\"concurrent\"", "\"requests\"\nwindow = \"1m\"");
    let kind = file("kind.toml", &kind);
    let refused = sandbox.run(&["buckets", "apply", kind.to_str().unwrap()]);
    assert!(text(&refused.stderr).contains("cannot change from concurrent"), "{}", text(&refused.stderr));
    assert_eq!(sandbox.json(&["buckets", "show", "openai#rpm", "--json"])["capacity"], "50", "nothing was applied");
    let bad = file("bad.toml", &LIMITS.replace("\"1h\"", "\"soon\""));
    let output = sandbox.run(&["buckets", "apply", bad.to_str().unwrap()]);
    assert!(text(&output.stderr).contains("bad.toml:6: window = soon"), "{}", text(&output.stderr));
    assert_eq!(sandbox.stdout(&["buckets", "rm", "openai#rpm"]).trim(), "removed openai#rpm");
    let missing = sandbox.run(&["buckets", "rm", "openai#rpm"]);
    assert!(text(&missing.stderr).contains("no bucket openai#rpm"));
}

#[test]
fn an_acquire_says_granted_or_when_to_come_back() {
    let limits = file("acquire.toml", LIMITS);
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    assert!(sandbox.stdout(&["acquire", "openai#rpm=2"]).starts_with("granted openai#rpm"));
    let refused = sandbox.run(&["acquire", "openai#rpm", "--json"]);
    assert_eq!(refused.status.code(), Some(75), "EX_TEMPFAIL");
    let answer: Value = serde_json::from_str(&text(&refused.stdout)).unwrap();
    assert_eq!((answer["outcome"].as_str(), answer["reason"].as_str()), (Some("retry_in"), Some("exhausted")));
    assert!(answer["wait_seconds"].as_f64().unwrap() > 1_700.0);
    for (name, says) in [
        ("lease#x", "reserved"),
        ("openai#tpm", "no such bucket"),
        ("openai#rpm=0", "above 0"),
        ("openai#rpm=3", "capacity is 2"),
    ] {
        let output = sandbox.run(&["acquire", name]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(says), "{name}: {}", text(&output.stderr));
    }
}

#[test]
fn a_ticket_is_printed_and_redeemed_once() {
    let limits = file("ticket.toml", &LIMITS.replace("\"1h\"", "\"10s\""));
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    sandbox.stdout(&["acquire", "openai#rpm=2"]);
    let refused = sandbox.run(&["acquire", "openai#rpm", "--ticket-within", "1m", "--json"]);
    assert_eq!(refused.status.code(), Some(75), "EX_TEMPFAIL");
    let answer: Value = serde_json::from_str(&text(&refused.stdout)).unwrap();
    let ticket = answer["ticket"].as_str().unwrap();
    let early = sandbox.run(&["redeem", ticket]);
    assert_eq!(early.status.code(), Some(75));
    assert!(text(&early.stdout).contains(&format!("ticket {ticket}")), "{}", text(&early.stdout));
    wait_until("its start", || {
        let output = sandbox.run(&["redeem", ticket]);
        let told = text(&output.stdout);
        match output.status.code() {
            Some(75) => false,
            code => code == Some(0) && told.starts_with("granted openai#rpm") || panic!("{told}"),
        }
    });
    let again = sandbox.run(&["redeem", ticket, "--json"]);
    assert_eq!((again.status.code(), text(&again.stdout).contains("spent")), (Some(1), true));
    let bad = sandbox.run(&["redeem", "1.a.1.1.openai#rpm"]);
    assert_eq!(bad.status.code(), Some(2));
    assert!(text(&bad.stderr).contains("two digits to base 16"), "{}", text(&bad.stderr));
}

#[test]
fn a_limit_that_is_too_large_for_inline_leases_is_told_before_anything_is_applied() {
    let sandbox = Sandbox::start(&[]);
    let bucket = |name: &str, capacity| {
        format!("[[bucket]]\ndimension = \"{name}\"\ntype = \"concurrent\"\ncapacity = {capacity}\n")
    };
    let limits = file("inline.toml", &(bucket("a#concurrent", 5) + &bucket("b#concurrent", 1_000)));
    for options in [&["--dry-run"][..], &[]] {
        let arguments = [&["buckets", "apply", limits.to_str().unwrap()], options].concat();
        let refused = sandbox.command(&arguments).env("SLUICE_LEASES", "inline").output().unwrap();
        let said = text(&refused.stderr);
        assert!(!refused.status.success(), "{said}");
        for part in ["b#concurrent", "1000 calls at once", "200 at most", "SLUICE_LEASES=concurrent"] {
            assert!(said.contains(part), "{said}");
        }
        assert!(!sandbox.run(&["buckets", "show", "a#concurrent"]).status.success(), "nothing was applied");
    }
    sandbox.stdout(&["buckets", "apply", limits.to_str().unwrap()]);
}

#[test]
fn a_command_runs_inside_its_slot_and_its_exit_code_comes_back() {
    let limits = file("run.toml", LIMITS);
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    let slot = "elevenlabs#concurrent";
    assert_eq!(sandbox.run(&["run", slot, "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(sandbox.run(&["run", slot, "--", "kill -9 $$"]).status.code(), Some(137));
    let missing = sandbox.run(&["run", slot, "--", "/no/such/program", "x"]);
    assert!(text(&missing.stderr).contains("/no/such/program"));
    let mut holder = sandbox.command(&["run", slot, "--", "exec sleep 30"]).spawn().unwrap();
    wait_until("the lease of the holder", || sandbox.json(&["leases", "--json"]).as_array().unwrap().len() == 1);
    let lease = &sandbox.json(&["leases", "--json", "--dimension", slot])[0];
    assert_eq!((lease["dimension"].as_str(), lease["caller"].as_str()), (Some(slot), Some("sluice")));
    let table = sandbox.stdout(&["leases"]);
    assert!(
        table.contains("UNTIL") && table.contains("in ") && table.lines().all(|l| l.chars().count() <= 80),
        "{table}"
    );
    let refused = sandbox.run(&["run", "--wait", "300ms", slot, "--", "true"]);
    assert_eq!(refused.status.code(), Some(75));
    assert!(text(&refused.stderr).contains("no free slot"));
    Command::new("kill").arg(holder.id().to_string()).status().unwrap();
    assert_eq!(holder.wait().unwrap().code(), Some(143), "SIGTERM is passed on to the command");
    assert_eq!(sandbox.json(&["leases", "--json"]).as_array().unwrap().len(), 0, "and the slot is given back");
}

#[test]
fn a_killed_holders_slot_comes_back_by_a_sweep() {
    let limits = file("reconcile.toml", LIMITS);
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    let slot = "elevenlabs#concurrent";
    let mut holder = sandbox
        .command(&["acquire", slot, "--hold", "1m"])
        .env("SLUICE_LEASE_TTL", "1")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the lease of the holder", || sandbox.json(&["leases", "--json"]).as_array().unwrap().len() == 1);
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(sandbox.run(&["acquire", slot]).status.code(), Some(75));
    wait_until("a sweep that gives the slot back", || {
        sandbox.json(&["reconcile", "--once", "--json"])["restored"] == 1
    });
    sandbox.stdout(&["acquire", slot]);
}

/// Against a server that takes connections and never answers: a signal ends it in the middle, and not after the tries.
#[test]
fn a_sweep_that_is_under_way_hears_a_signal() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let mut command = sluice();
    command.env("SLUICE_ENV", "sandbox").env("SLUICE_ENDPOINT_URL", endpoint).env("SLUICE_MAX_RETRIES", "20");
    command.env("AWS_ACCESS_KEY_ID", "sandbox").env("AWS_SECRET_ACCESS_KEY", "sandbox");
    let mut sweeper = command.args(["reconcile", "--interval", "1s"]).stdout(Stdio::null()).spawn().unwrap();
    let _connection = listener.accept().unwrap();
    let began = Instant::now();
    Command::new("kill").arg(sweeper.id().to_string()).status().unwrap();
    assert!(sweeper.wait().unwrap().success(), "SIGTERM is a clean end");
    assert!(began.elapsed() < Duration::from_secs(10), "21 tries take longer");
    let refused = sluice().env("SLUICE_ENV", "sandbox").args(["reconcile", "--interval", "0s"]).output().unwrap();
    assert!(text(&refused.stderr).contains("one second at least"), "{}", text(&refused.stderr));
}

#[test]
fn a_penalty_is_told_and_refused_where_it_makes_no_sense() {
    let limits = file("penalize.toml", LIMITS);
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    let told = sandbox.stdout(&["penalize", "openai#rpm", "--factor", "0.5"]);
    assert!(told.starts_with("openai#rpm is at 1"), "{told}");
    for (arguments, says) in [
        (["penalize", "openai#rpm", "--factor=-1"], "between 0 and 1"),
        (["penalize", "elevenlabs#concurrent", "--factor=0.5"], "lower its capacity"),
    ] {
        let output = sandbox.run(&arguments);
        assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
}

#[test]
fn a_missing_or_bad_environment_is_told() {
    let error = |command: &mut Command| {
        let began = Instant::now();
        let output = command.args(["buckets", "list"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(began.elapsed() < Duration::from_secs(15), "bounded");
        text(&output.stderr)
    };
    assert!(error(&mut sluice()).contains("SLUICE_TABLE_NAME"));
    assert!(error(sluice().env("SLUICE_ENV", "live")).contains("sandbox, pre or prod"));
    let no_credentials = error(
        sluice()
            .env("SLUICE_ENV", "sandbox")
            .env("SLUICE_ENDPOINT_URL", "http://127.0.0.1:9")
            .env("HOME", "/nonexistent"),
    );
    assert!(no_credentials.contains("AWS_ACCESS_KEY_ID"), "{no_credentials}");
    let nobody = error(
        sluice()
            .env("SLUICE_ENV", "sandbox")
            .env("SLUICE_ENDPOINT_URL", "http://127.0.0.1:9")
            .env("AWS_ACCESS_KEY_ID", "x")
            .env("AWS_SECRET_ACCESS_KEY", "x"),
    );
    assert!(nobody.contains("unavailable") && nobody.contains("nothing was applied"), "{nobody}");
}

#[test]
fn a_reader_that_left_ends_the_program_quietly() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = sluice().args(["sandbox", "--port", "0"]).stdout(writer).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.contains("panicked")), (Some(141), false), "{said}");
}
