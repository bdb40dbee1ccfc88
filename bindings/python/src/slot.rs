//! A slot whose call runs in Python.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sluice_bindings::RunningSlot;
use sluice_bindings::words::basis;
use sluice_sdk::Slot;

use crate::arguments::{OwnReply, headers, quantity, usage};
use crate::errors::{Raise, forked};
use crate::operation::Operation;
use crate::process::{OfProcess, runtime};
use crate::values::{IntoPython, instant, object};

impl IntoPython for RunningSlot {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let slot = self.slot().clone();
        let running = Arc::new(OfProcess::new(Mutex::new(Some(self))));
        object(py, NativeSlot { running, slot: OfProcess::new(slot) })
    }
}

/// A slot of the SDK.
#[pyclass(frozen, name = "Slot", module = "sluice._native")]
pub(crate) struct NativeSlot {
    running: Arc<OfProcess<Mutex<Option<RunningSlot>>>>,
    slot: OfProcess<Slot>,
}

impl NativeSlot {
    fn slot(&self, py: Python<'_>) -> PyResult<&Slot> {
        self.slot.get().ok_or_else(|| forked(py))
    }
}

#[pymethods]
impl NativeSlot {
    /// Ends the call. Waits until what the slot held is given back, 3 s at most. In a child of the process
    /// that holds the slot, and the second time, it does nothing.
    fn end(&self, has_failed: bool) -> Operation {
        let running = Arc::clone(&self.running);
        Operation::new(async move {
            match running.get().and_then(|running| running.lock().take()) {
                Some(running) => running.end(has_failed).await,
                None => Ok(()),
            }
        })
    }

    /// Gives the slot back. Its tokens stay as they were taken. Does not wait.
    fn abandon(&self) -> PyResult<()> {
        let _in_runtime = runtime()?.enter();
        drop(self.running.get().and_then(|running| running.lock().take()));
        Ok(())
    }

    fn used(&self, py: Python<'_>, dimension: &str, used: &Bound<'_, PyAny>) -> PyResult<()> {
        self.slot(py)?.used(dimension, quantity(used)?).map_err(|error| error.raise(py))
    }

    fn observe(&self, py: Python<'_>, dimension: String, of: &Bound<'_, PyAny>) -> PyResult<Operation> {
        let (slot, headers) = (self.slot(py)?.clone(), headers(of)?);
        Ok(Operation::new(async move { slot.observe(&dimension, &headers).await }))
    }

    #[pyo3(signature = (status, headers, body, used))]
    fn reply(
        &self,
        py: Python<'_>,
        status: u16,
        headers: &Bound<'_, PyAny>,
        body: Option<Vec<u8>>,
        used: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Operation> {
        let (slot, used, reply) =
            (self.slot(py)?.clone(), usage(used)?, OwnReply::new(status, headers, body)?);
        Ok(Operation::new(async move { slot.reply(reply.as_reply(), used).await }))
    }

    #[getter]
    fn concurrency_limits(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.slot(py)?.concurrency_limits().iter().map(ToString::to_string).collect())
    }

    #[getter]
    fn acquiring(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.slot(py)?.acquiring().as_secs_f64())
    }

    #[getter]
    fn start_at(&self, py: Python<'_>) -> PyResult<std::time::SystemTime> {
        Ok(instant(self.slot(py)?.start_at()))
    }

    fn start_in(&self, py: Python<'_>, dimension: &str) -> PyResult<Option<std::time::SystemTime>> {
        Ok(self.slot(py)?.start_in(dimension).map(instant))
    }

    #[getter]
    fn basis(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(basis(self.slot(py)?.basis()))
    }

    #[getter]
    fn is_lease_lost(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.slot(py)?.is_lease_lost())
    }
}
