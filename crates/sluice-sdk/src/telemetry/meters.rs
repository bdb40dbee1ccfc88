//! The handles of a bucket's metrics, kept for a second, so that a grant from stock neither registers nor
//! allocates.

use std::array;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::metrics::{Counter, Histogram, SharedString};
use parking_lot::Mutex;
use sluice_table::metric as names;
use tokio::time::Instant;

use crate::api::refusal::RetryReason;
use crate::lazy::Lazy;
use crate::telemetry::Source;

/// How long handles are kept. For this long after it was installed, a recorder receives nothing about a busy
/// bucket. Longer would let a recorder that forgets idle metrics miss more; shorter would register more
/// often.
const KEPT: Duration = Duration::from_secs(1);

/// The handles of one bucket, and which of its gauges are set in a recorder.
#[derive(Default)]
pub(crate) struct Meters {
    kept: Mutex<Option<Arc<Handles>>>,
    level_is_told: AtomicBool,
    load_is_told: AtomicBool,
}

/// Each handle is registered when it is first used: what never happened is not reported.
pub(crate) struct Handles {
    made_at: Instant,
    label: SharedString,
    granted: [OnceLock<Counter>; Source::ALL.len()],
    refused: Lazy<Box<[OnceLock<Counter>; RetryReason::ALL.len()]>>,
    acquired_granted: OnceLock<Histogram>,
    acquired_refused: OnceLock<Histogram>,
}

impl Meters {
    /// The handles of the bucket with this label at instant `at`, and whether they were recreated.
    pub(crate) fn handles(&self, at: Instant, label: impl FnOnce() -> SharedString) -> (Arc<Handles>, bool) {
        let mut kept = self.kept.lock();
        if let Some(handles) = kept.as_ref()
            && at.saturating_duration_since(handles.made_at) < KEPT
        {
            return (Arc::clone(handles), false);
        }
        let handles = Arc::new(Handles::new(label(), at));
        *kept = Some(Arc::clone(&handles));
        (handles, true)
    }

    pub(super) fn told_level(&self) {
        self.level_is_told.store(true, Ordering::Relaxed);
    }

    pub(super) fn told_load(&self) {
        self.load_is_told.store(true, Ordering::Relaxed);
    }

    /// Whether level and load were set since the last call.
    pub(super) fn take_told(&self) -> (bool, bool) {
        (self.level_is_told.swap(false, Ordering::Relaxed), self.load_is_told.swap(false, Ordering::Relaxed))
    }

    /// Whether any gauge of the bucket is set in a recorder.
    pub(crate) fn is_told(&self) -> bool {
        self.level_is_told.load(Ordering::Relaxed) || self.load_is_told.load(Ordering::Relaxed)
    }
}

impl Handles {
    fn new(label: SharedString, made_at: Instant) -> Self {
        Self {
            made_at,
            label,
            granted: array::from_fn(|_| OnceLock::new()),
            refused: Lazy::default(),
            acquired_granted: OnceLock::new(),
            acquired_refused: OnceLock::new(),
        }
    }

    pub(crate) fn granted(&self, source: Source) -> &Counter {
        let make = || names::GRANTS.counter([self.label.clone(), source.as_str().into()]);
        self.granted[Source::ALL.iter().position(|one| *one == source).unwrap_or(0)].get_or_init(make)
    }

    pub(crate) fn refused(&self, reason: RetryReason) -> &Counter {
        let make = || names::REFUSALS.counter([self.label.clone(), reason.as_str().into()]);
        self.refused[RetryReason::ALL.iter().position(|one| *one == reason).unwrap_or(0)].get_or_init(make)
    }

    pub(crate) fn acquired_granted(&self) -> &Histogram {
        self.acquired_granted.get_or_init(|| self.acquired("granted"))
    }

    pub(crate) fn acquired_refused(&self) -> &Histogram {
        self.acquired_refused.get_or_init(|| self.acquired("refused"))
    }

    fn acquired(&self, outcome: &'static str) -> Histogram {
        names::ACQUIRE_DURATION.histogram([self.label.clone(), outcome.into()])
    }
}
