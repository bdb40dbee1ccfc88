//! What the command says of itself.

use super::*;

fn said(arguments: &[&str]) -> String {
    let output = sluice().args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn without_arguments_it_says_what_to_do_next() {
    let first = said(&[]);
    for command in ["sluice demo", "sluice init", "sluice sandbox", "sluice --help"] {
        assert!(first.contains(command), "{command}: {first}");
    }
    let named = sluice().env("SLUICE_ENV", "pre").output().unwrap();
    let named = text(&named.stdout);
    assert!(
        named.contains("names pre") && named.contains("sluice doctor") && !named.contains("sluice init"),
        "{named}"
    );
    assert!(first.lines().all(|line| line.chars().count() <= 80), "{first}");
    assert!(!first.contains('\u{1b}'), "no colour where there is no terminal: {first:?}");
}

/// The command cannot read a session of `aws sso login` itself.
#[test]
fn without_credentials_it_says_how_to_take_those_of_the_aws_cli() {
    let profile = "[profile mine]\nsso_session = ours\nsso_account_id = 111122223333\nsso_role_name = operator\n\
                   [sso-session ours]\nsso_region = eu-central-1\nsso_start_url = https://example.com/start\n";
    let output = sluice()
        .env("AWS_CONFIG_FILE", file("sso-config", profile))
        .envs([("AWS_PROFILE", "mine"), ("SLUICE_ENV", "pre")])
        .args(["buckets", "list"])
        .output()
        .unwrap();
    let error = text(&output.stderr);
    assert!(!output.status.success() && error.contains("no valid AWS credentials for Scan"), "{error}");
    assert!(error.contains("eval \"$(aws configure export-credentials --format env)\""), "{error}");
    assert!(error.contains("all the variables that `sluice sandbox` prints"), "{error}");
}

#[test]
fn help_lists_commands_by_who_uses_them() {
    for arguments in [&["--help"][..], &["-h"], &["help"]] {
        let help = said(arguments);
        let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text}: {help}"));
        assert!(at("Begin:") < at("  init ") && at("  init ") < at("Set limits:"), "{help}");
        assert!(
            at("See what happens:") < at("  watch ") && at("  watch ") < at("Test and measure:"),
            "{help}"
        );
        assert!(
            !help.contains("stress-worker") && !help.contains('\u{1b}') && !help.contains("\n\n\n"),
            "{help}"
        );
    }
}

/// What a command prints, and its error.
const COLOURED: [&[&str]; 2] = [&["--help"], &["acquire", "openai#rpm"]];

#[test]
fn colours_follow_no_color() {
    let is_coloured = |arguments: &[&str], variables: &[&str]| {
        let mut command = sluice();
        command.env_remove("NO_COLOR").args(arguments).envs(variables.iter().map(|name| (name, "1")));
        let output = command.output().unwrap();
        text(&output.stdout).contains('\u{1b}') || text(&output.stderr).contains('\u{1b}')
    };
    for arguments in COLOURED {
        assert!(!is_coloured(arguments, &[]), "{arguments:?}: no terminal");
        assert!(is_coloured(arguments, &["CLICOLOR_FORCE"]), "{arguments:?}");
        assert!(!is_coloured(arguments, &["CLICOLOR_FORCE", "NO_COLOR"]), "{arguments:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_terminal_has_colours_unless_no_color_is_set() {
    for arguments in COLOURED {
        let mut command = sluice();
        command.env_remove("NO_COLOR").env("TERM", "xterm").args(arguments);
        let said = text(&on_a_terminal(&command, "").stdout);
        assert!(said.contains('\u{1b}'), "{arguments:?}: {said}");
        let said = text(&on_a_terminal(command.env("NO_COLOR", "1"), "").stdout);
        assert!(!said.contains('\u{1b}'), "{arguments:?}: {said:?}");
    }
}

#[test]
fn shells_and_man_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let completions = said(&["completions", shell]);
        assert!(completions.contains("cool-down") && completions.contains("ticket-within"), "{shell}");
        assert!(!completions.contains("stress-worker"), "{shell}");
    }
    let page = said(&["man"]);
    assert!(page.contains(".TH sluice 1") && page.contains("sluice\\-buckets(1)"), "{page}");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("man");
    said(&["man", "--dir", folder.to_str().unwrap()]);
    let pages: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name()).collect();
    let page = std::fs::read_to_string(folder.join("sluice.1")).unwrap();
    let name = page.split(".SH ").find_map(|section| section.strip_prefix("NAME\n")).unwrap();
    assert_eq!(name.lines().count(), 1, "{name}");
    assert!(page.contains("Exit codes:"), "{page}");
    for page in ["sluice.1", "sluice-buckets.1", "sluice-buckets-apply.1", "sluice-run.1"] {
        assert!(pages.iter().any(|name| name == page), "{page}: {pages:?}");
    }
    assert!(!pages.iter().any(|name| name == "sluice-stress-worker.1"), "{pages:?}");
}

/// From nothing to a sandbox with the limits that it wrote.
#[test]
fn init_writes_what_a_product_needs_to_begin_with() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("My Product");
    let _ = std::fs::remove_dir_all(&folder);
    let dir = folder.to_str().unwrap();
    let arguments =
        ["init", "--vendor", "groq", "--model", "openai/gpt-oss-120b", "--env", "sandbox", "--dir", dir];
    let init = said(&arguments);
    for part in
        ["sluice sandbox --buckets", "SLUICE_ENV=sandbox SLUICE_CALLER=my-product", ".vendor(\"groq\")"]
    {
        assert!(init.contains(part), "{part}: {init}");
    }
    let sandbox = Sandbox::start(&["--buckets", folder.join("limits.sandbox.toml").to_str().unwrap()]);
    assert!(sandbox.stdout(&["buckets", "list"]).contains("groq#openai/gpt-oss-120b#rpm"));
    let again = sluice().args(arguments).output().unwrap();
    assert_eq!(again.status.code(), Some(1));
    assert!(
        text(&again.stderr).contains("limits.sandbox.toml: it exists, and is not overwritten"),
        "{}",
        text(&again.stderr)
    );
    for (missing, says) in [
        (&["init", "--dir", dir][..], "name --vendor, one of: alibaba, anthropic"),
        (&["init", "--dir", dir, "--vendor", "groq"], "name --env, one of: sandbox, pre, prod"),
        (&["init", "--dir", dir, "--vendor", "openai", "--env", "pre"], "name --tier, one of: "),
    ] {
        let output = sluice().args(missing).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains("there is no terminal to ask on") && said.contains(says), "{said}");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing else was written");
}

/// A file without figures, and a vendor whose calls go into slots.
#[test]
fn init_says_what_fits_the_vendor_and_its_file() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fits");
    let _ = std::fs::remove_dir_all(&folder);
    let init = |of: &[&str]| {
        let dir = folder.join(of[1]);
        let arguments = [&["init", "--env", "pre", "--dir", dir.to_str().unwrap()], of].concat();
        let output = sluice().args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    for of in [&["--vendor", "gemini"][..], &["--vendor", "elevenlabs", "--tier", "another"]] {
        let said = init(of);
        assert!(said.contains("1. Put your account's figures into"), "{said}");
        assert!(!said.contains("Compare each figure"), "{said}");
    }
    let bedrock = init(&["--vendor", "bedrock"]);
    assert!(bedrock.contains("with client.slot(") && bedrock.contains("docs/bedrock.md"), "{bedrock}");
    assert!(!bedrock.contains("sluice.httpx2.Transport"), "{bedrock}");
}

/// Two answers that are none, then the vendor, the tier by its number, and the environment.
#[test]
#[cfg(target_os = "linux")]
fn init_asks_a_person_until_each_answer_is_one() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("Asked Product");
    let _ = std::fs::remove_dir_all(&folder);
    let mut command = sluice();
    command.args(["init", "--dir", folder.to_str().unwrap()]);
    let output = on_a_terminal(&command, "\nnobody\nopenai\n1\npre\n");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}");
    let parts = [
        "Which vendor do you call?",
        "nothing was typed: type a name, as in ",
        "\"nobody\" is not in the list: type a name, as in ",
        "Which tier is your account of openai in?",
        "For which environment?",
        "infra/envs/pre.tfvars",
        "task infra:apply ENV=pre",
    ];
    let found: Vec<_> = parts.map(|part| said.find(part).unwrap_or_else(|| panic!("{part}: {said}"))).into();
    assert!(found.is_sorted(), "{said}");
    let limits = folder.join("limits.pre.toml");
    assert!(said.contains(&format!("task buckets:apply ENV=pre FILE='{}'", limits.display())), "{said}");
    let limits = std::fs::read_to_string(limits).unwrap();
    assert!(limits.contains("openai#"), "{limits}");
    let terraform = std::fs::read_to_string(folder.join("sluice.pre.tfvars")).unwrap();
    assert!(terraform.contains("\"asked-product\" = { vendors = [\"openai\"] }"), "{terraform}");
}
