//! Times that are shown, on a machine whose clock is a day off.

use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};

use super::dashboard::Dashboard;
use super::*;

const DAY_SECS: i64 = 86_400;
const HEADER: &[u8] = b"\r\ndate: ";
/// An HTTP date is always as long.
const DATE_LEN: usize = "Mon, 04 Mar 2024 11:00:02 GMT".len();

/// The same endpoint, whose replies tell a time that is `secs` later than this machine's.
fn later_by(endpoint: &str, secs: i64) -> String {
    let to = endpoint.strip_prefix("http://").unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming().map(Result::unwrap) {
            let server = TcpStream::connect(&to).unwrap();
            let (from, into) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || pass_on(from, into, |_| {}));
            std::thread::spawn(move || pass_on(server, client, |reply| move_date(reply, secs)));
        }
    });
    endpoint
}

fn pass_on(mut from: TcpStream, mut into: TcpStream, change: impl Fn(&mut [u8])) {
    let mut bytes = vec![0; 1 << 20];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        change(&mut bytes[..read]);
        if into.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = into.shutdown(std::net::Shutdown::Write);
}

fn move_date(reply: &mut [u8], secs: i64) {
    let found = |window: &[u8]| window.eq_ignore_ascii_case(HEADER);
    let Some(at) = reply.windows(HEADER.len()).position(found) else { return };
    let date = &mut reply[at + HEADER.len()..][..DATE_LEN];
    let told = DateTime::from_str(std::str::from_utf8(date).unwrap(), DateTimeFormat::HttpDate).unwrap();
    let moved = DateTime::from_secs(told.secs() + secs).fmt(DateTimeFormat::HttpDate).unwrap();
    date.copy_from_slice(moved.as_bytes());
}

/// A process that has seen few replies may err by a second, and times are rounded down.
fn is_an_hour(shown: &str) -> bool {
    shown.contains("ends in 59m ") || shown.contains("ends in 60m")
}

#[test]
fn times_are_the_tables_on_a_machine_whose_clock_is_a_day_off() {
    for secs in [-DAY_SECS, DAY_SECS] {
        let limits = file(&format!("clock{secs}.toml"), LIMITS);
        let mut sandbox = Sandbox::start(&[]);
        sandbox.endpoint = later_by(&sandbox.endpoint, secs);
        sandbox.stdout(&["buckets", "apply", limits.to_str().unwrap()]);

        sandbox.stdout(&["acquire", "openai#rpm=2"]);
        let buckets = sandbox.json(&["buckets", "list", "--json"]);
        let rpm =
            buckets.as_array().unwrap().iter().find(|bucket| bucket["dimension"] == "openai#rpm").unwrap();
        let level: f64 = rpm["level"].as_f64().unwrap();
        assert!((0.0..0.1).contains(&level), "{secs}: {rpm}");
        let shown = sandbox.stdout(&["buckets", "show", "openai#rpm"]);
        assert!(
            shown.contains("next start in 29m ") || shown.contains("next start in 30m"),
            "{secs}: {shown}"
        );

        let refused = text(&sandbox.run(&["acquire", "openai#rpm"]).stdout);
        let is_half_an_hour = refused.contains("try again in 29m ") || refused.contains("try again in 30m");
        assert!(is_half_an_hour, "{secs}: {refused}");

        let cooled = sandbox.stdout(&["cool-down", "openai#rpm", "1h"]);
        assert!(is_an_hour(&cooled), "{secs}: {cooled}");
        let shown = sandbox.stdout(&["buckets", "show", "openai#rpm"]);
        assert!(shown.contains("cool-down ends") && is_an_hour(&shown), "{secs}: {shown}");
        let found = text(&sandbox.run(&["doctor", "--for", "0s"]).stdout);
        assert!(found.contains("a cool-down is set") && is_an_hour(&found), "{secs}: {found}");

        let mut holder = sandbox.command(&["acquire", "elevenlabs#concurrent", "--hold", "1m"]);
        let mut holder = holder.stdout(Stdio::null()).spawn().unwrap();
        wait_until("the lease", || sandbox.json(&["leases", "--json"]).as_array().unwrap().len() == 1);
        let lease = sandbox.json(&["leases", "--json"])[0].clone();
        assert_eq!(lease["ended"], false, "{secs}: {lease}");
        let shown = sandbox.stdout(&["leases"]);
        let lease = shown.lines().last().unwrap();
        assert!(
            (lease.contains(" in 5") || lease.contains(" in 6")) && !lease.contains(" h "),
            "{secs}: {lease}"
        );

        let answer = Dashboard::of(&sandbox).json("/api/picture");
        let age = answer["now"].as_f64().unwrap() - answer["picture"]["at"].as_f64().unwrap();
        assert!((-1.0..60.0).contains(&age), "{secs}: {age} s");
        holder.kill().unwrap();
        holder.wait().unwrap();
    }
}

/// Its stamps are of this machine, the starts of the table.
#[test]
fn a_history_is_not_judged_on_a_machine_whose_clock_is_a_day_off() {
    let mut sandbox = Sandbox::start(&[]);
    sandbox.endpoint = later_by(&sandbox.endpoint, DAY_SECS);
    let history = file("clock.ndjson", "");
    let stress = ["stress", "elevenlabs#concurrent", "--for", "1", "--processes", "1", "--history"];
    let output = sandbox.command(&stress).arg(&history).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("ms off DynamoDB's"), "{}", text(&output.stderr));
}
