//! The reservation tracker.

use pyo3::prelude::*;
use sluice_bindings::words::tokens;
use sluice_sdk::core::Timestamp;
use sluice_sdk::reservations::{Reservation, ReservationError, ReservationTracker, StaleReport, Tracked};

use crate::arguments::optional_duration;
use crate::errors::{Raise as _, error, forked};
use crate::grant::{GrantError, NativeGrant};
use crate::operation::Operation;
use crate::process::{OfProcess, runtime};
use crate::values::{IntoPython, instance, instant, object};

/// A tracker of the SDK.
#[pyclass(frozen, name = "Tracker", module = "sluice._native")]
pub(crate) struct NativeTracker(OfProcess<ReservationTracker>);

impl NativeTracker {
    pub(crate) fn new(tracker: ReservationTracker) -> Self {
        Self(OfProcess::new(tracker))
    }

    fn tracker(&self, py: Python<'_>) -> PyResult<&ReservationTracker> {
        self.0.get().ok_or_else(|| forked(py))
    }
}

#[pymethods]
impl NativeTracker {
    fn store(
        &self,
        py: Python<'_>,
        request: &str,
        bucket: &str,
        grant: &Bound<'_, NativeGrant>,
    ) -> PyResult<String> {
        let tracker = self.tracker(py)?;
        // Stale grants are released on a task.
        let _in_runtime = runtime()?.enter();
        let taken = grant.get().held.try_take().map_err(|error: GrantError<PyErr>| error.raise(py))?;
        match tracker.store(request, bucket, taken) {
            Ok(id) => Ok(id.to_string()),
            Err(refused) => {
                let class = match refused {
                    ReservationError::AtCapacity { .. } => "ReservationCapacityError",
                    _ => "ReservationTakenError",
                };
                let raised = error(py, class, &refused);
                grant.get().held.put_back(refused.into_grant());
                Err(raised)
            }
        }
    }

    fn get<'py>(&self, py: Python<'py>, request: &str, bucket: &str) -> PyResult<Bound<'py, PyAny>> {
        self.tracker(py)?.get(request, bucket).into_python(py)
    }

    /// The oldest of the request, if no bucket is named.
    fn take<'py>(&self, py: Python<'py>, request: &str, bucket: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
        let tracker = self.tracker(py)?;
        let taken = match bucket {
            Some(bucket) => tracker.take(request, bucket),
            None => tracker.take_oldest(request),
        };
        taken.into_python(py)
    }

    fn take_request<'py>(&self, py: Python<'py>, request: &str) -> PyResult<Bound<'py, PyAny>> {
        self.tracker(py)?.take_request(request).into_python(py)
    }

    /// Those that were stored before `cutoff`, in seconds since 1970; without it, those that are stale.
    fn take_stale<'py>(
        &self,
        py: Python<'py>,
        cutoff: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let tracker = self.tracker(py)?;
        let taken = match optional_duration("cutoff_time", cutoff)? {
            Some(since) => tracker.take_stored_before(Timestamp::from_micros(0).after(since)),
            None => tracker.take_stale(),
        };
        taken.into_python(py)
    }

    fn release_stale(&self, py: Python<'_>) -> PyResult<Operation> {
        let tracker = self.tracker(py)?.clone();
        Ok(Operation::new(async move { Ok::<_, PyErr>(tracker.release_stale().await) }))
    }

    fn stale_report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.tracker(py)?.stale_report().into_python(py)
    }

    fn compact(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.tracker(py)?.compact())
    }

    #[getter]
    fn stale_entry_ratio(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.tracker(py)?.stale_entry_ratio())
    }

    #[getter]
    fn reservation_count(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.tracker(py)?.reservation_count())
    }

    #[getter]
    fn request_count(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.tracker(py)?.request_count())
    }

    fn start(&self, py: Python<'_>) -> PyResult<()> {
        let _in_runtime = runtime()?.enter();
        self.tracker(py)?.start();
        Ok(())
    }

    fn stop(&self, py: Python<'_>) -> PyResult<Operation> {
        let tracker = self.tracker(py)?.clone();
        Ok(Operation::new(async move {
            tracker.stop().await;
            Ok::<_, PyErr>(())
        }))
    }
}

impl IntoPython for Reservation {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let estimated = self.estimated_tokens().map(tokens);
        let created_at = instant(self.created_at());
        instance(
            py,
            "Reservation",
            (self.id().to_string(), self.request(), self.bucket(), estimated, created_at),
        )
    }
}

impl IntoPython for Tracked {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let Self { reservation, grant, .. } = self;
        let pair = (reservation.into_python(py)?, object(py, NativeGrant::new(grant))?);
        Ok(pair.into_pyobject(py)?.into_any())
    }
}

impl IntoPython for StaleReport {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        instance(py, "StaleReport", (self.given_back, self.late, self.failed))
    }
}
