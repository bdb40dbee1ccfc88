//! A grant that outlives the function that asked for it: a task of the client holds it until the call's end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::HeaderMap;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::api::basis::Basis;
use crate::grant::Grant;
use crate::grant::held_leases::HeldLeases;
use crate::lane::settle;
use crate::vendor::rate_limited::Reply;
use crate::vendor::reply::Usage;

/// A grant that a task of the client holds, for a reply whose body is read after the function that asked for
/// the grant has returned: see [`Grant::hold`]. Its leases are renewed meanwhile. If dropped, the call ends
/// as by [`end`](Self::end) without a use.
#[derive(Debug)]
#[must_use = "a held grant that is dropped ends its call, and states no use"]
pub struct HeldGrant {
    end_sender: Option<oneshot::Sender<CallEnd>>,
    holding: JoinHandle<()>,
    leases: Vec<Arc<HeldLeases>>,
}

/// How a held call ended.
#[derive(Debug)]
enum CallEnd {
    /// The vendor worked.
    Made(Usage),
    /// The vendor did not work.
    Failed,
    /// The vendor broke off with an error, after a head that promised success.
    BrokeOff(Vec<u8>, Usage),
}

/// The end of a held call, under way: ready when the grant is given back. It need not be waited for, and goes
/// on if dropped.
#[derive(Debug)]
pub struct Ending(JoinHandle<()>);

impl Grant {
    /// Hands the grant to a task of the client, which holds it until [`HeldGrant::end`]. `reply` is what is
    /// known of the vendor's reply: its head, with an empty body, or all of it. It is applied as by
    /// [`Grant::reply`](Self::reply), while the caller goes on.
    ///
    /// # Panics
    /// Outside of tokio's runtime, which every grant comes from.
    pub fn hold(self, reply: Option<http::Response<Vec<u8>>>) -> HeldGrant {
        self.hold_at_most(reply, None)
    }

    /// The same, for `longest` at most: then what the grant holds is given back, whatever the call still
    /// does, and tokens stay taken. For connections that never end.
    ///
    /// # Panics
    /// As [`hold`](Self::hold).
    pub fn hold_at_most(
        self,
        reply: Option<http::Response<Vec<u8>>>,
        longest: Option<Duration>,
    ) -> HeldGrant {
        self.renew_until(i64::MAX);
        let leases = self.leases().to_vec();
        let inner = Arc::clone(self.inner());
        let (end_sender, end_receiver) = oneshot::channel();
        let holding = inner.background.spawn(&Handle::current(), hold(self, reply, longest, end_receiver));
        HeldGrant { end_sender: Some(end_sender), holding, leases }
    }
}

impl HeldGrant {
    /// Ends the call: settles what it used, and gives back what the grant held. Tokens of a dimension without
    /// a stated use stay taken. A number below zero, or a dimension without tokens in the grant, is logged.
    pub fn end(self, used: impl Into<Usage>) -> Ending {
        self.end_as(CallEnd::Made(used.into()))
    }

    /// Ends a call of which the vendor did nothing, as [`Grant::failed`] does.
    pub fn failed(self) -> Ending {
        self.end_as(CallEnd::Failed)
    }

    /// Ends a call that the vendor broke off with the error `event`, after a head that promised success: if
    /// that is a refusal because of load, the fleet reacts as by [`Grant::reply`].
    pub fn broke_off(self, event: Vec<u8>, used: impl Into<Usage>) -> Ending {
        self.end_as(CallEnd::BrokeOff(event, used.into()))
    }

    /// Whether a lease ended while the grant was held, so that its slot may be in use twice.
    #[must_use]
    pub fn is_lease_lost(&self) -> bool {
        self.leases.iter().any(|leases| leases.is_lost())
    }

    /// Whether the grant holds slots, which others wait for.
    #[must_use]
    pub fn has_slots(&self) -> bool {
        !self.leases.is_empty()
    }

    fn end_as(mut self, end: CallEnd) -> Ending {
        if let Some(end_sender) = self.end_sender.take() {
            // The task that holds the grant listens until it receives the end, or the client is closed.
            let _ = end_sender.send(end);
        }
        Ending(self.holding)
    }
}

impl Future for Ending {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // If the runtime shuts down first, the grant goes with it.
        Pin::new(&mut self.0).poll(context).map(drop)
    }
}

/// Holds the grant until it receives the end, then settles and gives back.
async fn hold(
    mut grant: Grant,
    reply: Option<http::Response<Vec<u8>>>,
    longest: Option<Duration>,
    mut ended: oneshot::Receiver<CallEnd>,
) {
    let inner = Arc::clone(grant.inner());
    let held = async {
        if let Some(reply) = &reply {
            apply(&mut grant, reply.into()).await;
        }
        (&mut ended).await
    };
    let end = tokio::select! {
        biased;
        end = held => end,
        // The client is closed: the grant goes back, whatever the reader still reads.
        () = inner.background.cut() => return grant.release_in_time().await,
        longest = over(longest) => {
            tracing::warn!(event = "hold.over", dimensions = %grant.names(), longest = longest.as_secs_f64());
            return grant.release_in_time().await;
        }
    };
    // Without an end, no use is stated.
    match end.unwrap_or(CallEnd::Made(Usage::default())) {
        CallEnd::Made(used) => charge(&mut grant, used),
        CallEnd::Failed => grant.charge_failure(),
        CallEnd::BrokeOff(event, used) => {
            charge(&mut grant, used);
            apply(&mut grant, Reply::new(200, &HeaderMap::new()).with_body(&event)).await;
        }
    }
    grant.release_in_time().await;
}

/// Returns when the longest time of a call is over.
async fn over(longest: Option<Duration>) -> Duration {
    match longest {
        Some(longest) => sleep(longest).await,
        None => std::future::pending().await,
    }
    longest.unwrap_or_default()
}

async fn apply(grant: &mut Grant, reply: Reply<'_, HeaderMap>) {
    if let Err(error) = grant.reply(reply, ()).await {
        tracing::warn!(event = "reply.not_applied", dimensions = %grant.names(), %error);
    }
}

fn charge(grant: &mut Grant, used: Usage) {
    for (dimension, used) in used.0 {
        match settle::parse(&dimension, &used) {
            Ok(amount) if grant.cost(&dimension).is_some() => grant.charge(&dimension, amount),
            // What was granted without the table may hold nothing.
            Ok(_) if grant.basis() != Basis::Table => {}
            Ok(_) => tracing::warn!(event = "settle.not_held", dimension, %used),
            Err(error) => tracing::warn!(event = "settle.failed", dimension, %error),
        }
    }
}
