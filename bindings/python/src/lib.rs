//! The extension module of the Python package `sluice`: the SDK's operations, each for threads and for
//! asyncio. Holds no knowledge of the protocol and of vendors. What Python code sees is in `python/sluice`.

use pyo3::prelude::*;

mod answer;
mod arguments;
mod client;
mod courier;
mod errors;
mod estimator;
mod grant;
mod http_calls;
mod limits;
mod logs;
mod mailbox;
mod operation;
mod ops;
mod process;
mod session;
mod settings;
mod slot;
mod tracker;
mod values;

/// No state of it rests on the GIL.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<client::NativeClient>()?;
    module.add_class::<estimator::NativeEstimator>()?;
    module.add_class::<grant::NativeGrant>()?;
    module.add_class::<http_calls::NativeCall>()?;
    module.add_class::<http_calls::NativeLimiter>()?;
    module.add_class::<http_calls::NativeReply>()?;
    module.add_class::<operation::Operation>()?;
    module.add_class::<ops::NativeOps>()?;
    module.add_class::<slot::NativeSlot>()?;
    module.add_class::<tracker::NativeTracker>()?;
    module.add("MAX_ERROR_LEN", sluice_http::MAX_ERROR_LEN)?;
    module.add_function(wrap_pyfunction!(http_calls::http_limiter, module)?)?;
    module.add_function(wrap_pyfunction!(courier::stop_courier, module)?)?;
    module.add_function(wrap_pyfunction!(session::stop_asking, module)?)?;
    Ok(())
}
