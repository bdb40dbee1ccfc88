//! What a caller in Lambda reports: a recorder that keeps a few counters, and prints what they counted.
//!
//! Nobody can scrape a function. CloudWatch reads the lines that it prints, needs no permission for it, and
//! adds up the counts of all of a function's instances.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sluice_core::Timestamp;

use super::{COUNT, Reading, line};
use crate::metric::{ADMISSION, DYNAMODB_OUT, Metric, REFUSALS, UNAVAILABLE, VENDOR_REFUSALS};

/// A metric of CloudWatch, the counter that it comes from, and the labels that the counter must have.
/// CloudWatch bills each by bucket.
struct Published {
    name: &'static str,
    of: &'static Metric,
    needs: &'static [Needs],
}

/// A label, and the values that count.
type Needs = (&'static str, &'static [&'static str]);

const SHED: &[Needs] = &[("mode", &["enforce"]), ("decision", &["over_slo", "upstream_down"])];

static PUBLISHED: [Published; 4] = [
    Published { name: "Refusals", of: &REFUSALS, needs: &[] },
    Published { name: "VendorRefusals", of: &VENDOR_REFUSALS, needs: &[] },
    Published { name: "Shed", of: &ADMISSION, needs: SHED },
    Published { name: "Unavailable", of: &UNAVAILABLE, needs: &[] },
];

/// 1 while DynamoDB is out for a process.
const OUT: &str = "DynamoDbOut";

/// The most buckets with lines of their own. A client names a hundred buckets at most; CloudWatch bills each.
const MOST_BUCKETS: usize = 100;

/// The label of a bucket that has no name of its own in metrics.
const OTHER: &str = "other";

/// A recorder of the `metrics` facade. Clones share what they count.
#[derive(Clone, Debug)]
pub struct EmfRecorder(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    environment: String,
    counts: Mutex<Counts>,
    out: Arc<Out>,
}

/// By the name in CloudWatch and the bucket, if the counter has one.
type Counts = BTreeMap<(&'static str, Option<String>), Arc<Count>>;

/// What happened since the last line.
#[derive(Debug, Default)]
struct Count(AtomicU64);

impl CounterFn for Count {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }

    fn absolute(&self, _: u64) {}
}

/// How many connections are out, and whether a line has said that some are.
#[derive(Debug, Default)]
struct Out {
    now: AtomicU64,
    most: AtomicU64,
    told: AtomicU64,
}

impl GaugeFn for Out {
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {}

    fn set(&self, value: f64) {
        let is_out = u64::from(value > 0.0);
        self.now.store(is_out, Ordering::Relaxed);
        self.most.fetch_max(is_out, Ordering::Relaxed);
    }
}

impl EmfRecorder {
    /// A recorder that has counted nothing.
    #[must_use]
    pub fn new(environment: impl Into<String>) -> Self {
        let (counts, out) = Default::default();
        Self(Arc::new(Kept { environment: environment.into(), counts, out }))
    }

    /// What was counted since the last call, as lines: one for the environment, and one for each bucket that
    /// was counted. None if nothing was counted.
    #[must_use]
    pub fn take(&self, now: Timestamp) -> Vec<Value> {
        let (mut all, mut of_buckets) =
            (BTreeMap::<&str, u64>::new(), BTreeMap::<String, Vec<Reading>>::new());
        for ((name, bucket), count) in &*self.0.counts.lock() {
            let counted = count.0.swap(0, Ordering::Relaxed);
            if counted == 0 {
                continue;
            }
            *all.entry(*name).or_default() += counted;
            if let Some(bucket) = bucket {
                of_buckets.entry(bucket.clone()).or_default().push((*name, COUNT, json!(counted)));
            }
        }
        let mut readings: Vec<Reading> =
            all.into_iter().map(|(name, count)| (name, COUNT, json!(count))).collect();
        readings.extend(self.0.out.take().map(|out| (OUT, COUNT, json!(out))));
        if readings.is_empty() {
            return Vec::new();
        }
        let environment = ("Environment", self.0.environment.as_str());
        let of_bucket = |(bucket, readings): (&String, &Vec<Reading>)| {
            line(&[environment, ("VendorDimension", bucket)], readings, now)
        };
        std::iter::once(line(&[environment], &readings, now))
            .chain(of_buckets.iter().map(of_bucket))
            .collect()
    }

    /// Prints what was counted since the last call, on standard output, where Lambda collects it.
    pub fn flush(&self, now: Timestamp) {
        let lines = self.take(now);
        if lines.is_empty() {
            return;
        }
        let mut out = std::io::stdout().lock();
        for line in lines {
            // A program does not stop because its output is closed.
            let _ = writeln!(out, "{line}");
        }
        let _ = out.flush();
    }

    /// The counter of `name`, of the bucket in the labels of `key`.
    fn count(&self, name: &'static str, key: &Key) -> Arc<Count> {
        let bucket = label(key, "dimension").filter(|bucket| *bucket != OTHER).map(str::to_owned);
        let mut counts = self.0.counts.lock();
        let is_known = counts.contains_key(&(name, bucket.clone()));
        let buckets = counts.keys().filter(|(of, bucket)| *of == name && bucket.is_some()).count();
        let bucket = bucket.filter(|_| is_known || buckets < MOST_BUCKETS);
        Arc::clone(counts.entry((name, bucket)).or_default())
    }
}

impl Out {
    /// 1 if some connection was out since the last call, once 0 when none is any more, otherwise nothing.
    fn take(&self) -> Option<u64> {
        let most = self.most.swap(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
        let told = self.told.swap(most, Ordering::Relaxed);
        (most > 0 || told > 0).then_some(most)
    }
}

fn label<'a>(key: &'a Key, name: &str) -> Option<&'a str> {
    key.labels().find(|label| label.key() == name).map(::metrics::Label::value)
}

/// The name in CloudWatch of the counter with this key, if it has one.
fn published(key: &Key) -> Option<&'static str> {
    let has = |(name, values): &Needs| label(key, name).is_some_and(|value| values.contains(&value));
    let is_this = |one: &&Published| one.of.name() == key.name() && one.needs.iter().all(has);
    PUBLISHED.iter().find(is_this).map(|one| one.name)
}

impl Recorder for EmfRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        published(key).map_or_else(Counter::noop, |name| Counter::from_arc(self.count(name, key)))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        if key.name() == DYNAMODB_OUT.name() {
            Gauge::from_arc(Arc::clone(&self.0.out))
        } else {
            Gauge::noop()
        }
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(line: &Value) -> Vec<&str> {
        let declared = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap();
        declared.iter().map(|metric| metric["Name"].as_str().unwrap()).collect()
    }

    #[test]
    fn what_is_counted_is_printed_once_for_all_and_for_each_bucket() {
        let recorder = EmfRecorder::new("prod");
        let now = Timestamp::from_secs(1_709_550_002);
        ::metrics::with_local_recorder(&recorder, || {
            REFUSALS.counter(["openai#rpm".into(), "exhausted".into()]).increment(2);
            REFUSALS.counter(["openai#tpm".into(), "exhausted".into()]).increment(1);
            REFUSALS.counter([OTHER.into(), "cooling_down".into()]).increment(1);
            VENDOR_REFUSALS.counter(["openai#rpm".into(), "rate".into()]).increment(1);
            ADMISSION.counter(["openai#rpm".into(), "upstream_down".into(), "enforce".into()]).increment(4);
            ADMISSION.counter(["openai#rpm".into(), "upstream_down".into(), "shadow".into()]).increment(8);
            ADMISSION.counter(["openai#rpm".into(), "admitted".into(), "enforce".into()]).increment(16);
            UNAVAILABLE.counter(["error".into()]).increment(3);
            crate::metric::GRANTS.counter(["openai#rpm".into(), "table".into()]).increment(9);
        });
        let lines = recorder.take(now);
        let [all, rpm, tpm] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(names(all), ["Refusals", "Shed", "Unavailable", "VendorRefusals"]);
        let counts =
            ["Refusals", "Shed", "Unavailable", "VendorRefusals"].map(|name| all[name].as_u64().unwrap());
        assert_eq!(counts, [4, 4, 3, 1]);
        assert_eq!((&all["Environment"], &all["VendorDimension"]), (&json!("prod"), &Value::Null));
        assert_eq!(all["_aws"]["Timestamp"], 1_709_550_002_000_i64);
        assert_eq!(
            (&rpm["VendorDimension"], &rpm["Refusals"], &rpm["Shed"]),
            (&json!("openai#rpm"), &json!(2), &json!(4))
        );
        assert_eq!((&tpm["VendorDimension"], names(tpm)), (&json!("openai#tpm"), vec!["Refusals"]));
        assert_eq!(recorder.take(now), Vec::<Value>::new(), "nothing since");
    }

    #[test]
    fn that_dynamodb_is_out_is_printed_until_it_is_back() {
        let recorder = EmfRecorder::new("prod");
        let set =
            |value: f64| ::metrics::with_local_recorder(&recorder, || DYNAMODB_OUT.gauge([]).set(value));
        let told = || recorder.take(Timestamp::default()).first().map(|line| line[OUT].as_u64().unwrap());
        assert_eq!(told(), None);
        set(0.0);
        assert_eq!(told(), None, "nobody heard that it was out");
        set(1.0);
        assert_eq!((told(), told()), (Some(1), Some(1)));
        set(0.0);
        assert_eq!((told(), told(), told()), (Some(1), Some(0), None), "it was out since the line before");
    }

    #[test]
    fn no_more_buckets_than_are_worth_their_price_have_lines() {
        let recorder = EmfRecorder::new("prod");
        ::metrics::with_local_recorder(&recorder, || {
            for n in 0..150 {
                REFUSALS.counter([format!("vendor{n}#rpm").into(), "exhausted".into()]).increment(1);
            }
        });
        let lines = recorder.take(Timestamp::default());
        assert_eq!((lines.len(), &lines[0]["Refusals"]), (1 + MOST_BUCKETS, &json!(150)));
    }
}
