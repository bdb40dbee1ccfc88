//! Waiting for a start: first for slots, in the queue; then for tokens, booked.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_core::Timestamp;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::api::error::AcquireError;
use crate::api::refusal::{RetryIn, RetryReason};
use crate::api::request::{Ask, RequestError};
use crate::call::error::LimitError;
use crate::call::slot::nested;
use crate::config::on_unavailable::OnUnavailable;
use crate::grant::outcome::Outcome;
use crate::grant::{Grant, UnusedGrant};
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::parallel::in_parallel;
use crate::lane::part::Part;
use crate::lane::poll::spread_after_cool_down;
use crate::lane::reading::known_since;
use crate::lane::release::give_back_unused;
use crate::lane::setback::Setback;
use crate::lane::task::boxed;
use crate::lane::terms::Terms;
use crate::lane::wants::wants_waiting;
use crate::lane::{attempt, prefetch, shadow};

/// Tokens of one dimension whose start is this much earlier than another's are given back, once, and taken
/// again when the call can be made: kept, they could be used in a burst that the vendor does not allow.
const KEPT_AT_MOST: Duration = Duration::from_millis(50);

/// A shorter wait may be over before the table has answered once. Such a caller does not queue: it asks once
/// for a start now, as `acquire` does. With a smaller value, more callers queue, and are refused if the
/// table's answer takes longer than their wait.
const SHORTEST_WAIT: Duration = Duration::from_millis(50);

/// A caller whose start was further away than this reads the bucket again, for a cool-down that another
/// process set meanwhile. A smaller value finds the cool-down sooner, and reads more.
const FRESH_READING: Duration = Duration::from_millis(250);

/// How often a caller that waits for the end of a cool-down reads the row, because an operator may have ended
/// it. A smaller value learns of that sooner, and costs more reads: at most one in this time for each
/// process.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// How long these reads may delay a start: a read takes a fifth of it.
const LOOK_AT_MOST: Duration = Duration::from_millis(50);

/// Sleeps for `wait`, and not at all for none: tokio's shortest sleep takes a millisecond.
async fn pause(wait: Duration) {
    if !wait.is_zero() {
        sleep(wait).await;
    }
}

/// A caller that waits for its start.
pub(super) struct StartWait<'a> {
    inner: &'a Arc<Inner>,
    until: Instant,
    ends: Option<Instant>,
    /// Whether the wait may be over before the table has answered once.
    is_short: bool,
    acquiring: Mutex<Duration>,
}

/// Why there is no start within the wait.
#[derive(Debug)]
pub(super) enum NoStart {
    Refused(RetryIn),
    Failed(AcquireError),
}

impl NoStart {
    fn is_contended(&self) -> bool {
        matches!(self, Self::Refused(retry) if retry.reason == RetryReason::Contended)
    }
}

impl From<AcquireError> for NoStart {
    fn from(error: AcquireError) -> Self {
        Self::Failed(error)
    }
}

impl From<NoStart> for LimitError {
    fn from(no: NoStart) -> Self {
        match no {
            NoStart::Refused(retry) => Self::Refused(retry),
            NoStart::Failed(error) => Self::Acquire(error),
        }
    }
}

impl<'a> StartWait<'a> {
    /// The wait ends at `until` at the latest, and waiting and running together at `ends`.
    pub(super) fn new(inner: &'a Arc<Inner>, until: Instant, ends: Option<Instant>) -> Self {
        let is_short = until.saturating_duration_since(Instant::now()) < SHORTEST_WAIT;
        Self { inner, until, ends, is_short, acquiring: Mutex::new(Duration::ZERO) }
    }

    /// When the caller stops waiting for an answer. A wait bounds how far away the start may be; if it is
    /// shorter than an answer takes, the answer has a time of its own.
    pub(super) fn answered_by(&self) -> Instant {
        let answered = Instant::now() + self.inner.store.answer_within();
        match self.is_short {
            true => self.ends.map_or(answered, |ends| answered.min(ends)),
            false => self.until,
        }
    }

    pub(super) fn acquiring(&self) -> Duration {
        *self.acquiring.lock()
    }

    /// Returns a grant of all `asks` whose start is reached.
    pub(super) async fn for_start(&self, asks: Vec<Ask>) -> Result<Grant, NoStart> {
        if self.inner.config.mode.is_shadow() {
            return self.once(&asks, self.terms(Duration::ZERO)).await;
        }
        if self.is_short {
            return self.once(&asks, self.at_once()).await;
        }
        let asked_at = self.inner.now();
        let (slots, tokens) = match self.slots_and_tokens(asks.clone()).await {
            // The wait ended before the buckets were read, as in a process that opens its first connection.
            Err(no) if self.left().is_zero() && no.is_contended() => {
                return self.once(&asks, self.at_once()).await;
            }
            read => read?,
        };
        nested::check(self.inner, &slots)?;
        loop {
            let mut held = UnusedGrant::default();
            if !slots.is_empty() {
                held.join(self.take_slots(&slots).await?);
            }
            pause(self.spread_slots(&held, asked_at)).await;
            let booked = self.book(tokens.clone(), slots.is_empty() && tokens.len() == 1).await;
            match booked {
                Ok(booked) => booked.into_iter().for_each(|grant| held.join(grant)),
                Err(no) => {
                    if let NoStart::Refused(_) = no {
                        held.cancel().await;
                    }
                    return Err(no);
                }
            }
            if !held.is_lease_lost() {
                pause(held.start_at().unwrap_or_default().since(self.inner.now())).await;
                match self.cooling_down(&held).await {
                    None => return held.take().ok_or_else(|| AcquireError::from(RequestError::Empty).into()),
                    Some(retry) => {
                        held.cancel().await;
                        if retry.wait > self.left() {
                            return Err(NoStart::Refused(retry));
                        }
                        self.wait_out(&retry).await;
                        continue;
                    }
                }
            }
            // The slot went to another holder before the call began, as after a long freeze: start again.
            held.cancel().await;
        }
    }

    /// Asks a single time: in shadow mode, or without a wait.
    async fn once(&self, asks: &[Ask], terms: Terms) -> Result<Grant, NoStart> {
        match nested::check(self.inner, asks) {
            Err(error) if self.inner.config.mode.is_shadow() => shadow::failed(self.inner, &error),
            checked => checked?,
        }
        match self.ask_on(asks, terms).await? {
            Outcome::Granted(grant) => Ok(grant),
            Outcome::RetryIn(retry) => Err(NoStart::Refused(retry)),
        }
    }

    /// Whether the vendor asked for a pause since the start was booked. A cool-down that this process knows
    /// counts at once. After a long wait, the rows that no reply has shown recently are read, side by side.
    /// If the reads take too long or fail, the call is made: a failure of the limiter must not prevent it.
    async fn cooling_down(&self, held: &UnusedGrant) -> Option<RetryIn> {
        let entries = held.entries();
        if held.booked_wait() > FRESH_READING {
            let look = |entry: &Arc<Entry>| {
                let (inner, entry) = (Arc::clone(self.inner), Arc::clone(entry));
                async move { timeout(LOOK_AT_MOST, known_since(&inner, &entry, FRESH_READING)).await }
            };
            let _ = in_parallel(entries.iter().map(look).collect()).await;
        }
        let now = self.inner.now();
        let blocked = |entry: &Arc<Entry>| {
            let until = entry.reading()?.bucket.blocked_until().filter(|until| *until > now)?;
            Some(RetryIn::new(until.since(now), entry.dimension.clone(), RetryReason::CoolingDown))
        };
        entries.iter().filter_map(blocked).max_by_key(|retry| retry.wait)
    }

    /// Separates the asks for slots from those for tokens. While an outage is answered locally, asks of
    /// unknown kind count as asks for tokens.
    async fn slots_and_tokens(&self, asks: Vec<Ask>) -> Result<(Vec<Ask>, Vec<Ask>), NoStart> {
        let concurrent: Vec<bool> = match wants_waiting(self.inner, &asks, self.terms(Duration::ZERO)).await {
            Ok(wants) => wants.iter().map(|want| want.concurrent).collect(),
            Err(Setback::Out(_)) if self.inner.config.on_unavailable != OnUnavailable::Error => {
                vec![false; asks.len()]
            }
            Err(setback) => return Err(NoStart::Refused(setback.refusal()?)),
        };
        let (slots, tokens): (Vec<_>, Vec<_>) = asks.into_iter().zip(concurrent).partition(|(_, slot)| *slot);
        let asks = |pairs: Vec<(Ask, bool)>| pairs.into_iter().map(|(ask, _)| ask).collect();
        Ok((asks(slots), asks(tokens)))
    }

    /// Takes slots, and waits in the lane's queue for them: first in, first out.
    async fn take_slots(&self, asks: &[Ask]) -> Result<Grant, NoStart> {
        match self.ask(asks, Duration::ZERO).await? {
            Outcome::Granted(grant) => Ok(grant),
            Outcome::RetryIn(retry) => Err(NoStart::Refused(retry)),
        }
    }

    /// Takes the tokens of a single dimension out of stock.
    fn take_stock(&self, asks: &[Ask]) -> Option<Grant> {
        let [ask] = asks else { return None };
        let entry = self.inner.entry_for(ask);
        let part = prefetch::take(self.inner, &entry, ask.cost)?;
        Some(Grant::from_stock(Arc::clone(self.inner), part))
    }

    /// Books tokens and sleeps until their start. Of several dimensions, the one with the longest wait is
    /// booked first, and the others when it starts, so that no tokens lie unused for long.
    async fn book(&self, mut asks: Vec<Ask>, lets_others: bool) -> Result<Option<Grant>, NoStart> {
        if let Some(grant) = self.take_stock(&asks) {
            return Ok(Some(grant));
        }
        let mut held = UnusedGrant::default();
        let mut gave_back_early = false;
        while !asks.is_empty() {
            let batch = self.next_batch(&asks);
            // A lease that is written with a booking must outlast the wait for the start.
            match self.ask_on(&batch, Terms { lets_others, ..self.terms(self.left()) }).await? {
                Outcome::Granted(grant) => {
                    asks.retain(|ask| batch.iter().all(|booked| booked.dimension != ask.dimension));
                    held.join(grant);
                    // Only once. If the queues of two dimensions both grow, the call would otherwise give
                    // back and book again forever.
                    if !gave_back_early {
                        let again = self.give_back_early(&mut held).await;
                        gave_back_early = !again.is_empty();
                        asks.extend(again);
                    }
                    pause(held.start_at().unwrap_or_default().since(self.inner.now())).await;
                }
                Outcome::RetryIn(retry) => {
                    asks.extend(held.asks());
                    held.cancel().await;
                    let passes = matches!(retry.reason, RetryReason::CoolingDown | RetryReason::Contended);
                    if !passes || retry.wait > self.left() || self.left().is_zero() {
                        return Err(NoStart::Refused(retry));
                    }
                    self.wait_out(&retry).await;
                }
            }
        }
        Ok(held.take())
    }

    /// Sleeps until the bucket may be asked again. After a cool-down, each caller asks for tokens at an
    /// instant of its own, before it books: tokens that are booked and used later would count in a later
    /// window.
    async fn wait_out(&self, retry: &RetryIn) {
        if retry.reason != RetryReason::CoolingDown {
            return sleep(retry.wait).await;
        }
        let entry = self.inner.entry(&retry.dimension);
        let began = Instant::now();
        self.cool_down_over(&entry, began + retry.wait).await;
        sleep(spread_after_cool_down(began.elapsed(), entry.limit().as_ref(), self.left())).await;
    }

    /// Sleeps until `until`, or until an operator has ended the cool-down: the row is read again each
    /// [`LOOK_AGAIN`]. Callers of a process share these reads. A read that hangs or fails changes nothing.
    async fn cool_down_over(&self, entry: &Arc<Entry>, until: Instant) {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left <= LOOK_AGAIN {
                return sleep(left).await;
            }
            sleep(LOOK_AGAIN).await;
            let look = known_since(self.inner, entry, LOOK_AGAIN);
            let Ok(Ok(reading)) = timeout_at(until, look).await else { continue };
            if reading.bucket.blocked_until().is_none_or(|ends| ends <= self.inner.now()) {
                return;
            }
        }
    }

    /// How long to wait for, with the slots in hand. All callers of a queue receive slots at once when a
    /// cool-down ends. Those that were there before its end start at an instant of their own.
    fn spread_slots(&self, held: &UnusedGrant, asked_at: Timestamp) -> Duration {
        let now = self.inner.now();
        let ended = held.entries().iter().filter_map(|entry| entry.reading()?.bucket.blocked_until()).max();
        let Some(ended) = ended.filter(|ended| *ended > asked_at && *ended <= now) else {
            return Duration::ZERO;
        };
        spread_after_cool_down(ended.since(asked_at), None, self.left()).saturating_sub(now.since(ended))
    }

    /// All asks, if none has to wait as far as is known; otherwise the one with the longest wait.
    fn next_batch(&self, asks: &[Ask]) -> Vec<Ask> {
        let now = self.inner.now();
        let wait = |ask: &Ask| {
            let reading = self.inner.entry_for(ask).reading()?;
            let cost = ask.cost_in(reading.bucket.limit()).ok()?;
            reading.bucket.reaches(cost.amount()).map(|at| at.since(now)).filter(|wait| !wait.is_zero())
        };
        let longest = asks.iter().max_by_key(|ask| wait(ask)).filter(|ask| wait(ask).is_some());
        longest.map_or_else(|| asks.to_vec(), |ask| vec![ask.clone()])
    }

    /// Gives back the tokens that would lie unused until the latest start, and returns their asks.
    async fn give_back_early(&self, held: &mut UnusedGrant) -> Vec<Ask> {
        let early = held.split_earlier_than(KEPT_AT_MOST);
        let again = early.iter().map(Part::ask).collect();
        // On its own task: the tokens are given back even if the caller is dropped.
        let inner = Arc::clone(self.inner);
        let _ = tokio::spawn(boxed(async move { give_back_unused(&inner, early).await })).await;
        again
    }

    /// Asks for a grant whose leases last longer, by `longer`.
    async fn ask(&self, asks: &[Ask], longer: Duration) -> Result<Outcome, AcquireError> {
        self.ask_on(asks, self.terms(longer)).await
    }

    async fn ask_on(&self, asks: &[Ask], terms: Terms) -> Result<Outcome, AcquireError> {
        let taken = attempt::submit(self.inner, asks, terms).await;
        let answer = taken.map(|taken| Outcome::of(self.inner, taken, terms.lease, true));
        if let Ok(Outcome::Granted(grant)) = &answer {
            *self.acquiring.lock() += grant.acquiring();
        }
        answer
    }

    fn terms(&self, longer: Duration) -> Terms {
        let lease = self.inner.config.lease_ttl + longer;
        Terms { until: Some(self.until), stays: true, ends: self.ends, ..Terms::at_once(lease) }
    }

    /// For a start now, or none: the table's answer has a time of its own (`SLUICE_ANSWER_WITHIN`).
    fn at_once(&self) -> Terms {
        Terms { ends: self.ends, ..Terms::at_once(self.inner.config.lease_ttl) }
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}
