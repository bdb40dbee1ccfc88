//! The limiter of HTTP calls, in the steps that a client in Python makes.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sluice_http::{Limiter, OpenReply, Started, StartedCall};
use sluice_sdk::core::{COMMON, ShareName};

use crate::arguments::{headers, limits_of, optional_duration};
use crate::client::NativeClient;
use crate::errors::forked;
use crate::operation::Operation;
use crate::process::{OfProcess, PerProcess, runtime};
use crate::values::{IntoPython, object};

/// A limiter, one for each process that uses this object.
#[pyclass(frozen, name = "Limiter", module = "sluice._native")]
pub(crate) struct NativeLimiter {
    client: Py<NativeClient>,
    vendor: Option<String>,
    buckets: Option<Vec<String>>,
    share: Option<String>,
    patience: Option<Duration>,
    ask_usage: bool,
    of_process: PerProcess<Limiter>,
}

impl NativeLimiter {
    pub(crate) fn new(
        client: Py<NativeClient>,
        vendor: Option<String>,
        buckets: Option<Vec<String>>,
        share: Option<String>,
        patience: Option<Duration>,
        ask_usage: bool,
    ) -> PyResult<Self> {
        for name in buckets.iter().flatten() {
            sluice_sdk::Dimension::new(name).map_err(|error| PyValueError::new_err(error.to_string()))?;
        }
        if let Some(name) = share.as_deref().filter(|name| *name != COMMON) {
            ShareName::new(name).map_err(|error| PyValueError::new_err(error.to_string()))?;
        }
        Ok(Self { client, vendor, buckets, share, patience, ask_usage, of_process: PerProcess::new() })
    }

    fn limiter(&self, py: Python<'_>) -> PyResult<&Limiter> {
        self.of_process.get_or_try(|| {
            let mut limiter = Limiter::new(self.client.get().sluice(py)?);
            if let Some(vendor) = &self.vendor {
                limiter = limiter.vendor(vendor);
            }
            if let Some(buckets) = &self.buckets {
                limiter =
                    limiter.buckets(buckets.iter().filter_map(|name| sluice_sdk::Dimension::new(name).ok()));
            }
            if let Some(share) = &self.share {
                limiter = limiter.share(share);
            }
            if let Some(patience) = self.patience {
                limiter = limiter.patience(patience);
            }
            Ok(if self.ask_usage { limiter.ask_usage() } else { limiter })
        })
    }
}

/// A limiter of HTTP calls over a client.
#[pyfunction]
pub(crate) fn http_limiter(
    client: &Bound<'_, NativeClient>,
    vendor: Option<String>,
    buckets: Option<Vec<String>>,
    share: Option<String>,
    patience: Option<&Bound<'_, PyAny>>,
    ask_usage: bool,
) -> PyResult<NativeLimiter> {
    let patience = optional_duration("patience", patience)?;
    NativeLimiter::new(client.clone().unbind(), vendor, buckets, share, patience, ask_usage)
}

#[pymethods]
impl NativeLimiter {
    /// Waits until the call may start. Returns `None` if nothing limits it, a reply beyond the patience, or
    /// the call.
    fn start(
        &self,
        py: Python<'_>,
        method: &str,
        url: &str,
        of: &Bound<'_, PyAny>,
        body: Option<Vec<u8>>,
        inside: Vec<String>,
    ) -> PyResult<Operation> {
        let (limiter, sluice) = (self.limiter(py)?.clone(), self.client.get().sluice(py)?);
        let wrong = |error: &dyn std::fmt::Display| PyValueError::new_err(format!("{method} {url}: {error}"));
        let method: Method = method.parse().map_err(|error: http::method::InvalidMethod| wrong(&error))?;
        let url: Uri = url.parse().map_err(|error: http::uri::InvalidUri| wrong(&error))?;
        let headers = header_map(&headers(of)?);
        let started = async move { limiter.start(&method, &url, &headers, body.as_deref()).await };
        Ok(Operation::new(sluice.inside_slots(&limits_of(&inside), started)))
    }
}

/// Headers as they were sent or came; those that are not valid are left out.
fn header_map(pairs: &[(String, Vec<u8>)]) -> HeaderMap {
    let parse = |(name, value): &(String, Vec<u8>)| {
        Some((name.parse::<HeaderName>().ok()?, HeaderValue::from_bytes(value).ok()?))
    };
    let mut headers = HeaderMap::new();
    pairs.iter().filter_map(parse).for_each(|(name, value)| {
        headers.append(name, value);
    });
    headers
}

impl IntoPython for Started {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Self::Granted(call) => {
                let other_body = call.other_body().map(<[u8]>::to_vec);
                object(py, NativeCall { call: OfProcess::new(Mutex::new(Some(*call))), other_body })
            }
            Self::Refused(reply) => {
                let (parts, body) = reply.into_parts();
                let pair = |(name, value): (&HeaderName, &HeaderValue)| {
                    (PyBytes::new(py, name.as_str().as_bytes()), PyBytes::new(py, value.as_bytes()))
                };
                let headers: Vec<_> = parts.headers.iter().map(pair).collect();
                let reply = (parts.status.as_u16(), headers, PyBytes::new(py, &body));
                Ok(reply.into_pyobject(py)?.into_any())
            }
            _ => ().into_python(py),
        }
    }
}

/// A call that may be made. If it is dropped, its slots go back.
#[pyclass(frozen, name = "Call", module = "sluice._native")]
pub(crate) struct NativeCall {
    call: OfProcess<Mutex<Option<StartedCall>>>,
    other_body: Option<Vec<u8>>,
}

impl NativeCall {
    fn take(&self, py: Python<'_>) -> PyResult<StartedCall> {
        let call = self.call.get().ok_or_else(|| forked(py))?.lock().take();
        call.ok_or_else(|| PyRuntimeError::new_err("the call was answered before"))
    }
}

fn head(status: u16, of: &Bound<'_, PyAny>) -> PyResult<Response<()>> {
    let mut head = Response::new(());
    *head.status_mut() =
        StatusCode::from_u16(status).map_err(|_| PyValueError::new_err(format!("status = {status}")))?;
    *head.headers_mut() = header_map(&headers(of)?);
    Ok(head)
}

#[pymethods]
impl NativeCall {
    /// The body to send in place of the client's; `None` to send that.
    #[getter]
    fn other_body<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.other_body.as_deref().map(|body| PyBytes::new(py, body))
    }

    /// There is no reply. `was_sent` says whether the vendor may have had the request.
    fn unanswered(&self, py: Python<'_>, was_sent: bool) -> PyResult<Operation> {
        let call = self.take(py)?;
        Ok(Operation::new(async move {
            call.unanswered(was_sent).await;
            Ok::<_, PyErr>(())
        }))
    }

    /// The head of a reply with a status of success.
    fn answered(&self, py: Python<'_>, status: u16, of: &Bound<'_, PyAny>) -> PyResult<NativeReply> {
        let head = head(status, of)?;
        let _in_runtime = runtime()?.enter();
        let reply = self.take(py)?.answered(head);
        Ok(NativeReply(Arc::new(OfProcess::new(Mutex::new(Some(reply))))))
    }

    /// A reply with any other status, and the beginning of its body. Returns when the fleet has reacted, 3 s
    /// later at most.
    fn failed(
        &self,
        py: Python<'_>,
        status: u16,
        of: &Bound<'_, PyAny>,
        body: Vec<u8>,
    ) -> PyResult<Operation> {
        let (head, call) = (head(status, of)?, self.take(py)?);
        Ok(Operation::new(async move {
            call.failed(head.map(|()| body)).await;
            Ok::<_, PyErr>(())
        }))
    }
}

/// A reply whose body is read. If it is dropped, its call ends.
#[pyclass(frozen, name = "OpenReply", module = "sluice._native")]
pub(crate) struct NativeReply(Arc<OfProcess<Mutex<Option<OpenReply>>>>);

#[pymethods]
impl NativeReply {
    /// Reads a piece of the body, decoded.
    fn feed(&self, piece: &[u8]) {
        if let Some(reply) = self.0.get()
            && let Some(reply) = &mut *reply.lock()
        {
            reply.feed(piece);
        }
    }

    /// Ends the call: settles what it used, and gives back what it held. Waits for its slots, 3 s at most.
    fn end(&self) -> Operation {
        let reply = Arc::clone(&self.0);
        Operation::new(async move {
            let reply = reply.get().and_then(|reply| reply.lock().take());
            if let Some(reply) = reply {
                reply.end().await;
            }
            Ok::<_, PyErr>(())
        })
    }
}
