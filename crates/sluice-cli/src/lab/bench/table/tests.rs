use super::*;

fn measure(scenario: &'static str, stage: Stage) -> Measure {
    Measure {
        scenario,
        case: "64 processes, 16 callers each".to_owned(),
        stage,
        system: "inline leases",
        callers: 1_024,
        seconds: 2.0,
        grants: 123_456_789,
        grants_per_second: 9_728_394.5,
        false_refusals: 1_234_567,
        refusals: 99,
        errors: 7,
        last_error: Some(
            "the release of lease#row100#concurrent#01a1ff54eafb775f82e13d17799626af met a conflict"
                .to_owned(),
        ),
        requests_per_grant: Some(123.456),
        writes_per_grant: Some(1.0),
        failed_writes_per_grant: Some(1_234.5),
        write_units_per_grant: Some(123.4),
        read_units_per_grant: Some(12.34),
        acquire_p50_us: Some(999.4),
        acquire_p99_us: Some(999_499.0),
        acquire_p999_us: Some(9_999_999.0),
        cpu_us_per_grant: Some(16_835.0),
        resident_kb: None,
        growth_kb: Some(123_456),
        quota_used: Some(1.0),
        above_bound: Some(12_345),
        out_of_order: Some(12_345),
    }
}

fn widths(lines: &[String]) -> Vec<usize> {
    let plain = lines.iter().map(|line| anstream::adapter::strip_str(line).to_string());
    plain.map(|line| line.chars().count()).collect()
}

#[test]
fn every_line_fits_into_80_columns_and_no_two_figures_touch() {
    for (scenario, stage) in
        [("ample", Stage::DynamoProfile), ("saturation", Stage::DynamoProfile), ("memory", Stage::Loopback)]
    {
        let lines = measures(&[measure(scenario, stage)]);
        assert!(widths(&lines).iter().all(|width| *width <= 80), "{lines:#?}");
        if let Some(row) = lines.iter().find(|line| line.starts_with("inline leases")) {
            let figures = row.trim_start_matches("inline leases").split_whitespace().count();
            // A share has a space before its sign.
            assert_eq!(figures, if scenario == "saturation" { 10 } else { 9 }, "{row}");
            assert!(lines.iter().any(|line| line.contains("errors, as: the release of")), "{lines:#?}");
        } else {
            assert!(lines.iter().any(|line| line.contains("123,456,789 in 2.0 s: 120.5 MB")), "{lines:#?}");
        }
    }
}

#[test]
fn a_missed_target_says_so_within_80_columns() {
    let target = |met| Target {
        scenario: "saturation",
        what: "600/min, 50 processes: failed writes a grant".to_owned(),
        wanted: ">= 1000000".to_owned(),
        measured: Some(12_345_678.9),
        met,
    };
    let lines = targets(&[target(Some(true)), target(Some(false)), target(None)]);
    assert!(widths(&lines).iter().all(|width| *width <= 80), "{lines:#?}");
    let text = lines.join("\n");
    assert!(text.contains("met") && text.contains("missed") && text.contains("none"), "{text}");
}

#[test]
fn figures_are_short_and_readable() {
    assert_eq!([grouped(84_296.4), grouped(9.86), grouped(48_000_000.0)], ["84,296", "9.9", "48.0 M"]);
    assert_eq!([span(0.42), span(12.3), span(4_520.0), span(160_000.0)], ["0.4us", "12us", "4.5ms", "160ms"]);
    assert_eq!([ratio(0.0312), ratio(16.25), figure(0.9871)], ["0.031", "16.2", "0.987"]);
    assert_eq!(grouped_count(10_000_000), "10,000,000");
}
