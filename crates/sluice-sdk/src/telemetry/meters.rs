//! The handles of a bucket's metrics, kept for a second: a grant from stock registers and allocates nothing.

use std::array;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ::metrics::{Counter, Histogram, SharedString};
use parking_lot::Mutex;
use sluice_core::{Cost, ShareName, Timestamp};
use sluice_table::metric as names;

use crate::api::refusal::RetryReason;
use crate::lazy::Lazy;
use crate::telemetry::{Source, meet, share_label, whole_tokens};

/// How long handles are kept. For this long after it was installed, a recorder receives nothing about a busy
/// bucket. Longer would let a recorder that forgets idle metrics miss more; shorter would register more
/// often.
const KEPT_MICROS: u64 = 1_000_000;

/// The handles of one bucket, and which of its gauges are set in a recorder.
#[derive(Default)]
pub(crate) struct Meters {
    kept: Mutex<Option<Box<Handles>>>,
    level_is_published: AtomicBool,
    load_is_published: AtomicBool,
}

/// Each handle is registered when it is first used. The counters that alerts look at are there before, at
/// zero.
pub(crate) struct Handles {
    made_at: Timestamp,
    label: SharedString,
    granted: [OnceLock<Counter>; Source::ALL.len()],
    refused: Lazy<Box<[OnceLock<Counter>; RetryReason::ALL.len()]>>,
    acquired_granted: OnceLock<Histogram>,
    acquired_refused: OnceLock<Histogram>,
    share_used: OnceLock<Box<Counter>>,
}

impl Meters {
    /// Counts with the handles of the bucket with this label at instant `at`. Returns whether the handles
    /// were recreated. A recorder must not acquire through Sluice from within a metric.
    pub(crate) fn count(
        &self,
        at: Timestamp,
        label: impl FnOnce() -> SharedString,
        count: impl FnOnce(&Handles),
    ) -> bool {
        let mut kept = self.kept.lock();
        let is_young = |handles: &Handles| at.micros_since(handles.made_at).unsigned_abs() < KEPT_MICROS;
        let are_new = !kept.as_deref().is_some_and(is_young);
        if are_new {
            *kept = None;
        }
        count(kept.get_or_insert_with(|| Box::new(Handles::new(label(), at))));
        are_new
    }

    pub(super) fn mark_level_published(&self) {
        self.level_is_published.store(true, Ordering::Relaxed);
    }

    pub(super) fn mark_load_published(&self) {
        self.load_is_published.store(true, Ordering::Relaxed);
    }

    /// Whether level and load were set since the last call.
    pub(super) fn take_published(&self) -> (bool, bool) {
        (
            self.level_is_published.swap(false, Ordering::Relaxed),
            self.load_is_published.swap(false, Ordering::Relaxed),
        )
    }

    /// Whether any gauge of the bucket is set in a recorder.
    pub(crate) fn is_published(&self) -> bool {
        self.level_is_published.load(Ordering::Relaxed) || self.load_is_published.load(Ordering::Relaxed)
    }
}

impl Handles {
    fn new(label: SharedString, made_at: Timestamp) -> Self {
        meet(&label);
        Self {
            made_at,
            label,
            granted: array::from_fn(|_| OnceLock::new()),
            refused: Lazy::default(),
            acquired_granted: OnceLock::new(),
            acquired_refused: OnceLock::new(),
            share_used: OnceLock::new(),
        }
    }

    pub(crate) fn granted(&self, source: Source) -> &Counter {
        let make = || names::GRANTS.counter([self.label.clone(), source.as_str().into()]);
        self.granted[Source::ALL.iter().position(|one| *one == source).unwrap_or(0)].get_or_init(make)
    }

    /// Counts what a call of this share took (`None`: the common line). A part of a token counts as a whole
    /// one.
    pub(crate) fn share_used(&self, share: Option<&ShareName>, cost: Cost) {
        let make = || Box::new(names::SHARE_USED.counter([self.label.clone(), share_label(share)]));
        self.share_used.get_or_init(make).increment(whole_tokens(cost.amount()));
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
