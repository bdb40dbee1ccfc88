//! The answers to operations, and what these are called on.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use sluice_http::{Limiter, OpenReply, StartedCall};
use sluice_sdk::reservations::ReservationTracker;
use sluice_sdk::{Client, TokenEstimator};

use crate::failure::Failure;
use crate::held::{HeldGrant, HeldSlot};
use crate::values::ToJson;

/// Bytes beside the JSON: the body of a request or a reply.
pub type Bytes = Option<Vec<u8>>;

/// An operation. Dropped before its end, it gives back what it has.
pub type Operation = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send>>;

/// The answer to an operation.
#[derive(Debug, Default)]
pub struct Answer {
    /// What is told.
    pub value: Value,
    /// What was made, to call operations on. Dropped, it gives back what it holds.
    pub made: Option<Target>,
    /// More that was made, each with its value: grants that were taken out of a tracker.
    pub more: Vec<(Value, Target)>,
    /// The body of a request or a reply.
    pub bytes: Bytes,
}

impl Answer {
    pub(crate) fn made(made: Kind) -> Self {
        Self { made: Some(made.into()), ..Self::default() }
    }
}

impl<T: ToJson> From<T> for Answer {
    fn from(value: T) -> Self {
        Self { value: value.to_json(), ..Self::default() }
    }
}

/// What operations are called on.
#[derive(Clone, Debug)]
pub struct Target(pub(crate) Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    /// A client of one table.
    Client(Client),
    /// What a caller holds.
    Grant(Arc<HeldGrant>),
    /// A slot that is under way.
    Slot(Arc<HeldSlot>),
    /// A tracker of grants.
    Tracker(ReservationTracker),
    /// An estimator of tokens.
    Estimator(Arc<TokenEstimator>),
    /// A limiter of HTTP calls, and its client.
    Limiter(Limiter, Client),
    /// An HTTP call that may be made.
    Call(Arc<Mutex<Option<StartedCall>>>),
    /// A reply whose body is read.
    Reply(Arc<Mutex<Option<OpenReply>>>),
}

impl From<Kind> for Target {
    fn from(kind: Kind) -> Self {
        Self(kind)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl Kind {
    const fn name(&self) -> &'static str {
        match self {
            Self::Client(_) => "a client",
            Self::Grant(_) => "a grant",
            Self::Slot(_) => "a slot",
            Self::Tracker(_) => "a tracker",
            Self::Estimator(_) => "an estimator",
            Self::Limiter(..) => "a limiter",
            Self::Call(_) => "a call",
            Self::Reply(_) => "a reply",
        }
    }
}

/// An operation as the SDK's functions write it.
pub(crate) fn operation<T, E>(work: impl Future<Output = Result<T, E>> + Send + 'static) -> Operation
where
    T: Into<Answer>,
    E: Into<Failure>,
{
    Box::pin(async move { work.await.map(Into::into).map_err(Into::into) })
}

/// An operation whose arguments cannot be read fails as it would later.
pub(crate) fn begin<T>(arguments: Result<T, Failure>, work: impl FnOnce(T) -> Operation) -> Operation {
    match arguments {
        Ok(arguments) => work(arguments),
        Err(failure) => Box::pin(async move { Err(failure) }),
    }
}
