//! Reads the table at a pace that costs little.

use std::num::NonZeroUsize;
use std::time::Duration;

use sluice_ops::Survey;
use sluice_sdk::core::Timestamp;
use sluice_sdk::{Client, StoreError};
use tokio::time::Instant;

use crate::duration::duration;

/// Surveys the table repeatedly.
#[derive(Debug)]
pub(crate) struct SurveyReader {
    client: Client,
    interval: Duration,
    /// When the next survey may begin.
    next: Instant,
    /// How many surveys failed in a row.
    failed: u32,
}

/// The result of one survey.
#[derive(Debug)]
pub(crate) struct SurveyReading {
    pub(crate) survey: Result<Survey, StoreError>,
    /// When the survey ended, by the table's time.
    pub(crate) at: Timestamp,
    /// From the start of this survey to the start of the next.
    pub(crate) every: Duration,
}

/// The shortest time between the starts of two surveys. A person reads no faster, and between surveys the
/// line of a bucket gives the level.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest time between the starts of two surveys, as a multiple of the time of a survey: after each
/// survey comes a pause of nine times its length. So surveys take at most a tenth of the time of one
/// connection and one CPU.
const TIMES_AS_LONG: u32 = 10;
/// Read units per second that surveys may use. At $0.125 a million (on demand, us-east-1, since
/// November 2024) a view that is open all day costs at most $1.08. An eventually consistent scan reads 8 KB
/// for a unit: about 3,000 leases a second.
const MOST_UNITS_PER_SEC: f64 = 100.0;
/// The time to the next survey if a reply's units do not convert to a time.
const NONSENSE: Duration = Duration::from_secs(3_600);
/// What a page of a megabyte costs, eventually consistent: half a unit for each 4 KB.
const UNITS_PER_PAGE: f64 = 128.0;
/// The most pages of a survey: 100 MB, about 400,000 leases. Such a survey would cost 12,800 units, so it
/// would run every two minutes.
pub(crate) const MOST_PAGES: NonZeroUsize = NonZeroUsize::new(100).unwrap();
/// After failures the time to the next survey doubles, up to this: short enough to show soon that the table
/// is back.
const LONGEST_AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Parses a time between surveys: one second at least.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        interval if interval < SHORTEST_INTERVAL => Err("it must be one second at least, as in 5s".into()),
        interval => Ok(interval),
    }
}

impl SurveyReader {
    /// A reader that starts surveys `interval` apart or more, and at least a second apart.
    pub(crate) fn new(client: Client, interval: Duration) -> Self {
        Self { client, interval: interval.max(SHORTEST_INTERVAL), next: Instant::now(), failed: 0 }
    }

    /// Waits until the next survey may begin, and surveys the table. If this future is dropped while it
    /// waits, nothing is lost.
    pub(crate) async fn next(&mut self) -> SurveyReading {
        tokio::time::sleep_until(self.next).await;
        let begun = Instant::now();
        let survey = self.client.ops().survey_within(MOST_PAGES).await;
        self.failed = if survey.is_ok() { 0 } else { self.failed.saturating_add(1) };
        let every = match &survey {
            Ok(survey) => pace(self.interval, survey.took, read_units(survey)),
            Err(_) => begun.elapsed() + after_failure(self.interval, self.failed),
        };
        self.next = begun + every;
        SurveyReading { survey, at: self.client.now(), every }
    }
}

/// The time from the start of one survey to the start of the next.
fn pace(interval: Duration, took: Duration, read_units: f64) -> Duration {
    let for_its_cost = Duration::try_from_secs_f64(read_units / MOST_UNITS_PER_SEC).unwrap_or(NONSENSE);
    interval.max(took.saturating_mul(TIMES_AS_LONG)).max(for_its_cost)
}

/// The pause after `failed` failures in a row.
fn after_failure(interval: Duration, failed: u32) -> Duration {
    let doubled = SHORTEST_INTERVAL.saturating_mul(2_u32.saturating_pow(failed.saturating_sub(1)));
    doubled.min(LONGEST_AFTER_FAILURE).max(interval)
}

/// The read units of a survey, or the most that it can have cost.
#[allow(clippy::cast_precision_loss)]
pub(super) fn read_units(survey: &Survey) -> f64 {
    survey.read_units.unwrap_or(survey.pages as f64 * UNITS_PER_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn surveys_take_a_tenth_of_the_time_and_a_hundred_units_a_second_at_most() {
        assert_eq!(
            pace(SECOND, Duration::from_millis(20), 0.5),
            SECOND,
            "a small table is read every second"
        );
        assert_eq!(
            pace(SECOND, Duration::from_millis(700), 0.5),
            Duration::from_secs(7),
            "a slow one less often"
        );
        assert_eq!(
            pace(SECOND, Duration::from_millis(300), 1_280.0),
            Duration::from_millis(12_800),
            "and a large one"
        );
        assert_eq!(
            pace(Duration::from_secs(30), SECOND, 500.0),
            Duration::from_secs(30),
            "never before its time"
        );
        assert_eq!(
            pace(SECOND, SECOND, f64::NAN),
            NONSENSE,
            "an answer that makes no sense costs little too"
        );
    }

    #[test]
    fn a_table_that_does_not_answer_is_asked_again_soon() {
        let pauses = [1, 2, 3, 4, 99].map(|failed| after_failure(SECOND, failed).as_secs());
        assert_eq!(pauses, [1, 2, 4, 5, 5]);
        assert_eq!(after_failure(SECOND * 30, 1), SECOND * 30);
    }

    #[test]
    fn an_interval_is_a_second_at_least() {
        assert_eq!(interval("2s"), Ok(SECOND * 2));
        assert!(interval("500ms").is_err() && interval("soon").is_err());
    }

    /// The engine is in process: only pauses take time, and the time is virtual.
    #[tokio::test(start_paused = true)]
    async fn the_table_is_read_once_an_interval_whoever_asks() {
        let dynamo = sluice_testkit::EmbeddedDynamo::with_table("table").await.unwrap();
        let mut reader = SurveyReader::new(dynamo.client("table"), Duration::ZERO);
        let begun = Instant::now();
        for _ in 0..5 {
            assert!(reader.next().await.survey.is_ok());
        }
        assert!(begun.elapsed() >= SECOND * 4, "{:?}", begun.elapsed());
        dynamo.faults().always(sluice_testkit::Operation::Scan, sluice_testkit::Fault::throttled());
        assert!(reader.next().await.survey.is_err());
        dynamo.faults().clear();
        assert!(reader.next().await.survey.is_ok());
    }
}
