//! What becomes of a request, by what is known of its bucket.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{
    Admission as CoreAdmission, Amount, Bucket, CLOCK_ERROR, Cost, Load, Pressure, ShedReason, Standing, Timestamp,
    admit,
};

use crate::admission::look;
use crate::admission::watched::watched;
use crate::api::error::AcquireError;
use crate::bucket::known::Reading;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::load::taken;

/// What a caller asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) cost: Cost,
    pub(super) backlog: Amount,
    pub(super) slo: Option<Duration>,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Admit {
        wait: Option<Duration>,
    },
    /// `starts_now`: it is over what its caller can use though slots for it are free.
    Shed {
        wait: Duration,
        reason: ShedReason,
        starts_now: bool,
    },
}

/// Reads what it needs to, and judges.
pub(super) async fn judge(inner: &Arc<Inner>, entry: &Arc<Entry>, asked: Asked) -> Result<Verdict, AcquireError> {
    let reading = look::young(inner, entry).await?;
    let limit = reading.bucket.limit();
    if asked.cost.amount() > limit.capacity() {
        let (dimension, cost, capacity) = (entry.dimension.clone(), asked.cost, limit.capacity());
        return Err(AcquireError::NeverSatisfiable { dimension, cost, capacity });
    }
    Ok(match limit.is_concurrent() {
        true => slots(inner, entry, &reading, asked),
        false => tokens(inner, &reading.bucket, asked),
    })
}

/// The exact wait: booked starts stand in the line already.
fn tokens(inner: &Inner, bucket: &Bucket, asked: Asked) -> Verdict {
    let now = inner.now();
    let (need, capacity) = (asked.backlog.plus(asked.cost.amount()), bucket.limit().capacity());
    let in_line = if need <= capacity {
        bucket.reaches(need).map(|at| at.since(now))
    } else {
        // The line runs over at the capacity, and what is needed beyond comes at the refill rate.
        bucket.limit().refill_rate().time_for(need.minus(bucket.level(now)))
    };
    let wait = in_line.unwrap_or(Duration::MAX).max(cooling_down(inner, bucket));
    within(Verdict::Admit { wait: Some(wait) }, asked.slo)
}

fn slots(inner: &Inner, entry: &Entry, reading: &Reading, asked: Asked) -> Verdict {
    let now = inner.now();
    let (bucket, load) = (&reading.bucket, entry.load.last());
    let known = watched(entry).known(load.as_deref());
    let waiting = entry.load.waiting();
    // A sweep's measurement is younger where reading failed of late.
    // One of a clock that is ahead is none.
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
        // Where nobody holds any, what stands in line waits for nobody.
        queue_nonempty_since: known.nonempty_since.filter(|_| live > Amount::ZERO),
        staleness: inner.config.staleness,
        now,
    };
    match admit(&pressure) {
        CoreAdmission::Shed { wait, reason } => Verdict::Shed { wait, reason, starts_now },
        CoreAdmission::Admit { wait } => {
            let (wait, pause) = (if starts_now { Some(Duration::ZERO) } else { wait }, cooling_down(inner, bucket));
            let wait = if pause.is_zero() { wait } else { Some(wait.unwrap_or_default().max(pause)) };
            within(Verdict::Admit { wait }, asked.slo)
        }
        _ => Verdict::Admit { wait: None },
    }
}

/// What is held at most: what is not free, less inline leases that have ended; or what the last sweep found live and was granted since,
/// where nothing departed. The slots of a crashed holder, and lost ones, are nobody's work.
fn live(bucket: &Bucket, load: Option<&Load>, now: Timestamp) -> Amount {
    let ended = bucket.inline().into_iter().flat_map(|leases| leases.ended(now.before(CLOCK_ERROR)));
    let taken = ended.fold(taken(bucket), |taken, (_, lease)| taken.minus(lease.cost.amount())).max(Amount::ZERO);
    let measured = load.and_then(|load| Standing::measured(load)?.live_at(load.pending(), &Standing::of(bucket)));
    measured.map_or(taken, |measured| measured.min(taken))
}

/// What is left of a pause that the vendor asked for.
fn cooling_down(inner: &Inner, bucket: &Bucket) -> Duration {
    bucket.blocked_until().unwrap_or_default().since(inner.now())
}

fn within(verdict: Verdict, slo: Option<Duration>) -> Verdict {
    match (verdict, slo) {
        (Verdict::Admit { wait: Some(wait) }, Some(slo)) if wait > slo => {
            Verdict::Shed { wait, reason: ShedReason::OverSlo, starts_now: false }
        }
        (verdict, _) => verdict,
    }
}
