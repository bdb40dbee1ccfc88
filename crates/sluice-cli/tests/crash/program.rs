//! The built program: its commands, and the sandbox as a process of its own.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How often to kill: `whole` times if all cases are asked for, else a third of that.
pub(crate) fn kills(whole: u32) -> u32 {
    sluice_test_extent::cases(whole, 3)
}

/// A command of the program against `endpoint`, with nothing of the shell's settings. What it prints goes
/// nowhere.
pub(crate) fn sluice(endpoint: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    for (name, _) in
        std::env::vars().filter(|(name, _)| name.starts_with("SLUICE_") || name.starts_with("AWS_"))
    {
        command.env_remove(name);
    }
    command.env("SLUICE_ENV", "sandbox").env("SLUICE_ENDPOINT_URL", endpoint).env("SLUICE_LEASE_TTL", "1");
    command.env("AWS_ACCESS_KEY_ID", "sandbox").env("AWS_SECRET_ACCESS_KEY", "sandbox").args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Runs a command to its end, and how long that took.
pub(crate) fn timed(mut command: Command) -> Duration {
    let began = Instant::now();
    assert!(command.status().unwrap().success(), "{command:?}");
    began.elapsed()
}

/// Kills a process without a word, `after` a time; false where it had ended by itself.
pub(crate) fn kill(mut process: Child, after: Duration) -> bool {
    std::thread::sleep(after);
    let at_work = process.try_wait().unwrap().is_none();
    process.kill().unwrap();
    process.wait().unwrap();
    at_work
}

/// Sweeps once, and returns the report.
pub(crate) fn sweep(endpoint: &str) -> Value {
    let output =
        sluice(endpoint, &["reconcile", "--once", "--json"]).stdout(Stdio::piped()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What is left when nothing was lost: the leases alone made the table good, and the recount found nothing
/// more.
pub(crate) fn assert_no_faults(report: &Value) {
    for of_slots in ["drift", "corrected"] {
        assert_eq!(report[of_slots].as_object().unwrap().len(), 0, "{report}");
    }
    for of_leases in ["unparsable", "refused", "left", "already_capped"] {
        assert_eq!(report[of_leases], 0, "{of_leases}: {report}");
    }
}

/// `sluice sandbox`, as a process of its own. Dropped, it is killed.
pub(crate) struct Sandbox {
    process: Child,
    endpoint: String,
}

impl Sandbox {
    /// Starts one on `port` (0 takes a free one) and waits until it serves.
    pub(crate) fn start(port: u16, options: &[&str]) -> Self {
        let mut command = sluice("", &["sandbox", "--port", &port.to_string()]);
        let mut process =
            command.args(options).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut endpoint = None;
        for line in lines.by_ref().map(Result::unwrap) {
            endpoint =
                endpoint.or_else(|| line.strip_prefix("export SLUICE_ENDPOINT_URL=").map(str::to_owned));
            if line.starts_with("Ctrl-C") {
                break;
            }
        }
        Self { process, endpoint: endpoint.expect("the sandbox prints its endpoint") }
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Kills it without a word, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A file of limits: concurrency buckets with their slots, and rate buckets with their tokens, which take
/// `window` to refill.
pub(crate) fn limits(name: &str, slots: &[(&str, u32)], rates: &[(&str, u32)], window: &str) -> PathBuf {
    let mut text = String::new();
    for (dimension, capacity) in slots {
        writeln!(text, "[[bucket]]\ndimension = {dimension:?}\ntype = \"concurrent\"\ncapacity = {capacity}")
            .unwrap();
    }
    for (dimension, capacity) in rates {
        writeln!(text, "[[bucket]]\ndimension = {dimension:?}\ntype = \"requests\"\ncapacity = {capacity}")
            .unwrap();
        writeln!(text, "window = {window:?}").unwrap();
    }
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
    path
}

/// Random moments of a test, from a seed that it prints.
pub(crate) fn dice(what: &str) -> fastrand::Rng {
    let seed = fastrand::u64(..);
    println!("{what}: seed {seed}");
    fastrand::Rng::with_seed(seed)
}
