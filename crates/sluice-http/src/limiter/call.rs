//! One limited call: it begins, its reply comes, its body ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, StatusCode, Uri};
use http_body::Body;
use sluice_sdk::core::Amount;
use sluice_sdk::{AcquireError, Grant, LimitError, Mode, OnUnavailable, Request};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::api::{Api, is_no_call};
use crate::costs::{Costs, Taken};
use crate::exchange::Exchange;
use crate::limiter::body::{LONGEST_END, LimitedBody, OpenCall};
use crate::limiter::counted::{CountedCall, kind};
use crate::limiter::error::{LimiterError, REFUSED_BY};
use crate::limiter::error_body::ErrorBody;
use crate::limiter::{Limiter, Vendor, refusal};
use crate::reply::Replied;

/// How long the reaction to a refusal or a failure may delay the client; then it goes on by itself.
const LONGEST_REACTION: Duration = Duration::from_secs(3);

/// No call waits for longer. A patience without an end is possible.
const LONGEST_PATIENCE: Duration = Duration::from_secs(365 * 24 * 3_600);

/// The pause before the buckets of a model are looked up again, if the table did not answer.
const BETWEEN_LOOKUPS: Duration = Duration::from_millis(250);

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
#[derive(Debug)]
pub(crate) struct LimitedCall {
    grant: Grant,
    exchange: Exchange,
    counted: CountedCall,
}

/// A request that is to be limited.
pub(crate) struct LimitedRequest {
    vendor: Vendor,
    exchange: Exchange,
    /// The body to send in place of the client's: see [`Limiter::ask_usage`].
    pub(crate) other_body: Option<Vec<u8>>,
    /// The longest wait that the client allows, if it is shorter than the limiter's patience.
    pub(crate) at_most: Option<Duration>,
}

impl Limiter {
    /// Reads a request. `None` if it is not to be limited. `body` is `None` if it is not in memory: its
    /// tokens are not known then.
    pub(crate) fn read(&self, method: &Method, uri: &Uri, body: Option<&[u8]>) -> Option<LimitedRequest> {
        let vendor = self.vendor_of(method, uri).filter(|_| !is_no_call(uri.path()))?;
        let exchange = Exchange::of(method, uri.path(), body.unwrap_or_default());
        let asking = body.filter(|_| self.settings().asks_usage);
        let other_body = asking.and_then(|body| exchange.with_usage_asked(body));
        Some(LimitedRequest { vendor, exchange, other_body, at_most: None })
    }

    /// Makes a call under a grant: waits for its start, sends it by `send`, and reads its reply as it passes
    /// by. `was_sent` says of an error whether the vendor may have had the request, and works on it.
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

    /// Waits until the call may start, at most for the patience. The lookup of its buckets is a part of that.
    pub(crate) async fn begin(&self, request: Option<LimitedRequest>) -> Result<Begun, LimitError> {
        let Some(LimitedRequest { vendor, exchange, at_most, .. }) = request else { return Ok(Begun::Free) };
        let settings = self.settings();
        let patience = settings.patience.unwrap_or_else(|| settings.sluice.max_wait());
        let patience = at_most.map_or(patience, |at_most| patience.min(at_most)).min(LONGEST_PATIENCE);
        let until = Instant::now() + patience;
        let mut is_known_anew = false;
        loop {
            let begun = match self.look(&vendor, &exchange, until).await {
                Ok(taken) => self.begin_with(&vendor, &exchange, taken, until).await,
                Err(error) => Err(error),
            };
            match begun {
                // A bucket is gone, or holds less than it did: the limits are looked up again, once.
                Err(LimitError::Acquire(
                    AcquireError::UnknownDimension { .. } | AcquireError::NeverSatisfiable { .. },
                )) if !is_known_anew => {
                    settings.buckets.doubt();
                    is_known_anew = true;
                }
                Err(LimitError::Refused(retry)) => {
                    return Ok(Begun::Refused(refusal::reply(exchange.api(), &retry)));
                }
                Err(LimitError::TimedOut(_)) => {
                    return Ok(Begun::Refused(refusal::timed_out(exchange.api(), &vendor.name)));
                }
                begun => return begun,
            }
        }
    }

    /// The buckets that the call takes from. If the table does not answer and calls go on then, those that
    /// are known.
    async fn look(
        &self,
        vendor: &Vendor,
        exchange: &Exchange,
        until: Instant,
    ) -> Result<Arc<[Taken]>, LimitError> {
        let settings = self.settings();
        let buckets = &settings.buckets;
        if exchange.api().is_some() && exchange.asked().model.is_none() {
            buckets.miss_model(&vendor.name);
        }
        let model = exchange.asked().model.as_deref().unwrap_or_default();
        let is_shadow = settings.sluice.mode() == Mode::Shadow;
        let goes_on = is_shadow || settings.sluice.on_unavailable() == OnUnavailable::Allow;
        // The call of a shadow client is delayed no longer than an acquire may be.
        let until =
            if is_shadow { until.min(Instant::now() + settings.sluice.longest_acquire()) } else { until };
        loop {
            let error = match timeout_at(until, buckets.of(&settings.sluice, vendor, model)).await {
                Ok(Err(LimitError::Acquire(AcquireError::Store(error)))) => AcquireError::Store(error).into(),
                Ok(Err(error)) if is_shadow => error,
                Ok(looked) => return looked,
                Err(_) => LimitError::TimedOut(Duration::ZERO),
            };
            if goes_on {
                return Ok(buckets.go_on(vendor, model, &error));
            }
            if Instant::now() + BETWEEN_LOOKUPS >= until {
                return Err(error);
            }
            sleep(BETWEEN_LOOKUPS).await;
        }
    }

    async fn begin_with(
        &self,
        vendor: &Vendor,
        exchange: &Exchange,
        taken: Arc<[Taken]>,
        until: Instant,
    ) -> Result<Begun, LimitError> {
        let settings = self.settings();
        let asked = exchange.asked();
        let model = asked.model.as_deref().unwrap_or_default();
        let is_api = exchange.api().is_some();
        // What a call of an unknown API costs in tokens is not known.
        let takes = || taken.iter().filter(|taken| is_api || !taken.is_of_tokens());
        let names: Vec<&str> = takes().map(|taken| taken.dimension.as_str()).collect();
        if names.is_empty() {
            return Ok(Begun::Free);
        }
        if let Some(taken) = takes().find(|taken| settings.sluice.is_inside_slot(taken.dimension.as_str())) {
            settings.buckets.pass_nested(&taken.dimension);
            return Ok(Begun::Free);
        }
        let likely = match exchange.api() {
            Some(Api::Embeddings) => Some(0),
            _ => settings.estimator.estimate(kind(vendor, model)),
        };
        let costs = Costs::of(&vendor.profile, model);
        let reserves = takes().map(|taken| (taken.clone(), costs.reserve(taken.quota, asked, likely)));
        let reserves: Vec<_> = reserves.collect();
        let with_cost = |request: Request<'static>, (taken, cost): &(Taken, Option<Amount>)| match cost {
            // What is above the capacity could never be granted. It is charged when the call ends, if it was
            // used.
            Some(cost) => request.cost(taken.dimension.as_str().to_owned(), (*cost).min(taken.capacity)),
            None => request,
        };
        let request = reserves.iter().fold(Request::from(names).into_owned(), with_cost);
        let request = settings.buckets.share().map(str::to_owned).into_iter().fold(request, Request::share);
        let slot = settings.sluice.slot(request).max_wait(until.duration_since(Instant::now()));
        let grant = slot.grant().await?;
        let reserved = reserves.into_iter().filter_map(|(taken, cost)| Some((taken, cost?))).collect();
        let counted =
            CountedCall { limiter: self.clone(), vendor: vendor.clone(), model: model.to_owned(), reserved };
        Ok(Begun::Granted(Box::new(LimitedCall { grant, exchange: exchange.clone(), counted })))
    }
}

impl Limiter {
    /// Lets the fleet react before the client goes on. A shadow client goes on at once.
    async fn let_react(&self, reaction: impl Future) {
        let longest = match self.settings().sluice.mode() {
            // The first look at the reaction starts it.
            Mode::Shadow => Duration::ZERO,
            _ => LONGEST_REACTION,
        };
        let _ = timeout(longest, reaction).await;
    }
}

impl LimitedCall {
    /// The call was not answered. If the vendor never had it, all that it took goes back.
    pub(crate) async fn ended(self, was_sent: bool) {
        if !was_sent {
            self.counted.limiter.let_react(self.grant.cancel()).await;
            return;
        }
        let used = self.counted.used(&Replied::default());
        self.counted.limiter.let_react(self.grant.hold(None).end(used)).await;
    }

    /// Applies the head of the reply, and reads the body as the client reads it. The body of an error is read
    /// before.
    async fn replied<B: Body<Data = Bytes>>(self, reply: Response<B>) -> Response<LimitedBody<B>> {
        let (parts, body) = reply.into_parts();
        if parts.status.is_success() {
            let call = self.answered(&parts);
            return Response::from_parts(parts, LimitedBody::open(body, call));
        }
        let error = ErrorBody::read(body).await;
        self.failed(&parts, error.read.to_vec()).await;
        Response::from_parts(parts, LimitedBody::begun(error))
    }

    /// The head of a reply with a status of success. What the body says is settled at its end.
    pub(crate) fn answered(self, head: &http::response::Parts) -> OpenCall {
        let Self { grant, exchange, counted } = self;
        let reader = exchange.reply(head.status, &head.headers);
        if reader.is_unreadable() {
            counted.limiter.settings().buckets.miss_use(&counted.vendor.name);
        }
        let longest = counted.limiter.settings().longest_call;
        let held = grant.hold_at_most(Some(head_of(head, Vec::new())), Some(longest));
        OpenCall { reader, held, counted, longest_end: Box::pin(sleep(LONGEST_END)) }
    }

    /// A reply with any other status, and the beginning of its body. The fleet reacts to a refusal.
    pub(crate) async fn failed(self, head: &http::response::Parts, body: Vec<u8>) {
        // Another limiter refused it, on the way to the vendor: that says nothing of the vendor.
        let is_of_vendor = !head.headers.contains_key(REFUSED_BY);
        let held = self.grant.hold(is_of_vendor.then(|| head_of(head, body)));
        let ending = if may_go_on(head.status) { held.end(()) } else { held.failed() };
        self.counted.limiter.let_react(ending).await;
    }
}

/// Whether a gateway gave up waiting for a vendor that may work on the call, and count it.
fn may_go_on(status: StatusCode) -> bool {
    // 524: of Cloudflare, after 100 s.
    matches!(status.as_u16(), 408 | 502 | 504 | 524)
}

fn head_of(parts: &http::response::Parts, body: Vec<u8>) -> Response<Vec<u8>> {
    let mut head = Response::new(body);
    *head.status_mut() = parts.status;
    *head.headers_mut() = parts.headers.clone();
    head
}
