//! Declaring buckets.

use super::*;

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
    assert!(changed.contains("~ openai#rpm") && changed.contains("-> a burst of 50 requests"), "{changed}");
    let bucket = sandbox.json(&["buckets", "show", "openai#rpm", "--json"]);
    assert_eq!(bucket["capacity"], 50);
    assert!((1.0..1.5).contains(&bucket["level"].as_f64().unwrap()), "{bucket}");
    let kind = LIMITS
        .replace("capacity = 2", "capacity = 70")
        .replace("\"concurrent\"", "\"requests\"\nwindow = \"1m\"");
    let kind = file("kind.toml", &kind);
    let refused = sandbox.run(&["buckets", "apply", kind.to_str().unwrap()]);
    assert!(text(&refused.stderr).contains("cannot change from concurrent"), "{}", text(&refused.stderr));
    assert_eq!(
        sandbox.json(&["buckets", "show", "openai#rpm", "--json"])["capacity"],
        50,
        "nothing was applied"
    );
    let bad = file("bad.toml", &LIMITS.replace("\"1h\"", "\"soon\""));
    let output = sandbox.run(&["buckets", "apply", bad.to_str().unwrap()]);
    assert!(text(&output.stderr).contains("bad.toml:6: window = \"soon\""), "{}", text(&output.stderr));
    assert_eq!(sandbox.stdout(&["buckets", "rm", "openai#rpm"]).trim(), "removed openai#rpm");
    let missing = sandbox.run(&["buckets", "rm", "openai#rpm"]);
    assert!(text(&missing.stderr).contains("no bucket openai#rpm"));
}

/// In a sandbox on this machine a script may remove without --yes; elsewhere it must say so.
#[test]
fn a_bucket_is_not_removed_without_a_person_or_yes() {
    let limits = file("rm.toml", LIMITS);
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    let production = |arguments: &[&str]| {
        let mut command = sandbox.command(arguments);
        command.env("SLUICE_ENV", "prod").output().unwrap()
    };
    let created = production(&["buckets", "apply", "--create-table", limits.to_str().unwrap()]);
    assert!(created.status.success(), "{}", text(&created.stderr));
    let refused = production(&["buckets", "rm", "openai#rpm"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("nothing was removed") && said.contains("rm openai#rpm --yes"), "{said}");
    assert!(production(&["buckets", "show", "openai#rpm"]).status.success(), "it is still there");
    let removed = production(&["buckets", "rm", "openai#rpm", "--yes"]);
    assert_eq!(text(&removed.stdout).trim(), "removed openai#rpm", "{}", text(&removed.stderr));
    assert!(!production(&["buckets", "show", "openai#rpm"]).status.success());
    // The table of a sandbox in AWS: this engine stands for it, since Sluice is told no endpoint of its own.
    let mut in_aws = sandbox.command(&["buckets", "rm", "openai#rpm"]);
    in_aws.env_remove("SLUICE_ENDPOINT_URL").env("AWS_ENDPOINT_URL", &sandbox.endpoint);
    let refused = in_aws.output().unwrap();
    let said = text(&refused.stderr);
    assert!(said.contains("nothing was removed: there is no terminal to ask on"), "{said}");
    assert!(said.contains("from table ontopix-vendor-buckets-sandbox"), "{said}");
    assert_eq!(sandbox.stdout(&["buckets", "rm", "openai#rpm"]).trim(), "removed openai#rpm");
}

#[test]
#[cfg(target_os = "linux")]
fn a_person_is_asked_before_a_bucket_is_removed() {
    let limits = file("rm-asked.toml", LIMITS);
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    for (answer, is_removed) in [("", false), ("n", false), ("y", true)] {
        let output =
            on_a_terminal(&sandbox.command(&["buckets", "rm", "openai#rpm"]), &format!("{answer}\n"));
        let said = text(&output.stdout);
        assert!(
            said.contains("Remove openai#rpm from table ontopix-vendor-buckets-sandbox?"),
            "{answer:?}: {said}"
        );
        assert_eq!(said.contains("removed openai#rpm"), is_removed, "{answer:?}: {said}");
        assert_eq!(
            !sandbox.run(&["buckets", "show", "openai#rpm"]).status.success(),
            is_removed,
            "{answer:?}"
        );
    }
}

#[test]
fn a_file_can_require_a_protocol() {
    let limits = file("protocol.toml", LIMITS);
    let limits = limits.to_str().unwrap();
    let sandbox = Sandbox::start(&["--buckets", limits]);
    for raised in [2, 0] {
        let applied = sandbox.run(&["buckets", "apply", limits, "--protocol", "1"]);
        let said = text(&applied.stderr);
        assert!(
            applied.status.success() && said.contains(&format!("required by {raised} more buckets")),
            "{said}"
        );
    }
    let unknown = sandbox.run(&["buckets", "apply", limits, "--protocol", "2"]);
    assert!(text(&unknown.stderr).contains("--protocol"), "a version sets no protocol that it does not know");
    sandbox.stdout(&["acquire", "openai#rpm"]);
}

#[test]
fn a_change_of_the_floor_is_shown_and_applied() {
    let sandbox = Sandbox::start(&[]);
    let bucket = "[[bucket]]\ndimension = \"a#rpm\"\ntype = \"requests\"\ncapacity = 500\nwindow = \"1m\"\n";
    let apply = |name: &str, more: &str, options: &[&str]| {
        let limits = file(name, &format!("{bucket}{more}"));
        sandbox.stdout(&[&["buckets", "apply", limits.to_str().unwrap()], options].concat())
    };
    apply("floor.toml", "", &[]);
    let adopts = apply("floor.toml", "adopt_lower_limit = true\n", &[]);
    assert!(adopts.contains("down to 50 a minute"), "{adopts}");
    let floor = "adopt_lower_limit = true\nadopt_at_least = 100\n";
    for options in [&["--dry-run"][..], &[]] {
        let changed = apply("floor.toml", floor, options);
        assert!(changed.contains("~ a#rpm") && changed.contains("down to 100 a minute"), "{changed}");
    }
    let again = apply("floor.toml", floor, &[]);
    assert!(again.contains("= a#rpm") && !again.contains("down to"), "{again}");
    assert_eq!(sandbox.json(&["buckets", "show", "a#rpm", "--json"])["adopt_at_least"], 100);
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

/// Beside a clock that is ahead, one that lags would be refused again and again.
#[test]
fn a_bucket_that_fills_before_clocks_agree_is_applied_with_a_warning() {
    let sandbox = Sandbox::start(&[]);
    let bucket = |name: &str, capacity| {
        format!(
            "[[bucket]]\ndimension = \"{name}\"\ntype = \"requests\"\ncapacity = {capacity}\nrefill_rate = 50\n"
        )
    };
    let limits = file("tight.toml", &(bucket("a#rpm", 1) + &bucket("b#rpm", 2)));
    for options in [&["--dry-run"][..], &[]] {
        let applied = sandbox.run(&[&["buckets", "apply", limits.to_str().unwrap()], options].concat());
        let said = text(&applied.stderr);
        assert!(applied.status.success(), "{said}");
        assert!(
            said.contains("a#rpm: capacity 1 has room for one call and is full again after 20 ms"),
            "{said}"
        );
        assert!(!said.contains("b#rpm") && said.matches("room for one call").count() == 1, "once: {said}");
    }
    let again = sandbox.json(&["buckets", "apply", "--json", limits.to_str().unwrap()]);
    assert!(again[0]["warning"].is_string() && again[1].get("warning").is_none(), "{again}");
}

/// A person's first minutes: no account, no table; then the file as it is.
#[test]
fn a_file_to_start_from_needs_no_table_and_is_applied_as_it_is() {
    let path = file("init.toml", "");
    let out = path.to_str().unwrap();
    let arguments = ["buckets", "init", "groq", "--model", "openai/gpt-oss-120b", "--out", out];
    let refused = sluice().args(arguments).output().unwrap();
    assert!(!refused.status.success() && text(&refused.stderr).contains("it exists, and is not overwritten"));
    std::fs::remove_file(&path).unwrap();
    let written = sluice().args(arguments).output().unwrap();
    assert!(text(&written.stdout).contains("then `sluice buckets apply"), "{}", text(&written.stderr));
    let printed = sluice().args(&arguments[..5]).output().unwrap();
    assert_eq!(text(&printed.stdout), std::fs::read_to_string(&path).unwrap());
    let sandbox = Sandbox::start(&[]);
    let applied = sandbox.stdout(&["buckets", "apply", out]);
    assert!(applied.contains("+ groq#openai/gpt-oss-120b#rpm"), "{applied}");
    let unknown = sluice().args(["buckets", "init", "acme"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("use one of: alibaba, anthropic"), "{}", text(&unknown.stderr));
}

#[test]
fn a_bucket_of_a_vendor_that_counts_in_windows_is_shown_as_it_is_in_the_table() {
    let sandbox = Sandbox::start(&[]);
    let bucket = "[[bucket]]\ndimension = \"acme#rpm\"\ntype = \"requests\"\nlimit = 600\nwindow = \"10s\"\n";
    let limits = file(
        "counted.toml",
        &format!("{bucket}counts = \"sliding\"\narrival_jitter = \"170ms\"\ncapacity = 2\n"),
    );
    let applied = sandbox.stdout(&["buckets", "apply", limits.to_str().unwrap()]);
    assert!(applied.contains("a burst of 2 requests, 57.666 a second, 1 a call"), "{applied}");
    let shown = sandbox.json(&["buckets", "show", "acme#rpm", "--json"]);
    assert_eq!((&shown["capacity"], &shown["refill_rate"]), (&2.into(), &57.666_345_226_615.into()));
    let again = sandbox.stdout(&["buckets", "apply", limits.to_str().unwrap()]);
    assert!(again.contains("= acme#rpm"), "{again}");
}

#[test]
fn a_bucket_of_tokens_without_a_cost_says_that_a_call_names_it() {
    let sandbox = Sandbox::start(&[]);
    let bucket =
        "[[bucket]]\ndimension = \"acme#tpm\"\ntype = \"tokens\"\ncapacity = 600\nwindow = \"60s\"\n";
    let limits = file("without_cost.toml", bucket);
    let applied = sandbox.stdout(&["buckets", "apply", limits.to_str().unwrap()]);
    assert!(applied.contains("a burst of 600 tokens, 10 a second, a call names its cost"), "{applied}");
    let listed = sandbox.stdout(&["buckets", "list"]);
    let line = listed.lines().find(|line| line.contains("acme#tpm")).unwrap();
    assert!(line.trim_end().ends_with('-'), "{listed}");
    let stated = file("with_cost.toml", &format!("{bucket}cost_per_call = 20\n"));
    let applied = sandbox.stdout(&["buckets", "apply", stated.to_str().unwrap()]);
    assert!(applied.contains("20 a call"), "{applied}");
}

#[test]
fn a_file_to_start_from_knows_the_profiles_of_ones_own() {
    let profile = file("acme.toml", "vendor = \"acme\"\n");
    let init = |profile: &str| {
        sluice().args(["buckets", "init", "acme"]).env("SLUICE_VENDORS", profile).output().unwrap()
    };
    let known = init(profile.to_str().unwrap());
    assert!(text(&known.stdout).contains("# dimension = \"acme#rpm\""), "{}", text(&known.stderr));
    let missing = init("missing.toml");
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("SLUICE_VENDORS: missing.toml: "), "{}", text(&missing.stderr));
}

/// Two callers of `search` fit into its part; the third borrows from the common part.
#[test]
fn shares_are_shown_with_what_they_lent_and_borrowed() {
    let limits = file(
        "shared.toml",
        r#"
[[bucket]]
dimension = "openai#rpm"
type = "requests"
capacity = 4
window = "1h"
shares = { search = 0.5 }

[[bucket]]
dimension = "elevenlabs#concurrent"
type = "concurrent"
capacity = 4
shares = { search = 0.5 }
"#,
    );
    let sandbox = Sandbox::start(&["--buckets", limits.to_str().unwrap()]);
    let slot = "elevenlabs#concurrent";
    let hold = |_| sandbox.command(&["run", "--share", "search", slot, "--", "sleep 60"]).spawn().unwrap();
    let holders: Vec<_> = (0..3).map(hold).collect();
    wait_until("three leases", || sandbox.json(&["leases", "--json"]).as_array().unwrap().len() == 3);
    let told = |name: &str, figures: [&str; 3]| {
        let shown = sandbox.json(&["buckets", "show", name, "--json"]);
        let of = |share: &Value| figures.map(|figure| share[figure].as_i64());
        shown["shares"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(
        told(slot, ["capacity", "lent", "borrowed"]),
        [[Some(2), Some(0), Some(1)], [Some(2), Some(1), Some(0)]]
    );
    let shown = sandbox.stdout(&["buckets", "show", slot]);
    assert!(shown.contains("search    0 of 2 free, borrowed 1, keeps"), "{shown}");
    assert!(shown.contains("common    1 of 2 free, lent 1, keeps"), "{shown}");
    for mut holder in holders {
        Command::new("kill").arg(holder.id().to_string()).status().unwrap();
        holder.wait().unwrap();
    }
    (0..3).for_each(|_| drop(sandbox.stdout(&["acquire", "--share", "search", "openai#rpm"])));
    assert_eq!(
        told("openai#rpm", ["lent", "borrowed", "capacity"]),
        [[Some(0), Some(1), Some(2)], [Some(1), Some(0), Some(2)]]
    );
    let shown = sandbox.stdout(&["buckets", "show", "openai#rpm"]);
    assert!(shown.contains("lent 1 so far, keeps"), "{shown}");
    assert!(shown.contains("borrowed 1 so far, keeps"), "{shown}");
}

/// What callers have used of a share stays used, whatever file is applied.
#[test]
fn shares_change_and_go_with_their_levels() {
    let of = |name: &str, shares: &str| {
        let bucket = "dimension = \"openai#rpm\"\ntype = \"requests\"\ncapacity = 10\nwindow = \"1000h\"\n";
        file(name, &format!("[[bucket]]\n{bucket}{shares}"))
    };
    let half = of("half.toml", "shares = { search = 0.5 }\n");
    let most = of("most.toml", "shares = { search = 0.8 }\n");
    let none = of("none.toml", "");
    let sandbox = Sandbox::start(&["--buckets", half.to_str().unwrap()]);
    (0..3).for_each(|_| drop(sandbox.stdout(&["acquire", "--share", "search", "openai#rpm"])));
    let lines = || {
        let shown = sandbox.json(&["buckets", "show", "openai#rpm", "--json"]);
        let of = |share: &Value| {
            let figure = |name: &str| share[name].as_f64().map(f64::floor);
            (share["share"].as_str().unwrap().to_owned(), figure("capacity"), figure("level"))
        };
        shown["shares"].as_array().into_iter().flatten().map(of).collect::<Vec<_>>()
    };
    let line = |name: &str, capacity, level| (name.to_owned(), Some(capacity), Some(level));
    assert_eq!(lines(), [line("search", 5.0, 2.0), line("common", 5.0, 5.0)]);
    sandbox.stdout(&["buckets", "apply", most.to_str().unwrap()]);
    assert_eq!(
        lines(),
        [line("search", 8.0, 2.0), line("common", 2.0, 2.0)],
        "no line gets what it did not have"
    );
    sandbox.stdout(&["buckets", "apply", none.to_str().unwrap()]);
    assert_eq!(lines(), []);
    let shown = sandbox.json(&["buckets", "show", "openai#rpm", "--json"]);
    assert_eq!(shown["level"].as_f64().map(f64::floor), Some(4.0), "{shown}");
}
