//! The table of `docs/vendors.md` says what the profiles say.

use sluice_core::LimitType;
use sluice_vendors::{Counted, Kept, Profile, Quota, QuotaHeaders, Window};

use crate::profiles::vendors;

const DOCUMENT: &str = include_str!("../../../../docs/vendors.md");

fn window(window: Window) -> String {
    match window {
        Window::Documented(window) => humantime::format_duration(window).to_string().replace("1day", "1d"),
        Window::Implied => "evenly".to_owned(),
        _ => "?".to_owned(),
    }
}

fn reported(profile: &Profile) -> String {
    if profile.reads_standard {
        return "any".to_owned();
    }
    let word = |names: &QuotaHeaders| {
        let kind = match names.kind {
            Quota::Requests => "requests",
            Quota::Tokens => "tokens",
            Quota::InputTokens => "input tokens",
            Quota::OutputTokens => "output tokens",
            Quota::ProjectTokens => "a project's tokens",
            Quota::PriorityInputTokens => "priority input tokens",
            Quota::PriorityOutputTokens => "priority output tokens",
            _ => return "calls at once".to_owned(),
        };
        format!("{kind} ({})", window(names.window))
    };
    profile.quotas.iter().map(word).collect::<Vec<_>>().join(", ")
}

fn counted(profile: &Profile) -> String {
    let mut all: Vec<&str> = profile
        .tokens
        .iter()
        .map(|count| if count.counted == Counted::OnArrival { "on arrival" } else { "as used" })
        .collect();
    all.dedup();
    if all.is_empty() { "not said".to_owned() } else { all.join(", ") }
}

fn failed(profile: &Profile) -> &'static str {
    let kept = |limit_type| profile.failed.is_some().then(|| profile.kept_by_failure(limit_type));
    match (kept(LimitType::Requests), kept(LimitType::Tokens)) {
        (Some(Kept::All), Some(Kept::All)) => "all",
        (Some(Kept::All), Some(Kept::Nothing)) => "its request",
        (Some(Kept::Nothing), _) => "nothing of its request",
        _ => "not said",
    }
}

#[test]
fn the_table_of_vendors_is_what_the_profiles_say() {
    let named = |profile: &Profile| {
        let names: Vec<String> =
            std::iter::once(&profile.vendor).chain(&profile.also).map(|name| format!("`{name}`")).collect();
        names.join(", ")
    };
    let mut missing: Vec<String> = vendors()
        .filter(|profile| profile.vendor != "other")
        .map(|profile| {
            let (names, reported, counted, failed) =
                (named(profile), reported(profile), counted(profile), failed(profile));
            format!("| {} | {names} | {reported} | {counted} | {failed} |", profile.vendor)
        })
        .filter(|line| !DOCUMENT.contains(line.as_str()))
        .collect();
    missing.sort();
    assert!(missing.is_empty(), "docs/vendors.md lacks these lines:\n{}", missing.join("\n"));
}

#[test]
fn the_table_of_hosts_is_what_the_profiles_say() {
    let lacks = |line: &String| !DOCUMENT.contains(line.as_str());
    let hosts = |profile: &Profile| {
        profile.hosts.iter().map(|host| format!("`{host}`")).collect::<Vec<_>>().join(", ")
    };
    let lines = vendors().filter(|profile| !profile.hosts.is_empty());
    let lines = lines.map(|profile| format!("| {} | {} |", profile.vendor, hosts(profile)));
    let missing: Vec<_> = lines.filter(lacks).collect();
    assert!(missing.is_empty(), "docs/vendors.md lacks these lines:\n{}", missing.join("\n"));
}
