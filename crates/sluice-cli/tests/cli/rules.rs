//! The Prometheus rules and the SDK know the same metrics, as Prometheus spells them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use metrics_exporter_prometheus::PrometheusBuilder;
use sluice_table::metric::{METRICS, MetricKind, describe_metrics};

/// Labels that Prometheus adds to what it scrapes.
const OF_THE_SCRAPE: [&str; 3] = ["environment", "instance", "job"];

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../monitoring/prometheus").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every metric of the SDK's table as an exporter with Prometheus' own conventions spells it, with its
/// labels.
fn exported() -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut spelled = BTreeMap::new();
    for metric in METRICS {
        let recorder = PrometheusBuilder::new().with_recommended_naming(true).build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            describe_metrics();
            let labels: Vec<_> =
                metric.labels().iter().map(|name| metrics::Label::new(*name, "any")).collect();
            match metric.kind() {
                MetricKind::Counter => metrics::counter!(metric.name(), labels).increment(1),
                MetricKind::Gauge => metrics::gauge!(metric.name(), labels).set(1.0),
                _ => metrics::histogram!(metric.name(), labels).record(1.0),
            }
        });
        let text = handle.render();
        let samples = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        for line in samples {
            let name = line.split(['{', ' ']).next().unwrap().to_owned();
            spelled.insert(name, metric.labels().iter().copied().collect());
        }
    }
    spelled
}

/// Names of metrics, not those that the rules record, which have a colon.
fn named(text: &str) -> BTreeSet<String> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let words = text.split(|letter| !is_name(letter)).filter(|word| word.starts_with("sluice_"));
    words.map(str::to_owned).collect()
}

#[test]
fn the_rules_look_at_metrics_that_are_exported() {
    let exported = exported();
    let (rules, tests) = (read("sluice.rules.yml"), read("sluice.rules.test.yml"));
    let in_rules = named(&rules);
    assert!(in_rules.len() > 10, "{in_rules:?}");
    for name in &in_rules {
        assert!(exported.contains_key(name), "{name} is not among {:?}", exported.keys());
    }
    // And what is made up for their tests is what they look at, with the labels that it has.
    let series = tests.lines().filter_map(|line| line.trim().strip_prefix("- series: "));
    let series = series.filter(|one| one.starts_with("sluice_"));
    let mut tested = BTreeSet::new();
    for one in series {
        let (name, labels) = one.split_once('{').unwrap_or((one, ""));
        assert!(in_rules.contains(name), "no rule looks at {name}");
        tested.insert(name.to_owned());
        let labels =
            labels.split(',').filter_map(|label| label.trim().split_once('=')).map(|(label, _)| label);
        let known = exported.get(name).unwrap();
        for label in labels.filter(|label| !OF_THE_SCRAPE.contains(label)) {
            assert!(known.contains(label), "{name} has no label {label}");
        }
    }
    assert_eq!(tested, in_rules, "a rule is not tested");
}

/// Where a rule sends its reader.
#[test]
fn each_alert_leads_to_a_section_of_the_manual() {
    let rules = read("sluice.rules.yml");
    let manual = read("../../docs/operations.md");
    let alerts = rules.matches("- alert: ").count();
    let rules = rules.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut led = 0;
    for section in rules.split("runbook_url: docs/operations.md#").skip(1) {
        let section = section.split(' ').next().unwrap();
        let is_heading = |line: &str| {
            line.starts_with('#') && line.trim_matches(['#', ' ', '`']).to_lowercase() == section
        };
        assert!(manual.lines().any(is_heading), "docs/operations.md has no section {section}");
        led += 1;
    }
    assert_eq!(led, alerts);
}
