//! Giving back: what a holder releases, and what was granted and not used.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Chunk, Cost, InlineRelease, Lease, MAX_LEASES_PER_TRANSACTION, Timestamp};
use sluice_ops::{Released, Tally, send_chunk};
use sluice_table::{Resend, StoreError, Written, random_wait_up_to};
use tokio::time::{Instant, sleep};

use crate::api::error_kind::ErrorKind;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::local_slots::{LocalSlots, SlotsEnd};
use crate::lane::parallel::{Stopped, in_parallel, stopped};
use crate::lane::part::{Hold, Part, Parts, Slots};
use crate::lane::queue::leader::Leader;
use crate::lane::queue::{Lane, Service, Waiter};
use crate::lane::reading::parse;
use crate::lane::settle::settle_charged;
use crate::lane::{chunks, expired_holder, inline, noted_use};
use crate::telemetry;

/// The outcome of a release as metrics and spans name it.
pub(crate) const fn name_of<E>(released: &Result<Released, E>) -> &'static str {
    match released {
        Ok(released) => released.as_str(),
        Err(_) => "failed",
    }
}

/// Why a release could not be confirmed. The slot comes back at the latest when its lease ends: a client with
/// lease rows goes on trying until then, or until it is closed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// Other writers were faster in every try.
    #[error("the release of {key} met a conflict in every try; the slot comes back by the end of its lease")]
    Contended {
        /// The lease.
        key: String,
    },
    /// DynamoDB will never accept the release, or the bucket's row cannot be read.
    #[error("{key} cannot be given back: {message}")]
    Refused {
        /// The lease.
        key: String,
        /// What DynamoDB said, or what is wrong with the row.
        message: String,
    },
    /// The table did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ErrorKind for ReleaseError {
    fn kind(&self) -> &'static str {
        "release"
    }
}

/// How long a release is tried, which is longer than an acquire: none of its requests begins later than this
/// after the first one. Then the caller has its answer; a release with a lease row goes on ([`go_on`]).
pub(crate) const RELEASE_PATIENCE: Duration = Duration::from_secs(5);

/// The shortest pause before a release that failed joins its lane again. Together with [`SPREAD`]: a longer
/// pause leaves a slot out of use for longer, a shorter one adds more writes to the crowd that keeps the
/// release from its row.
const PAUSE: Duration = Duration::from_millis(500);
/// How much longer a pause may be.
const SPREAD: Duration = Duration::from_millis(500);

/// Releases the parts of a grant whose call was made.
pub(crate) async fn release(inner: &Arc<Inner>, parts: Parts) -> Result<Released, ReleaseError> {
    let releases = parts.into_iter().map(|mut part| {
        let inner = Arc::clone(inner);
        async move {
            settle_charged(&inner, &mut part).await;
            release_part(&inner, &part).await
        }
    });
    let mut released = Released::GivenBack;
    let mut failure = None;
    let results = in_parallel(releases.collect()).await.map_err(|Stopped| stopped("TransactWriteItems"))?;
    for result in results {
        match result {
            Ok(part) => released = released.max(part),
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(released), Err)
}

async fn release_part(inner: &Arc<Inner>, part: &Part) -> Result<Released, ReleaseError> {
    if keep(inner, part) {
        return Ok(Released::GivenBack);
    }
    let released = match &part.hold {
        // There is nothing to give back.
        Hold::Tokens { lease: None, .. } | Hold::Local | Hold::LetThrough { .. } => {
            return Ok(Released::GivenBack);
        }
        Hold::LocalSlots(slots) => return release_local(inner, part, slots).await,
        Hold::Tokens { lease: Some(lease), .. } => {
            let chunk = Chunk::release_row(Lease::clone(lease));
            let mut released = release_chunk(inner, &part.entry, chunk).await;
            released.pop().unwrap_or(Ok(Released::GivenBack))
        }
        Hold::Slots(slots) => {
            let ask = ReleaseAsk::new(inner, slots);
            let released = in_lane(inner, &part.entry, ask.clone()).await;
            if unavailable(&released).is_some() && keep(inner, part) {
                return Ok(Released::GivenBack);
            }
            if may_pass(&released) {
                go_on(inner, &part.entry, ask);
            }
            released
        }
        Hold::Inline(held) => {
            let lease = InlineRelease { id: held.id.clone(), cost: part.cost };
            match inline::release(inner, &part.entry, lease).await {
                // Whether or not it was applied: no other process learns of it in the outage.
                Err(ReleaseError::Store(error)) if error.is_unavailable() && keep(inner, part) => {
                    return Ok(Released::GivenBack);
                }
                released => released,
            }
        }
    };
    telemetry::released(part.entry.label(), name_of(&released));
    if matches!(part.hold, Hold::Slots(_) | Hold::Inline(_)) && released.is_ok() {
        noted_use::slots_back(inner, &part.entry, part.cost, inner.now().since(part.start_at));
    }
    if matches!(released, Ok(Released::LeaseGone)) && !part.may_be_gone {
        expired_holder::found(inner, &part.entry);
    }
    released
}

/// Keeps the slots for the next call of the process, if it may grant them by itself. They go back later.
fn keep(inner: &Arc<Inner>, part: &Part) -> bool {
    let is_kept = inner.fallback.keep(inner, part);
    if is_kept {
        noted_use::slots_back(inner, &part.entry, part.cost, inner.now().since(part.start_at));
    }
    is_kept
}

/// Gives back slots that the process granted by itself, and what was taken from the table for them since.
async fn release_local(
    inner: &Arc<Inner>,
    part: &Part,
    slots: &LocalSlots<Part>,
) -> Result<Released, ReleaseError> {
    match slots.end() {
        SlotsEnd::Leased(leased) => {
            let start_at = part.start_at.max(leased.start_at);
            let may_be_gone = part.may_be_gone || leased.may_be_gone;
            let leased = Part { start_at, may_be_gone, ..leased };
            return Box::pin(release_part(inner, &leased)).await;
        }
        SlotsEnd::Unleased => inner.fallback.end_unleased(inner, &part.entry.dimension, part.cost),
        SlotsEnd::EndedBefore => {}
    }
    Ok(Released::GivenBack)
}

/// The lane of releases with lease rows: the releases of one bucket share one transaction.
pub(crate) type ReleaseLane = Lane<ReleaseAsk, Result<Released, ReleaseError>>;
type ReleaseWaiter = Waiter<ReleaseAsk, Result<Released, ReleaseError>>;

/// Slots to give back.
#[derive(Clone, Debug)]
pub(crate) struct ReleaseAsk {
    slots: Slots,
    /// When the lease has ended at the latest: a renewal has set no later end.
    until: Timestamp,
}

impl ReleaseAsk {
    fn new(inner: &Inner, slots: &Slots) -> Self {
        let renewed = inner.now().after(inner.config.lease_ttl).ceil_to_second();
        Self { slots: slots.clone(), until: renewed.max(slots.lease.ends()) }
    }
}

async fn in_lane(inner: &Arc<Inner>, entry: &Arc<Entry>, ask: ReleaseAsk) -> Result<Released, ReleaseError> {
    let serve = |leader| -> Service { Box::pin(serve(Arc::clone(inner), Arc::clone(entry), leader)) };
    let released = entry.releases.give(|| ask.clone(), serve).await;
    released.unwrap_or_else(|| Err(stopped("TransactWriteItems").into()))
}

async fn serve(
    inner: Arc<Inner>,
    entry: Arc<Entry>,
    leader: Leader<ReleaseAsk, Result<Released, ReleaseError>>,
) {
    let _serving = inner.background.token();
    let (inner, entry) = (&inner, &entry);
    let release = |waiters, _| release_together(inner, entry, waiters);
    let unsent = |waiter: ReleaseWaiter, error: StoreError| waiter.answer(Err(error.into()));
    chunks::lead(leader, MAX_LEASES_PER_TRANSACTION, release, unsent).await;
}

/// Answers all `waiters`. Returns the error if DynamoDB is out.
async fn release_together(
    inner: &Arc<Inner>,
    entry: &Arc<Entry>,
    waiters: Vec<ReleaseWaiter>,
) -> Result<(), StoreError> {
    let Some(last) = waiters.last() else { return Ok(()) };
    // The last caller has the youngest reading of the capacity.
    let bucket = Arc::clone(&last.ask.slots.bucket);
    let leases = waiters.iter().map(|waiter| waiter.ask.slots.lease.clone()).collect();
    let released = release_chunk(inner, entry, Chunk::release(&bucket, leases)).await;
    let out = released.iter().find_map(unavailable);
    for (waiter, released) in waiters.into_iter().zip(released) {
        waiter.answer(released);
    }
    out.map_or(Ok(()), Err)
}

/// Whether a release that failed may still succeed.
fn may_pass(released: &Result<Released, ReleaseError>) -> bool {
    match released {
        Err(ReleaseError::Contended { .. }) => true,
        Err(ReleaseError::Store(error)) => {
            error.is_unavailable() || matches!(error, StoreError::Contended { .. })
        }
        Ok(_) | Err(ReleaseError::Refused { .. }) => false,
    }
}

/// Releases again after a pause, and so on, unless the lease has ended or the client is closed: otherwise the
/// slot would be out of use until the lease ends. One transaction deletes the lease and gives its slots back,
/// so the release counts once, however late it is: also beside a sweep, or after an earlier try whose reply
/// was lost. In the lane, all that the process has to give back shares transactions.
fn go_on(inner: &Arc<Inner>, entry: &Arc<Entry>, ask: ReleaseAsk) {
    let Some(runtime) = inner.background.runtime() else { return };
    let (for_task, entry) = (Arc::clone(inner), Arc::clone(entry));
    inner.background.spawn(&runtime, async move {
        let inner = for_task;
        loop {
            tokio::select! {
                () = sleep(PAUSE + random_wait_up_to(SPREAD)) => {}
                () = inner.background.closing() => return,
            }
            if inner.now() >= ask.until || !may_pass(&in_lane(&inner, &entry, ask.clone()).await) {
                return;
            }
        }
    });
}

/// The error, if DynamoDB is out.
fn unavailable(released: &Result<Released, ReleaseError>) -> Option<StoreError> {
    match released {
        Err(ReleaseError::Store(error)) if error.is_unavailable() => Some(error.clone()),
        _ => None,
    }
}

/// Gives back what the leases of a chunk hold, and returns the outcome of each lease, in their order.
async fn release_chunk(inner: &Inner, entry: &Entry, chunk: Chunk) -> Vec<Result<Released, ReleaseError>> {
    let mut tally = Tally { ends: Some(HashMap::new()), ..Tally::default() };
    let leases = chunk.leases().to_vec();
    let began = Instant::now();
    let in_time = || began.elapsed() < RELEASE_PATIENCE;
    // However many conflicts it meets in that time: in a crowd there are many.
    let sent = send_chunk(&inner.patient, chunk, u32::MAX, in_time, &mut tally).await;
    if let Ok(slots) = Cost::new(tally.returned.slots) {
        entry.completed(|| inner.now());
        entry.slot_freed(slots);
    }
    let ends = tally.ends.take().unwrap_or_default();
    let released = leases.iter().map(|lease| {
        let key = lease.key().to_owned();
        match (ends.get(&key), &sent) {
            (Some(released), _) => Ok(*released),
            (None, Err(error)) => Err(ReleaseError::Store(error.clone())),
            (None, Ok(())) => Err(match tally.failed.iter().find(|(of, _)| *of == key) {
                Some((_, message)) => ReleaseError::Refused { key, message: message.clone() },
                None => ReleaseError::Contended { key },
            }),
        }
    });
    let released: Vec<_> = released.collect();
    for (lease, released) in leases.iter().zip(&released) {
        match released {
            Ok(Released::GivenBack) => tracing::debug!(event = "release.ok", dimension = %entry.dimension),
            Ok(released) => {
                tracing::warn!(event = "release.late", dimension = %entry.dimension, lease = lease.key(), ?released);
            }
            Err(_) => {}
        }
    }
    released
}

/// Gives back the parts of a grant whose call was never made. Slots go back as in a release. Rate tokens go
/// back as far as they have not refilled by themselves. Best effort for the tokens: lost tokens refill.
pub(crate) async fn give_back_unused(inner: &Arc<Inner>, parts: Parts) {
    let returns = parts.into_iter().map(|part| {
        let inner = Arc::clone(inner);
        async move {
            if let Hold::Tokens { receipt, .. } = &part.hold
                && let Ok(now) = inner.patient.time().await
                && let Some(update) = receipt.give_back(now)
            {
                // Not idempotent: never sent again after an ambiguous reply. The tokens then refill.
                match inner.patient.update(&update, Resend::UnlessAmbiguous).await {
                    Ok(Written::Applied(row)) => {
                        let bucket = parse(&part.entry, &row);
                        bucket
                            .into_iter()
                            .for_each(|bucket| part.entry.apply_write(Arc::new(bucket), inner.now()));
                    }
                    // Others have booked behind this start, so it is kept for the next caller of this
                    // process, if one comes in time.
                    Ok(Written::ConditionFailed(Some(_))) if part.lease().is_none() => {
                        part.entry.abandon(part.clone())
                    }
                    Ok(Written::ConditionFailed(_)) => {}
                    Err(error) => {
                        tracing::debug!(event = "give_back.lost", dimension = %part.entry.dimension, %error)
                    }
                }
            }
            if let Err(error) = release_part(&inner, &part).await {
                tracing::warn!(event = "release.failed", dimension = %part.entry.dimension, %error);
            }
        }
    });
    // If the runtime stops, tokens refill, and slots come back when their leases end.
    let _ = in_parallel(returns.collect()).await;
}

/// Whether the vendor was called under the grant that is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Used,
    /// Rate tokens go back too.
    Unused,
}

/// Gives `parts` back on a task of its own, and then says whether they are back, as far as it is known.
pub(crate) fn spawn_give_back(
    inner: &Arc<Inner>,
    parts: Parts,
    used: Use,
    then: impl FnOnce(bool) + Send + 'static,
) {
    if parts.is_empty() {
        return;
    }
    let Some(runtime) = inner.background.runtime() else {
        let names: Vec<&str> = parts.iter().map(|part| part.entry.dimension.as_str()).collect();
        tracing::warn!(
            event = "grant.dropped_outside_runtime",
            dimensions = names.join(","),
            "the slot comes back when its lease ends"
        );
        return;
    };
    let for_task = Arc::clone(inner);
    inner.background.spawn(&runtime, async move {
        let is_back = match used {
            Use::Unused => {
                give_back_unused(&for_task, parts).await;
                true
            }
            Use::Used => {
                let released = release(&for_task, parts).await;
                if let Err(error) = &released {
                    tracing::warn!(event = "release.failed", %error);
                }
                released.is_ok()
            }
        };
        then(is_back);
    });
}
