//! What operators see: metrics, spans, the clock.

mod clock;
mod document;
mod everything;
mod from_nothing;
mod idle;
pub(crate) mod spans;

use std::collections::BTreeMap;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// What a recorder received, by name and labels as `name=value` in their order.
pub(crate) type Recorded = BTreeMap<(String, Vec<(String, String)>), DebugValue>;

/// A recorder for this thread: tests that run beside it have none.
pub(crate) struct Listening {
    snapshotter: Snapshotter,
    _guard: ::metrics::LocalRecorderGuard<'static>,
}

impl Listening {
    pub(crate) fn begin() -> Self {
        // The guard borrows its recorder, and lives as long as the test.
        let recorder: &'static DebuggingRecorder = Box::leak(Box::new(DebuggingRecorder::new()));
        Self { snapshotter: recorder.snapshotter(), _guard: ::metrics::set_default_local_recorder(recorder) }
    }

    /// What was recorded since the last time.
    pub(crate) fn recorded(&self) -> Recorded {
        let recorded = self.snapshotter.snapshot().into_vec().into_iter();
        let recorded = recorded.map(|(key, _, _, value)| {
            let labels = key.key().labels().map(|label| (label.key().to_owned(), label.value().to_owned()));
            ((key.key().name().to_owned(), labels.collect()), value)
        });
        recorded.collect()
    }
}

/// The value of a metric with these labels.
pub(crate) fn value<'a>(
    recorded: &'a Recorded,
    name: &str,
    labels: &[(&str, &str)],
) -> Option<&'a DebugValue> {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    recorded.get(&(name.to_owned(), labels))
}

pub(crate) fn counted(recorded: &Recorded, name: &str, labels: &[(&str, &str)]) -> u64 {
    match value(recorded, name, labels) {
        Some(DebugValue::Counter(count)) => *count,
        Some(other) => panic!("{name} is {other:?}"),
        None => 0,
    }
}

pub(crate) fn gauge(recorded: &Recorded, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    match value(recorded, name, labels)? {
        DebugValue::Gauge(value) => Some(value.into_inner()),
        other => panic!("{name} is {other:?}"),
    }
}
