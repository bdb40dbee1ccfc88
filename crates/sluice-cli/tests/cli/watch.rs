//! One frame of the view, as a script gets it. The live view needs a terminal; its frames are tested beside
//! its code.

use super::*;

#[test]
fn watch_once_prints_every_bucket_without_colour_at_the_width_it_is_told() {
    let limits = file("watch.toml", LIMITS);
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    sandbox.stdout(&["acquire", "openai#rpm"]);
    let frame = sandbox.stdout(&["watch", "--once"]);
    let line = |frame: &str, name: &str| frame.lines().find(|line| line.contains(name)).unwrap().to_owned();
    assert!(line(&frame, "openai#rpm").contains(" 1/2 "), "{frame}");
    assert!(line(&frame, "elevenlabs#concurrent").contains(" 1/1 "), "{frame}");
    assert!(line(&frame, "read units").contains("2 rows"), "{frame}");
    assert!(frame.lines().all(|line| line.chars().count() <= 80), "{frame}");
    assert!(!frame.contains('\u{1b}'), "no colour where there is no terminal");
    let wide = sandbox.command(&["watch", "--once"]).env("COLUMNS", "200").output().unwrap();
    assert!(!text(&wide.stdout).contains("DRAIN/s"), "no column without a figure: {}", text(&wide.stdout));
    let figures = sandbox.json(&["watch", "--once", "--json", "--filter", "rpm"]);
    assert_eq!(
        (&figures["table"], &figures["trouble"]),
        (&"ontopix-vendor-buckets-sandbox".into(), &Value::Null)
    );
    let buckets = figures["picture"]["buckets"].as_array().unwrap();
    assert_eq!((buckets.len(), &buckets[0]["dimension"]), (1, &Value::from("openai#rpm")));
    assert_eq!(buckets[0]["level"].as_f64().unwrap().floor(), 1.0);
    assert!(buckets[0]["used_per_sec"].is_number(), "two readings: {figures}");
    let alone = sandbox.run(&["watch", "--json"]);
    assert!(!alone.status.success() && text(&alone.stderr).contains("--once"), "{}", text(&alone.stderr));
    let filtered = sandbox.stdout(&["watch", "--once", "--filter", "ELEVEN", "--sort", "holders"]);
    assert!(!filtered.contains("openai"), "{filtered}");
}

#[test]
fn watch_once_shows_a_slot_that_is_held() {
    let limits = file("watch-held.toml", LIMITS);
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    let mut holder = sandbox.command(&["run", "elevenlabs#concurrent", "--", "sleep 60"]).spawn().unwrap();
    let is_held = || sandbox.stdout(&["watch", "--once", "--filter", "eleven"]).contains(" 0/1 ");
    wait_until("the slot is taken", is_held);
    Command::new("kill").arg(holder.id().to_string()).status().unwrap();
    holder.wait().unwrap();
    wait_until("the slot is free", || !is_held());
}

#[test]
fn a_table_that_cannot_be_read_and_a_missing_terminal_are_told() {
    let sandbox = Sandbox::start(&[]);
    let missing = sandbox.command(&["watch", "--once"]).env("SLUICE_TABLE_NAME", "missing").output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        text(&missing.stderr).contains("there is no table \"missing\" at http://127.0.0.1:"),
        "{}",
        text(&missing.stderr)
    );
    let live = sandbox.run(&["watch"]);
    assert_eq!(live.status.code(), Some(1));
    assert!(text(&live.stderr).contains("--once"), "{}", text(&live.stderr));
    let hasty = sandbox.run(&["watch", "--once", "--interval", "10ms"]);
    assert!(text(&hasty.stderr).contains("one second at least"), "{}", text(&hasty.stderr));
}
