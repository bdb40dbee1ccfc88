//! Credentials of a session of boto3 or botocore, or of what has the same methods.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use sluice_sdk::credentials::{AwsCredentials, CredentialsSource};

use crate::process::PerProcess;

/// A session that a program has.
#[derive(Clone)]
pub(crate) struct Session(Arc<Py<PyAny>>);

impl Session {
    pub(crate) fn new(session: &Bound<'_, PyAny>) -> PyResult<Self> {
        if !session.hasattr("get_credentials")? {
            let text = format!("session = {session:?}: pass a session of boto3, which has get_credentials()");
            return Err(PyTypeError::new_err(text));
        }
        Ok(Self(Arc::new(session.clone().unbind())))
    }

    /// Its Region: boto3 and botocore name it differently.
    pub(crate) fn region(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let session = self.0.bind(py);
        if let Some(name) = session.getattr_opt("region_name")? {
            return name.extract();
        }
        match session.getattr_opt("get_config_variable")? {
            Some(of_botocore) => of_botocore.call1(("region",))?.extract(),
            None => Ok(None),
        }
    }
}

impl CredentialsSource for Session {
    async fn credentials(&self) -> Result<AwsCredentials, String> {
        let session = Arc::clone(&self.0);
        // It may ask AWS, and wait: not in a thread that sends and receives, nor in the courier's.
        let asked = tokio::task::spawn_blocking(move || {
            let _asking = Asking::begin().ok_or(ENDS)?;
            Python::try_attach(|py| frozen(session.bind(py)).map_err(|error| error.to_string()))
                .unwrap_or(Err(ENDS.into()))
        });
        asked.await.unwrap_or_else(|stopped| Err(stopped.to_string()))
    }
}

const ENDS: &str = "the interpreter ends";

fn frozen(session: &Bound<'_, PyAny>) -> PyResult<AwsCredentials> {
    let found = session.call_method0("get_credentials")?;
    if found.is_none() {
        return Err(PyRuntimeError::new_err("the session has no credentials"));
    }
    if found.hasattr("__await__")? {
        // Or Python warns that it is never awaited.
        let _ = found.call_method0("close");
        return Err(PyTypeError::new_err("the session is for asyncio: pass one of boto3 or botocore"));
    }
    let frozen = found.call_method0("get_frozen_credentials")?;
    let text = |name: &str| frozen.getattr(name)?.extract::<Option<String>>();
    let (Some(access_key), Some(secret_key)) = (text("access_key")?, text("secret_key")?) else {
        return Err(PyRuntimeError::new_err("the session's credentials have no access_key or no secret_key"));
    };
    let keys = AwsCredentials::new(access_key, secret_key);
    Ok(text("token")?.into_iter().fold(keys, AwsCredentials::session_token))
}

/// The sessions that are asked just now. The interpreter should not end meanwhile: a thread that is in Python
/// code then cannot go on, and may abort the process.
#[derive(Default)]
struct Sessions {
    asked: Mutex<Asked>,
    answered: Condvar,
}

#[derive(Default)]
struct Asked {
    now: usize,
    is_over: bool,
}

static SESSIONS: PerProcess<Sessions> = PerProcess::new();

impl Sessions {
    fn of_process() -> &'static Self {
        let Ok(sessions) = SESSIONS.get_or_try(|| Ok::<_, std::convert::Infallible>(Self::default()));
        sessions
    }
}

struct Asking;

impl Asking {
    /// `None` at the end of the interpreter.
    fn begin() -> Option<Self> {
        let mut asked = Sessions::of_process().asked.lock();
        (!asked.is_over).then(|| {
            asked.now += 1;
            Self
        })
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let sessions = Sessions::of_process();
        sessions.asked.lock().now -= 1;
        sessions.answered.notify_all();
    }
}

/// How long the end of the interpreter waits for sessions.
const LONGEST_END: Duration = Duration::from_secs(2);

/// Ends the asking, and waits for what is under way.
#[pyfunction]
pub(crate) fn stop_asking(py: Python<'_>) {
    py.detach(|| {
        let sessions = Sessions::of_process();
        let mut asked = sessions.asked.lock();
        asked.is_over = true;
        let _ = sessions.answered.wait_while_for(&mut asked, |asked| asked.now > 0, LONGEST_END);
    });
}
