//! What a caller holds.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sluice_bindings::words::{basis, tokens};
use sluice_sdk::{AcquireError, Dimension, Grant, LimitError, Outcome, RedeemError, Redeemed, RetryIn};
use tokio::sync::{Mutex, MutexGuard};

use crate::arguments::{OwnReply, headers, quantity, usage};
use crate::errors::{Raise, ended, forked};
use crate::operation::Operation;
use crate::process::{OfProcess, runtime};
use crate::values::{IntoPython, instance, instant, object};

/// A grant that Python does not have yet. If it never gets there, as after a cancellation, everything goes
/// back.
pub(crate) struct UndeliveredGrant(Option<Grant>);

impl UndeliveredGrant {
    pub(crate) const fn new(grant: Grant) -> Self {
        Self(Some(grant))
    }
}

impl Drop for UndeliveredGrant {
    fn drop(&mut self) {
        if let (Some(grant), Ok(runtime)) = (self.0.take(), runtime()) {
            runtime.spawn(grant.cancel());
        }
    }
}

impl IntoPython for UndeliveredGrant {
    fn into_python(mut self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        self.0.take().map_or_else(|| ().into_python(py), |grant| object(py, NativeGrant::new(grant)))
    }
}

/// A grant, or the refusal.
pub(crate) enum Answered {
    Granted(UndeliveredGrant),
    RetryIn(RetryIn),
    /// The ticket is `spent` or `lapsed`.
    NotRedeemed(&'static str),
}

impl From<Outcome> for Answered {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Granted(grant) => Self::Granted(UndeliveredGrant::new(grant)),
            Outcome::RetryIn(retry) => Self::RetryIn(retry),
        }
    }
}

impl From<Redeemed> for Answered {
    fn from(redeemed: Redeemed) -> Self {
        match redeemed {
            Redeemed::Granted(grant) => Self::Granted(UndeliveredGrant::new(grant)),
            Redeemed::RetryIn(retry) => Self::RetryIn(retry),
            Redeemed::Spent => Self::NotRedeemed("spent"),
            _ => Self::NotRedeemed("lapsed"),
        }
    }
}

impl IntoPython for Answered {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Self::Granted(grant) => grant.into_python(py),
            Self::RetryIn(retry) => retry.into_python(py),
            Self::NotRedeemed(reason) => instance(py, "NotRedeemed", (reason,)),
        }
    }
}

/// Why a grant cannot be used.
pub(crate) enum GrantError<E> {
    Forked,
    Ended,
    Sdk(E),
}

impl<E: Raise> Raise for GrantError<E> {
    fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Forked => forked(py),
            Self::Ended => ended(py),
            Self::Sdk(error) => error.raise(py),
        }
    }
}

/// The grant until it ends.
pub(crate) struct HeldGrant(OfProcess<Mutex<Option<Grant>>>);

impl HeldGrant {
    pub(crate) async fn lock<E>(&self) -> Result<MutexGuard<'_, Option<Grant>>, GrantError<E>> {
        match self.0.get() {
            Some(held) => Ok(held.lock().await),
            None => Err(GrantError::Forked),
        }
    }

    /// Takes the grant out, to end it.
    pub(crate) async fn take<E>(&self) -> Result<Grant, GrantError<E>> {
        self.lock().await?.take().ok_or(GrantError::Ended)
    }

    /// Takes the grant out, if no operation uses it.
    pub(crate) fn try_take<E>(&self) -> Result<Grant, GrantError<E>> {
        let held = self.0.get().ok_or(GrantError::Forked)?;
        held.try_lock().ok().and_then(|mut held| held.take()).ok_or(GrantError::Ended)
    }

    pub(crate) fn put_back(&self, grant: Grant) {
        if let Some(mut held) = self.0.get().and_then(|held| held.try_lock().ok()) {
            *held = Some(grant);
        }
    }
}

/// A grant of the SDK. If the object goes away, the grant is dropped: slots go back, tokens stay spent.
#[pyclass(frozen, name = "Grant", module = "sluice._native")]
pub(crate) struct NativeGrant {
    pub(crate) held: Arc<HeldGrant>,
    costs: Vec<(Dimension, f64)>,
    start_at: std::time::SystemTime,
    booked_wait: f64,
    #[pyo3(get)]
    basis: &'static str,
}

impl NativeGrant {
    pub(crate) fn new(grant: Grant) -> Self {
        let cost = |dimension: &Dimension| grant.cost(dimension.as_str()).map(tokens).unwrap_or_default();
        let costs = grant.dimensions().map(|dimension| (dimension.clone(), cost(dimension))).collect();
        let (start_at, booked_wait) = (instant(grant.start_at()), grant.booked_wait().as_secs_f64());
        let basis = basis(grant.basis());
        let held = Arc::new(HeldGrant(OfProcess::new(Mutex::new(Some(grant)))));
        Self { held, costs, start_at, booked_wait, basis }
    }

    /// Reads what changes while the grant is held; `None` if it has ended, or belongs to a parent of this
    /// process.
    fn look<T: Send>(&self, py: Python<'_>, read: impl FnOnce(&Grant) -> T + Send) -> PyResult<Option<T>> {
        let Some(held) = self.held.0.get() else { return Ok(None) };
        let runtime = runtime()?;
        Ok(match held.try_lock() {
            Ok(held) => held.as_ref().map(read),
            // An operation uses the grant.
            Err(_) => py.detach(|| runtime.block_on(held.lock()).as_ref().map(read)),
        })
    }
}

#[pymethods]
impl NativeGrant {
    /// What the grant took, by dimension.
    #[getter]
    fn costs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let costs = PyDict::new(py);
        self.costs.iter().try_for_each(|(dimension, cost)| costs.set_item(dimension.as_str(), cost))?;
        Ok(costs)
    }

    #[getter]
    const fn start_at(&self) -> std::time::SystemTime {
        self.start_at
    }

    #[getter]
    const fn booked_wait(&self) -> f64 {
        self.booked_wait
    }

    #[getter]
    fn lease_ends(&self, py: Python<'_>) -> PyResult<Option<std::time::SystemTime>> {
        Ok(self.look(py, |grant| grant.lease_ends().map(instant))?.flatten())
    }

    #[getter]
    fn is_lease_lost(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.look(py, Grant::is_lease_lost)?.unwrap_or_default())
    }

    #[getter]
    fn has_ended(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.look(py, |_| ())?.is_none())
    }

    fn release(&self) -> Operation {
        let held = Arc::clone(&self.held);
        Operation::new(async move { held.take().await?.release().await.map_err(GrantError::Sdk) })
    }

    fn failed(&self) -> Operation {
        let held = Arc::clone(&self.held);
        Operation::new(async move { held.take().await?.failed().await.map_err(GrantError::Sdk) })
    }

    fn cancel(&self) -> Operation {
        let held = Arc::clone(&self.held);
        Operation::new(async move {
            let grant = held.take::<AcquireError>().await?;
            grant.cancel().await;
            Ok::<_, GrantError<AcquireError>>(())
        })
    }

    fn renew(&self) -> Operation {
        let held = Arc::clone(&self.held);
        Operation::new(async move {
            let mut held = held.lock().await?;
            held.as_mut().ok_or(GrantError::Ended)?.renew().await.map_err(GrantError::Sdk)
        })
    }

    fn settle(&self, dimension: String, used: &Bound<'_, PyAny>) -> PyResult<Operation> {
        let (held, used) = (Arc::clone(&self.held), quantity(used)?);
        Ok(Operation::new(async move {
            let mut held = held.lock().await?;
            held.as_mut().ok_or(GrantError::Ended)?.settle(&dimension, used).await.map_err(GrantError::Sdk)
        }))
    }

    fn observe(&self, dimension: String, of: &Bound<'_, PyAny>) -> PyResult<Operation> {
        let (held, headers) = (Arc::clone(&self.held), headers(of)?);
        Ok(Operation::new(async move {
            let held = held.lock().await?;
            let grant = held.as_ref().ok_or(GrantError::Ended)?;
            grant.observe(&dimension, &headers).await.map_err(GrantError::Sdk)
        }))
    }

    #[pyo3(signature = (status, headers, body, used))]
    fn reply(
        &self,
        status: u16,
        headers: &Bound<'_, PyAny>,
        body: Option<Vec<u8>>,
        used: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Operation> {
        let (held, used, reply) =
            (Arc::clone(&self.held), usage(used)?, OwnReply::new(status, headers, body)?);
        Ok(Operation::new(async move {
            let mut held = held.lock().await?;
            let grant = held.as_mut().ok_or(GrantError::Ended)?;
            grant.reply(reply.as_reply(), used).await.map_err(GrantError::<LimitError>::Sdk)
        }))
    }
}

/// The answers to `acquire` and `redeem`.
pub(crate) type Acquired = Result<Answered, AcquireError>;
pub(crate) type RedeemedAnswer = Result<Answered, RedeemError>;
