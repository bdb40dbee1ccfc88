//! The offset of this machine's clock, by the `Date` of DynamoDB's replies: no request is made for it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use aws_sdk_dynamodb::config::interceptors::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use aws_smithy_types::config_bag::{Storable, StoreReplace};
use sluice_core::{ClockOffset, OffsetEstimate, Timestamp};
use tokio::time::Instant;

use crate::client::Client;
use crate::clock::Clock;
use crate::metrics;

/// A clock that is further off than this is warned of. Half of what the plans reckon with ([`sluice_core::CLOCK_ERROR`]).
const WARN_ABOVE: Duration = Duration::from_secs(1);

/// The gauge is set no more often: replies come by the thousand, and it seldom moves.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// What the replies say of the clock, and where they come from.
#[derive(Debug)]
pub(crate) struct ClockWatch {
    clock: Clock,
    known: Mutex<Known>,
    server: OnceLock<String>,
}

#[derive(Debug, Default)]
struct Known {
    estimate: OffsetEstimate,
    warned_at: Option<Instant>,
    told_at: Option<Timestamp>,
}

impl Client {
    /// DynamoDB's clock less this process's, as its replies of the last one to two minutes bound it; `None` before the first.
    ///
    /// A rate limit's bound grows by twice the largest error times its refill rate; leases and sweeps reckon with 2 s at most
    /// ([`CLOCK_ERROR`](sluice_core::CLOCK_ERROR)). Above one second the client warns (event `clock.offset`), once a minute.
    #[must_use]
    pub fn clock_offset(&self) -> Option<ClockOffset> {
        self.inner.store.clock_watch().offset()
    }
}

impl ClockWatch {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, known: Mutex::default(), server: OnceLock::new() }
    }

    pub(crate) fn offset(&self) -> Option<ClockOffset> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).estimate.offset()
    }

    /// The host that requests go to, once one went there.
    pub(crate) fn server(&self) -> Option<&str> {
        self.server.get().map(String::as_str)
    }

    pub(crate) fn note(&self, reply: ClockOffset, received: Timestamp) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.estimate.note(reply, received);
        let Some(offset) = known.estimate.offset() else { return };
        // A clock that was set back counts as a second that passed.
        let tells = known.told_at.is_none_or(|at| at > received || received.since(at) >= TELL_EVERY);
        if tells {
            known.told_at = Some(received);
        }
        let warns = offset.exceeds(WARN_ABOVE) && known.warned_at.is_none_or(|at| at.elapsed() >= WARN_EVERY);
        if warns {
            known.warned_at = Some(Instant::now());
        }
        drop(known);
        if tells {
            metrics::clock_offset(offset);
        }
        if warns {
            let offset_ms = offset.millis();
            tracing::warn!(
                event = "clock.offset",
                offset_ms,
                "this machine's clock is off: set it (chrony, NTP); limits stay exact up to 2 s"
            );
        }
    }
}

/// Reads the `Date` of each reply.
#[derive(Debug)]
pub(crate) struct DateReader(pub(crate) Arc<ClockWatch>);

/// When a request left.
#[derive(Debug)]
struct Sent(Timestamp);

impl Storable for Sent {
    type Storer = StoreReplace<Self>;
}

impl Intercept for DateReader {
    fn name(&self) -> &'static str {
        "SluiceDateReader"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.0.server.get_or_init(|| host(context.request().uri()).to_owned());
        config.interceptor_state().store_put(Sent(self.0.clock.now()));
        Ok(())
    }

    /// A `Date` that is missing or cannot be read says nothing: no request fails for it.
    fn read_after_transmit(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let received = self.0.clock.now();
        let date = context.response().headers().get("date").and_then(date_of);
        let sent = config.load::<Sent>().map(|sent| sent.0);
        if let (Some(date), Some(sent)) = (date, sent)
            && let Some(reply) = ClockOffset::of_reply(date, sent, received)
        {
            self.0.note(reply, received);
        }
        Ok(())
    }
}

fn date_of(text: &str) -> Option<Timestamp> {
    let date = DateTime::from_str(text, DateTimeFormat::HttpDate).ok()?;
    Some(Timestamp::from_micros(date.secs().checked_mul(1_000_000)?))
}

/// The host of a URL.
fn host(url: &str) -> &str {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = authority.split(['/', '?']).next().unwrap_or_default();
    match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_told_without_its_port() {
        let hosts = ["http://127.0.0.1:8000/", "https://dynamodb.eu-central-1.amazonaws.com/", "http://[::1]:8000"];
        assert_eq!(hosts.map(host), ["127.0.0.1", "dynamodb.eu-central-1.amazonaws.com", "::1"]);
    }

    #[test]
    fn a_date_is_read_as_http_writes_it_and_nothing_else() {
        assert_eq!(date_of("Mon, 04 Mar 2024 11:00:02 GMT"), Some(Timestamp::from_secs(1_709_550_002)));
        assert_eq!(date_of("yesterday"), None);
        assert_eq!(date_of(""), None);
    }
}
