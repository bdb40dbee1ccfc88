//! Remembers whether DynamoDB answers, for all requests of a connection.
//!
//! DynamoDB counts as out if attempts were sent for [`Breaker::silence`] and none of them was answered. From
//! then on no request is sent, except probes, until any reply comes. A refusal is a reply too: a false
//! condition, a conflict, throttling, a right that is missing. An HTTP status of 500 or more is none.
//!
//! The state is in atomics, because every attempt changes it. The lock is for outages alone.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::error::StoreError;
use crate::clock::whole_micros;
use crate::metric;

/// A timer that fires later than this was held up with its process, as in a Lambda function between two
/// invocations. Replies may have come in the meantime.
const LATE: Duration = Duration::from_millis(500);

/// If no probe was sent for this time, the task that sends them does not run: the next request is a probe. A
/// larger value delays the return in a program that drives its runtime only during its calls; a smaller one
/// lets a caller of a busy process wait for the timeout of an attempt.
const UNPROBED: Duration = Duration::from_secs(2);

/// No attempt is unanswered.
const NEVER: u64 = 0;

/// Whether DynamoDB answers.
#[derive(Debug)]
pub(super) struct Breaker {
    table: String,
    base: Instant,
    silence: Duration,
    /// Attempts of one caller follow each other more closely than this. After a longer gap the silence begins
    /// anew.
    gap: Duration,
    /// Since when DynamoDB is silent: when the first attempt was sent that failed since the last reply, or
    /// when that reply came if this was later. In microseconds from `base` and one, or [`NEVER`]. An attempt
    /// whose caller went away says nothing.
    silent_since: AtomicU64,
    replied_at: AtomicU64,
    last_sent: AtomicU64,
    replies: AtomicU64,
    is_out: AtomicBool,
    outage: Mutex<Option<Outage>>,
    /// The last attempt that failed otherwise than by silence: when, and why.
    last_failure: Mutex<Option<(Instant, String)>>,
    returns: AtomicU32,
    /// When DynamoDB last came back, as `silent_since`.
    returned_at: AtomicU64,
    returned: Notify,
    has_watcher: AtomicBool,
    /// How many requests wait for credentials, and how often one began or ended to wait.
    fetching: AtomicU32,
    fetches: AtomicU32,
}

#[derive(Debug)]
struct Outage {
    silent_since: Instant,
    /// Why the last attempt before it failed.
    cause: String,
}

/// What a connection had done at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    replies: u64,
    fetches: u32,
}

/// What a connection has done since a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeardSince {
    /// DynamoDB has answered.
    Answered,
    /// DynamoDB has not answered; a request waited for credentials, or does.
    FetchedCredentials,
    /// DynamoDB has not answered.
    Silent,
}

impl Breaker {
    /// DynamoDB is out after nine tenths of `answer_within` (at least one attempt): the last tenth is for the
    /// answers to reach their callers.
    pub(super) fn new(table: &str, answer_within: Duration, attempt: Duration) -> Self {
        Self {
            table: table.to_owned(),
            base: Instant::now(),
            silence: (answer_within / 10 * 9).max(attempt),
            gap: attempt + LATE,
            silent_since: AtomicU64::new(NEVER),
            replied_at: AtomicU64::new(NEVER),
            last_sent: AtomicU64::new(NEVER),
            replies: AtomicU64::new(0),
            is_out: AtomicBool::new(false),
            outage: Mutex::new(None),
            last_failure: Mutex::new(None),
            returns: AtomicU32::new(0),
            returned_at: AtomicU64::new(NEVER),
            returned: Notify::new(),
            has_watcher: AtomicBool::new(false),
            fetching: AtomicU32::new(0),
            fetches: AtomicU32::new(0),
        }
    }

    /// How long DynamoDB may be silent until it counts as out.
    pub(super) const fn silence(&self) -> Duration {
        self.silence
    }

    pub(super) fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Acquire)
    }

    /// Notes that an attempt is sent.
    pub(super) fn sent(&self, now: Instant) {
        let now = self.micros(now);
        let before = self.last_sent.swap(now, Ordering::Relaxed);
        // A silence in which nobody asked says nothing.
        let since = self.silent_since.load(Ordering::Relaxed);
        if since != NEVER && now.saturating_sub(before) > whole_micros(self.gap) {
            // If this fails, another attempt failed or was answered at this moment.
            let _ = self.silent_since.compare_exchange(since, NEVER, Ordering::SeqCst, Ordering::Relaxed);
        }
    }

    /// Returns the end of an attempt: `until`, or the instant at which DynamoDB counts as out, if that is
    /// earlier.
    pub(super) fn waits_until(&self, until: Instant) -> Instant {
        match self.silent_since() {
            Some(since) if !self.is_out() => until.min(since + self.silence),
            _ => until,
        }
    }

    /// Called at the time that [`waits_until`](Self::waits_until) returned. Returns whether DynamoDB is out,
    /// so that the attempt ends.
    pub(super) fn is_given_up(&self, now: Instant, cause: impl FnOnce() -> String) -> bool {
        if self.is_out() {
            return true;
        }
        match self.silent_since().map(|since| (since, since + self.silence)) {
            Some((_, due)) if now > due + LATE => {
                self.begin_anew(now);
                false
            }
            Some((since, due)) if now >= due => self.open(since, now, self.failure().unwrap_or_else(cause)),
            _ => false,
        }
    }

    /// Notes that an attempt that was sent at `sent`, and could take `allowed`, failed.
    pub(super) fn failed(&self, sent: Instant, allowed: Duration, cause: String) {
        *self.last_failure.lock() = Some((Instant::now(), cause.clone()));
        self.unanswered(sent, allowed, || cause);
    }

    /// Why an attempt of this silence failed, if one did otherwise than by silence: that says more.
    pub(super) fn failure(&self) -> Option<String> {
        let since = self.silent_since()?;
        self.last_failure.lock().as_ref().filter(|(at, _)| *at >= since).map(|(_, cause)| cause.clone())
    }

    /// As [`failed`](Self::failed), of an attempt without any answer in its time.
    pub(super) fn unanswered(&self, sent: Instant, allowed: Duration, cause: impl FnOnce() -> String) {
        let now = Instant::now();
        if now > sent + allowed + LATE {
            // This process stood still.
            return self.begin_anew(now);
        }
        let since = self.micros(sent).max(self.replied_at.load(Ordering::Acquire));
        let _ = self.silent_since.compare_exchange(NEVER, since, Ordering::SeqCst, Ordering::Relaxed);
        if let Some(since) = self.silent_since()
            && now >= since + self.silence
            && !self.is_out()
        {
            self.open(since, now, self.failure().unwrap_or_else(cause));
        }
    }

    /// Notes that DynamoDB has answered.
    pub(super) fn answered(&self) {
        self.replies.fetch_add(1, Ordering::Relaxed);
        self.replied_at.store(self.micros(Instant::now()), Ordering::Release);
        // Before the load: `open` stores and loads in the other order, so that one of the two sees the other.
        self.silent_since.store(NEVER, Ordering::SeqCst);
        if self.is_out.load(Ordering::SeqCst) {
            self.close();
        }
    }

    /// Whether a request may be sent although DynamoDB is out: as a probe, if nobody else sends any.
    pub(super) fn may_probe(&self, now: Instant) -> bool {
        let (now, last) = (self.micros(now), self.last_sent.load(Ordering::Relaxed));
        now.saturating_sub(last) > whole_micros(UNPROBED)
            && self.last_sent.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The error of a request that is not sent.
    pub(super) fn error(&self, operation: &'static str, maybe_applied: bool) -> StoreError {
        let outage = self.outage.lock();
        let message = match &*outage {
            Some(Outage { silent_since, cause }) => format!(
                "DynamoDB has answered nothing for {:.1} s, and nothing is sent until it does ({cause})",
                silent_since.elapsed().as_secs_f64()
            ),
            None => String::from("DynamoDB answered nothing, and nothing was sent until it did"),
        };
        StoreError::Unavailable { operation, message, maybe_applied }
    }

    /// How often DynamoDB has come back.
    pub(super) fn returns(&self) -> u32 {
        self.returns.load(Ordering::Acquire)
    }

    /// How long ago DynamoDB last came back from an outage; `None` for never. Known before
    /// [`is_out`](Self::is_out) becomes false: whoever may send again sees it.
    pub(super) fn since_return(&self) -> Option<Duration> {
        match self.returned_at.load(Ordering::Acquire) {
            NEVER => None,
            at => Some((self.base + Duration::from_micros(at - 1)).elapsed()),
        }
    }

    /// Waits until DynamoDB has come back more than `returns` times.
    pub(super) async fn returned(&self, returns: u32) {
        loop {
            // Before the count is read: it is woken by each return from now on.
            let returned = self.returned.notified();
            if self.returns() != returns {
                return;
            }
            returned.await;
        }
    }

    pub(super) fn heard(&self) -> Heard {
        Heard { replies: self.replies.load(Ordering::Relaxed), fetches: self.fetches.load(Ordering::Relaxed) }
    }

    pub(super) fn since(&self, heard: Heard) -> HeardSince {
        if self.replies.load(Ordering::Relaxed) != heard.replies {
            HeardSince::Answered
        } else if self.fetches.load(Ordering::Relaxed) != heard.fetches
            || self.fetching.load(Ordering::Relaxed) > 0
        {
            HeardSince::FetchedCredentials
        } else {
            HeardSince::Silent
        }
    }

    /// Notes that a request waits for credentials, until the guard is dropped.
    pub(super) fn fetches_credentials(&self) -> Fetching<'_> {
        self.fetching.fetch_add(1, Ordering::Relaxed);
        self.fetches.fetch_add(1, Ordering::Relaxed);
        Fetching(self)
    }

    /// Returns whether the caller is the one that sends probes, until it calls
    /// [`watcher_ended`](Self::watcher_ended).
    pub(super) fn claim_watch(&self) -> bool {
        !self.has_watcher.load(Ordering::Relaxed) && !self.has_watcher.swap(true, Ordering::AcqRel)
    }

    pub(super) fn watcher_ended(&self) {
        self.has_watcher.store(false, Ordering::Release);
    }

    fn begin_anew(&self, now: Instant) {
        let since = self.silent_since.load(Ordering::Relaxed);
        if since != NEVER {
            let anew = self.micros(now);
            let _ = self.silent_since.compare_exchange(since, anew, Ordering::SeqCst, Ordering::Relaxed);
        }
    }

    /// Returns whether DynamoDB is out: false if a reply comes at this moment.
    fn open(&self, since: Instant, now: Instant, cause: String) -> bool {
        let mut outage = self.outage.lock();
        if self.is_out() {
            return true;
        }
        self.is_out.store(true, Ordering::SeqCst);
        if self.silent_since.load(Ordering::SeqCst) != self.micros(since) {
            self.is_out.store(false, Ordering::SeqCst);
            // A request that saw it open waits for the return.
            self.returns.fetch_add(1, Ordering::AcqRel);
            self.returned.notify_waiters();
            return false;
        }
        let silent_ms = as_millis(now - since);
        tracing::warn!(
            event = "dynamodb.out",
            table = self.table,
            silent_ms,
            cause,
            "nothing is sent until DynamoDB answers a probe; callers receive what SLUICE_ON_UNAVAILABLE says; \
             check the network, the Region's health, SLUICE_AWS_REGION and SLUICE_ENDPOINT_URL"
        );
        *outage = Some(Outage { silent_since: since, cause });
        metric::DYNAMODB_OUT.gauge([]).increment(1.0);
        true
    }

    fn close(&self) {
        let mut outage = self.outage.lock();
        let Some(Outage { silent_since, .. }) = outage.take() else { return };
        self.returned_at.store(self.micros(Instant::now()), Ordering::Release);
        self.is_out.store(false, Ordering::SeqCst);
        self.returns.fetch_add(1, Ordering::AcqRel);
        drop(outage);
        metric::DYNAMODB_OUT.gauge([]).decrement(1.0);
        let out_ms = as_millis(silent_since.elapsed());
        tracing::info!(event = "dynamodb.back", table = self.table, out_ms, "requests are sent again");
        self.returned.notify_waiters();
    }

    fn silent_since(&self) -> Option<Instant> {
        match self.silent_since.load(Ordering::Acquire) {
            NEVER => None,
            since => Some(self.base + Duration::from_micros(since - 1)),
        }
    }

    fn micros(&self, at: Instant) -> u64 {
        whole_micros(at.saturating_duration_since(self.base)).saturating_add(1)
    }
}

impl Drop for Breaker {
    fn drop(&mut self) {
        if self.is_out() {
            metric::DYNAMODB_OUT.gauge([]).decrement(1.0);
        }
    }
}

/// A request that waits for credentials.
#[derive(Debug)]
pub(super) struct Fetching<'a>(&'a Breaker);

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        self.0.fetches.fetch_add(1, Ordering::Relaxed);
        self.0.fetching.fetch_sub(1, Ordering::Relaxed);
    }
}

fn as_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
