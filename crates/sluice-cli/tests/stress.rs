//! `sluice stress` and `sluice history`, as a person runs them: the built program, against a sandbox that it
//! serves itself.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const LIMITS: &str = r#"
[[bucket]]
dimension = "openai#rpm"
type = "requests"
capacity = 5
refill_rate = 40

[[bucket]]
dimension = "anthropic#rpm"
type = "requests"
capacity = 10
refill_rate = 40
shares = { search = 0.5 }

[[bucket]]
dimension = "elevenlabs#concurrent"
type = "concurrent"
capacity = 3
"#;

fn sluice(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    for (name, _) in
        std::env::vars().filter(|(name, _)| name.starts_with("SLUICE_") || name.starts_with("AWS_"))
    {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A sandbox on a free port. Dropped, it is killed.
struct Sandbox {
    process: Child,
    endpoint: String,
}

impl Sandbox {
    fn start(name: &str) -> Self {
        let limits = path(&format!("{name}.toml"));
        std::fs::write(&limits, LIMITS).unwrap();
        let mut command = sluice(&["sandbox", "--port", "0", "--buckets", limits.to_str().unwrap()]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        let endpoint = lines
            .by_ref()
            .find_map(|line| line.strip_prefix("export SLUICE_ENDPOINT_URL=").map(str::to_owned));
        lines.find(|line| line.starts_with("Ctrl-C")).expect("the sandbox is ready");
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, endpoint: endpoint.expect("the sandbox prints its endpoint") }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = sluice(arguments);
        command.env("SLUICE_ENV", "sandbox").env("SLUICE_ENDPOINT_URL", &self.endpoint);
        command.env("AWS_ACCESS_KEY_ID", "sandbox").env("AWS_SECRET_ACCESS_KEY", "sandbox");
        command
    }

    /// The figures of two seconds of two processes on `dimensions`.
    fn stress(&self, dimensions: &[&str], history: &Path) -> Value {
        let options = ["--workers", "4", "--processes", "2", "--for", "2", "--json", "--history"];
        let arguments = [&["stress"], dimensions, &options, &[history.to_str().unwrap()]].concat();
        let output = self.command(&arguments).output().unwrap();
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
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

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn judged(files: &[&Path]) -> Output {
    let mut command = sluice(&["history"]);
    command.args(files).output().unwrap()
}

fn lines(history: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(history).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The history with other lines and an end that counts them, in a file of its own.
fn doctored(history: &Path, name: &str, lines: &[Value]) -> PathBuf {
    let mut lines: Vec<Value> = lines.iter().filter(|line| line["event"] != "end").cloned().collect();
    lines.push(serde_json::json!({ "event": "end", "events": lines.len() }));
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let file = history.with_file_name(name);
    std::fs::write(&file, text).unwrap();
    file
}

/// That it fails, and what it says.
fn failure(history: &Path) -> String {
    let output = judged(&[history]);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}");
    told
}

/// Waits until a process has written something.
fn wait_for_parts(part: &Path) {
    let until = Instant::now() + Duration::from_secs(20);
    while std::fs::metadata(part).map_or(0, |part| part.len()) == 0 {
        assert!(Instant::now() < until, "the processes write");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_rate_bucket_under_stress_keeps_its_bound_and_one_grant_too_many_is_found() {
    let (sandbox, history) = (Sandbox::start("stress-rate"), path("stress-rate.ndjson"));
    let figures = sandbox.stress(&["openai#rpm"], &history);
    let grants = figures["grants"].as_u64().unwrap();
    assert!(grants > 0 && figures["refusals"].as_u64().unwrap() > 0 && figures["errors"] == 0, "{figures}");
    assert_eq!(figures["verdict"]["grants"], grants);
    let told = judged(&[&history]);
    assert!(told.status.success(), "{}", text(&told.stdout));
    let table = text(&told.stdout);
    assert!(
        table.contains("every promise was kept") && table.lines().all(|line| line.chars().count() <= 80),
        "{table}"
    );
    let parts = std::fs::read_dir(history.parent().unwrap()).unwrap();
    let left = parts.filter(|file| {
        text(file.as_ref().unwrap().file_name().as_encoded_bytes()).starts_with("stress-rate.ndjson.")
    });
    assert_eq!(left.count(), 0, "the parts are deleted");

    let mut lines = lines(&history);
    let processes: std::collections::BTreeSet<_> =
        lines.iter().filter_map(|line| line["process"].as_str()).collect();
    assert_eq!(processes.len(), 2, "both processes were granted something");
    let counted = |event: &str| lines.iter().filter(|line| line["event"] == event).count() as u64;
    assert_eq!((counted("granted"), counted("released")), (grants, grants), "a release of each");
    assert_eq!((counted("refused"), counted("end")), (figures["refusals"].as_u64().unwrap(), 1));
    let mut more = lines.iter().rfind(|line| line["event"] == "granted").unwrap().clone();
    (more["id"], more["cost_micros"]) = ("one-too-many".into(), 5_000_001.into());
    lines.push(more);
    let told = failure(&doctored(&history, "stress-rate-doctored.ndjson", &lines));
    assert!(told.contains("FAIL openai#rpm: ") && told.contains("to one-too-many)"), "{told}");
}

#[test]
fn a_concurrency_bucket_under_stress_keeps_its_capacity_and_a_missing_release_is_found() {
    let (sandbox, history) = (Sandbox::start("stress-slots"), path("stress-slots.ndjson"));
    let figures = sandbox.stress(&["elevenlabs#concurrent"], &history);
    assert!(figures["grants"].as_u64().unwrap() > 3, "{figures}");
    let bucket = &figures["verdict"]["buckets"][0];
    assert_eq!(
        (&bucket["peak"]["granted_micros"], bucket["kind"].as_str()),
        (&3_000_000.into(), Some("concurrent"))
    );

    let whole = lines(&history);
    // Until its lease ends, a minute later, three others hold slots beside it.
    let mut lines = whole.clone();
    let release = lines.iter().position(|line| line["event"] == "released").unwrap();
    let id = lines.remove(release)["id"].as_str().unwrap().to_owned();
    let told = failure(&doctored(&history, "stress-slots-doctored.ndjson", &lines));
    assert!(told.contains("FAIL elevenlabs#concurrent: 4 held at once in "), "{id}: {told}");
    assert!(told.contains("at most 3 are allowed"), "{told}");
    let nobody =
        doctored(&history, "stress-slots-nobody.ndjson", &[&whole[..2], &whole[release..=release]].concat());
    assert!(
        failure(&nobody)
            .contains(&format!("line 3: {id} is released in elevenlabs#concurrent and was not granted"))
    );
}

/// The file without its last `lost` lines.
fn cut(history: &Path, name: &str, lost: usize) -> PathBuf {
    let text = std::fs::read_to_string(history).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let file = history.with_file_name(name);
    std::fs::write(&file, lines[..lines.len() - lost].join("\n") + "\n").unwrap();
    file
}

#[test]
fn a_history_that_was_cut_off_or_lacks_a_release_is_refused_and_acquires_end_before_the_end() {
    let (sandbox, history) = (Sandbox::start("stress-end"), path("stress-end.ndjson"));
    let file = history.to_str().unwrap();
    let arguments = ["stress", "elevenlabs#concurrent", "--for", "3", "--wind-down", "2", "--history", file];
    let output = sandbox.command(&arguments).arg("--no-verdict").arg("--json").output().unwrap();
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(figures["verdict"].is_null() && figures["write_units"].as_u64().unwrap() > 0, "{figures}");
    let all_released = |file: &Path| {
        let output = sluice(&["history", "--all-released", file.to_str().unwrap()]).output().unwrap();
        (output.status.success(), text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let (is_ok, told) = all_released(&history);
    assert!(is_ok, "{told}");
    let whole = lines(&history);
    let times = |event: &str, field: &str| {
        let of = whole.iter().filter(|line| line["event"] == event);
        of.map(|line| line[field].as_i64().unwrap()).collect::<Vec<_>>()
    };
    let asked = [times("granted", "asked_at_micros"), times("refused", "asked_at_micros")].concat();
    let (first, last) = (asked.iter().min().unwrap(), asked.iter().max().unwrap());
    assert!(last - first <= 1_000_000, "one second of three: {}", last - first);

    let told = failure(&cut(&history, "stress-end-cut.ndjson", 1));
    assert!(told.contains("has no end record after this line"), "{told}");
    let release = whole.iter().rposition(|line| line["event"] == "released").unwrap();
    let lacks = [&whole[..release], &whole[release + 1..]].concat();
    let file = doctored(&history, "stress-end-lacks.ndjson", &lacks);
    assert!(judged(&[&file]).status.success(), "a holder may hold at the end");
    let (is_ok, told) = all_released(&file);
    assert!(
        !is_ok && told.contains("elevenlabs#concurrent: 1 of") && told.contains("never released"),
        "{told}"
    );
}

#[test]
fn two_limits_at_once_are_both_kept_and_runs_may_be_judged_together() {
    let (sandbox, first) = (Sandbox::start("stress-both"), path("stress-both-1.ndjson"));
    let second = path("stress-both-2.ndjson");
    let both = ["openai#rpm=2", "elevenlabs#concurrent"];
    for history in [&first, &second] {
        let figures = sandbox.stress(&both, history);
        assert!(figures["grants"].as_u64().unwrap() > 0, "{figures}");
    }
    let together = judged(&[&first, &second]);
    assert!(together.status.success(), "{}", text(&together.stdout));
}

#[test]
fn a_signal_ends_a_run_early_and_cleanly() {
    let (sandbox, history) = (Sandbox::start("stress-signal"), path("stress-signal.ndjson"));
    let file = history.to_str().unwrap();
    let arguments = ["stress", "openai#rpm", "--for", "600", "--json", "--history", file];
    let run = sandbox.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let part = path("stress-signal.ndjson.part-1");
    wait_for_parts(&part);
    Command::new("kill").arg(run.id().to_string()).status().unwrap();
    let output = run.wait_with_output().unwrap();
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{figures}");
    assert_eq!(figures["grants"], figures["verdict"]["grants"]);
    assert!(figures["seconds"].as_f64().unwrap() < 60.0, "{figures}");
    assert!(judged(&[&history]).status.success() && !part.exists());
}

#[test]
fn a_limit_that_is_changed_under_a_run_is_told_and_not_judged_by() {
    let (sandbox, history) = (Sandbox::start("stress-changed"), path("stress-changed.ndjson"));
    let limits = path("stress-changed-raised.toml");
    std::fs::write(&limits, LIMITS.replace("capacity = 3", "capacity = 4")).unwrap();
    let arguments =
        ["stress", "elevenlabs#concurrent", "--for", "600", "--history", history.to_str().unwrap()];
    let run = sandbox.command(&arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    wait_for_parts(&path("stress-changed.ndjson.part-1"));
    assert!(
        sandbox.command(&["buckets", "apply", limits.to_str().unwrap()]).output().unwrap().status.success()
    );
    Command::new("kill").arg(run.id().to_string()).status().unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("elevenlabs#concurrent was changed"), "{}", text(&output.stderr));
}

#[test]
fn what_cannot_be_stressed_or_read_is_told() {
    let sandbox = Sandbox::start("stress-errors");
    for (arguments, says) in [
        (["stress", "openai#tpm"], "sluice buckets apply"),
        (["stress", "openai#rpm=6"], "capacity is 5"),
        (["history", "/no/such/history"], "/no/such/history cannot be read"),
        (["history", "/dev/null"], "is not a history: it is empty"),
        (
            ["history", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")],
            "is not a history: its line 1 is `[package]`",
        ),
    ] {
        let output = sandbox.command(&arguments).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(says) && error.lines().count() == 1, "{error}");
    }
    let no_time =
        sandbox.command(&["stress", "openai#rpm", "--for", "2", "--wind-down", "2"]).output().unwrap();
    assert!(text(&no_time.stderr).contains("leaves no time to acquire"), "{}", text(&no_time.stderr));
    let nowhere =
        sandbox.command(&["stress", "openai#rpm", "--history", "/no/such/folder/file"]).output().unwrap();
    assert!(
        text(&nowhere.stderr).contains("/no/such/folder/file cannot be written"),
        "{}",
        text(&nowhere.stderr)
    );
}

/// Each share waits from call to call: search has five a second, and what it gets is one call in `pace_ms`.
fn of_shares(name: &str, pace_ms: i64) -> PathBuf {
    let mut lines = vec![serde_json::json!({ "event": "history", "version": 2 })];
    lines.push(serde_json::json!({
        "event": "limit", "dimension": "openai#rpm", "kind": "requests", "capacity_micros": 10_000_000,
        "refill_pico_per_sec": 10_000_000_000_000_i64, "from_micros": 0,
        "shares": [{ "name": "search", "capacity_micros": 5_000_000, "refill_pico_per_sec": 5_000_000_000_000_i64 }],
    }));
    for n in 1..=100 {
        let (asked, start) = ((n - 1) * pace_ms * 1_000, n * pace_ms * 1_000);
        lines.push(serde_json::json!({
            "event": "granted", "id": format!("search-{n}"), "process": "p", "dimension": "openai#rpm",
            "cost_micros": 1_000_000, "asked_at_micros": asked, "granted_at_micros": start, "start_at_micros": start,
            "booked": true, "share": "search", "paid_from": if n % 10 == 0 { "common" } else { "search" },
        }));
    }
    doctored(&path(name), name, &lines)
}

#[test]
fn a_share_that_gets_less_than_it_is_promised_is_found_and_one_that_gets_it_is_shown() {
    let told = judged(&[&of_shares("shares-good.ndjson", 200)]);
    let table = text(&told.stdout);
    assert!(told.status.success(), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let search = table.lines().find(|line| line.contains("search")).unwrap();
    let cells: Vec<_> = search.split_whitespace().collect();
    assert_eq!(cells, ["openai#rpm", "search", "100", "10", "95.0", "%", "4", "s", "-"], "{table}");
    let told = failure(&of_shares("shares-bad.ndjson", 400));
    // In a pipe, `grep FAIL` finds the whole of it.
    let found = told.lines().find(|line| line.starts_with("FAIL")).unwrap();
    assert!(found.contains("openai#rpm: search got 99 in 0.000000 to 40.000000 (40 s)"), "{told}");
    assert!(found.contains("200 are guaranteed"), "{told}");
    let mut command = sluice(&["history", "--request-time", "30s"]);
    let output = command.arg(of_shares("shares-late.ndjson", 400)).output().unwrap();
    assert!(output.status.success(), "thirty seconds are more than is missing: {}", text(&output.stdout));
}

#[test]
fn a_bucket_with_shares_under_stress_is_judged_as_a_whole_and_line_by_line() {
    let (sandbox, history) = (Sandbox::start("stress-shares"), path("stress-shares.ndjson"));
    sandbox.stress(&["anthropic#rpm"], &history);
    let lines = lines(&history);
    let limit = lines.iter().find(|line| line["event"] == "limit").unwrap();
    assert_eq!(
        (&limit["capacity_micros"], &limit["shares"][0]["name"]),
        (&10_000_000.into(), &"search".into())
    );
    let granted = |line: &&Value| line["event"] == "granted";
    assert!(lines.iter().filter(granted).all(|line| line["paid_from"].is_string()));
    assert!(judged(&[&history]).status.success());
    let mut more = lines.iter().rfind(granted).unwrap().clone();
    (more["id"], more["cost_micros"], more["paid_from"]) =
        ("too-many".into(), 6_000_000.into(), "search".into());
    let told = failure(&doctored(&history, "stress-shares-doctored.ndjson", &[lines, vec![more]].concat()));
    assert!(told.contains("granted from the line of search in"), "{told}");
}
