//! The verdict on a request, from what is known of its bucket.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{
    AdmissionDecision, Amount, Bucket, CLOCK_ERROR, Cost, Load, Pressure, ShedReason, Standing, Timestamp,
    admit,
};

use crate::admission::look;
use crate::admission::watched::watched;
use crate::api::error::AcquireError;
use crate::bucket::known::BucketReading;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::slot_wait::taken;

#[derive(Clone, Copy, Debug)]
pub(super) struct AdmissionAsk {
    pub(super) cost: Cost,
    pub(super) backlog: Amount,
    pub(super) slo: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdmissionVerdict {
    Admit {
        wait: Option<Duration>,
    },
    /// `starts_now`: the request is shed although slots for it are free.
    Shed {
        wait: Duration,
        reason: ShedReason,
        starts_now: bool,
    },
}

pub(super) async fn judge(
    inner: &Arc<Inner>,
    entry: &Arc<Entry>,
    asked: AdmissionAsk,
) -> Result<AdmissionVerdict, AcquireError> {
    let reading = look::young(inner, entry).await?;
    let limit = reading.bucket.limit();
    if asked.cost.amount() > limit.capacity() {
        let (dimension, cost, capacity) = (entry.dimension.clone(), asked.cost, limit.capacity());
        let share = entry.line();
        return Err(AcquireError::NeverSatisfiable { dimension, cost, capacity, share });
    }
    Ok(match limit.is_concurrent() {
        true => slots(inner, entry, &reading, asked),
        false => tokens(inner, &reading.bucket, asked),
    })
}

/// The verdict for a rate bucket. Its wait is exact: the line already contains the booked starts.
fn tokens(inner: &Inner, bucket: &Bucket, asked: AdmissionAsk) -> AdmissionVerdict {
    let now = inner.now();
    let (need, capacity) = (asked.backlog.plus(asked.cost.amount()), bucket.limit().capacity());
    let refilled_in = if need <= capacity {
        bucket.reaches(need).map(|at| at.since(now))
    } else {
        // The line never rises above the capacity: what is needed beyond comes at the refill rate.
        bucket.limit().refill_rate().time_for(need.minus(bucket.level(now)))
    };
    let wait = refilled_in.unwrap_or(Duration::MAX).max(cooling_down(inner, bucket));
    within(AdmissionVerdict::Admit { wait: Some(wait) }, asked.slo)
}

fn slots(inner: &Inner, entry: &Entry, reading: &BucketReading, asked: AdmissionAsk) -> AdmissionVerdict {
    let now = inner.now();
    let (bucket, load) = (&reading.bucket, entry.load.last());
    let known = watched(entry).known(load.as_deref());
    let waiting = entry.load.waiting();
    // A sweep's measurement is newer than the reading if reads have failed recently. A measurement from a
    // clock that is ahead does not count.
    let is_younger = |at: Timestamp| at <= now && !reading.is_read_since(at);
    let live = match load.as_ref().filter(|load| load.measured_at().is_some_and(is_younger)) {
        Some(load) => load.pending(),
        None => live(bucket, load.as_deref(), now),
    };
    let ahead = waiting.plus(asked.backlog);
    let starts_now = ahead.plus(asked.cost.amount()) <= bucket.tokens();
    let pressure = Pressure {
        pending: live.plus(ahead),
        request: asked.cost,
        // A rate that was measured at low demand must not shed a burst for which slots are free.
        rate: load.filter(|_| !starts_now).and_then(|load| load.drain_rate_of(live)),
        slo: asked.slo,
        last_completion: known.last_completion,
        // If nobody holds a slot, the callers in the queue wait for nobody.
        queue_nonempty_since: known.nonempty_since.filter(|_| live > Amount::ZERO),
        staleness: inner.config.staleness,
        now,
    };
    match admit(&pressure) {
        AdmissionDecision::Shed { wait, reason } => AdmissionVerdict::Shed { wait, reason, starts_now },
        AdmissionDecision::Admit { wait } => {
            let (wait, pause) =
                (if starts_now { Some(Duration::ZERO) } else { wait }, cooling_down(inner, bucket));
            let wait = if pause.is_zero() { wait } else { Some(wait.unwrap_or_default().max(pause)) };
            within(AdmissionVerdict::Admit { wait }, asked.slo)
        }
        _ => AdmissionVerdict::Admit { wait: None },
    }
}

/// The most that live holders can hold: the slots that are not free, less the inline leases that have ended.
/// If nothing departed since the last sweep, no more than what that sweep found live and what was granted
/// since. The slots of crashed holders, and lost slots, are nobody's work.
fn live(bucket: &Bucket, load: Option<&Load>, now: Timestamp) -> Amount {
    let ended = bucket.inline().into_iter().flat_map(|leases| leases.ended(now.before(CLOCK_ERROR)));
    let taken =
        ended.fold(taken(bucket), |taken, (_, lease)| taken.minus(lease.cost.amount())).max(Amount::ZERO);
    let measured =
        load.and_then(|load| Standing::measured(load)?.live_at(load.pending(), &Standing::of(bucket)));
    measured.map_or(taken, |measured| measured.min(taken))
}

fn cooling_down(inner: &Inner, bucket: &Bucket) -> Duration {
    bucket.blocked_until().unwrap_or_default().since(inner.now())
}

fn within(verdict: AdmissionVerdict, slo: Option<Duration>) -> AdmissionVerdict {
    match (verdict, slo) {
        (AdmissionVerdict::Admit { wait: Some(wait) }, Some(slo)) if wait > slo => {
            AdmissionVerdict::Shed { wait, reason: ShedReason::OverSlo, starts_now: false }
        }
        (verdict, _) => verdict,
    }
}
