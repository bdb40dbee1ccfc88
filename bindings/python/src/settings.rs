//! The settings of a client, as a dictionary with the names of `ClientBuilder`.

use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sluice_sdk::admission::AdmissionMode;
use sluice_sdk::core::{COMMON, Factor};
use sluice_sdk::vendors::Vendors;
use sluice_sdk::{Client, ClientBuilder, Leases, Mode, OnUnavailable, ShareName};

use crate::arguments;
use crate::errors::Raise as _;
use crate::logs;
use crate::process::runtime;
use crate::session::Session;

/// What a client is built from, in every process anew.
pub(crate) struct Settings {
    builder: ClientBuilder,
    session: Option<Session>,
}

impl Settings {
    /// From the environment if `table` is `None`, and what `given` sets.
    pub(crate) fn new(py: Python<'_>, table: Option<String>, given: &Bound<'_, PyDict>) -> PyResult<Self> {
        // What is wrong with a setting is logged while the settings are read.
        logs::follow_level(py);
        let mut builder = match table {
            Some(table) => Client::builder(table),
            None => ClientBuilder::from_env().map_err(|error| error.raise(py))?,
        };
        let mut session = None;
        for (name, value) in given {
            match name.extract::<String>()?.as_str() {
                "session" => session = Some(Session::new(&value)?),
                name => builder = set(builder, name, &value)?,
            }
        }
        if let Some(session) = &session
            && !given.contains("region")?
            && let Some(region) = session.region(py)?
        {
            builder = builder.region(region);
        }
        Ok(Self { builder, session })
    }

    /// Connects. Makes no request.
    pub(crate) fn connect(&self, py: Python<'_>) -> PyResult<Client> {
        let (runtime, builder) = (runtime()?, self.builder.clone());
        Ok(py.detach(|| match self.session.clone() {
            Some(session) => runtime.block_on(builder.connect_with_credentials(session)),
            None => runtime.block_on(builder.connect()),
        }))
    }
}

fn set(builder: ClientBuilder, name: &str, value: &Bound<'_, PyAny>) -> PyResult<ClientBuilder> {
    let time = || arguments::duration(name, value);
    let at_least = |least: Duration| {
        let time = time()?;
        let short = || {
            PyValueError::new_err(format!("{name} = {value}: it must be at least {} s", least.as_secs_f64()))
        };
        if time < least { Err(short()) } else { Ok(time) }
    };
    Ok(match name {
        "region" => builder.region(value.extract::<String>()?),
        "endpoint" => builder.endpoint_url(value.extract::<String>()?),
        "lease_ttl" => builder.lease_ttl(at_least(Duration::from_secs(1))?),
        "max_retries" => builder.max_retries(value.extract()?),
        "attempt_timeout" => builder.attempt_timeout(at_least(Duration::from_millis(50))?),
        "answer_within" => builder.answer_within(at_least(Duration::from_millis(100))?),
        "max_wait" => builder.max_wait(time()?),
        "renew_leases" => builder.renew_leases(value.extract()?),
        "mode" => builder.mode(mode(value)?),
        "leases" => builder.leases(leases(value)?),
        "on_unavailable" => builder.on_unavailable(on_unavailable(value)?),
        "admission" => builder.admission(admission(value)?),
        "staleness" => builder.staleness(at_least(Duration::from_secs(1))?),
        "self_heal" => builder.self_heal(value.extract()?),
        "heal_budget" => builder.heal_budget(value.extract()?),
        "cap_debt" => builder.cap_debt(value.extract()?),
        "max_buckets" => builder.max_buckets(value.extract()?),
        "longest_cool_down" => builder.longest_cool_down(time()?),
        "caller" => builder.caller(value.extract::<String>()?),
        "share" => builder.share(share(&value.extract::<String>()?)?),
        "warn_at" => builder.warn_at(value.extract::<Option<f64>>()?.map(part).transpose()?),
        "note_use" => builder.note_use(value.extract()?),
        "prefetch" => builder.prefetch(value.extract::<Vec<String>>()?),
        "vendors" => builder.vendors(vendors(&value.extract::<Vec<String>>()?)?),
        _ => return Err(PyTypeError::new_err(format!("a client has no setting {name:?}"))),
    })
}

fn share(text: &str) -> PyResult<Option<ShareName>> {
    if text == COMMON {
        return Ok(None);
    }
    ShareName::new(text)
        .map(Some)
        .map_err(|error| PyValueError::new_err(format!("share = {text:?}: {error}")))
}

fn mode(value: &Bound<'_, PyAny>) -> PyResult<Mode> {
    match value.extract::<String>()?.as_str() {
        "enforce" => Ok(Mode::Enforce),
        "shadow" => Ok(Mode::Shadow),
        other => Err(PyValueError::new_err(format!("mode = {other:?}: it must be enforce or shadow"))),
    }
}

/// A part of a limit.
fn part(part: f64) -> PyResult<Factor> {
    let wrong =
        || PyValueError::new_err(format!("warn_at = {part}: it must be between 0 and 1, as in 0.8, or None"));
    part.to_string().parse().map_err(|_| wrong())
}

fn leases(value: &Bound<'_, PyAny>) -> PyResult<Leases> {
    match value.extract::<String>()?.as_str() {
        "concurrent" => Ok(Leases::Concurrent),
        "all" => Ok(Leases::All),
        "inline" => Ok(Leases::Inline),
        other => {
            Err(PyValueError::new_err(format!("leases = {other:?}: it must be concurrent, all or inline")))
        }
    }
}

fn on_unavailable(value: &Bound<'_, PyAny>) -> PyResult<OnUnavailable> {
    let text: String = value.extract()?;
    text.parse().map_err(|error| PyValueError::new_err(format!("on_unavailable = {text:?}: {error}")))
}

fn admission(value: &Bound<'_, PyAny>) -> PyResult<AdmissionMode> {
    match value.extract::<String>()?.as_str() {
        "off" => Ok(AdmissionMode::Off),
        "shadow" => Ok(AdmissionMode::Shadow),
        "enforce" => Ok(AdmissionMode::Enforce),
        other => {
            Err(PyValueError::new_err(format!("admission = {other:?}: it must be off, shadow or enforce")))
        }
    }
}

/// The vendors of these profiles, which are texts in TOML.
fn vendors(profiles: &[String]) -> PyResult<Vendors> {
    let with = |vendors: Vendors, profile: &String| vendors.with(profile);
    profiles
        .iter()
        .try_fold(Vendors::default(), with)
        .map_err(|error| PyValueError::new_err(format!("vendors: {error}")))
}
