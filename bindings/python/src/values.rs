//! Values of the SDK as objects of Python: the dataclasses of `sluice._values`, numbers and texts.

use std::time::{Duration, SystemTime};

use pyo3::PyClass;
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use sluice_bindings::words::{action, level, limit, settled, tokens};
use sluice_sdk::admission::{Admission, Admitted, Shed};
use sluice_sdk::core::{Amount, Timestamp};
use sluice_sdk::reactions::{CoolDown, EndedCoolDown, Observed, Penalty, Refilled};
use sluice_sdk::{Decision, Dimension, Released, Replied, RetryIn, Settled, Ticket};

/// A value that can be handed to Python.
pub(crate) trait IntoPython {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>>;
}

/// An instance of a class of `sluice._values`.
pub(crate) fn instance<'py, A>(py: Python<'py>, class: &str, arguments: A) -> PyResult<Bound<'py, PyAny>>
where
    A: PyCallArgs<'py>,
{
    py.import("sluice._values")?.getattr(class)?.call1(arguments)
}

/// Makes an object of a class of this module.
pub(crate) fn object<T>(py: Python<'_>, value: impl Into<PyClassInitializer<T>>) -> PyResult<Bound<'_, PyAny>>
where
    T: PyClass,
{
    Ok(Bound::new(py, value)?.into_any())
}

/// An instant, as a `datetime` in UTC.
pub(crate) fn instant(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(at.micros()).unwrap_or_default())
}

impl IntoPython for () {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(py.None().into_bound(py))
    }
}

impl IntoPython for bool {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(self.into_pyobject(py)?.to_owned().into_any())
    }
}

impl<T: IntoPython> IntoPython for Option<T> {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        self.map_or_else(|| ().into_python(py), |value| value.into_python(py))
    }
}

impl<T: IntoPython> IntoPython for Vec<T> {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let values = self.into_iter().map(|value| value.into_python(py)).collect::<PyResult<Vec<_>>>()?;
        Ok(pyo3::types::PyList::new(py, values)?.into_any())
    }
}

impl IntoPython for RetryIn {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let ticket = self.ticket().cloned().into_python(py)?;
        let no_ticket = self.no_ticket().map(|why| why.as_str());
        let (wait, dimension) = (self.wait().as_secs_f64(), self.dimension().as_str());
        let arguments = (
            wait,
            dimension,
            self.reason().as_str(),
            self.delay_seconds(),
            ticket,
            no_ticket,
            self.to_string(),
        );
        instance(py, "RetryIn", arguments)
    }
}

impl IntoPython for Ticket {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let dimensions: Vec<&str> = self.dimensions().iter().map(Dimension::as_str).collect();
        let dimensions = PyTuple::new(py, dimensions)?;
        let arguments =
            (self.to_string(), instant(self.start_at()), instant(self.use_by()), dimensions, self.key());
        instance(py, "Ticket", arguments)
    }
}

impl IntoPython for Released {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(self.as_str().into_pyobject(py)?.into_any())
    }
}

impl IntoPython for Settled {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        instance(py, "Settled", settled(self))
    }
}

impl IntoPython for Decision {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        instance(
            py,
            "Decision",
            (action(self), self.wait().map(|wait| wait.as_secs_f64()), self.delay_seconds()),
        )
    }
}

impl IntoPython for Observed {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let ((level, lowered_by), (limit, reported)) = (level(self.level), limit(self.limit));
        instance(py, "Observed", (level, lowered_by, limit, reported, self.unreadable))
    }
}

impl IntoPython for Replied {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let observed = pyo3::types::PyDict::new(py);
        for (dimension, seen) in self.observed {
            observed.set_item(dimension.as_str(), seen.into_python(py)?)?;
        }
        instance(py, "Replied", (self.decision.into_python(py)?, observed))
    }
}

impl IntoPython for Penalty {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let (applied, level) = match self {
            Self::Applied(level) => (true, level),
            Self::NothingToTake(level) => (false, level),
            _ => (false, Amount::ZERO),
        };
        instance(py, "Penalty", (applied, tokens(level)))
    }
}

impl IntoPython for CoolDown {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        instance(py, "CoolDown", (instant(self.until()), matches!(self, Self::Set(_))))
    }
}

/// When the cool-down that was ended would have ended; `None` if none was in force.
impl IntoPython for EndedCoolDown {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Self::Ended(until) => Ok(instant(until).into_pyobject(py)?.into_any()),
            _ => ().into_python(py),
        }
    }
}

impl IntoPython for Refilled {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let (before, level) = match self {
            Self::Set { from, level } => (from, level),
            Self::Already(level) => (level, level),
            _ => (Amount::ZERO, Amount::ZERO),
        };
        instance(py, "Refilled", (tokens(before), tokens(level)))
    }
}

impl IntoPython for Shed {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let (wait, retry_after) = (self.wait().as_secs_f64(), self.retry_after().as_secs_f64());
        instance(py, "Shed", (wait, retry_after, self.reason().as_str()))
    }
}

impl IntoPython for Admission {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Self::Shed(shed) => shed.into_python(py),
            Self::Admitted(admitted) => admitted.into_python(py),
        }
    }
}

impl IntoPython for Admitted {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let would_shed = self.would_shed().cloned().into_python(py)?;
        instance(py, "Admitted", (self.wait().map(|wait| wait.as_secs_f64()), would_shed))
    }
}
