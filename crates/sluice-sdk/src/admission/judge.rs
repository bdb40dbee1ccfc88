//! What becomes of a request, by what is known of its bucket.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Admission as CoreAdmission, Amount, Bucket, Cost, Pressure, ShedReason, Timestamp, admit};

use super::look;
use crate::acquire::AcquireError;
use crate::cache::{Entry, Reading};
use crate::client::Inner;
use crate::load::taken;

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
    Admit { wait: Option<Duration> },
    Shed { wait: Duration, reason: ShedReason },
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
    let known = entry.admission.known(load.as_deref());
    let waiting = entry.load.waiting();
    // A sweep's measurement is younger where reading failed of late.
    // One of a clock that is ahead is none.
    let is_younger = |at: Timestamp| at <= now && !reading.is_read_since(at);
    let live = match load.as_ref().filter(|load| load.measured_at().is_some_and(is_younger)) {
        Some(load) => load.pending(),
        None => taken(bucket),
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
        queue_nonempty_since: known.nonempty_since,
        staleness: inner.config.staleness,
        now,
    };
    match admit(&pressure) {
        CoreAdmission::Shed { wait, reason } => Verdict::Shed { wait, reason },
        CoreAdmission::Admit { wait } => {
            let (wait, pause) = (if starts_now { Some(Duration::ZERO) } else { wait }, cooling_down(inner, bucket));
            let wait = if pause.is_zero() { wait } else { Some(wait.unwrap_or_default().max(pause)) };
            within(Verdict::Admit { wait }, asked.slo)
        }
        _ => Verdict::Admit { wait: None },
    }
}

/// What is left of a pause that the vendor asked for.
fn cooling_down(inner: &Inner, bucket: &Bucket) -> Duration {
    bucket.blocked_until().unwrap_or_default().since(inner.now())
}

fn within(verdict: Verdict, slo: Option<Duration>) -> Verdict {
    match (verdict, slo) {
        (Verdict::Admit { wait: Some(wait) }, Some(slo)) if wait > slo => {
            Verdict::Shed { wait, reason: ShedReason::OverSlo }
        }
        (verdict, _) => verdict,
    }
}
