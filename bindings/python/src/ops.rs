//! What operators do, for tests and scripts.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sluice_bindings::BucketNow;
use sluice_bindings::words::applied;
use sluice_sdk::Dimension;
use sluice_sdk::ops::{Applied, BucketRow, LeaseRow, Ops, SweepError, SweepOptions, SweepReport};

use crate::arguments::optional_duration;
use crate::errors::{Raise, forked};
use crate::limits;
use crate::operation::Operation;
use crate::process::OfProcess;
use crate::values::{IntoPython, instance, instant};

/// Operations on the table of a client.
#[pyclass(frozen, name = "Ops", module = "sluice._native")]
pub(crate) struct NativeOps(OfProcess<Ops>);

impl NativeOps {
    pub(crate) fn new(ops: Ops) -> Self {
        Self(OfProcess::new(ops))
    }

    fn ops(&self, py: Python<'_>) -> PyResult<Ops> {
        self.0.get().cloned().ok_or_else(|| forked(py))
    }
}

fn dimension(name: &str) -> PyResult<Dimension> {
    Dimension::new(name).map_err(|error| PyValueError::new_err(error.to_string()))
}

#[pymethods]
impl NativeOps {
    fn apply_limit(
        &self,
        py: Python<'_>,
        name: &str,
        limit: &Bound<'_, PyAny>,
        shares: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Operation> {
        let (ops, dimension, limit) = (self.ops(py)?, dimension(name)?, limits::limit(limit)?);
        let split = shares.map(|shares| limits::split(limit, shares)).transpose()?;
        Ok(Operation::new(async move {
            match split {
                Some(split) => ops.apply_split(&dimension, &split).await,
                None => ops.apply_limit(&dimension, &limit).await,
            }
        }))
    }

    fn bucket(&self, py: Python<'_>, name: &str) -> PyResult<Operation> {
        let (ops, dimension) = (self.ops(py)?, dimension(name)?);
        Ok(Operation::new(async move {
            let bucket = ops.bucket(&dimension).await?;
            Ok::<_, sluice_sdk::ops::BucketError>(bucket.map(|bucket| BucketNow::new(bucket, &ops)))
        }))
    }

    fn buckets(&self, py: Python<'_>) -> PyResult<Operation> {
        let ops = self.ops(py)?;
        Ok(Operation::new(async move {
            // Rows that cannot be read are for the command `sluice`, which says what is wrong with them.
            let read = |row: BucketRow| row.bucket.ok().map(|bucket| BucketNow::new(bucket, &ops));
            let buckets = ops.buckets().await?.into_iter().filter_map(read).collect::<Vec<_>>();
            Ok::<_, sluice_sdk::StoreError>(buckets)
        }))
    }

    fn remove_bucket(&self, py: Python<'_>, name: &str) -> PyResult<Operation> {
        let (ops, dimension) = (self.ops(py)?, dimension(name)?);
        Ok(Operation::new(async move { ops.remove_bucket(&dimension).await }))
    }

    fn leases(&self, py: Python<'_>) -> PyResult<Operation> {
        let ops = self.ops(py)?;
        Ok(Operation::new(async move { ops.leases().await }))
    }

    fn sweep(&self, py: Python<'_>, budget: Option<&Bound<'_, PyAny>>) -> PyResult<Operation> {
        let (ops, budget) = (self.ops(py)?, optional_duration("budget", budget)?);
        let mut options = SweepOptions::from_env().map_err(|error| error.raise(py))?;
        options.budget = budget;
        Ok(Operation::new(async move { ops.sweep(options).await.map_err(|error: SweepError| error) }))
    }
}

impl IntoPython for BucketNow {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let cools_until = self.cooling_down_until.map(instant);
        let limit = (*self.bucket.limit()).into_python(py)?;
        instance(py, "Bucket", (self.bucket.dimension().as_str(), limit, self.level, cools_until))
    }
}

impl IntoPython for Applied {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(applied(&self).into_pyobject(py)?.into_any())
    }
}

impl IntoPython for LeaseRow {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let lease = self.lease.ok();
        let dimension = lease.as_ref().map(|lease| lease.dimension().to_string());
        let ends = lease.as_ref().map(|lease| instant(lease.ends()));
        let caller = lease.as_ref().and_then(|lease| lease.caller().map(str::to_owned));
        instance(py, "Lease", (self.key, dimension, ends, caller, self.is_inline))
    }
}

impl IntoPython for SweepReport {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let (took, scanned) = (self.duration.as_secs_f64(), self.rows_scanned);
        let arguments = (
            scanned,
            self.expired,
            self.restored,
            self.restored_slots,
            self.unparsable,
            self.unreadable_buckets,
            self.left,
            self.requests,
            took,
        );
        instance(py, "SweepReport", arguments)
    }
}
