//! Files of limits with a fault, or with many.
#![allow(clippy::unwrap_used)]

use super::*;

fn fault(text: &str) -> String {
    BucketsFile::parse("limits.toml", text).unwrap_err().to_string()
}

#[test]
fn the_sample_is_what_it_says() {
    let file = BucketsFile::parse("sample.toml", include_str!("../sample.toml")).unwrap();
    assert_eq!(file.limits.len(), 4);
    assert_eq!(file.limits[1].1.whole().cost_per_call().to_string(), "1000");
    assert_eq!(file.limits[0].1.whole().refill_rate().to_string(), "8.333333333333");
}

/// The first block is a whole file.
#[test]
fn the_example_of_the_documentation_is_a_file() {
    let page = include_str!("../../../../../docs/buckets.md");
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let file = BucketsFile::parse("buckets.md", example).unwrap();
    let limits: Vec<_> =
        file.limits.iter().map(|(name, limit)| format!("{name} {}", limit.whole().capacity())).collect();
    assert_eq!(limits, ["openai#rpm 10", "acme#rpm 3", "openai#tpm 30000", "elevenlabs#concurrent 5"]);
}

/// For each fault: the text under `[[bucket]]`, its position, and what the message says is accepted.
const FAULTS: [(&str, &str, &str); 18] = [
    (
        "dimension = \"lease#x\"\ntype = \"requests\"\ncapacity = 1",
        "limits.toml:2: dimension = \"lease#x\"",
        "reserved",
    ),
    (
        "dimension = \"a#b\"\ntype = \"request\"\ncapacity = 1",
        "limits.toml:3: type = \"request\"",
        "\"requests\"",
    ),
    (
        "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = -5\nwindow = \"1m\"",
        "limits.toml:4: capacity = -5",
        "above 0",
    ),
    (
        "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = nan\nwindow = \"1m\"",
        "limits.toml:4: capacity = nan",
        "above 0",
    ),
    (
        "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = \"9\"\nwindow = \"1m\"",
        "limits.toml:4: capacity = \"9\"",
        "number",
    ),
    (
        "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = 5\nwindow = \"0s\"",
        "limits.toml:5: window = \"0s\"",
        "above 0",
    ),
    (
        "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = 10000000\nwindow = \"1s\"",
        "limits.toml:5: window = \"1s\"",
        "the highest refill rate, 9223372.03",
    ),
    (
        "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = 5\nwindow = \"1M\"",
        "limits.toml:5: window = \"1M\"",
        "\"1m\" (a minute)",
    ),
    (
        "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = 5\nrefill_rate = -1",
        "limits.toml:5: refill_rate = -1",
        "above 0",
    ),
    (
        "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = 5\nwindow = \"1m\"\nrefill_rate = 1",
        "limits.toml:5: window = \"1m\"",
        "not both",
    ),
    (
        "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = 5",
        "limits.toml:2: dimension = \"a#b\"",
        "window = \"1m\"",
    ),
    (
        "dimension = \"a#b\"\ntype = \"concurrent\"\ncapacity = 5\nwindow = \"1m\"",
        "limits.toml:5: window = \"1m\"",
        "no window",
    ),
    (
        "dimension = \"a#b\"\ntype = \"concurrent\"\ncapacity = 2.5",
        "limits.toml:4: capacity = 2.5",
        "whole number",
    ),
    (
        "dimension = \"a#b\"\ntype = \"concurrent\"\ncapacity = 2\ncost_per_call = 3",
        "limits.toml:5: cost_per_call = 3",
        "capacity 2",
    ),
    ("dimension = \"a#b\"\ntype = \"concurrent\"\ncapacity = 2\ncost = 3", "limits.toml:5:", "cost"),
    ("dimension = \"a#b\"\ntype = \"concurrent\"", "limits.toml:2: dimension = \"a#b\"", "no capacity"),
    ("dimension = \"a#b\"\ntype = \"requests\"", "limits.toml:2: dimension = \"a#b\"", "no capacity"),
    (
        "dimension = \"a#b\"\ntype = \"tokens\"\ncapacity = 0.5\nwindow = \"1m\"",
        "limits.toml:4: capacity = 0.5",
        "one call",
    ),
];

#[test]
fn a_fault_names_file_line_value_and_what_is_taken() {
    for (body, place, takes) in FAULTS {
        let error = fault(&format!("[[bucket]]\n{body}\n"));
        assert!(error.contains(place) && error.contains(takes), "{body}\n-> {error}");
    }
    assert!(fault("").contains("no bucket"));
    let one = "[[bucket]]\ndimension = \"a#b\"\ntype = \"concurrent\"\ncapacity = 2\n";
    assert!(
        fault(&format!("{one}{one}"))
            .contains("limits.toml:6: dimension = \"a#b\": declared twice, first in line 2")
    );
}

/// A file with a mistake in nearly every line, each of which once took a run of its own.
#[test]
fn all_faults_are_told_at_once_in_the_order_of_the_file() {
    let text = r#"window = "1m"

[[bucket]]
dimension = "openai"
type = "request"
capacity = "9"
windw = "1m"

[[bucket]]
type = "concurrent"
capacity = 2.5
window = "1m"

[[bucket]]
dimension = "acme#rpm"
type = "requests"
capacity = 0.5
window = "60 parsecs"

[[buckets]]
dimension = "acme#tpm"

[[bucket]]
dimension = "acme#tpm"
type = "tokens"
capacity = 5
"#;
    let said = fault(text);
    let places: Vec<_> = said.lines().map(|line| line.split(':').nth(1).unwrap()).collect();
    assert_eq!(places, ["1", "4", "5", "6", "7", "9", "11", "12", "17", "18", "20", "24"], "{said}");
    for part in [
        "1: window is in no bucket: write [[bucket]]",
        "4: dimension = \"openai\": ",
        "6: capacity = \"9\": it must be a number above 0",
        "7: windw: a bucket has no such field; it has dimension, type, capacity, limit, window",
        "9: this bucket has no dimension: add dimension = \"openai#rpm\"",
        "11: capacity = 2.5: it must be a whole number of slots",
        "12: window = \"1m\": leave it out: a concurrent limit has no window",
        "17: capacity = 0.5: it has no room for one call",
        "18: window = \"60 parsecs\": it must be a time above 0, as in \"60s\"",
        "20: buckets is nothing that a file of limits has: a bucket begins with [[bucket]]",
    ] {
        assert!(said.contains(part), "{part}\n-> {said}");
    }
}

#[test]
fn what_is_no_toml_is_told_as_it_should_be_written() {
    let text =
        "[[bucket]]\ndimension = openai#rpm\ntype = requests\ncapacity = 5\nwindow = 60s\nrefill_rate = -1\n";
    let said = fault(text);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "limits.toml:2: dimension = openai#rpm: write it in quotes: dimension = \"openai#rpm\"",
            "limits.toml:3: type = requests: write it in quotes: type = \"requests\"",
            "limits.toml:5: window = 60s: write it in quotes: window = \"60s\"",
            "limits.toml:6: refill_rate = -1: it must be a number of tokens a second, above 0",
        ]
    );
    assert!(
        fault("[bucket]\ndimension = \"a#b\"")
            .starts_with("limits.toml:1: write [[bucket]], with two brackets")
    );
    assert!(fault("bucket = 5").starts_with("limits.toml:1: bucket is in no bucket"));
}

#[test]
fn a_head_that_is_not_closed_is_told_as_it_should_be_written() {
    let fields = "dimension = \"a#b\"\ntype = \"concurrent\"\ncapacity = 2\n";
    let second = fields.replace("a#b", "a#c");
    for (text, line) in [
        (format!("[[bucket]\n{fields}"), "1: [[bucket]: write [[bucket]], with two brackets on each side"),
        (format!("[[bucket\n{fields}"), "1: [[bucket: write [[bucket]], with two brackets on each side"),
        (
            format!("[[bucket]]\n{fields}[[bucket]\n{second}"),
            "5: [[bucket]: write [[bucket]], with two brackets on each side",
        ),
        (
            format!("[[bucket]]\n{fields}[bucket.shares\nsearch = 0.5\n"),
            "5: [bucket.shares: write [bucket.shares], with one bracket on each side",
        ),
    ] {
        assert_eq!(fault(&text), format!("limits.toml:{line}"), "{text}");
    }
}

#[test]
fn a_file_that_cannot_be_read_says_what_to_do() {
    let said = |path: &str| BucketsFile::read(Path::new(path)).unwrap_err().to_string();
    let missing = said("no-such-limits.toml");
    assert!(missing.starts_with("no-such-limits.toml: there is no such file; name"), "{missing}");
    assert!(missing.contains("`sluice init`") && !missing.contains("os error"), "{missing}");
    assert!(said(env!("CARGO_MANIFEST_DIR")).contains("this is a folder"));
}

/// The faults of one bucket: those of its fields hide none of those that need several.
#[test]
fn all_faults_of_one_bucket_are_told_together() {
    for (bucket, lines) in [
        // Without a name.
        ("type = \"requests\"\ncapacity = 5\ncost_per_call = 6\n", &["1", "1", "4"][..]),
        (
            "dimension = \"a#b\"\ntype = \"requests\"\nlimit = -1\ncapacity = 2\ncost_per_call = 3",
            &["2", "4", "6"],
        ),
        ("dimension = \"a#b\"\ntype = \"tokens\"\nlimit = 9\ncounts = \"sliding\"", &["3", "4"]),
        (
            "dimension = \"a#b\"\ntype = \"requests\"\nlimit = 9\ncounts = \"sometimes\"\nrefill_rate = -1",
            &["4", "5", "6"],
        ),
        (
            "dimension = \"a#b\"\ntype = \"concurrent\"\ncapacity = 2.5\nwindow = \"soon\"\nlimit = \"x\"\n\
             arrival_jitter = 1\ncounts = 3\nrefill_rate = \"fast\"",
            &["4", "5", "6", "7", "8", "9"],
        ),
        (
            "dimension = \"a#b\"\ntype = \"requests\"\ncapacity = 100\nwindow = \"1m\"\nadopt_at_least = 5\n\
             [bucket.shares]\na = 0.001\nb = 0.002\n\"two words\" = 0.1\nc = \"half\"",
            &["6", "8", "9", "10", "11"],
        ),
    ] {
        let said = fault(&format!("[[bucket]]\n{bucket}\n"));
        let places: Vec<_> = said.lines().map(|line| line.split(':').nth(1).unwrap()).collect();
        assert_eq!(places, lines, "{bucket}\n-> {said}");
    }
}
