//! `docs/metrics.md` and the table in the code say the same.

use std::collections::BTreeSet;

use sluice_table::metric::{METRICS, MetricKind, MetricSource};

const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");

/// A line of the document's table: name, kind, unit, labels, by whom it is told.
type Line = (String, &'static str, String, Vec<String>, &'static str);

fn of_document() -> BTreeSet<Line> {
    let lines = DOCUMENT.lines().filter(|line| line.starts_with("| `sluice."));
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
    let line = |cells: Vec<&str>| {
        let code = |text: &str| text.trim_matches('`').to_owned();
        let kind = ["counter", "gauge", "histogram"].into_iter().find(|kind| *kind == cells[1]).unwrap();
        let labels = cells[3].split(", ").filter(|label| !label.is_empty()).map(code).collect();
        let by = ["process", "table", "both"].into_iter().find(|by| *by == cells[4]).unwrap();
        assert!(!cells[5].is_empty(), "{cells:?}");
        (code(cells[0]), kind, cells[2].to_owned(), labels, by)
    };
    // The table of spans has three columns.
    lines.map(cells).filter(|cells| cells.len() == 6).map(line).collect()
}

#[test]
fn the_document_and_the_code_name_the_same_metrics() {
    let in_code = METRICS.iter().map(|metric| -> Line {
        let kind = match metric.kind() {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
            other => panic!("{other:?}"),
        };
        let by = match metric.source() {
            MetricSource::Process => "process",
            MetricSource::Table => "table",
            MetricSource::Both => "both",
            other => panic!("{other:?}"),
        };
        let labels = metric.labels().iter().map(|label| (*label).to_owned()).collect();
        (metric.name().to_owned(), kind, metric.unit().to_owned(), labels, by)
    });
    let in_code: BTreeSet<Line> = in_code.collect();
    let documented = of_document();
    let only =
        |these: &BTreeSet<Line>, those: &BTreeSet<Line>| these.difference(those).cloned().collect::<Vec<_>>();
    assert_eq!((only(&in_code, &documented), only(&documented, &in_code)), (Vec::new(), Vec::new()));
    assert_eq!(in_code.len(), METRICS.len(), "a name stands in the table once");
}
