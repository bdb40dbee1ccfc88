//! Routes of the dashboard, and their answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse as _, Json, Response};
use axum::routing::get;
use serde::{Deserialize, Serialize};

use super::access::{Access, Refused};
use super::columns::{Columns, STEP_SECS, column};
use super::page::{self, nonce, page};
use super::watcher::Watcher;
use super::what_if::{Question, WhatIf};
use crate::loopback;
use crate::view::{BucketView, Series, Total, View};

/// The routes. None of them changes anything.
pub(super) fn service(watcher: Arc<Watcher>, access: Access) -> Router {
    let access = Arc::new(access);
    Router::new()
        .route("/", get(root))
        .route("/api/picture", get(picture))
        .route("/api/what-if", get(what_if))
        .route("/healthz", get(|| async { "ok\n" }))
        .layer(from_fn_with_state(access, guard))
        .with_state(watcher)
}

/// Guards every route. `/healthz` needs no token.
async fn guard(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let is_page = request.uri().path() == "/";
    let asked = if is_page { token(request.uri()) } else { None };
    let checked = match access.check(request.headers(), asked.as_deref()) {
        Err(Refused::Token) if request.uri().path() == "/healthz" => Ok(()),
        checked => checked,
    };
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err(Refused::Host) => loopback::refusal(),
        Err(Refused::Token) if is_page => (StatusCode::UNAUTHORIZED, Html(page::NEEDS_TOKEN)).into_response(),
        Err(Refused::Token) => (StatusCode::UNAUTHORIZED, "the token is missing or wrong\n").into_response(),
    };
    if response.status() == StatusCode::UNAUTHORIZED {
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"sluice\""));
    } else if let Some(cookie) = access.cookie(asked.as_deref()) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    page::protect(response.headers_mut());
    response
}

/// The token in the address.
fn token(uri: &Uri) -> Option<String> {
    #[derive(Deserialize)]
    struct Asked {
        token: Option<String>,
    }
    Query::<Asked>::try_from_uri(uri).ok()?.0.token
}

async fn root() -> Response {
    let Ok(nonce) = nonce() else {
        return (StatusCode::INTERNAL_SERVER_ERROR, "the operating system gave no random numbers\n")
            .into_response();
    };
    let mut response = Html(page(&nonce)).into_response();
    if let Ok(policy) = HeaderValue::from_str(&page::policy(&nonce)) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// What the page already has: the series of one process, up to a column.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Known {
    instance: String,
    since: i64,
}

/// The picture, with the part of the series that the page lacks.
#[derive(Debug, Serialize)]
struct PictureAnswer<'a> {
    #[serde(flatten)]
    view: &'a View,
    /// The table's time, in seconds since the epoch; the instants of the picture are compared with it.
    now: f64,
    instance: &'a str,
    step_secs: f64,
    /// The last column of `series`; the page asks for the columns from this one on.
    newest: i64,
    series: BTreeMap<&'a str, Columns>,
    /// What was taken from each bucket in the minute before the picture, or since a time in which nobody
    /// looked; if that is known.
    last_minute: BTreeMap<&'a str, Total>,
}

async fn picture(State(watcher): State<Arc<Watcher>>, Query(known): Query<Known>) -> Response {
    let since = if known.instance == watcher.instance() { known.since } else { 0 };
    let view = watcher.look().await;
    let buckets = || view.picture.iter().flat_map(|picture| &picture.buckets);
    let series = buckets().filter_map(|bucket| {
        let points = view.series(&bucket.name)?.points();
        Some((bucket.name.as_str(), Columns::new(points, since)))
    });
    let at = view.picture.as_ref().map_or(0.0, |picture| picture.at);
    let total = |bucket: &BucketView| last_minute(view.series(&bucket.name)?, at);
    let last_minute = buckets().filter_map(|bucket| Some((bucket.name.as_str(), total(bucket)?))).collect();
    let newest = view.picture.as_ref().map_or(since, |picture| column(picture.at));
    let (now, instance, step_secs) = (watcher.now(), watcher.instance(), STEP_SECS);
    Json(PictureAnswer {
        view: &view,
        now,
        instance,
        step_secs,
        newest,
        series: series.collect(),
        last_minute,
    })
    .into_response()
}

/// The time span of the figures on a card: a minute.
const MINUTE_SECS: f64 = 60.0;

/// What was taken in the minute before `at`. If one of its readings covers much more, as after a time in
/// which nobody looked, what was taken since the beginning of that reading.
fn last_minute(series: &Series, at: f64) -> Option<Total> {
    let minute = series.total(at, MINUTE_SECS)?;
    match at - minute.since {
        secs if secs > MINUTE_SECS * 2.0 => series.total(at, secs),
        _ => Some(minute),
    }
}

async fn what_if(State(watcher): State<Arc<Watcher>>, Query(question): Query<Question>) -> Response {
    if !question.makes_sense() {
        return (StatusCode::BAD_REQUEST, "the factor must be a number from 0 to 1000\n").into_response();
    }
    let view = watcher.look().await;
    if !question.is_of_somebody(&view) {
        return (StatusCode::NOT_FOUND, "no such caller: no lease names this caller\n").into_response();
    }
    Json(WhatIf::new(&view, &question)).into_response()
}
