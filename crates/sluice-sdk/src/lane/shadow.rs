//! Shadow mode: every call goes on at once. It takes what its buckets have. What a bucket does not have, and
//! what fails, is counted and holds nothing. As [`fallback`](super::fallback) is for an outage, this is the
//! one place where a refusal becomes a grant.

use std::fmt::Display;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::{Cost, Timestamp};
use tokio::time::{Instant, timeout};

use crate::api::basis::Basis;
use crate::api::error::AcquireError;
use crate::api::error_kind::ErrorKind;
use crate::api::refusal::{RetryIn, RetryReason, contended};
use crate::api::request::{Ask, RequestError};
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::one_bucket::{in_time, take_one};
use crate::lane::parallel::in_parallel_here;
use crate::lane::part::{Hold, Part, Parts};
use crate::lane::setback::{Setback, Taken};
use crate::lane::terms::Terms;
use crate::lane::unclaimed::{LaneAnswer, UnclaimedGrant};
use crate::telemetry;

/// How often the log names a bucket that would have refused, and one that cannot be asked. Smaller says more
/// often what the metrics count anyway.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// A call that would wait lets its buckets answer for half of its patience, and at least for this long. It
/// never takes more than half of the time that the caller has for waiting and running together.
const LEAST_TIME: Duration = Duration::from_millis(200);

/// Takes each of `asks` by itself, now or not at all. All or nothing would be wrong here: the call is made,
/// so the buckets that have something must count it.
pub(super) async fn take(inner: &Arc<Inner>, asks: &[Ask], terms: Terms) -> UnclaimedGrant {
    let entries: Vec<_> = asks.iter().map(|ask| inner.entry_for(ask)).collect();
    let takes =
        asks.iter().zip(&entries).map(|(ask, entry)| Box::pin(take_now(inner, entry, ask.cost, terms)));
    let answers = in_parallel_here(takes.collect()).await;
    let (now, patience) = (inner.now(), terms.patience());
    let (mut held, mut passed) = (None::<UnclaimedGrant>, Parts::new());
    for ((ask, entry), answer) in asks.iter().zip(&entries).zip(answers) {
        let mut in_cool_down = false;
        match answer {
            Ok(Taken::Granted(unclaimed)) => {
                match &mut held {
                    Some(held) => held.join(unclaimed),
                    None => held = Some(unclaimed),
                }
                continue;
            }
            Ok(Taken::Refused(retry)) => {
                in_cool_down = retry.reason == RetryReason::CoolingDown;
                would_refuse(entry, &retry, patience);
            }
            Err(error) => failed_for(entry, &error),
        }
        passed.push(Part::let_through(entry, cost_of(ask, entry), now, in_cool_down));
    }
    match held {
        Some(held) if passed.is_empty() => held,
        held => {
            let mut all = UnclaimedGrant::local(Arc::clone(inner), passed, now, Basis::Shadow);
            held.into_iter().for_each(|held| all.join(held));
            all
        }
    }
}

async fn take_now(inner: &Arc<Inner>, entry: &Arc<Entry>, cost: Option<Cost>, terms: Terms) -> LaneAnswer {
    let at_once = Terms::at_once(terms.lease);
    let taking = pin!(take_one(inner, Arc::clone(entry), cost, at_once));
    let taking = in_time(inner, at_once, taking);
    let answer = match terms.until {
        None => taking.await,
        Some(_) => timeout((terms.patience() / 2).max(LEAST_TIME).min(terms.time_left() / 2), taking)
            .await
            .unwrap_or_else(|_| Ok(Taken::Refused(contended(&entry.dimension)))),
    };
    answer.or_else(|error| Setback::of(error, &entry.dimension).answer())
}

/// What the call would have taken, as far as it is known.
fn cost_of(ask: &Ask, entry: &Entry) -> Cost {
    let of_limit = entry.limit().and_then(|limit| ask.cost_in(&limit).ok());
    of_limit.or(ask.cost).unwrap_or(Cost::ONE)
}

/// The asks of a request. In shadow mode, a request that cannot be read asks for nothing, and its call goes
/// on.
pub(crate) fn readable(
    inner: &Inner,
    asks: Result<Vec<Ask>, RequestError>,
) -> Result<Vec<Ask>, RequestError> {
    or_in_shadow(inner, asks, Vec::new)
}

/// In shadow mode, `value` stands for an answer that failed: no call fails by its limiter.
pub(crate) fn or_in_shadow<T, E: Display + ErrorKind>(
    inner: &Inner,
    answer: Result<T, E>,
    value: impl FnOnce() -> T,
) -> Result<T, E> {
    match answer {
        Err(error) if inner.config.mode.is_shadow() => {
            failed(inner, &error);
            Ok(value())
        }
        answer => answer,
    }
}

/// What was counted since the log last named it.
#[derive(Debug, Default)]
struct Noted(Mutex<NotedState>);

#[derive(Debug, Default)]
struct NotedState {
    would_refuse: Unlogged,
    failed: Unlogged,
}

#[derive(Debug, Default)]
struct Unlogged {
    calls: u64,
    logged_at: Option<Instant>,
}

impl Unlogged {
    /// Counts a call. Returns the number of calls since the last line of the log, if another line is due.
    fn count(&mut self) -> Option<u64> {
        self.calls += 1;
        if self.logged_at.is_some_and(|at| at.elapsed() < LOG_EVERY) {
            return None;
        }
        self.logged_at = Some(Instant::now());
        Some(std::mem::take(&mut self.calls))
    }
}

/// Counts a call that the bucket would have refused, or kept waiting: within the caller's `patience` it would
/// have waited.
fn would_refuse(entry: &Entry, retry: &RetryIn, patience: Duration) {
    let would_wait = !patience.is_zero() && retry.wait <= patience;
    match would_wait {
        true => telemetry::shadow_wait(entry.label(), retry.wait),
        false => telemetry::shadow_refused(entry.label(), retry.reason.as_str()),
    }
    if let Some(calls) = entry.extensions.of::<Noted>().0.lock().would_refuse.count() {
        tracing::info!(
            event = "shadow.let_through",
            dimension = %entry.dimension,
            reason = retry.reason.as_str(),
            wait_ms = retry.wait.as_millis(),
            would_wait,
            calls,
            "with SLUICE_MODE=enforce, such a call would have waited or been refused; `calls` since the last line"
        );
    }
}

/// Counts a call whose bucket could not be asked.
fn failed_for(entry: &Entry, error: &AcquireError) {
    if error.kind() == "unavailable" {
        telemetry::unavailable("local");
    }
    telemetry::shadow_error(error.kind());
    let calls = entry.extensions.of::<Noted>().0.lock().failed.count();
    if let Some(calls) = calls {
        tracing::warn!(event = "shadow.error", dimension = %entry.dimension, %error, calls, "the call went on");
    }
}

/// Counts an error of no bucket.
pub(crate) fn failed(inner: &Inner, error: &(impl Display + ErrorKind)) {
    telemetry::shadow_error(error.kind());
    let calls = inner.extensions.of::<Noted>().0.lock().failed.count();
    if let Some(calls) = calls {
        tracing::warn!(event = "shadow.error", %error, calls, "the call went on");
    }
}

impl Part {
    /// Nothing of a bucket, for a call that shadow mode lets through.
    fn let_through(entry: &Arc<Entry>, cost: Cost, now: Timestamp, in_cool_down: bool) -> Self {
        let hold = Hold::LetThrough { in_cool_down };
        Self {
            entry: Arc::clone(entry),
            cost,
            start_at: now,
            hold,
            used: None,
            may_be_gone: false,
            borrower: None,
        }
    }
}
