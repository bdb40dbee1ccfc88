//! What a script calls a vendor with: acquire, redeem, run.

use super::*;

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
    let far = sandbox.run(&["acquire", "openai#rpm", "--ticket-within", "1ms", "--json"]);
    let answer: Value = serde_json::from_str(&text(&far.stdout)).unwrap();
    assert_eq!((answer["ticket"].as_str(), answer["no_ticket"].as_str()), (None, Some("too_far_ahead")));
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
    let missing = sandbox.run(&["run", slot, "--", "/no/such/program", "x"]);
    assert!(text(&missing.stderr).contains("/no/such/program"));
    let mut holder = sandbox.command(&["run", slot, "--", "exec sleep 30"]).spawn().unwrap();
    wait_until("the lease of the holder", || sandbox.json(&["leases", "--json"]).as_array().unwrap().len() == 1);
    let lease = &sandbox.json(&["leases", "--json", "--dimension", slot])[0];
    assert_eq!((lease["dimension"].as_str(), lease["caller"].as_str()), (Some(slot), Some("sluice")));
    assert_eq!(lease["key"].as_str().unwrap(), format!("lease#{slot}#{}", lease["id"].as_str().unwrap()));
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

/// Each refused process ends at once, and heals before.
#[test]
fn a_killed_holders_slot_comes_back_to_a_script_that_asks_again_and_again() {
    let limits = file("killed.toml", LIMITS);
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    let slot = "elevenlabs#concurrent";
    let mut holder = sandbox.command(&["acquire", slot, "--hold", "60s"]).env("SLUICE_LEASE_TTL", "1").spawn().unwrap();
    wait_until("the lease of the holder", || sandbox.json(&["leases", "--json"]).as_array().unwrap().len() == 1);
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(sandbox.run(&["acquire", slot]).status.code(), Some(75));
    wait_until("its slot", || sandbox.run(&["acquire", slot]).status.success());
}
