//! The picture of a table, from two successive surveys.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::Serialize;
use sluice_ops::Survey;
use sluice_sdk::core::{Bucket, Dimension, SweepRecord};

use super::bucket::{Before, BucketView, OtherRows, REFUSED_OVER};
use super::history::{History, Series};
use super::number::{seconds, tokens};
use super::reader::SurveyReading;

/// What is shown: the last picture, failures since then, and the last hour of each bucket.
#[derive(Debug, Serialize)]
pub(crate) struct View {
    /// The table's name.
    pub(crate) table: String,
    /// `None` until a survey has succeeded.
    pub(crate) picture: Option<Picture>,
    /// Why the last survey failed; the picture is then an old one. `None` if it succeeded.
    pub(crate) trouble: Option<Trouble>,
    #[serde(skip)]
    history: History,
    #[serde(skip)]
    before: HashMap<Dimension, Before>,
}

/// A table at an instant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Picture {
    /// When it was read, in seconds since the epoch.
    pub(crate) at: f64,
    /// Sorted by name.
    pub(crate) buckets: Vec<BucketView>,
    /// Rows that cannot be read.
    pub(crate) faults: Vec<FaultView>,
    /// Leases of buckets that the table does not contain.
    pub(crate) stray_leases: usize,
    /// Number of tickets, including redeemed ones.
    pub(crate) tickets: usize,
    /// Keys of rows that Sluice does not know.
    pub(crate) unknown: Vec<String>,
    /// The last sweeps, newest first, without those of clocks that are far ahead.
    pub(crate) sweeps: Vec<SweepView>,
    pub(crate) cost: Cost,
}

/// The cost of reading.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Cost {
    pub(crate) rows: usize,
    pub(crate) pages: usize,
    /// Units of the last survey; `None` if DynamoDB does not state them.
    pub(crate) read_units: Option<f64>,
    /// At the current pace. If DynamoDB does not state the units, the most that the pages can cost.
    pub(crate) read_units_per_sec: f64,
    pub(crate) took_secs: f64,
    /// From the start of one survey to the start of the next.
    pub(crate) every_secs: f64,
    /// Whether the whole table was read.
    pub(crate) is_whole: bool,
}

/// A row that cannot be read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FaultView {
    pub(crate) key: String,
    pub(crate) row: RowKind,
    pub(crate) error: String,
}

/// The kind of a row, sorted by how bad it is if such a row cannot be read, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RowKind {
    Bucket,
    Lease,
    Load,
}

/// A sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct SweepView {
    /// When it ended.
    pub(crate) at: f64,
    pub(crate) took_secs: f64,
    pub(crate) rows: u64,
    /// Leases that the sweep gave back.
    pub(crate) restored: u64,
    /// Slots among them.
    pub(crate) slots: u64,
    /// Slots found lost or minted, in all buckets.
    pub(crate) drift: f64,
    /// Slots that the sweep corrected.
    pub(crate) corrected: f64,
    pub(crate) requests: u64,
}

/// Failed surveys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Trouble {
    pub(crate) error: String,
    /// When the first of them failed, in seconds since the epoch.
    pub(crate) since: f64,
    /// How many failed in a row.
    pub(crate) surveys: u32,
}

impl View {
    pub(crate) fn new(table: &str) -> Self {
        let (history, before) = (History::default(), HashMap::new());
        Self { table: table.to_owned(), picture: None, trouble: None, history, before }
    }

    /// The last hour of a bucket.
    pub(crate) fn series(&self, bucket: &str) -> Option<&Series> {
        self.history.of(bucket)
    }

    /// Adds a survey, or the reason why there is none.
    pub(crate) fn take_in(&mut self, reading: SurveyReading) {
        match reading.survey {
            Ok(survey) => {
                let picture = Picture::new(&survey, reading.every, &self.before);
                self.history.take_in(picture.at, reading.every.as_secs_f64(), &picture.buckets);
                self.picture = Some(picture);
                self.trouble = None;
                self.before = before(survey, &mut self.before);
            }
            Err(error) => {
                let trouble = self.trouble.get_or_insert(Trouble {
                    error: String::new(),
                    since: seconds(reading.at),
                    surveys: 0,
                });
                trouble.error = error.to_string();
                trouble.surveys = trouble.surveys.saturating_add(1);
            }
        }
    }
}

impl Picture {
    fn new(survey: &Survey, every: Duration, before: &HashMap<Dimension, Before>) -> Self {
        let mut other_rows: BTreeMap<&Dimension, OtherRows<'_>> = BTreeMap::new();
        let mut faults = Vec::new();
        for row in &survey.leases {
            match &row.lease {
                Ok(lease) => {
                    other_rows.entry(lease.dimension()).or_default().leases.push((lease, row.is_inline))
                }
                Err(error) => faults.push(fault(&row.key, RowKind::Lease, error)),
            }
        }
        for row in &survey.loads {
            match &row.load {
                Ok(load) => other_rows.entry(&row.dimension).or_default().load = Some(load),
                Err(error) => faults.push(fault(&row.dimension, RowKind::Load, error)),
            }
        }
        let mut buckets = Vec::new();
        for row in &survey.buckets {
            match &row.bucket {
                Ok(bucket) => {
                    let mut other_rows = other_rows.remove(bucket.dimension()).unwrap_or_default();
                    other_rows.before = before.get(bucket.dimension()).cloned();
                    other_rows.slot_lines = survey.slot_lines(bucket);
                    buckets.push(BucketView::new(bucket, survey.at, other_rows));
                }
                Err(error) => faults.push(fault(&row.key, RowKind::Bucket, error)),
            }
        }
        // Buckets first: an unreadable bucket appears nowhere else, and all of its callers get errors.
        faults.sort_by(|a, b| (a.row, &a.key).cmp(&(b.row, &b.key)));
        Self {
            at: seconds(survey.at),
            buckets,
            faults,
            stray_leases: other_rows.values().map(|other_rows| other_rows.leases.len()).sum(),
            tickets: survey.tickets,
            unknown: survey.unknown.clone(),
            sweeps: survey.sweeps.until(survey.at).map(SweepView::new).collect(),
            cost: Cost::new(survey, every),
        }
    }
}

fn fault(key: impl ToString, row: RowKind, error: impl ToString) -> FaultView {
    FaultView { key: key.to_string(), row, error: error.to_string() }
}

/// What the next survey is compared with.
fn before(survey: Survey, old: &mut HashMap<Dimension, Before>) -> HashMap<Dimension, Before> {
    let loads: HashMap<Dimension, i64> =
        survey.loads.into_iter().filter_map(|row| Some((row.dimension, row.load.ok()?.refused()))).collect();
    let of = |bucket: Bucket| {
        let mut refused = old.remove(bucket.dimension()).map(|before| before.refused).unwrap_or_default();
        refused.retain(|(at, _)| *at < survey.at && survey.at.since(*at) < REFUSED_OVER);
        // If a bucket's first refusals created its load row, the bucket had no refusals before.
        refused.push((survey.at, loads.get(bucket.dimension()).copied().unwrap_or(0)));
        (bucket.dimension().clone(), Before { at: survey.at, bucket, refused })
    };
    survey.buckets.into_iter().filter_map(|row| row.bucket.ok()).map(of).collect()
}

impl SweepView {
    fn new(sweep: &SweepRecord) -> Self {
        let SweepRecord { at, duration, rows, restored, slots, drift, corrected, requests } = *sweep;
        Self {
            at: seconds(at),
            took_secs: duration.as_secs_f64(),
            rows,
            restored,
            slots,
            drift: tokens(drift),
            corrected: tokens(corrected),
            requests,
        }
    }
}

impl Cost {
    fn new(survey: &Survey, every: Duration) -> Self {
        let every_secs = every.as_secs_f64();
        Self {
            rows: survey.rows,
            pages: survey.pages,
            read_units: survey.read_units,
            read_units_per_sec: super::reader::read_units(survey) / every_secs,
            took_secs: survey.took.as_secs_f64(),
            every_secs,
            is_whole: survey.is_whole,
        }
    }
}
