//! Scans of the table for scrapes, and the text of their metrics.

use std::convert::Infallible;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use sluice_ops::Survey;
use sluice_table::metric::describe_metrics;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use crate::view::SurveyReader;

/// How long a scrape waits for a due scan before it takes the previous text: usually long enough.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a scrape waits without a previous text: less than the ten seconds that Prometheus gives.
const FIRST_PATIENCE: Duration = Duration::from_secs(8);
/// How long after the next scan was due a text is too old to be served as the state of the table.
const OLD: Duration = Duration::from_secs(5 * 60);

/// The text that is served. Scans run on a task of their own ([`read_on`](Self::read_on)), so a scrape that
/// is cut off ends no scan, and does not shorten the pause between two scans.
#[derive(Debug, Default)]
pub(super) struct Scraper {
    /// Notified when a scrape wants a text, and the last one is no longer new.
    wanted: Notify,
    last: watch::Sender<Option<Scan>>,
}

#[derive(Clone, Debug)]
struct Scan {
    /// The text, or why there is none.
    text: Result<String, String>,
    /// When the next scan may begin.
    due: Instant,
}

impl Scan {
    fn is_new(&self) -> bool {
        Instant::now() < self.due
    }

    fn is_old(&self) -> bool {
        Instant::now() >= self.due + OLD
    }
}

impl Scraper {
    /// Scans when a scrape asks for it, until dropped.
    pub(super) async fn read_on(&self, mut reader: SurveyReader) -> Infallible {
        loop {
            self.wanted.notified().await;
            // A scrape that asked while a scan was under way already has its result.
            if self.last.borrow().as_ref().is_some_and(Scan::is_new) {
                continue;
            }
            let begun = Instant::now();
            let reading = reader.next().await;
            let due = begun + reading.every;
            let text = reading.survey.map(|survey| text(&survey)).map_err(|error| format!("{error}\n"));
            self.last.send_replace(Some(Scan { text, due }));
        }
    }

    /// The metrics of the table: from the scan that is due if it ends in time, otherwise from the last scan.
    pub(super) async fn scrape(&self) -> Result<String, String> {
        let mut last = self.last.subscribe();
        let known = last.borrow_and_update().clone().filter(|scan| !scan.is_old());
        if let Some(scan) = known.as_ref().filter(|scan| scan.is_new()) {
            return scan.text.clone();
        }
        self.wanted.notify_one();
        let patience = if known.is_some() { PATIENCE } else { FIRST_PATIENCE };
        // The sender belongs to this struct, so the only error is the timeout.
        let new = timeout(patience, last.wait_for(|scan| scan.as_ref().is_some_and(Scan::is_new))).await;
        let new = new.ok().and_then(Result::ok).and_then(|scan| scan.clone());
        match new.or(known) {
            Some(scan) => scan.text,
            None => {
                Err("the scan of the table has not ended yet, and there is no earlier scan: try again\n"
                    .into())
            }
        }
    }
}

/// Each scan has a new recorder, so that a removed bucket is not reported any more.
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
    use std::sync::Arc;

    use super::*;
    use crate::view::sample::{self, Row};
    use aws_sdk_dynamodb::types::AttributeValue;
    use sluice_sdk::core::schema;
    use sluice_table::metric::{METRICS, MetricSource};
    use sluice_testkit::{EmbeddedDynamo, Fault, Operation};
    use tokio::time::sleep;

    const SECOND: Duration = Duration::from_secs(1);
    const TABLE: &str = "ontopix-vendor-buckets-metrics";

    /// At 10,000 s: a rate bucket in a cool-down, and a concurrency bucket with two of three slots held, one
    /// by a lease that ended long ago.
    fn surveyed() -> Survey {
        let rate = Row::rate("openai#tpm", 1_000_000_000, 10).tokens(-5_000_000).anchor(10_000_000_000);
        let rate = rate.number(schema::BLOCKED_UNTIL, "10030.5");
        // Full, and beside the thousand of the common line.
        let rate = rate.share("search", (500_000_000, 500_000_000), 5);
        let slots = Row::slots("elevenlabs#concurrent", 3).tokens(0).number(schema::DRIFT, "1");
        let slots = slots.number(schema::DRIFT_SEEN_AT, "9900");
        // Beside the three of the common line, of which a caller of `search` borrowed one.
        let slots = slots.slot_share("search", 2);
        let of_search = Row::slots("elevenlabs#concurrent@search", 2).tokens(1_000_000);
        let load = Row::load("elevenlabs#concurrent")
            .number(schema::PENDING, "2")
            .number(schema::DRAIN_RATE, "0.25");
        let load =
            load.number(schema::ADMITTED, "40").number(schema::TAKEN, "3").number(schema::SEQUENCE, "7");
        let load = load.number(schema::MEASURED_AT, "9900").number(schema::STILL_SINCE, "9000");
        let load = load.number(schema::REFUSED, "12").number(schema::OUTLIVED, "1");
        let leases = vec![
            sample::lease("elevenlabs#concurrent", "a", "product-a", 9_000, 9_100),
            sample::lease_that_borrowed("search", "elevenlabs#concurrent", "b", 9_990, 10_050),
        ];
        let mut survey = sample::survey(10_000, &[slots, of_search, rate], leases, &[load]);
        // One of the sweeps ran by a clock that is a day ahead.
        survey.sweeps = sample::swept(&[96_400, 9_700]);
        survey
    }

    #[test]
    fn a_table_that_was_read_in_part_is_told_to_be() {
        let mut cut = surveyed();
        cut.is_whole = false;
        assert!(text(&cut).lines().any(|line| line == "sluice_scrape_whole 0"));
    }

    #[test]
    fn every_metric_of_the_table_is_served_and_no_other() {
        let text = text(&surveyed());
        for line in [
            r#"sluice_bucket_level{dimension="openai#tpm"} 495"#,
            r#"sluice_share_level{dimension="openai#tpm",share="common"} -5"#,
            r#"sluice_share_level{dimension="openai#tpm",share="search"} 500"#,
            r#"sluice_share_capacity{dimension="openai#tpm",share="search"} 500"#,
            r#"sluice_share_lent_total{dimension="openai#tpm",share="search"} 12"#,
            r#"sluice_share_tokens_borrowed_total{dimension="openai#tpm",share="search"} 0"#,
            r#"sluice_share_level{dimension="elevenlabs#concurrent",share="search"} 1"#,
            r#"sluice_share_capacity{dimension="elevenlabs#concurrent",share="common"} 3"#,
            r#"sluice_share_slots_lent{dimension="elevenlabs#concurrent",share="common"} 1"#,
            r#"sluice_share_slots_lent{dimension="elevenlabs#concurrent",share="search"} 0"#,
            r#"sluice_share_slots_borrowed{dimension="elevenlabs#concurrent",share="search"} 1"#,
            r#"sluice_bucket_level{dimension="elevenlabs#concurrent"} 0"#,
            r#"sluice_bucket_capacity{dimension="openai#tpm"} 1500"#,
            r#"sluice_bucket_cool_down_seconds{dimension="openai#tpm"} 30.5"#,
            r#"sluice_bucket_leases{dimension="elevenlabs#concurrent"} 2"#,
            r#"sluice_bucket_leases_overdue{dimension="elevenlabs#concurrent"} 1"#,
            r#"sluice_bucket_drift{dimension="elevenlabs#concurrent"} 1"#,
            r#"sluice_load_pending{dimension="elevenlabs#concurrent"} 2"#,
            r#"sluice_load_leaked{dimension="elevenlabs#concurrent"} 3"#,
            r#"sluice_load_refused_total{dimension="elevenlabs#concurrent"} 12"#,
            r#"sluice_load_outlived_total{dimension="elevenlabs#concurrent"} 1"#,
            r#"sluice_load_age_seconds{dimension="elevenlabs#concurrent"} 100"#,
            "sluice_sweep_age_seconds 300",
            "sluice_table_unreadable 0",
            "sluice_scrape_whole 1",
            "sluice_scrape_rows 6",
            "sluice_scrape_capacity_units 0.5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
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

    async fn scraped() -> (EmbeddedDynamo, Arc<Scraper>) {
        let dynamo = EmbeddedDynamo::with_table(TABLE).await.unwrap();
        let scraper = Arc::new(Scraper::default());
        scan_for(&scraper, &dynamo);
        (dynamo, scraper)
    }

    fn scan_for(scraper: &Arc<Scraper>, dynamo: &EmbeddedDynamo) {
        let (scraper, reader) = (Arc::clone(scraper), SurveyReader::new(dynamo.client(TABLE), SECOND));
        tokio::spawn(async move { scraper.read_on(reader).await });
    }

    #[tokio::test(start_paused = true)]
    async fn scrapes_within_a_second_are_one_scan() {
        let (dynamo, scraper) = scraped().await;
        dynamo.meter().reset();
        for _ in 0..5 {
            let (one, other) = tokio::join!(scraper.scrape(), scraper.scrape());
            assert!(one.is_ok() && other.is_ok());
        }
        assert_eq!(dynamo.meter().reset().requests, 1);
        sleep(SECOND * 600).await;
        assert_eq!(dynamo.meter().reset().requests, 0, "nobody asked");
        scraper.scrape().await.unwrap();
        assert_eq!(dynamo.meter().reset().requests, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_table_that_is_not_there_is_told_and_found_when_it_comes() {
        let dynamo = EmbeddedDynamo::new().unwrap();
        let scraper = Arc::new(Scraper::default());
        scan_for(&scraper, &dynamo);
        assert!(scraper.scrape().await.unwrap_err().contains(TABLE));
        dynamo.create_table(TABLE).await.unwrap();
        sleep(SECOND * 6).await;
        assert!(scraper.scrape().await.unwrap().contains("sluice_scrape_rows 0"));
    }

    /// Makes a scan take seven pages, and so more than six seconds.
    async fn make_slow(dynamo: &EmbeddedDynamo) {
        let text = AttributeValue::S("x".repeat(380_000));
        for n in 0..14 {
            let key = AttributeValue::S(format!("no bucket {n}"));
            let put = dynamo.dynamodb().put_item().table_name(TABLE);
            put.item(schema::KEY, key).item("text", text.clone()).send().await.unwrap();
        }
        dynamo.faults().always(Operation::Scan, Fault::Delay(Duration::from_millis(900)));
    }

    #[tokio::test(start_paused = true)]
    async fn scrapes_that_are_cut_off_end_no_scan_and_begin_none_early() {
        let (dynamo, scraper) = scraped().await;
        make_slow(&dynamo).await;
        dynamo.meter().reset();
        for _ in 0..60 {
            if let Ok(text) = timeout(Duration::from_millis(500), scraper.scrape()).await {
                assert!(text.unwrap().contains("sluice_scrape_rows 14"));
            }
        }
        // At most half a minute: one scan, and a pause of nine times its length.
        let pages = dynamo.meter().of(Operation::Scan).requests;
        assert!((5..=7).contains(&pages), "{pages}");
        assert!(scraper.scrape().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_scrapes_a_slow_table_gets_the_last_text_in_time() {
        let (dynamo, scraper) = scraped().await;
        let first = scraper.scrape().await.unwrap();
        make_slow(&dynamo).await;
        sleep(SECOND * 10).await;
        let began = Instant::now();
        assert_eq!(scraper.scrape().await.unwrap(), first);
        // Tokio's clock counts whole milliseconds.
        assert!(began.elapsed() <= PATIENCE + Duration::from_millis(1), "{:?}", began.elapsed());
        sleep(SECOND * 8).await;
        let second = scraper.scrape().await.unwrap();
        assert!(second.contains("sluice_scrape_rows 14"), "the scan went on without its scrape");
        let key = AttributeValue::S("no bucket of before".to_owned());
        dynamo.dynamodb().put_item().table_name(TABLE).item(schema::KEY, key).send().await.unwrap();
        sleep(OLD + SECOND * 120).await;
        let third = scraper.scrape().await.unwrap();
        assert!(
            third.contains("sluice_scrape_rows 15"),
            "what is old is not served: it waits for the new one: {third}"
        );
        sleep(OLD + SECOND * 120).await;
        dynamo.faults().always(Operation::Scan, Fault::LoseRequest);
        assert!(scraper.scrape().await.is_err());
    }
}
