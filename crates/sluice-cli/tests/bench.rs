//! `sluice bench`, as a person or a script runs it: the built program.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    for (name, _) in
        std::env::vars().filter(|(name, _)| name.starts_with("SLUICE_") || name.starts_with("AWS_"))
    {
        command.env_remove(name);
    }
    command.arg("bench").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_figures_of_a_scenario_are_told_as_json() {
    let output = bench(&["--for", "1", "--scenario", "together", "--json", "--allow-missed"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let measures = report["measures"].as_array().unwrap();
    let of = |stage: &str, system: &str| {
        let is_it = |measure: &&Value| measure["stage"] == stage && measure["system"] == system;
        measures.iter().find(is_it).unwrap_or_else(|| panic!("{stage} {system}: {report}"))
    };
    for (stage, system) in [
        ("loopback", "sluice"),
        ("loopback", "reference"),
        ("dynamo_profile", "sluice"),
        ("dynamo_profile", "reference"),
    ] {
        let measure = of(stage, system);
        assert!(measure["grants"].as_u64().unwrap() > 0, "{measure}");
        assert_eq!(measure["errors"], 0, "{measure}");
        assert!(measure["acquire_p99_us"].as_f64() >= measure["acquire_p50_us"].as_f64(), "{measure}");
        let has_units = measure["write_units_per_grant"].as_f64().is_some_and(|units| units > 0.0);
        assert_eq!(has_units, stage == "dynamo_profile", "{measure}");
    }
    let sluice = of("dynamo_profile", "sluice")["grants_per_second"].as_f64().unwrap();
    let reference = of("dynamo_profile", "reference")["grants_per_second"].as_f64().unwrap();
    assert!(sluice > 2.0 * reference, "in virtual time, whatever the machine does: {sluice} {reference}");
    assert!(text(&output.stderr).contains("together"), "progress goes to standard error");
}

#[test]
fn an_unknown_scenario_lists_those_that_there_are() {
    let output = bench(&["--scenario", "everything"]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    for scenario in ["ample", "processes", "saturation", "together", "concurrency", "prefetch", "memory"] {
        assert!(message.contains(scenario), "{scenario}: {message}");
    }
}

#[test]
fn a_missed_target_is_an_error_unless_it_is_allowed() {
    // A debug build on any machine: the limiter in memory is far ahead, and no claim is made here about which
    // target is met.
    let run = |more: &[&str]| bench(&[&["--for", "1", "--scenario", "prefetch", "--json"], more].concat());
    let output = run(&[]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let is_missed = report["targets"].as_array().unwrap().iter().any(|target| target["met"] == false);
    assert_eq!(output.status.code(), Some(i32::from(is_missed)), "{report}");
    assert_eq!(run(&["--allow-missed"]).status.code(), Some(0));
}
