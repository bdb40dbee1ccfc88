//! The warning that most of a limit is used, from what replies show anyway: no request is made for it.

use std::sync::Arc;
use std::time::Duration;

use ::metrics::SharedString;
use parking_lot::Mutex;
use sluice_core::{Bucket, COMMON, Factor, Nearness, ShareName, Timestamp};

use crate::lazy::Lazy;
use crate::telemetry;

/// A bucket is named at most this often. Smaller says more often what the gauges of its level show anyway.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// When to warn, and as whom.
#[derive(Debug, Default)]
pub(crate) struct WarnAt {
    /// The part of a limit; `None` for no warnings.
    pub(crate) part: Option<Factor>,
    /// The name of this process in leases.
    pub(crate) caller: String,
}

/// Whether the bucket is near its limit, as far as this process sees.
#[derive(Debug, Default)]
pub(crate) struct NearLimit {
    warn_at: Arc<WarnAt>,
    state: Lazy<Box<Mutex<NearState>>>,
}

#[derive(Debug, Default)]
struct NearState {
    /// Whether a warning was due since the use was last half of the part or less.
    is_near: bool,
    warned_at: Option<Timestamp>,
}

impl NearLimit {
    pub(crate) fn new(warn_at: Arc<WarnAt>) -> Self {
        Self { warn_at, state: Lazy::default() }
    }

    /// Looks at the row that a reply showed.
    pub(crate) fn look(&self, bucket: &Bucket, now: Timestamp, label: impl FnOnce() -> SharedString) {
        let Some(nearness) = self.warn_at.part.and_then(|part| bucket.nearness(part, now)) else { return };
        match nearness {
            Nearness::Near => {}
            Nearness::Far => {
                self.state.get().into_iter().for_each(|state| state.lock().is_near = false);
                return;
            }
            _ => return,
        }
        let mut state = self.state.lock();
        let is_quiet =
            state.warned_at.is_some_and(|at| now.micros_since(at).unsigned_abs() < WARN_EVERY_MICROS);
        if state.is_near || is_quiet {
            return;
        }
        *state = NearState { is_near: true, warned_at: Some(now) };
        drop(state);
        telemetry::limit_near(label());
        let has_shares = bucket.has_shares() || !bucket.slot_shares().is_empty();
        let share = bucket.share().map(ShareName::as_str).or_else(|| has_shares.then_some(COMMON));
        tracing::warn!(
            event = "limit.near",
            dimension = %bucket.dimension(),
            share,
            used = %bucket.used(now),
            capacity = %bucket.limit().capacity(),
            caller = self.warn_at.caller,
            "most of the limit is used (SLUICE_WARN_AT): when nothing is left, calls wait or are refused"
        );
    }
}

/// [`WARN_EVERY`] in microseconds.
const WARN_EVERY_MICROS: u64 = WARN_EVERY.as_secs() * 1_000_000;
