//! Admission: whether a request is taken on, or told at once to come back later.

use core::time::Duration;

use crate::amount::{Amount, Cost};
use crate::rate::Rate;
use crate::timestamp::Timestamp;

mod standing;

pub use standing::Standing;

/// The load that a request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// The work ahead of the request: the calls under way, the callers that wait, and the caller's queue.
    pub pending: Amount,
    /// What the request itself takes.
    pub request: Cost,
    /// What departs a second. `None` if unknown, and then the wait is unknown too.
    pub rate: Option<Rate>,
    /// The longest wait of use to the caller. `None` accepts any wait, and is never shed.
    pub slo: Option<Duration>,
    /// The last known departure.
    pub last_completion: Option<Timestamp>,
    /// Since when work has been pending without a break; `None` while no work is pending.
    pub queue_nonempty_since: Option<Timestamp>,
    /// If work is pending and nothing departs for this long, the vendor counts as down.
    pub staleness: Duration,
    /// The caller's time.
    pub now: Timestamp,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdmissionDecision {
    /// The request is taken on.
    Admit {
        /// The time from now until it is done, if known.
        wait: Option<Duration>,
    },
    /// The request is not taken on.
    Shed {
        /// The time until it would be done; the staleness time if nothing departs and no rate is known.
        wait: Duration,
        /// Why.
        reason: ShedReason,
    },
}

/// Why a request is shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShedReason {
    /// The request would be done later than its caller can use.
    OverSlo,
    /// Work is pending, and nothing has departed for the staleness time.
    UpstreamDown,
}

impl ShedReason {
    /// The reason, as logs and metrics name it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OverSlo => "over_slo",
            Self::UpstreamDown => "upstream_down",
        }
    }
}

/// Decides whether a request is taken on: `wait = (pending + request) / rate`, against the longest wait of
/// use. The staleness time runs from the last completion, or from when work became pending if that is later:
/// after an idle hour the last completion is an hour old, although the vendor is well.
#[must_use]
pub fn admit(pressure: &Pressure) -> AdmissionDecision {
    let wait = pressure.rate.and_then(|rate| rate.time_for(pressure.pending.plus(pressure.request.amount())));
    let Some(slo) = pressure.slo else { return AdmissionDecision::Admit { wait } };
    if is_down(pressure) {
        let wait = wait.unwrap_or_default().max(pressure.staleness);
        return AdmissionDecision::Shed { wait, reason: ShedReason::UpstreamDown };
    }
    match wait {
        Some(wait) if wait > slo => AdmissionDecision::Shed { wait, reason: ShedReason::OverSlo },
        _ => AdmissionDecision::Admit { wait },
    }
}

fn is_down(pressure: &Pressure) -> bool {
    let Some(since) = pressure.queue_nonempty_since.filter(|_| pressure.pending > Amount::ZERO) else {
        return false;
    };
    let quiet_since = pressure.last_completion.map_or(since, |completion| completion.max(since));
    pressure.now.since(quiet_since) >= pressure.staleness
}

/// A shed request comes back no sooner than this.
const SOONEST: Duration = Duration::from_secs(1);

/// When a shed request should come back: after the part of `wait` that exceeds its `slo`, but at least a
/// second, and up to 30 % later, so that shed requests do not all return at once. `random` is any number.
#[must_use]
pub fn retry_after(wait: Duration, slo: Duration, random: u32) -> Duration {
    let over = wait.saturating_sub(slo).max(SOONEST);
    // Thousandths: the jitter need not be finer.
    over.saturating_add(over / 1_000 * (random % 301))
}
