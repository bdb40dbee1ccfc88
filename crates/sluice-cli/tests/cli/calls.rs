//! What a script calls a vendor with: acquire, redeem, run.

use super::*;

#[test]
fn an_acquire_says_granted_or_when_to_come_back() {
    let limits = file("acquire.toml", LIMITS);
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    let granted = sandbox.stdout(&["acquire", "openai#rpm=2"]);
    assert_eq!(granted, "granted openai#rpm\ndone: the tokens stay spent, and flow back with time\n");
    let granted = sandbox.stdout(&["acquire", "elevenlabs#concurrent"]);
    assert_eq!(granted, "granted elevenlabs#concurrent\nreleased: the slots are free again\n");
    let granted = sandbox.json(&["acquire", "elevenlabs#concurrent", "--json"]);
    let expected = serde_json::json!({
        "outcome": "granted", "dimensions": ["elevenlabs#concurrent"], "basis": "table", "released": "given_back"
    });
    assert_eq!(granted, expected);
    let refused = sandbox.run(&["acquire", "openai#rpm", "--json"]);
    assert_eq!(refused.status.code(), Some(75), "EX_TEMPFAIL");
    let answer: Value = serde_json::from_str(&text(&refused.stdout)).unwrap();
    assert_eq!(
        (answer["outcome"].as_str(), answer["reason"].as_str()),
        (Some("retry_in"), Some("exhausted"))
    );
    assert!(answer["wait_secs"].as_f64().unwrap() > 1_700.0);
    assert_eq!(
        (&answer["dimensions"][0], &answer["refused_by"]),
        (&"openai#rpm".into(), &"openai#rpm".into())
    );
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
    let too_long = sandbox.run(&["acquire", "elevenlabs#concurrent", "--hold", "2d"]);
    assert_eq!(too_long.status.code(), Some(2));
    assert!(text(&too_long.stderr).contains("at most 24h"), "{}", text(&too_long.stderr));
}

#[test]
fn json_says_what_became_of_a_grant_as_the_text_does() {
    let sandbox = Sandbox::start(&[]);
    for (names, released) in [
        (&["openai#rpm"][..], "spent"),
        (&["elevenlabs#concurrent"], "given_back"),
        (&["openai#rpm", "elevenlabs#concurrent"], "given_back"),
    ] {
        let arguments = [&["acquire", "--json"], names].concat();
        assert_eq!(sandbox.json(&arguments)["released"], released, "{names:?}");
    }
}

#[test]
fn leases_of_a_bucket_that_is_not_there_are_an_error() {
    let sandbox = Sandbox::start(&[]);
    assert_eq!(sandbox.stdout(&["leases", "--dimension", "elevenlabs#concurrent"]), "no leases\n");
    let misspelt = sandbox.run(&["leases", "--dimension", "nosuch#rpm"]);
    assert_eq!(misspelt.status.code(), Some(1));
    assert!(text(&misspelt.stderr).contains("has no bucket nosuch#rpm"), "{}", text(&misspelt.stderr));
}

/// At a port at which nobody listens.
#[test]
fn a_refused_connection_is_told_with_its_address() {
    let refused = |arguments: &[&str]| {
        let mut command = sluice();
        command.env("SLUICE_ENV", "sandbox").env("SLUICE_ENDPOINT_URL", "http://127.0.0.1:9");
        command.env("AWS_ACCESS_KEY_ID", "x").env("AWS_SECRET_ACCESS_KEY", "x");
        let output = command.args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        text(&output.stderr)
    };
    for arguments in [
        &["acquire", "openai#rpm"][..],
        &["run", "openai#rpm", "--wait", "4s", "--", "true"],
        &["watch", "--once"],
    ] {
        let said = refused(arguments);
        assert!(said.contains("no connection to http://127.0.0.1:9: tcp connect error: Conn"), "{said}");
        for jargon in ["dispatch failure", "client error", "proxy"] {
            assert!(!said.contains(jargon), "{jargon}: {said}");
        }
    }
}

#[test]
fn a_run_that_waited_in_vain_for_a_slot_says_how_long_and_guesses_nothing() {
    let sandbox = Sandbox::start(&[]);
    let slot = "elevenlabs#concurrent";
    let held: Vec<_> = (0..sandbox.json(&["buckets", "show", slot, "--json"])["capacity"].as_i64().unwrap())
        .map(|_| sandbox.command(&["acquire", slot, "--hold", "1m"]).stdout(Stdio::null()).spawn().unwrap())
        .collect();
    wait_until("every slot to be held", || sandbox.json(&["buckets", "show", slot, "--json"])["level"] == 0);
    let waited = sandbox.run(&["run", slot, "--wait", "1500ms", "--", "true"]);
    let at_once = sandbox.run(&["run", slot, "--wait", "0s", "--", "true"]);
    for mut holder in held {
        holder.kill().unwrap();
        holder.wait().unwrap();
    }
    assert_eq!((waited.status.code(), at_once.status.code()), (Some(75), Some(75)));
    let (waited, at_once) = (text(&waited.stderr), text(&at_once.stderr));
    assert!(waited.contains("elevenlabs#concurrent: no slot came free within 1s 500ms"), "{waited}");
    assert!(at_once.contains("no free slot; try again in about"), "{at_once}");
}

/// The process reads the bucket first, over its first connection.
#[test]
fn a_run_that_may_not_wait_gets_a_slot_that_is_free() {
    let sandbox = Sandbox::start(&[]);
    for wait in ["0s", "5ms"] {
        for name in ["elevenlabs#concurrent", "openai#rpm"] {
            let ran = sandbox.run(&["run", name, "--wait", wait, "--", "echo ran"]);
            assert_eq!(text(&ran.stdout), "ran\n", "{wait}, {name}: {}", text(&ran.stderr));
        }
    }
}

#[test]
fn a_single_command_does_not_warn_that_most_of_a_limit_is_used() {
    let limits = file("near.toml", &LIMITS.replace("capacity = 2", "capacity = 50"));
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    let granted = sandbox.run(&["acquire", "openai#rpm=50"]);
    assert_eq!((granted.status.code(), text(&granted.stderr)), (Some(0), String::new()));
    // The same is told if it is asked for.
    let another = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    let told =
        another.command(&["acquire", "openai#rpm=50"]).env("SLUICE_LOG_LEVEL", "warn").output().unwrap();
    assert!(text(&told.stderr).contains("limit.near"), "{}", text(&told.stderr));
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
    let far = sandbox.run(&["acquire", "openai#rpm", "--ticket-within", "1ms", "--json"]);
    let answer: Value = serde_json::from_str(&text(&far.stdout)).unwrap();
    assert_eq!((answer["ticket"].as_str(), answer["no_ticket"].as_str()), (None, Some("too_far_ahead")));
    let far = sandbox.run(&["acquire", "openai#rpm", "--ticket-within", "1ms"]);
    assert!(text(&far.stdout).contains("no ticket: no start was booked as close"), "{}", text(&far.stdout));
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
    assert!(text(&bad.stderr).contains("two digits in base 16"), "{}", text(&bad.stderr));
}

#[test]
fn a_command_runs_inside_its_slot_and_its_exit_code_comes_back() {
    let limits = file("run.toml", LIMITS);
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    let slot = "elevenlabs#concurrent";
    assert_eq!(sandbox.run(&["run", slot, "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(sandbox.run(&["run", slot, "--", "kill -9 $$"]).status.code(), Some(137));
    for program in ["/no/such/program", "no-such-program"] {
        let missing = sandbox.run(&["run", slot, "--", program, "x"]);
        let said = text(&missing.stderr);
        assert_eq!((missing.status.code(), said.contains(program)), (Some(127), true), "as a shell: {said}");
    }
    let not_a_program = sandbox.run(&["run", slot, "--", "/etc/passwd", "x"]);
    assert_eq!(not_a_program.status.code(), Some(126), "{}", text(&not_a_program.stderr));
    let mut holder = sandbox.command(&["run", slot, "--", "exec sleep 30"]).spawn().unwrap();
    wait_until("the lease of the holder", || {
        sandbox.json(&["leases", "--json"]).as_array().unwrap().len() == 1
    });
    let lease = &sandbox.json(&["leases", "--json", "--dimension", slot])[0];
    assert_eq!(lease["dimension"].as_str(), Some(slot));
    assert!(lease["caller"].as_str().unwrap().starts_with("exec"), "the command holds the slot: {lease}");
    // While the slot is held: a missing command is told without a wait for it, and a wait is told.
    let missing = sandbox.run(&["run", slot, "--", "no-such-program", "x"]);
    assert_eq!(missing.status.code(), Some(127), "{}", text(&missing.stderr));
    let waited = sandbox.run(&["run", "--wait", "1500ms", slot, "--", "true"]);
    assert!(
        text(&waited.stderr).contains(&format!("waiting for {slot}, for 1s 500ms at most")),
        "{}",
        text(&waited.stderr)
    );
    assert_eq!(lease["key"].as_str().unwrap(), format!("lease#{slot}#{}", lease["id"].as_str().unwrap()));
    let table = sandbox.stdout(&["leases"]);
    assert!(
        table.contains("UNTIL") && table.contains("in ") && table.lines().all(|l| l.chars().count() <= 80),
        "{table}"
    );
    let refused = sandbox.run(&["run", "--wait", "900ms", slot, "--", "true"]);
    assert_eq!(refused.status.code(), Some(75));
    let said = text(&refused.stderr);
    assert!(said.contains("no slot came free within 900ms") && !said.contains("waiting for"), "{said}");
    Command::new("kill").arg(holder.id().to_string()).status().unwrap();
    assert_eq!(holder.wait().unwrap().code(), Some(143), "SIGTERM is passed on to the command");
    assert_eq!(
        sandbox.json(&["leases", "--json"]).as_array().unwrap().len(),
        0,
        "and the slot is given back"
    );
}

/// Each refused process ends at once, and heals before.
#[test]
fn a_killed_holders_slot_comes_back_to_a_script_that_asks_again_and_again() {
    let limits = file("killed.toml", LIMITS);
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    let slot = "elevenlabs#concurrent";
    let mut holder =
        sandbox.command(&["acquire", slot, "--hold", "60s"]).env("SLUICE_LEASE_TTL", "1").spawn().unwrap();
    wait_until("the lease of the holder", || {
        sandbox.json(&["leases", "--json"]).as_array().unwrap().len() == 1
    });
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(sandbox.run(&["acquire", slot]).status.code(), Some(75));
    wait_until("its slot", || sandbox.run(&["acquire", slot]).status.success());
}

/// With an address at which nobody listens.
#[test]
fn a_grant_without_a_limit_says_so_by_name() {
    let acquire = |more: &[&str]| {
        let mut command = sluice();
        command.env("SLUICE_ENV", "sandbox").env("SLUICE_ENDPOINT_URL", "http://127.0.0.1:9");
        command
            .env("AWS_ACCESS_KEY_ID", "x")
            .env("AWS_SECRET_ACCESS_KEY", "x")
            .env("SLUICE_ON_UNAVAILABLE", "allow");
        command.args(["acquire", "openai#rpm"]).args(more).output().unwrap()
    };
    let granted = acquire(&[]);
    let (said, logged) = (text(&granted.stdout), text(&granted.stderr));
    assert!(
        said.starts_with("granted openai#rpm (without a limit: DynamoDB is out, and SLUICE_ON_UNAVAILABLE"),
        "{said}"
    );
    assert!(said.contains("done: nothing was held"), "{said}");
    assert!(!logged.contains('{'), "a log for people: {logged}");
    let answer: Value = serde_json::from_slice(&acquire(&["--json"]).stdout).unwrap();
    assert_eq!((&answer["dimensions"][0], &answer["basis"]), (&"openai#rpm".into(), &"unchecked".into()));
}

#[test]
fn a_misspelt_setting_is_told() {
    let sandbox = Sandbox::start(&[]);
    let output = sandbox.command(&["buckets", "list"]).env("SLUICE_LEASE_TLL", "5s").output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("did you mean SLUICE_LEASE_TTL?"), "{said}");
    assert_eq!(text(&sandbox.run(&["buckets", "list"]).stderr), "");
}
