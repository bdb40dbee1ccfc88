//! The result of an operation on its way to Python.

use pyo3::prelude::*;

/// A result, to be made into an object of Python. If it is dropped instead, so is what it holds.
pub(crate) type Answer = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// Gives a future of asyncio its result, in the thread of its event loop.
pub(crate) fn settle(future: &Bound<'_, PyAny>, answer: Answer) -> PyResult<()> {
    if future.call_method0("done")?.is_truthy()? {
        // Cancelled meanwhile: the answer is dropped, and gives back what it holds.
        return Ok(());
    }
    match answer(future.py()) {
        Ok(value) => future.call_method1("set_result", (value,))?,
        Err(error) => future.call_method1("set_exception", (error,))?,
    };
    Ok(())
}
