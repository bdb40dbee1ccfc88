//! The client.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sluice_bindings::RunningSlot;
use sluice_sdk::admission::Admit;
use sluice_sdk::reservations::ReservationConfig;
use sluice_sdk::{Client, Closed, Ticket};

use crate::arguments::{OwnReply, duration, headers, limits_of, optional_duration, quantity, request};
use crate::errors::error;
use crate::grant::{Acquired, GrantError, NativeGrant, RedeemedAnswer, UndeliveredGrant};
use crate::limits;
use crate::operation::Operation;
use crate::ops::NativeOps;
use crate::process::PerProcess;
use crate::settings::Settings;
use crate::tracker::NativeTracker;
use crate::values::{IntoPython, instance, instant};

/// A client of the SDK, one for each process that uses this object.
#[pyclass(frozen, name = "Client", module = "sluice._native")]
pub(crate) struct NativeClient {
    settings: Settings,
    of_process: PerProcess<Client>,
}

impl NativeClient {
    /// The client of this process.
    pub(crate) fn sluice(&self, py: Python<'_>) -> PyResult<Client> {
        self.of_process.get_or_try(|| self.settings.connect(py)).cloned()
    }
}

#[pymethods]
impl NativeClient {
    #[new]
    fn new(py: Python<'_>, table: Option<String>, settings: &Bound<'_, PyDict>) -> PyResult<Self> {
        let client = Self { settings: Settings::new(py, table, settings)?, of_process: PerProcess::new() };
        client.sluice(py)?;
        Ok(client)
    }

    #[pyo3(signature = (dimensions, costs, share, ticket_within, ticket))]
    fn acquire(
        &self,
        py: Python<'_>,
        dimensions: Vec<String>,
        costs: Option<&Bound<'_, PyDict>>,
        share: Option<String>,
        ticket_within: Option<&Bound<'_, PyAny>>,
        ticket: Option<&str>,
    ) -> PyResult<Operation> {
        let (sluice, mut request) = (self.sluice(py)?, request(dimensions, costs, share)?);
        if let Some(within) = optional_duration("ticket_within", ticket_within)? {
            request = request.ticket_within(within);
        }
        // Without a ticket that can be read, the call is acquired anew.
        let request = request.with_ticket(ticket.and_then(|text| text.parse().ok()));
        Ok(Operation::new(async move { Acquired::Ok(sluice.acquire(request).await?.into()) }))
    }

    fn slot(
        &self,
        py: Python<'_>,
        dimensions: Vec<String>,
        costs: Option<&Bound<'_, PyDict>>,
        share: Option<String>,
        max_wait: Option<&Bound<'_, PyAny>>,
        inside: Vec<String>,
    ) -> PyResult<Operation> {
        let slot = self.slot_builder(py, dimensions, (costs, share), max_wait)?;
        Ok(Operation::new(self.sluice(py)?.inside_slots(&limits_of(&inside), RunningSlot::start(slot))))
    }

    fn slot_grant(
        &self,
        py: Python<'_>,
        dimensions: Vec<String>,
        costs: Option<&Bound<'_, PyDict>>,
        share: Option<String>,
        max_wait: Option<&Bound<'_, PyAny>>,
        inside: Vec<String>,
    ) -> PyResult<Operation> {
        let slot = self.slot_builder(py, dimensions, (costs, share), max_wait)?;
        let waited = async move { slot.grant().await.map(UndeliveredGrant::new) };
        Ok(Operation::new(self.sluice(py)?.inside_slots(&limits_of(&inside), waited)))
    }

    fn redeem(&self, py: Python<'_>, ticket: &str) -> PyResult<Operation> {
        let ticket: Ticket = ticket.parse().map_err(|unreadable| error(py, "RedeemError", unreadable))?;
        let sluice = self.sluice(py)?;
        Ok(Operation::new(async move { RedeemedAnswer::Ok(sluice.redeem(&ticket).await?.into()) }))
    }

    fn admit(
        &self,
        py: Python<'_>,
        dimension: String,
        cost: &Bound<'_, PyAny>,
        slo: Option<&Bound<'_, PyAny>>,
        backlog: Option<&Bound<'_, PyAny>>,
        share: Option<String>,
    ) -> PyResult<Operation> {
        let (sluice, cost, slo) = (self.sluice(py)?, quantity(cost)?, optional_duration("slo", slo)?);
        let backlog = backlog.map(quantity).transpose()?;
        Ok(Operation::new(async move {
            let asked = backlog.into_iter().fold(sluice.admit(&dimension, cost, slo), Admit::backlog);
            share.into_iter().fold(asked, Admit::share).await
        }))
    }

    fn observe(
        &self,
        py: Python<'_>,
        dimension: String,
        of: &Bound<'_, PyAny>,
        grant: Option<&Bound<'_, NativeGrant>>,
    ) -> PyResult<Operation> {
        let (sluice, headers) = (self.sluice(py)?, headers(of)?);
        let held = grant.map(|grant| std::sync::Arc::clone(&grant.get().held));
        Ok(Operation::new(async move {
            match held {
                Some(held) => {
                    let held = held.lock().await?;
                    sluice.observe(&dimension, &headers, held.as_ref()).await.map_err(GrantError::Sdk)
                }
                None => sluice.observe(&dimension, &headers, None).await.map_err(GrantError::Sdk),
            }
        }))
    }

    #[pyo3(signature = (dimensions, costs, share, head, body))]
    fn on_rate_limited(
        &self,
        py: Python<'_>,
        dimensions: Vec<String>,
        costs: Option<&Bound<'_, PyDict>>,
        share: Option<String>,
        head: (u16, Bound<'_, PyAny>),
        body: Option<Vec<u8>>,
    ) -> PyResult<Operation> {
        let (sluice, request) = (self.sluice(py)?, request(dimensions, costs, share)?);
        let reply = OwnReply::new(head.0, &head.1, body)?;
        Ok(Operation::new(async move { sluice.on_rate_limited(request, reply.as_reply()).await }))
    }

    fn penalize(&self, py: Python<'_>, dimension: String, factor: f64) -> PyResult<Operation> {
        let sluice = self.sluice(py)?;
        Ok(Operation::new(async move { sluice.penalize(&dimension, factor).await }))
    }

    fn cool_down(&self, py: Python<'_>, dimension: String, pause: &Bound<'_, PyAny>) -> PyResult<Operation> {
        let (sluice, pause) = (self.sluice(py)?, duration("pause", pause)?);
        Ok(Operation::new(async move { sluice.cool_down(&dimension, pause).await }))
    }

    fn end_cool_down(&self, py: Python<'_>, dimension: String) -> PyResult<Operation> {
        let sluice = self.sluice(py)?;
        Ok(Operation::new(async move { sluice.end_cool_down(&dimension).await }))
    }

    fn refill(
        &self,
        py: Python<'_>,
        dimension: String,
        level: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Operation> {
        let (sluice, level) =
            (self.sluice(py)?, level.map(|level| limits::amount("level", level)).transpose()?);
        Ok(Operation::new(async move { sluice.refill(&dimension, level).await }))
    }

    fn limit(&self, py: Python<'_>, dimension: String) -> PyResult<Operation> {
        let sluice = self.sluice(py)?;
        Ok(Operation::new(async move { sluice.limit(&dimension).await }))
    }

    fn finish_healing(&self, py: Python<'_>) -> PyResult<Operation> {
        let sluice = self.sluice(py)?;
        Ok(Operation::new(async move {
            sluice.finish_healing().await;
            Ok::<_, PyErr>(())
        }))
    }

    /// Ends the client of this process; `None` if this process never used it.
    fn close(&self, within: &Bound<'_, PyAny>) -> PyResult<Operation> {
        let (sluice, within) = (self.of_process.get().cloned(), duration("within", within)?);
        Ok(Operation::new(async move {
            Ok::<_, PyErr>(match sluice {
                Some(sluice) => sluice.close(within).await,
                None => Closed::default(),
            })
        }))
    }

    fn reservations(
        &self,
        py: Python<'_>,
        max_reservations: usize,
        max_reservation_age: &Bound<'_, PyAny>,
        stale_cleanup_interval: &Bound<'_, PyAny>,
    ) -> PyResult<NativeTracker> {
        let mut config = ReservationConfig::default();
        config.max_reservations = max_reservations;
        config.max_reservation_age = duration("max_reservation_age", max_reservation_age)?;
        config.stale_cleanup_interval = duration("stale_cleanup_interval", stale_cleanup_interval)?;
        Ok(NativeTracker::new(self.sluice(py)?.reservations(config)))
    }

    fn ops(&self, py: Python<'_>) -> PyResult<NativeOps> {
        Ok(NativeOps::new(self.sluice(py)?.ops()))
    }

    #[getter]
    fn table(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.sluice(py)?.table().to_owned())
    }

    #[getter]
    fn inline_retry_threshold(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.sluice(py)?.inline_retry_threshold().as_secs_f64())
    }

    #[getter]
    fn longest_acquire(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.sluice(py)?.longest_acquire().as_secs_f64())
    }

    fn now(&self, py: Python<'_>) -> PyResult<std::time::SystemTime> {
        Ok(instant(self.sluice(py)?.now()))
    }
}

impl NativeClient {
    fn slot_builder(
        &self,
        py: Python<'_>,
        dimensions: Vec<String>,
        (costs, share): (Option<&Bound<'_, PyDict>>, Option<String>),
        max_wait: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<sluice_sdk::SlotBuilder> {
        let slot = self.sluice(py)?.slot(request(dimensions, costs, share)?);
        let max_wait: Option<Duration> = optional_duration("max_wait", max_wait)?;
        Ok(match max_wait {
            Some(wait) => slot.max_wait(wait),
            None => slot,
        })
    }
}

impl IntoPython for Closed {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let left: Vec<(String, String)> =
            self.left.into_iter().map(|left| (left.dimension.to_string(), left.lease)).collect();
        instance(py, "Closed", (self.cut_off, left))
    }
}
