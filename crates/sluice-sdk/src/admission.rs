//! Admission: whether a request is worth taking on now, or is told at once to come back later. It takes nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Cost, Dimension, ShedReason, retry_after};

use crate::api::error::AcquireError;
use crate::api::request::{Quantity, RequestError};
use crate::client::Client;
use crate::config::admission_mode::AdmissionMode;
use crate::lane::entry::Entry;
use crate::lane::inner::Inner;
use crate::{heal, telemetry};

mod judge;
mod look;
pub(crate) mod watched;

use crate::admission::judge::{Asked, Verdict};

/// The answer of [`Client::admit`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a request that is shed should not be begun"]
pub enum Admission {
    /// Go on, and acquire: nothing was taken.
    Admitted(Admitted),
    /// Do not begin it.
    Shed(Shed),
}

/// A request that is taken on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    wait: Option<Duration>,
    would_shed: Option<Shed>,
}

/// A request that is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shed {
    wait: Duration,
    retry_after: Duration,
    reason: ShedReason,
}

impl Admission {
    /// Whether the request is to be begun.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        matches!(self, Self::Admitted(_))
    }

    /// The refusal, if it is one.
    #[must_use]
    pub const fn shed(&self) -> Option<&Shed> {
        match self {
            Self::Admitted(_) => None,
            Self::Shed(shed) => Some(shed),
        }
    }
}

impl Admitted {
    /// In how long it will be done, or, of a rate bucket, may start; `None` where that is not known: no sweep has measured yet, the mode
    /// is off, or the table did not answer.
    #[must_use]
    pub const fn wait(&self) -> Option<Duration> {
        self.wait
    }

    /// In shadow mode: what it would have been told.
    #[must_use]
    pub const fn would_shed(&self) -> Option<&Shed> {
        self.would_shed.as_ref()
    }
}

impl Shed {
    /// In how long it would be done, or, of a rate bucket, might start.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        self.wait
    }

    /// When to come back: after the part of the wait that is over its SLO, a second at least, and up to 30 % later, so that those who
    /// are shed together do not return together. For `Retry-After`, rounded up to seconds.
    #[must_use]
    pub const fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// Why.
    #[must_use]
    pub const fn reason(&self) -> ShedReason {
        self.reason
    }
}

/// A question to [`Client::admit`]; await it.
#[derive(Debug)]
#[must_use = "it asks nothing until it is awaited"]
pub struct Admit<'a> {
    client: &'a Client,
    dimension: &'a str,
    cost: Quantity,
    slo: Option<Duration>,
    backlog: Option<Quantity>,
}

impl Admit<'_> {
    /// What waits in the caller's own queue before this request, in the bucket's tokens or slots: zero or more. Neither what it has
    /// acquired nor what waits in `slot`, which is counted already.
    pub fn backlog(mut self, amount: impl Into<Quantity>) -> Self {
        self.backlog = Some(amount.into());
        self
    }
}

impl Client {
    /// Whether a request that takes `cost` of `dimension` is worth taking on: whether it will be done within `slo`. Without an SLO it
    /// is never shed.
    ///
    /// Of a concurrency bucket the wait is what is pending and the request, divided by the rate at which slots came free as sweeps
    /// measured it; pending is what is held by anyone, what waits in this process, and the [`backlog`](Admit::backlog). It is none
    /// where slots for all of that are free. Where something is pending and nothing at all departed for the staleness time
    /// ([`ClientBuilder::staleness`](crate::ClientBuilder::staleness)), the vendor counts as down, and what has an SLO is shed. Of a
    /// rate bucket the wait is exact: when its line reaches the backlog and the cost, after a cool-down.
    ///
    /// Costs a read of two rows a second at most, and one every 15 s for five minutes after the last question. Trouble of the table
    /// sheds nobody. `docs/admission.md` has the whole of it, with an example for a web service.
    ///
    /// Takes at most an attempt (1 s), and admits then.
    ///
    /// # Errors
    /// [`AcquireError`]: an unknown or malformed dimension, a cost that can never be granted, a row that cannot be read. Never
    /// [`AcquireError::Store`].
    pub fn admit<'a>(&'a self, dimension: &'a str, cost: impl Into<Quantity>, slo: Option<Duration>) -> Admit<'a> {
        Admit { client: self, dimension, cost: cost.into(), slo, backlog: None }
    }
}

impl<'a> IntoFuture for Admit<'a> {
    type Output = Result<Admission, AcquireError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (dimension, asked) = self.parse()?;
            decide(&self.client.inner, &dimension, asked).await
        })
    }
}

impl Admit<'_> {
    fn parse(&self) -> Result<(Dimension, Asked), RequestError> {
        let dimension = Dimension::new(self.dimension)?;
        let cost: Cost = self.cost.parse(self.dimension)?;
        let backlog = self.backlog.as_ref().map(|backlog| {
            backlog.used().map_err(|source| RequestError::Cost {
                dimension: self.dimension.to_owned(),
                cost: backlog.to_string(),
                source,
            })
        });
        Ok((dimension, Asked { cost, backlog: backlog.transpose()?.unwrap_or_default(), slo: self.slo }))
    }
}

/// The verdict; `None` where the table does not answer within an attempt, and for a second after. Admission must not stop, nor hold up,
/// what the vendor would serve.
async fn in_time(inner: &Arc<Inner>, entry: &Arc<Entry>, asked: Asked) -> Result<Option<Verdict>, AcquireError> {
    if watched::watched(entry).is_unknown(inner.now()) {
        return Ok(None);
    }
    let error = match tokio::time::timeout(inner.store.attempt().of_rows(), judge::judge(inner, entry, asked)).await {
        Ok(Ok(verdict)) => return Ok(Some(verdict)),
        Ok(Err(AcquireError::Store(error))) => error.to_string(),
        Ok(Err(error)) => return Err(error),
        Err(_) => String::from("no answer in time"),
    };
    tracing::debug!(event = "admission.unknown", dimension = %entry.dimension, error);
    watched::watched(entry).unknown(inner.now());
    Ok(None)
}

async fn decide(inner: &Arc<Inner>, dimension: &Dimension, asked: Asked) -> Result<Admission, AcquireError> {
    let mode = inner.config.admission;
    if mode == AdmissionMode::Off {
        return Ok(Admission::Admitted(Admitted::default()));
    }
    let entry = inner.entry(dimension);
    let Some(verdict) = in_time(inner, &entry, asked).await? else {
        telemetry::admitted(entry.label(), "unknown", mode.as_str());
        return Ok(Admission::Admitted(Admitted::default()));
    };
    let (wait, reason) = match verdict {
        Verdict::Shed { wait, reason, starts_now }
            if !watched::watched(&entry).tries(reason, starts_now, inner.config.staleness, inner.now()) =>
        {
            (wait, reason)
        }
        Verdict::Shed { wait, .. } => {
            // What is held without an end may be a crashed holder's: it is looked for.
            heal::admitted_in_doubt(inner, &entry);
            telemetry::admitted(entry.label(), "admitted", mode.as_str());
            return Ok(Admission::Admitted(Admitted { wait: Some(wait), would_shed: None }));
        }
        Verdict::Admit { wait } => {
            // Without an SLO it was not asked whether the vendor is down.
            if asked.slo.is_some() {
                watched::watched(&entry).is_up();
            }
            telemetry::admitted(entry.label(), "admitted", mode.as_str());
            return Ok(Admission::Admitted(Admitted { wait, would_shed: None }));
        }
    };
    telemetry::admitted(entry.label(), reason.as_str(), mode.as_str());
    // A vendor that is down is not up sooner for those who have more patience.
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
