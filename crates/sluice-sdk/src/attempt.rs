//! One attempt to take what a caller asks for: each bucket's part through the lane of the bucket, or all parts through one
//! lane where they change in one transaction.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Bucket, Cost, Dimension, Refusal, RowError};
use tokio::time::Instant;

use crate::acquire::AcquireError;
use crate::cache::Entry;
use crate::client::Inner;
use crate::config::{Leases, OnUnavailable};
use crate::grant::Grant;
use crate::heal;
use crate::load;
use crate::outcome::Outcome;
use crate::refusal::{RetryIn, RetryReason};
use crate::request::Ask;
use crate::telemetry;
use crate::waiting::{Patience, Setback};
use sluice_table::Backoff;
use sluice_table::{Attributes, Item, StoreError};

mod apart;
mod fresh;
pub(crate) mod inline;
mod parallel;
mod round;
pub(crate) mod rows;
pub(crate) mod tokens;
mod wants;

pub(crate) use fresh::Fresh;
pub(crate) use parallel::{Stopped, finished, in_parallel, stopped};
pub(crate) use round::longest_attempt;
pub(crate) use wants::{is_not_missing, known, known_since, refresh, wants_in_line};
use wants::{refresh_all, want, wants};

/// What a caller accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Until when its start may be; `None` for now or not at all.
    pub(crate) until: Option<Instant>,
    /// Whether it stays in line until then, for slots and for whatever delays the line.
    pub(crate) stays: bool,
    /// How long its leases last.
    pub(crate) lease: LeaseTerm,
}

/// How long a lease lasts, told when it is written: its caller may have stood in line before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseTerm {
    pub(crate) at_least: Duration,
    /// It lasts until then besides.
    pub(crate) until: Option<Instant>,
}

impl Terms {
    /// Now or not at all.
    pub(crate) const fn at_once(lease: Duration) -> Self {
        Self { until: None, stays: false, lease: LeaseTerm { at_least: lease, until: None } }
    }

    /// How far ahead it books, from now.
    pub(crate) fn patience(self) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Until when it stays in line, if it does.
    pub(crate) fn stays_until(self) -> Option<Instant> {
        self.until.filter(|_| self.stays)
    }

    /// How long it stays in line, from now.
    pub(crate) fn in_line(self, inner: &Inner) -> Patience {
        let stays = if self.stays { self.patience() } else { Duration::ZERO };
        Patience { stays, answers_locally: inner.config.on_unavailable != OnUnavailable::Error }
    }
}

impl LeaseTerm {
    /// From now.
    pub(crate) fn length(self) -> Duration {
        let until = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        until.unwrap_or_default().max(self.at_least)
    }
}

/// One dimension of an attempt, with what is known of its bucket.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub(crate) entry: Arc<Entry>,
    pub(crate) cost: Cost,
    pub(crate) concurrent: bool,
}

/// What came of one attempt on one or all of its dimensions.
#[derive(Debug)]
pub(crate) enum Taken<T> {
    Granted(T),
    Refused(RetryIn),
}

/// The answer to a turn that takes.
pub(crate) type Answer = Result<Taken<Fresh>, AcquireError>;

/// An answer to come. On the heap, and without its type: the types of all that it runs through are more than the compiler takes
/// in a caller's own future, and more memory than a grant from stock should move.
pub(crate) type Submitted<'a> = Pin<Box<dyn Future<Output = Result<Outcome, AcquireError>> + Send + 'a>>;

/// As [`submit`], for one dimension whose bucket is known, as nearly all requests are: no list, no name to parse.
pub(crate) fn submit_one(inner: &Arc<Inner>, entry: Arc<Entry>, cost: Option<Cost>, terms: Terms) -> Submitted<'_> {
    Box::pin(async move {
        let dimension = entry.dimension.clone();
        let answer = take_one(inner, entry, cost, terms).await;
        told(inner, || vec![Ask { dimension, cost, times: 1 }], terms, answer)
    })
}

async fn take_one(
    inner: &Arc<Inner>,
    entry: Arc<Entry>,
    cost: Option<Cost>,
    terms: Terms,
) -> Result<Outcome, AcquireError> {
    let limit = match entry.limit() {
        Some(limit) => limit,
        None => *known(inner, &entry).await?.bucket.limit(),
    };
    let want = want(inner, entry, &limit, cost.unwrap_or_else(|| limit.cost_per_call()))?;
    take_wants(inner, &[want], terms).await
}

/// Takes what is asked for, or says why not.
pub(crate) fn submit<'a>(inner: &'a Arc<Inner>, asks: &'a [Ask], terms: Terms) -> Submitted<'a> {
    Box::pin(async move {
        let answer = match wants_in_line(inner, asks, terms).await {
            Ok(wants) => take_wants(inner, &wants, terms).await,
            Err(setback) => setback.told().map(Outcome::RetryIn),
        };
        told(inner, || asks.to_vec(), terms, answer)
    })
}

/// As [`submit`], for a caller that would carry its start: books as far ahead as `terms` say, where that takes no lease. A start
/// that is granted locally cannot be carried.
pub(crate) fn book<'a>(inner: &'a Arc<Inner>, asks: &'a [Ask], terms: Terms) -> Submitted<'a> {
    Box::pin(async move {
        let at_once = Terms { until: None, ..terms };
        let answer = match wants(inner, asks).await {
            Ok(wants) => {
                let takes_lease = inner.config.leases == Leases::All || wants.iter().any(|want| want.concurrent);
                take_wants(inner, &wants, if takes_lease { at_once } else { terms }).await
            }
            Err(error) => Err(error),
        };
        told(inner, || asks.to_vec(), at_once, answer)
    })
}

/// What the caller hears: an outage may be answered locally.
fn told(
    inner: &Arc<Inner>,
    asks: impl FnOnce() -> Vec<Ask>,
    terms: Terms,
    answer: Result<Outcome, AcquireError>,
) -> Result<Outcome, AcquireError> {
    let answer = match answer {
        Err(AcquireError::Store(error)) if error.is_unavailable() => {
            match inner.fallback.take(inner, &asks(), terms.patience()) {
                Some(outcome) => {
                    telemetry::unavailable("local");
                    tracing::warn!(event = "acquire.unavailable", table = inner.store.table(), %error, answered = "locally");
                    Ok(outcome)
                }
                None => {
                    telemetry::unavailable("error");
                    Err(AcquireError::Store(error))
                }
            }
        }
        Err(AcquireError::Store(StoreError::Contended { .. })) => Ok(Outcome::RetryIn(
            asks().first().map_or_else(|| unreachable!("no request is empty"), |ask| contended(&ask.dimension)),
        )),
        other => other,
    };
    match &answer {
        Ok(Outcome::Granted(grant)) => tracing::debug!(
            event = "acquire.granted",
            dimensions = %grant.names(),
            booked_ms = grant.booked_wait().as_millis(),
        ),
        Ok(Outcome::RetryIn(retry)) => tracing::debug!(
            event = "acquire.retry_in",
            dimension = %retry.dimension,
            reason = retry.reason.as_str(),
            wait_ms = retry.wait.as_millis(),
        ),
        Err(_) => {}
    }
    answer
}

async fn take_wants(inner: &Arc<Inner>, wants: &[Want], terms: Terms) -> Result<Outcome, AcquireError> {
    let in_one = match inner.config.leases {
        Leases::All => true,
        Leases::Inline => false,
        _ => wants.iter().any(|want| want.concurrent),
    };
    let taken = if in_one { rows::take(inner, wants, terms).await? } else { apart::take(inner, wants, terms).await? };
    Ok(match taken {
        Taken::Granted(fresh) => Outcome::Granted(Grant::new(Arc::clone(inner), fresh, terms.lease.length())),
        Taken::Refused(retry) => Outcome::RetryIn(retry),
    })
}

/// What a caller hears that does not wait, and would stand behind those who do.
fn behind(inner: &Arc<Inner>, wants: &[Want], why: Setback) -> Answer {
    let told = why.told()?;
    let of_bucket = wants.iter().find(|want| want.entry.dimension == told.dimension);
    Ok(Taken::Refused(match of_bucket {
        Some(want) => {
            let told = load::behind(&want.entry, want.cost, told, inner.now());
            heal::refused(inner, &want.entry, &told);
            told
        }
        None => told,
    }))
}

/// What a caller hears whose patience has ended, and that stands in line no more. `why` is of the last look. If the next one has been under
/// way for `looks_for`, longer than an attempt, nothing is known of the bucket as it is: what was full then may not be now.
fn too_late(inner: &Arc<Inner>, wants: &[Want], why: Option<Setback>, looks_for: Option<Duration>) -> Answer {
    let is_unanswered = looks_for.is_some_and(|time| time >= inner.store.attempt().of_rows());
    let why = why.filter(|why| !is_unanswered || matches!(why, Setback::Out(_) | Setback::Final(_)));
    let told = why.unwrap_or_else(|| Setback::overtaken(&wants[0].entry.dimension)).told()?;
    let of_bucket = wants.iter().find(|want| want.entry.dimension == told.dimension);
    Ok(Taken::Refused(match of_bucket.filter(|_| told.reason == RetryReason::NoFreeSlot) {
        Some(want) => {
            let told = load::in_vain(&want.entry, want.cost, inner.now());
            heal::refused(inner, &want.entry, &told);
            told
        }
        None => told,
    }))
}

/// Takes in the row that a reply showed.
pub(crate) fn saw(inner: &Inner, entry: &Entry, row: &Item) -> Result<Arc<Bucket>, AcquireError> {
    let bucket = Arc::new(parse(&entry.dimension, row)?);
    entry.saw(Arc::clone(&bucket), inner.now());
    Ok(bucket)
}

pub(crate) fn parse(dimension: &Dimension, row: &Item) -> Result<Bucket, AcquireError> {
    let corrupt = |source: RowError| AcquireError::CorruptRow { dimension: dimension.clone(), source };
    Bucket::read(dimension, &Attributes(row)).map_err(corrupt)
}

/// A reply shows no row of the bucket. The next caller reads it: how long the request was on its way is not known here, and the bucket
/// may have been made since.
pub(crate) fn unknown(inner: &Inner, entry: &Entry) -> AcquireError {
    entry.gone();
    unknown_dimension(inner, entry)
}

fn unknown_dimension(inner: &Inner, entry: &Entry) -> AcquireError {
    AcquireError::UnknownDimension { dimension: entry.dimension.clone(), table: inner.store.table().to_owned() }
}

pub(crate) fn refused(dimension: &Dimension, refusal: Refusal) -> RetryIn {
    RetryIn::new(refusal.wait, dimension.clone(), refusal.reason.into())
}

pub(crate) fn contended(dimension: &Dimension) -> RetryIn {
    RetryIn::new(Backoff::DEFAULT.cap(), dimension.clone(), RetryReason::Contended)
}

/// The refusal that is told for several: the longest wait, and who causes it.
pub(crate) fn longest(refusals: impl IntoIterator<Item = RetryIn>) -> Option<RetryIn> {
    refusals.into_iter().max_by_key(|retry| retry.wait)
}
