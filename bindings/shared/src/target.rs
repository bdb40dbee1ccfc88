//! Which function an operation is, by what it is called on and its name.

use serde_json::Value;
use sluice_sdk::Client;

use crate::answer::{Answer, Bytes, Kind, Operation, Target};
use crate::credentials::{AskedCredentials, CredentialsQuestion};
use crate::failure::Failure;
use crate::{client, grant, http, ops, settings, slot, tracker};

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
            Kind::Grant(held) => {
                grant::call(held, name, arguments, bytes).unwrap_or_else(|| self.unknown(name))
            }
            Kind::Slot(held) => {
                slot::call(held, name, arguments, bytes).unwrap_or_else(|| self.unknown(name))
            }
            Kind::Tracker(of) => tracker::call(of, name, arguments).unwrap_or_else(|| self.unknown(name)),
            Kind::Limiter(limiter, client) => {
                http::start(limiter, client, name, arguments, bytes).unwrap_or_else(|| self.unknown(name))
            }
            Kind::Call(call) => {
                http::call(call, name, arguments, bytes).unwrap_or_else(|| self.unknown(name))
            }
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
