//! What operations are called on, and their answers.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use sluice_http::{Limiter, OpenReply, StartedCall};
use sluice_sdk::reservations::ReservationTracker;
use sluice_sdk::{Client, TokenEstimator};

use crate::credentials::{AskedCredentials, CredentialsQuestion};
use crate::failure::Failure;
use crate::grant::HeldGrant;
use crate::slot::HeldSlot;
use crate::values::ToJson;
use crate::{client, grant, http, ops, settings, slot, tracker};

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
pub struct Target(Kind);

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

impl Target {
    /// Connects a client: `settings` are those of the environment, and what they name wins. Makes no request.
    ///
    /// # Errors
    /// [`Failure`]: a setting cannot be used.
    pub async fn client(settings: Value) -> Result<Self, Failure> {
        Ok(Self::of(settings::builder(settings)?.connect().await))
    }

    /// The same with credentials of the program, which `ask` is asked for when they are needed.
    ///
    /// # Errors
    /// [`Failure`]: a setting cannot be used.
    pub async fn client_with_credentials(
        settings: Value,
        ask: impl Fn(CredentialsQuestion) + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        let builder = settings::builder(settings)?;
        Ok(Self::of(builder.connect_with_credentials(AskedCredentials(ask)).await))
    }

    /// A client that is there.
    #[must_use]
    pub const fn of(client: Client) -> Self {
        Self(Kind::Client(client))
    }

    /// An estimator of tokens.
    ///
    /// # Errors
    /// [`Failure`]: a setting cannot be used.
    pub fn estimator(settings: Value) -> Result<Self, Failure> {
        tracker::estimator(settings)
    }

    /// Begins an operation.
    #[must_use]
    pub fn call(&self, name: &str, arguments: Value, bytes: Bytes) -> Operation {
        match &self.0 {
            Kind::Client(client) => match name.strip_prefix("ops.") {
                Some(of_ops) => ops::call(client.ops(), of_ops, arguments),
                None => client::call(client, name, arguments, bytes),
            }
            .unwrap_or_else(|| self.unknown(name)),
            Kind::Grant(held) => grant::call(held, name, arguments, bytes).unwrap_or_else(|| self.unknown(name)),
            Kind::Slot(held) => slot::call(held, name, arguments, bytes).unwrap_or_else(|| self.unknown(name)),
            Kind::Tracker(of) => tracker::call(of, name, arguments).unwrap_or_else(|| self.unknown(name)),
            Kind::Limiter(limiter, client) => {
                http::start(limiter, client, name, arguments, bytes).unwrap_or_else(|| self.unknown(name))
            }
            Kind::Call(call) => http::call(call, name, arguments, bytes).unwrap_or_else(|| self.unknown(name)),
            Kind::Reply(reply) => http::reply(reply, name).unwrap_or_else(|| self.unknown(name)),
            Kind::Estimator(_) => self.unknown(name),
        }
    }

    /// What can be told, or done, without a wait. Call it inside of tokio's runtime.
    ///
    /// # Errors
    /// [`Failure`], as of an operation.
    pub fn look(&self, name: &str, arguments: Value) -> Result<Answer, Failure> {
        match &self.0 {
            Kind::Client(of) => client::look(of, name, arguments),
            Kind::Grant(held) => grant::look(held, name),
            Kind::Slot(held) => slot::look(held, name, arguments),
            Kind::Tracker(of) => tracker::look(of, name, arguments, None),
            Kind::Estimator(of) => tracker::look_at_estimator(of, name, arguments),
            Kind::Call(call) => http::look(call, name, arguments),
            Kind::Reply(reply) => http::end_without_wait(reply, name),
            Kind::Limiter(..) => Err(self.unknown_name(name)),
        }
    }

    /// Puts a grant into a tracker; after an error, the caller holds it still.
    ///
    /// # Errors
    /// [`Failure`]: the tracker is full, or holds a grant of the same request and bucket.
    pub fn store(&self, arguments: Value, grant: &Self) -> Result<Answer, Failure> {
        match (&self.0, &grant.0) {
            (Kind::Tracker(of), Kind::Grant(held)) => tracker::look(of, "store", arguments, Some(held)),
            _ => Err(Failure::argument("store takes a grant, and is called on a tracker")),
        }
    }

    /// Reads a piece of a reply's body, decoded.
    pub fn feed(&self, piece: &[u8]) {
        if let Kind::Reply(reply) = &self.0
            && let Some(reply) = &mut *reply.lock()
        {
            reply.feed(piece);
        }
    }

    fn unknown_name(&self, name: &str) -> Failure {
        Failure::argument(format!("{:?} has no operation {name:?}", self.0))
    }

    fn unknown(&self, name: &str) -> Operation {
        let failure = self.unknown_name(name);
        Box::pin(async move { Err(failure) })
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
