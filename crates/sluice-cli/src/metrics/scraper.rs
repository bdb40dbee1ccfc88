//! A scan of the table for a scrape, and its text.

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use sluice_sdk::{Client, Survey, describe_metrics};
use tokio::time::Instant;

use crate::view::Reader;

/// Between two scans, at least: several collectors cost no more than one.
const INTERVAL: Duration = Duration::from_secs(1);

/// What is served, read anew where that is due.
pub(super) struct Scraper {
    reader: Reader,
    /// The text, or why there is none, and until when it is served.
    last: Option<(Result<String, String>, Instant)>,
}

impl Scraper {
    pub(super) fn new(client: Client) -> Self {
        Self { reader: Reader::new(client, INTERVAL), last: None }
    }

    /// The metrics of the table, at most as old as the pace of the reader makes them.
    pub(super) async fn scrape(&mut self) -> Result<String, String> {
        if let Some((text, until)) = &self.last
            && Instant::now() < *until
        {
            return text.clone();
        }
        let begun = Instant::now();
        let reading = self.reader.next().await;
        let text = reading.survey.map(|survey| text(&survey)).map_err(|error| format!("{error}\n"));
        self.last = Some((text.clone(), begun + reading.every));
        text
    }
}

/// A recorder for each scan: a bucket that was removed is not told any more.
fn text(survey: &Survey) -> String {
    let recorder = PrometheusBuilder::new().with_recommended_naming(true).build_recorder();
    metrics::with_local_recorder(&recorder, || {
        describe_metrics();
        survey.publish();
    });
    recorder.handle().render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::sample::{self, Row};
    use sluice_sdk::core::schema;
    use sluice_sdk::{METRICS, MetricSource};
    use sluice_testkit::EmbeddedDynamo;

    const TABLE: &str = "ontopix-vendor-buckets-metrics";

    /// At 10,000 s: a rate bucket that cools down, and two of three slots held, one by a lease that ended long ago.
    fn surveyed() -> Survey {
        let rate = Row::rate("openai#tpm", 1_000_000_000, 10).tokens(-5_000_000).anchor(10_000_000_000);
        let rate = rate.number(schema::BLOCKED_UNTIL, "10030.5");
        let slots = Row::slots("elevenlabs#concurrent", 3).tokens(0).number(schema::DRIFT, "1");
        let slots = slots.number(schema::DRIFT_SEEN_AT, "9900");
        let load = Row::load("elevenlabs#concurrent").number(schema::PENDING, "2").number(schema::DRAIN_RATE, "0.25");
        let load = load.number(schema::ADMITTED, "40").number(schema::TAKEN, "3").number(schema::SEQUENCE, "7");
        let load = load.number(schema::MEASURED_AT, "9900").number(schema::STILL_SINCE, "9000");
        let load = load.number(schema::REFUSED, "12").number(schema::OUTLIVED, "1");
        let leases = vec![
            sample::lease("elevenlabs#concurrent", "a", "product-a", 9_000, 9_100),
            sample::lease("elevenlabs#concurrent", "b", "product-b", 9_990, 10_050),
        ];
        sample::survey(10_000, &[slots, rate], leases, &[load])
    }

    #[test]
    fn every_metric_of_the_table_is_served_and_no_other() {
        let text = text(&surveyed());
        for line in [
            r#"sluice_bucket_level{dimension="openai#tpm"} -5"#,
            r#"sluice_bucket_level{dimension="elevenlabs#concurrent"} 0"#,
            r#"sluice_bucket_capacity{dimension="openai#tpm"} 1000"#,
            r#"sluice_bucket_cool_down_seconds{dimension="openai#tpm"} 30.5"#,
            r#"sluice_bucket_leases{dimension="elevenlabs#concurrent"} 2"#,
            r#"sluice_bucket_leases_overdue{dimension="elevenlabs#concurrent"} 1"#,
            r#"sluice_bucket_drift{dimension="elevenlabs#concurrent"} 1"#,
            r#"sluice_load_pending{dimension="elevenlabs#concurrent"} 2"#,
            r#"sluice_load_leaked{dimension="elevenlabs#concurrent"} 3"#,
            r#"sluice_load_refused_total{dimension="elevenlabs#concurrent"} 12"#,
            r#"sluice_load_outlived_total{dimension="elevenlabs#concurrent"} 1"#,
            r#"sluice_load_age_seconds{dimension="elevenlabs#concurrent"} 100"#,
            "sluice_table_unreadable 0",
            "sluice_scrape_rows 5",
            "sluice_scrape_capacity_units 0.5",
        ] {
            assert!(text.lines().any(|told| told == line), "{line} in\n{text}");
        }
        let of_table = || METRICS.iter().filter(|metric| metric.source() != MetricSource::Process);
        let spelled: Vec<String> = of_table().map(|metric| metric.name().replace('.', "_")).collect();
        for name in &spelled {
            assert!(text.contains(&format!("# TYPE {name}")), "{name} in\n{text}");
        }
        for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
            let name = line.split(' ').nth(2).unwrap();
            assert!(spelled.iter().any(|spelled| name.starts_with(spelled.as_str())), "{line}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn scrapes_within_a_second_are_one_scan() {
        let dynamo = EmbeddedDynamo::with_table(TABLE).await.unwrap();
        let mut scraper = Scraper::new(dynamo.client(TABLE));
        dynamo.meter().reset();
        for _ in 0..5 {
            scraper.scrape().await.unwrap();
        }
        assert_eq!(dynamo.meter().reset().requests, 1);
        tokio::time::advance(Duration::from_millis(1_001)).await;
        scraper.scrape().await.unwrap();
        assert_eq!(dynamo.meter().reset().requests, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_table_that_is_not_there_is_told_and_found_when_it_comes() {
        let dynamo = EmbeddedDynamo::new().unwrap();
        let mut scraper = Scraper::new(dynamo.client(TABLE));
        assert!(scraper.scrape().await.unwrap_err().contains(TABLE));
        dynamo.create_table(TABLE).await.unwrap();
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(scraper.scrape().await.unwrap().contains("sluice_scrape_rows 0"));
    }
}
