//! What an operator runs.

use super::*;

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
    wait_until("the lease of the holder", || {
        sandbox.json(&["leases", "--json"]).as_array().unwrap().len() == 1
    });
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(sandbox.run(&["acquire", slot]).status.code(), Some(75));
    wait_until("a sweep that gives the slot back", || {
        sandbox.json(&["reconcile", "--once", "--json"])["restored"] == 1
    });
    sandbox.stdout(&["acquire", slot]);
}

#[test]
fn a_sweep_names_a_bucket_that_cannot_be_read() {
    let limits = file("unreadable.toml", LIMITS);
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    sandbox.set("openai#rpm", "capacity", "many");
    let report = sandbox.stdout(&["reconcile", "--once"]);
    assert!(report.contains("openai#rpm: the row cannot be read") && report.contains("capacity"), "{report}");
    assert_eq!(sandbox.json(&["reconcile", "--once", "--json"])["unreadable_buckets"], 1);
    let found = text(&sandbox.run(&["doctor", "--for", "0s", "--json"]).stdout);
    assert!(found.contains("openai#rpm") && found.contains("the row cannot be read"), "{found}");
}

/// Against a server that takes connections and never answers: a signal ends it in the middle, and not after
/// the tries.

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
    let refused =
        sluice().env("SLUICE_ENV", "sandbox").args(["reconcile", "--interval", "0s"]).output().unwrap();
    assert!(text(&refused.stderr).contains("one second at least"), "{}", text(&refused.stderr));
}

#[test]
fn a_sandbox_with_faults_fails_the_share_of_requests_that_was_asked_for() {
    let granted = |sandbox: &Sandbox, retries: &str| {
        let acquire = || {
            sandbox.command(&["acquire", "openai#rpm"]).env("SLUICE_MAX_RETRIES", retries).output().unwrap()
        };
        (0..10).filter(|_| acquire().status.success()).count()
    };
    // A quarter of the faults are only late: of ten calls that may each be tried twice, not all get through.
    assert!(granted(&Sandbox::start(&["--faults", "1"]), "1") < 10);
    assert_eq!(granted(&Sandbox::start(&["--faults", "0"]), "1"), 10);
    // What is tried again gets through.
    assert_eq!(granted(&Sandbox::start(&["--faults", "0.2"]), "20"), 10);
    let wrong = sluice().args(["sandbox", "--port", "0", "--faults", "2"]).output().unwrap();
    assert!(text(&wrong.stderr).contains("between 0 and 1"), "{}", text(&wrong.stderr));
}

#[test]
fn a_cool_down_is_ended_by_a_command() {
    let sandbox = Sandbox::start(&[]);
    for wrong in [&["cool-down", "openai#rpm"][..], &["cool-down", "openai#rpm", "30s", "--end"]] {
        assert_eq!(sandbox.run(wrong).status.code(), Some(2), "{wrong:?}");
    }
    sandbox.stdout(&["cool-down", "openai#rpm", "1h"]);
    assert_eq!(sandbox.run(&["acquire", "openai#rpm"]).status.code(), Some(75));
    let ended = sandbox.run(&["cool-down", "openai#rpm", "--end"]);
    assert!(ended.status.success() && ended.stderr.is_empty(), "{}", text(&ended.stderr));
    assert!(text(&ended.stdout).contains("openai#rpm grants again"), "{}", text(&ended.stdout));
    sandbox.stdout(&["acquire", "openai#rpm"]);
    let none = sandbox.stdout(&["cool-down", "openai#rpm", "--end"]);
    assert_eq!(none.trim(), "openai#rpm had no cool-down");
}

#[test]
fn one_command_undoes_a_mistaken_refusal_whole() {
    let limits = file("undo.toml", LIMITS);
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    sandbox.stdout(&["penalize", "openai#rpm", "--factor", "0"]);
    sandbox.stdout(&["cool-down", "openai#rpm", "1h"]);
    let listed = sandbox.stdout(&["buckets", "list"]);
    let marked: Vec<_> = listed.lines().filter(|line| line.ends_with("  cooling down")).collect();
    assert!(marked.len() == 1 && marked[0].starts_with("openai#rpm"), "{listed}");
    assert!(listed.lines().all(|line| line.chars().count() <= 80), "{listed}");
    assert_eq!(
        sandbox.run(&["cool-down", "openai#rpm", "30s", "--refill"]).status.code(),
        Some(2),
        "only with --end"
    );
    let undone = sandbox.stdout(&["cool-down", "openai#rpm", "--end", "--refill"]);
    assert!(undone.contains("openai#rpm grants again") && undone.contains("it was at 0"), "{undone}");
    sandbox.stdout(&["acquire", "openai#rpm"]);
    sandbox.stdout(&["cool-down", "elevenlabs#concurrent", "1h"]);
    let of_slots = sandbox.stdout(&["cool-down", "elevenlabs#concurrent", "--end", "--refill"]);
    assert!(of_slots.contains("grants again") && of_slots.contains("nothing to refill"), "{of_slots}");
    sandbox.stdout(&["acquire", "elevenlabs#concurrent"]);
}

#[test]
fn a_refill_sets_the_level_and_is_refused_where_it_makes_no_sense() {
    let limits = file("refill.toml", LIMITS);
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    sandbox.stdout(&["penalize", "openai#rpm", "--factor", "0"]);
    let set = sandbox.run(&["buckets", "refill", "openai#rpm"]);
    assert!(set.status.success() && set.stderr.is_empty(), "{}", text(&set.stderr));
    assert!(text(&set.stdout).starts_with("openai#rpm is at 2; it was at 0"), "{}", text(&set.stdout));
    let lowered = sandbox.json(&["buckets", "refill", "openai#rpm", "--to", "1", "--json"]);
    assert_eq!((&lowered["dimension"], &lowered["from"]), (&"openai#rpm".into(), &2.into()), "{lowered}");
    assert!((1.0..2.0).contains(&lowered["level"].as_f64().unwrap()), "{lowered}");
    for (arguments, says) in [
        (&["buckets", "refill", "openai#rpm", "--to", "3"][..], "the capacity, which is 2"),
        (&["buckets", "refill", "openai#rpm", "--to=-1"], "from 0 to the capacity"),
        (&["buckets", "refill", "elevenlabs#concurrent"], "sluice reconcile"),
        (&["buckets", "refill", "openai#unknown"], "unknown dimension"),
    ] {
        let output = sandbox.run(arguments);
        assert!(!output.status.success() && text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
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
    assert!(
        nobody.contains("unavailable") && nobody.contains("no connection to http://127.0.0.1:9: "),
        "{nobody}"
    );
    assert!(!nobody.contains("applied"), "a read applies nothing: {nobody}");
}

#[test]
fn a_reader_that_left_ends_the_program_quietly() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = sluice().args(["sandbox", "--port", "0"]).stdout(writer).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.contains("panicked")), (Some(141), false), "{said}");
}

#[test]
fn a_doctor_finds_nothing_in_a_table_that_is_well() {
    let sandbox = Sandbox::start(&[]);
    let printed = sandbox.stdout(&["doctor"]);
    assert!(printed.contains("4 buckets") && printed.ends_with("nothing to do\n"), "{printed}");
    // Over a socket replies have a date, and the clock is the same.
    assert!(printed.contains("ok clock"), "{printed}");
}

#[test]
fn a_doctor_tells_what_is_wrong_and_what_to_do() {
    let sandbox = Sandbox::start(&[]);
    let set = sandbox.run(&["cool-down", "openai#rpm", "1h"]);
    assert!(
        set.status.success() && set.stderr.is_empty(),
        "no warning of what was asked for: {}",
        text(&set.stderr)
    );
    let none = sandbox.run(&["cool-down", "openai#rpm", "0s"]);
    assert!(!none.status.success() && text(&none.stderr).contains("--end"), "{}", text(&none.stderr));
    let again = sandbox.stdout(&["cool-down", "openai#rpm", "1m"]);
    assert!(again.contains("a longer cool-down already"), "{again}");
    let findings = sandbox.json(&["doctor", "--json", "--for", "0s"]);
    let note = |finding: &&Value| finding["of"] == "openai#rpm" && finding["weight"] == "note";
    assert!(findings.as_array().unwrap().iter().any(|finding| note(&finding)), "{findings}");
    let refused = sandbox.run(&["acquire", "openai#rpm"]);
    assert_eq!(refused.status.code(), Some(75), "{}", text(&refused.stdout));

    for bucket in sandbox.json(&["buckets", "list", "--json"]).as_array().unwrap() {
        sandbox.stdout(&["buckets", "rm", bucket["dimension"].as_str().unwrap()]);
    }
    let output = sandbox.run(&["doctor", "--for", "0s"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("sluice buckets apply"), "{}", text(&output.stdout));
}

/// Each row says something to a terminal. Nothing else in what is printed does but colours.
#[test]
fn a_row_gives_a_persons_terminal_no_commands() {
    let sandbox = Sandbox::start(&[]);
    let evil = "\u{1b}]0;stolen\u{7}\u{1b}[2J\u{9b}31m\rfine";
    sandbox.set(&format!("unknown {evil}"), "text", "none");
    sandbox.set(&format!("lease#elevenlabs#concurrent#{evil}"), "cost", evil);
    let mut holder = sandbox.command(&["acquire", "elevenlabs#concurrent", "--hold", "1m"]);
    let mut holder = holder.env("SLUICE_CALLER", evil).stdout(Stdio::null()).spawn().unwrap();
    wait_until("the lease of the holder", || {
        sandbox.json(&["leases", "--json"]).as_array().unwrap().len() == 2
    });
    for arguments in [&["leases"][..], &["buckets", "list"], &["doctor", "--for", "0s"], &["watch", "--once"]]
    {
        // As a terminal would get it.
        let output = sandbox.command(arguments).env("CLICOLOR_FORCE", "1").output().unwrap();
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(said.contains("\u{1b}[") && said.contains("fine"), "{arguments:?}: {said:?}");
        for (at, _) in said.match_indices(char::is_control) {
            let rest = &said[at..];
            let is_colour = rest.strip_prefix("\u{1b}[").is_some_and(|codes| {
                codes.trim_start_matches(|code: char| code.is_ascii_digit() || code == ';').starts_with('m')
            });
            assert!(is_colour || rest.starts_with('\n'), "{arguments:?}: {rest:?} in {said:?}");
        }
    }
    holder.kill().unwrap();
    holder.wait().unwrap();
}
