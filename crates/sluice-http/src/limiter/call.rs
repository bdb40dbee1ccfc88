//! One limited call: it begins, its reply comes, its body ends.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, Uri};
use http_body::Body;
use sluice_sdk::{AcquireError, Ending, Grant, LimitError, Mode, Request};
use tokio::time::timeout;

use crate::api::Api;
use crate::costs::{Costs, Taken};
use crate::exchange::Exchange;
use crate::limiter::body::{LimitedBody, OpenCall};
use crate::limiter::counted::{CountedCall, kind};
use crate::limiter::error::{LimiterError, REFUSED_BY};
use crate::limiter::error_body::ErrorBody;
use crate::limiter::{Limiter, Vendor, refusal};

/// How long the reaction to a refusal or a failure may delay the client; then it goes on by itself.
const LONGEST_REACTION: Duration = Duration::from_secs(3);

/// Whether a call may be made.
pub(crate) enum Begun {
    /// Nothing limits it.
    Free,
    /// It may start now.
    Granted(Box<LimitedCall>),
    /// It would have to wait beyond the patience: the reply that says so.
    Refused(Response<Bytes>),
}

/// A call that may be made.
pub(crate) struct LimitedCall {
    grant: Grant,
    exchange: Exchange,
    counted: CountedCall,
}

/// A request that is to be limited.
pub(crate) struct LimitedRequest {
    vendor: Vendor,
    exchange: Exchange,
    /// The body to send in the place of the client's: see [`Limiter::ask_usage`].
    pub(crate) other_body: Option<Vec<u8>>,
}

impl Limiter {
    /// Reads a request. `None` if it is not to be limited. `body` is `None` if it is not in memory: its tokens are not
    /// known then.
    pub(crate) fn read(&self, method: &Method, uri: &Uri, body: Option<&[u8]>) -> Option<LimitedRequest> {
        let vendor = self.vendor_of(method, uri)?;
        let exchange = Exchange::of(method, uri.path(), body.unwrap_or_default());
        let asking = body.filter(|_| self.settings().asks_usage);
        let other_body = asking.and_then(|body| exchange.with_usage_asked(body));
        Some(LimitedRequest { vendor, exchange, other_body })
    }

    /// Makes a call under a grant: waits for its start, sends it by `send`, and reads its reply as it passes by.
    /// `was_sent` says of an error whether the vendor may have had the request, and works on it.
    pub(crate) async fn call<B, E>(
        &self,
        request: Option<LimitedRequest>,
        send: impl Future<Output = Result<Response<B>, E>>,
        was_sent: impl Fn(&E) -> bool,
    ) -> Result<Response<LimitedBody<B>>, LimiterError<E>>
    where
        B: Body<Data = Bytes>,
    {
        match self.begin(request).await? {
            Begun::Free => Ok(send.await.map_err(LimiterError::Client)?.map(LimitedBody::free)),
            Begun::Refused(reply) => Ok(reply.map(LimitedBody::own)),
            Begun::Granted(call) => match send.await {
                Ok(reply) => Ok(call.replied(reply).await),
                Err(error) => {
                    call.ended(was_sent(&error)).await;
                    Err(LimiterError::Client(error))
                }
            },
        }
    }

    /// Waits until the call may start.
    async fn begin(&self, request: Option<LimitedRequest>) -> Result<Begun, LimitError> {
        let Some(LimitedRequest { vendor, exchange, .. }) = request else { return Ok(Begun::Free) };
        match self.begin_at(vendor.clone(), exchange.clone()).await {
            // A bucket is gone: the others may still be there.
            Err(LimitError::Acquire(AcquireError::UnknownDimension { .. })) => {
                self.settings().buckets.doubt();
                self.begin_at(vendor, exchange).await
            }
            begun => begun,
        }
    }

    async fn begin_at(&self, vendor: Vendor, exchange: Exchange) -> Result<Begun, LimitError> {
        let settings = self.settings();
        let asked = exchange.asked();
        let model = asked.model.as_deref().unwrap_or_default();
        let taken = settings.buckets.of(&settings.sluice, &vendor, model).await?;
        let is_api = exchange.api().is_some();
        // What a call of an unknown API costs in tokens is not known.
        let takes = || taken.iter().filter(|taken| is_api || !taken.is_of_tokens());
        let names: Vec<&str> = takes().map(|taken| taken.dimension.as_str()).collect();
        if names.is_empty() {
            return Ok(Begun::Free);
        }
        let likely = match exchange.api() {
            Some(Api::Embeddings) => Some(0),
            _ => settings.estimator.estimate(kind(&vendor, model)),
        };
        let costs = Costs::of(&vendor.profile, model);
        let with_cost = |request: Request<'static>, taken: &Taken| match costs.reserve(taken.quota, asked, likely) {
            // What is above the capacity could never be granted. It is charged when the call ends, if it was used.
            Some(cost) => request.cost(taken.dimension.as_str().to_owned(), cost.min(taken.capacity)),
            None => request,
        };
        let request = takes().fold(Request::from(names).into_owned(), with_cost);
        let slot = settings.sluice.slot(request);
        let slot = match settings.patience {
            Some(patience) => slot.max_wait(patience),
            None => slot,
        };
        match slot.grant().await {
            Ok(grant) => {
                let counted = CountedCall { limiter: self.clone(), vendor, taken };
                Ok(Begun::Granted(Box::new(LimitedCall { grant, exchange, counted })))
            }
            Err(LimitError::Refused(retry)) => Ok(Begun::Refused(refusal::reply(exchange.api(), &retry))),
            Err(error) => Err(error),
        }
    }
}

impl Limiter {
    /// Lets the fleet react before the client goes on. A shadow client goes on at once, and the reaction by
    /// itself.
    async fn wait_for(&self, ending: Ending) {
        if self.settings().sluice.mode() != Mode::Shadow {
            let _ = timeout(LONGEST_REACTION, ending).await;
        }
    }
}

impl LimitedCall {
    /// The call was not answered. If the vendor never had it, what it does not count of a failed call goes back.
    async fn ended(self, was_sent: bool) {
        let held = self.grant.hold(None);
        let ending = if was_sent { held.end(()) } else { held.failed() };
        self.counted.limiter.wait_for(ending).await;
    }

    /// Applies the head of the reply, and reads the body as the client reads it. The body of an error is read before.
    async fn replied<B: Body<Data = Bytes>>(self, reply: Response<B>) -> Response<LimitedBody<B>> {
        let Self { grant, exchange, counted } = self;
        let (parts, body) = reply.into_parts();
        if parts.status.is_success() {
            let reader = exchange.reply(parts.status, &parts.headers);
            let reserved = counted.reserved(&grant);
            let held = grant.hold(Some(head_of(&parts, Vec::new())));
            let model = exchange.asked().model.clone().unwrap_or_default();
            let call = OpenCall { reader, held, counted, reserved, model };
            return Response::from_parts(parts, LimitedBody::open(body, call));
        }
        let error = ErrorBody::read(body).await;
        // Another limiter refused it, on the way to the vendor: that says nothing of the vendor.
        let is_of_vendor = !parts.headers.contains_key(REFUSED_BY);
        let held = grant.hold(is_of_vendor.then(|| head_of(&parts, error.read.to_vec())));
        counted.limiter.wait_for(held.failed()).await;
        Response::from_parts(parts, LimitedBody::begun(error))
    }
}

fn head_of(parts: &http::response::Parts, body: Vec<u8>) -> Response<Vec<u8>> {
    let mut head = Response::new(body);
    *head.status_mut() = parts.status;
    *head.headers_mut() = parts.headers.clone();
    head
}
