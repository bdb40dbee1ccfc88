//! Waiting for a start: first for slots, in line; then for tokens, booked.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use crate::acquire::AcquireError;
use crate::attempt::{Terms, Want, wants};
use crate::client::Inner;
use crate::give_back::give_back_unused;
use crate::grant::{Grant, Uncalled};
use crate::lane;
use crate::outcome::{Outcome, RetryIn, RetryReason};
use crate::request::Ask;
use crate::retry::{Backoff, random_up_to};

/// Tokens of one dimension whose start is this much earlier than another's are given back and taken again when the call can
/// be made: kept until then, they could come in a burst that the vendor does not allow.
const KEPT_AT_MOST: Duration = Duration::from_millis(50);

/// A grant whose start is reached, or the refusal that says why there is none until `until`.
pub(super) async fn for_start(
    inner: &Arc<Inner>,
    asks: Vec<Ask>,
    until: Instant,
    lease_for: impl Fn(Instant) -> Duration,
) -> Result<Result<Grant, RetryIn>, AcquireError> {
    let concurrent = concurrent(inner, &asks).await?;
    let (slots, tokens): (Vec<_>, Vec<_>) = asks.into_iter().zip(concurrent).partition(|(_, concurrent)| *concurrent);
    let (slots, tokens): (Vec<Ask>, Vec<Ask>) =
        (slots.into_iter().map(|(ask, _)| ask).collect(), tokens.into_iter().map(|(ask, _)| ask).collect());
    let terms = || Terms { patience: until.saturating_duration_since(Instant::now()), lease_for: lease_for(Instant::now()) };
    let mut held = Uncalled::default();
    if !slots.is_empty() {
        match in_line(inner, &slots, until, terms).await? {
            Ok(grant) => held.join(grant),
            Err(retry) => return Ok(Err(retry)),
        }
    }
    match book(inner, tokens, until, terms).await? {
        Ok(booked) => {
            booked.into_iter().for_each(|grant| held.join(grant));
            match held.take() {
                Some(grant) => Ok(Ok(grant)),
                None => Err(crate::request::RequestError::Empty.into()),
            }
        }
        Err(retry) => {
            if let Some(grant) = held.take() {
                grant.cancel().await;
            }
            Ok(Err(retry))
        }
    }
}

/// Which of the asks are for slots. While DynamoDB is out, what is not known is taken for tokens.
async fn concurrent(inner: &Arc<Inner>, asks: &[Ask]) -> Result<Vec<bool>, AcquireError> {
    match wants(inner, asks).await {
        Ok(wants) => Ok(wants.iter().map(|want: &Want| want.concurrent).collect()),
        Err(AcquireError::Store(error)) if error.is_unavailable() => Ok(vec![false; asks.len()]),
        Err(error) => Err(error),
    }
}

/// Takes slots, waiting in the process's line for them: first in, first out, and only its head asks DynamoDB.
async fn in_line(
    inner: &Arc<Inner>,
    asks: &[Ask],
    until: Instant,
    terms: impl Fn() -> Terms,
) -> Result<Result<Grant, RetryIn>, AcquireError> {
    let entry = inner.entry(&asks[0].dimension);
    let nobody_waits = entry.line.try_lock().is_ok();
    let mut refusal = None;
    if nobody_waits {
        match lane::submit(Arc::clone(inner), asks.to_vec(), terms()).await? {
            Outcome::Granted(grant) => return Ok(Ok(grant)),
            Outcome::RetryIn(retry) => refusal = Some(retry),
        }
    }
    let Ok(_turn) = timeout_at(until, entry.line.lock()).await else {
        return Ok(Err(refusal.unwrap_or_else(|| still_in_line(&asks[0]))));
    };
    for look in 0.. {
        if refusal.is_none() {
            match lane::submit(Arc::clone(inner), asks.to_vec(), terms()).await? {
                Outcome::Granted(grant) => return Ok(Ok(grant)),
                Outcome::RetryIn(retry) => refusal = Some(retry),
            }
        }
        let Some(retry) = refusal.take() else { continue };
        let pause = match retry.reason {
            RetryReason::CoolingDown => retry.wait,
            _ => Backoff::POLL.delay(look, random_up_to).max(Duration::from_millis(5)),
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || (retry.reason == RetryReason::CoolingDown && pause > left) {
            return Ok(Err(retry));
        }
        tokio::select! {
            () = sleep(pause.min(left)) => asks.iter().for_each(|ask| inner.entry(&ask.dimension).doubt()),
            () = entry.freed.notified() => {}
        }
    }
    unreachable!("the loop returns")
}

fn still_in_line(ask: &Ask) -> RetryIn {
    RetryIn { wait: Backoff::POLL.cap(), dimension: ask.dimension.clone(), reason: RetryReason::NoFreeSlot }
}

/// Books tokens and sleeps until their start. Of several dimensions the one with the longest wait is booked first and the
/// others when it starts, so that no tokens lie unused for long.
async fn book(
    inner: &Arc<Inner>,
    mut asks: Vec<Ask>,
    until: Instant,
    terms: impl Fn() -> Terms,
) -> Result<Result<Option<Grant>, RetryIn>, AcquireError> {
    let mut held = Uncalled::default();
    while !asks.is_empty() {
        let batch = next_batch(inner, &asks);
        match lane::submit(Arc::clone(inner), batch.clone(), terms()).await? {
            Outcome::Granted(grant) => {
                asks.retain(|ask| batch.iter().all(|booked| booked.dimension != ask.dimension));
                held.join(grant);
                asks.extend(give_back_early(inner, &mut held, &batch).await);
                let start_at = held.start_at().unwrap_or_default();
                sleep(start_at.since(inner.now())).await;
            }
            Outcome::RetryIn(retry) => {
                let left = until.saturating_duration_since(Instant::now());
                let passes = matches!(retry.reason, RetryReason::CoolingDown | RetryReason::Contended);
                if let Some(grant) = held.take() {
                    asks.extend(grant.asks());
                    grant.cancel().await;
                }
                if !passes || retry.wait > left || left.is_zero() {
                    return Ok(Err(retry));
                }
                sleep(retry.wait).await;
            }
        }
    }
    Ok(Ok(held.take()))
}

/// All of them where none has to wait, as far as is known; else the one with the longest wait.
fn next_batch(inner: &Arc<Inner>, asks: &[Ask]) -> Vec<Ask> {
    let now = inner.now();
    let wait = |ask: &Ask| {
        let reading = inner.entry(&ask.dimension).reading()?;
        let cost = ask.cost_or(reading.bucket.limit().cost_per_call());
        reading.bucket.reaches(cost.amount()).map(|at| at.since(now))
    };
    let longest = asks.iter().max_by_key(|ask| wait(ask)).filter(|ask| wait(ask).is_some_and(|wait| !wait.is_zero()));
    longest.map_or_else(|| asks.to_vec(), |ask| vec![ask.clone()])
}

/// Gives back what would lie unused until the latest start, and returns its asks.
async fn give_back_early(inner: &Arc<Inner>, held: &mut Uncalled, batch: &[Ask]) -> Vec<Ask> {
    let early = held.split_earlier_than(KEPT_AT_MOST);
    let is_early = |ask: &&Ask| early.iter().any(|part| part.entry.dimension == ask.dimension);
    let again = batch.iter().filter(is_early).cloned().collect();
    give_back_unused(inner, early).await;
    again
}
