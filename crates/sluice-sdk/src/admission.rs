//! Admission: decides whether a request is worth beginning now. Takes nothing from the bucket.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Cost, Dimension, retry_after};

use crate::api::error::AcquireError;
use crate::api::quantity::Quantity;
use crate::api::request::{Ask, Payer, RequestError, cost_of};
use crate::client::Client;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::lane::reading::of_share;
use crate::lane::{shadow, slot_lines};
use crate::{heal, telemetry};

pub use crate::config::admission_mode::AdmissionMode;
pub use sluice_core::ShedReason;

mod judge;
mod look;
pub(crate) mod watched;

use crate::admission::judge::{AdmissionAsk, AdmissionVerdict};

/// The answer of [`Client::admit`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a request that is shed should not be started"]
pub enum Admission {
    /// The request may begin, and acquires as usual: nothing was taken.
    Admitted(Admitted),
    /// The request should not begin.
    Shed(Shed),
}

/// An admitted request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    wait: Option<Duration>,
    would_shed: Option<Shed>,
}

/// A request that was shed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shed {
    wait: Duration,
    retry_after: Duration,
    reason: ShedReason,
}

impl Admission {
    /// Whether the request may begin.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        matches!(self, Self::Admitted(_))
    }

    /// The refusal; `None` if the request is admitted.
    #[must_use]
    pub const fn shed(&self) -> Option<&Shed> {
        match self {
            Self::Admitted(_) => None,
            Self::Shed(shed) => Some(shed),
        }
    }
}

impl Admitted {
    /// The time until the request is done (for a rate bucket: may start). `None` if not known: no sweep has
    /// measured a rate yet, the mode is off, or the table did not answer.
    #[must_use]
    pub const fn wait(&self) -> Option<Duration> {
        self.wait
    }

    /// In shadow mode, the refusal that enforcing would have returned; `None` if there would have been none.
    #[must_use]
    pub const fn would_shed(&self) -> Option<&Shed> {
        self.would_shed.as_ref()
    }
}

impl Shed {
    /// The time until the request would be done; for a rate bucket, the time until the request might start.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        self.wait
    }

    /// When to come back: after the part of the wait that is over the SLO, at least 1 s, and up to 30 %
    /// later, so that requests that are shed together do not return together. For a `Retry-After` header,
    /// round the time up to seconds.
    #[must_use]
    pub const fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// Why the request was shed.
    #[must_use]
    pub const fn reason(&self) -> ShedReason {
        self.reason
    }
}

/// A question to [`Client::admit`], sent when it is awaited.
#[derive(Debug)]
#[must_use = "it asks nothing until it is awaited"]
pub struct Admit<'a> {
    client: &'a Client,
    dimension: &'a str,
    cost: Quantity,
    slo: Option<Duration>,
    backlog: Option<Quantity>,
    share: Option<Cow<'a, str>>,
}

impl<'a> Admit<'a> {
    /// The share whose line is judged, in place of the client's own, as in
    /// [`Request::share`](crate::Request::share). What others would lend does not count: nobody is promised
    /// it.
    pub fn share(mut self, share: impl Into<Cow<'a, str>>) -> Self {
        self.share = Some(share.into());
        self
    }

    /// What waits in the caller's own queue before this request, in tokens or slots: zero or more. What the
    /// caller holds, and what waits in `slot`, are counted already: do not add them.
    pub fn backlog(mut self, amount: impl Into<Quantity>) -> Self {
        self.backlog = Some(amount.into());
        self
    }
}

impl Client {
    /// Asks whether a request that takes `cost` of `dimension` is worth beginning: whether it will be done
    /// within `slo`. A request without an SLO is never shed.
    ///
    /// For a concurrency bucket, the wait is the pending work plus the request, divided by the rate at which
    /// slots came free, as sweeps measured it. Pending work is what any holder holds, what waits in this
    /// process, and the [`backlog`](Admit::backlog). The wait is zero if enough slots are free for all that
    /// waits and the request. If work is pending and nothing departed for the staleness time
    /// ([`ClientBuilder::staleness`](crate::ClientBuilder::staleness)), the vendor counts as down, and a
    /// request with an SLO is shed. For a rate bucket, the wait is exact: until the line reaches the backlog
    /// plus the cost, or a cool-down ends.
    ///
    /// Costs at most one read of two rows a second, and one every 15 s for five minutes after the last
    /// question. `docs/admission.md` has the details and an example. Takes at most one attempt (1 s). If the
    /// table has not answered by then, or fails, the request is admitted.
    ///
    /// # Errors
    /// [`AcquireError`] for an unknown or malformed dimension, a cost that can never be granted, or a row
    /// that cannot be read. Never [`AcquireError::Store`].
    pub fn admit<'a>(
        &'a self,
        dimension: &'a str,
        cost: impl Into<Quantity>,
        slo: Option<Duration>,
    ) -> Admit<'a> {
        Admit { client: self, dimension, cost: cost.into(), slo, backlog: None, share: None }
    }
}

impl<'a> IntoFuture for Admit<'a> {
    type Output = Result<Admission, AcquireError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let inner = &self.client.inner;
            let deciding = async {
                let (ask, asked) = self.parse()?;
                decide(inner, &ask, asked).await
            };
            shadow::or_in_shadow(inner, deciding.await, || Admission::Admitted(Admitted::default()))
        })
    }
}

impl Admit<'_> {
    fn parse(&self) -> Result<(Ask, AdmissionAsk), RequestError> {
        let dimension = Dimension::new(self.dimension)?;
        let cost: Cost = cost_of(self.dimension, &self.cost)?;
        let backlog = self.backlog.as_ref().map(|backlog| {
            backlog.used().map_err(|source| RequestError::Cost {
                dimension: self.dimension.to_owned(),
                cost: backlog.to_string(),
                source,
            })
        });
        let ask = Ask { dimension, cost: Some(cost), share: Payer::named(self.share.as_deref())? };
        Ok((ask, AdmissionAsk { cost, backlog: backlog.transpose()?.unwrap_or_default(), slo: self.slo }))
    }
}

/// The verdict; `None` if the table does not answer within one attempt, and for a second after that.
/// Admission must neither stop nor delay what the vendor would serve.
async fn in_time(
    inner: &Arc<Inner>,
    entry: &mut Arc<Entry>,
    asked: AdmissionAsk,
) -> Result<Option<AdmissionVerdict>, AcquireError> {
    if watched::watched(entry).is_unknown(inner.now()) {
        return Ok(None);
    }
    let judged = async {
        *entry = slot_lines::open_line(inner, of_share(inner, Arc::clone(entry)).await?).await;
        judge::judge(inner, entry, asked).await
    };
    let error = match tokio::time::timeout(inner.store.attempt().of_rows(), judged).await {
        Ok(Ok(verdict)) => return Ok(Some(verdict)),
        Ok(Err(AcquireError::Store(error))) => error.to_string(),
        Ok(Err(error)) => return Err(error),
        Err(_) => String::from("no answer in time"),
    };
    tracing::debug!(event = "admission.unknown", dimension = %entry.dimension, error);
    watched::watched(entry).unknown(inner.now());
    Ok(None)
}

async fn decide(inner: &Arc<Inner>, ask: &Ask, asked: AdmissionAsk) -> Result<Admission, AcquireError> {
    let mode = match inner.config.admission {
        AdmissionMode::Enforce if inner.config.mode.is_shadow() => AdmissionMode::Shadow,
        mode => mode,
    };
    if mode == AdmissionMode::Off {
        return Ok(Admission::Admitted(Admitted::default()));
    }
    let (dimension, mut entry) = (&ask.dimension, inner.entry_for(ask));
    let Some(verdict) = in_time(inner, &mut entry, asked).await? else {
        telemetry::admitted(entry.label(), "unknown", mode.as_str());
        return Ok(Admission::Admitted(Admitted::default()));
    };
    let (wait, reason) = match verdict {
        AdmissionVerdict::Shed { wait, reason, starts_now }
            if !watched::watched(&entry).tries(reason, starts_now, inner.config.staleness, inner.now()) =>
        {
            (wait, reason)
        }
        AdmissionVerdict::Shed { wait, .. } => {
            // Slots that are held while nothing departs may be a crashed holder's: healing looks for them.
            heal::admitted_in_doubt(inner, &entry);
            telemetry::admitted(entry.label(), "admitted", mode.as_str());
            return Ok(Admission::Admitted(Admitted { wait: Some(wait), would_shed: None }));
        }
        AdmissionVerdict::Admit { wait } => {
            // Without an SLO, the verdict did not check whether the vendor is down.
            if asked.slo.is_some() {
                watched::watched(&entry).is_up();
            }
            telemetry::admitted(entry.label(), "admitted", mode.as_str());
            return Ok(Admission::Admitted(Admitted { wait, would_shed: None }));
        }
    };
    telemetry::admitted(entry.label(), reason.as_str(), mode.as_str());
    // If the vendor is down, the SLO does not shorten the wait: the vendor is not up sooner for a longer SLO.
    let slo = asked.slo.filter(|_| reason == ShedReason::OverSlo).unwrap_or_default();
    let retry_after = retry_after(wait, slo, fastrand::u32(..));
    let shed = Shed { wait, retry_after, reason };
    match mode {
        AdmissionMode::Shadow => heal::admitted_in_doubt(inner, &entry),
        _ => heal::shed(inner, &entry, retry_after),
    }
    tracing::debug!(event = "admission.shed", %dimension, reason = reason.as_str(), wait_ms = wait.as_millis(), mode = mode.as_str());
    Ok(match mode {
        AdmissionMode::Shadow => Admission::Admitted(Admitted { wait: Some(wait), would_shed: Some(shed) }),
        _ => Admission::Shed(shed),
    })
}
