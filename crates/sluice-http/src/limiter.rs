//! Limits the calls of an HTTP client: every call waits for its buckets, and its reply is read as it passes
//! by.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Uri};
#[cfg(feature = "aws-config")]
use sluice_sdk::ConfigError;
use sluice_sdk::vendors::Profile;
use sluice_sdk::{Client, Dimension, TokenEstimator};

pub(crate) mod body;
mod buckets;
pub(crate) mod call;
mod counted;
mod error;
mod error_body;
#[cfg(any(feature = "smithy", feature = "tower"))]
pub(crate) mod never_sent;
mod noticed;
pub(crate) mod readable;
mod refusal;
mod steps;

pub use body::LimitedBody;
pub use error::{LimiterError, REFUSED_BY};
pub use steps::{OpenReply, Started, StartedCall};

use buckets::Buckets;

/// How long a call may hold what it took, unless the program says otherwise.
const LONGEST_CALL: Duration = Duration::from_secs(3_600);

/// Limits the calls of an HTTP client by the buckets of their vendors. Cheap to clone; clones share what they
/// know.
///
/// It stands below the client's retries, so that each attempt takes anew:
///
/// - **Before** a `POST` is sent, it takes one request, one slot, and the tokens that the JSON body asks for,
///   from all buckets of the vendor and of the model that the table has. It waits as [`Client::slot`] does,
///   at most for the [patience](Self::patience). Other methods pass.
/// - **Beyond the patience**, the client gets a reply with status 429, `Retry-After`, and the header
///   [`REFUSED_BY`]: its own error for a rate limit, as the vendor would have sent it. No call is made.
/// - **After**, the headers lower buckets that believe too much, a refusal (429, 503, 529 or what the vendor
///   sends for it) lets the fleet react before the client sees it, and what the reply says that it used is
///   settled, of a stream too. The grant lives as long as the body: slots come back at its end, or when it is
///   dropped.
///
/// In shadow mode ([`Mode::Shadow`](sluice_sdk::Mode)), every call goes on at once and no reply is the
/// limiter's own.
///
/// Which buckets: `vendor#metric` and `vendor#model#metric`, for the metrics `rpm`, `rpd`, `rps`, `tpm`,
/// `tpd`, `itpm`, `otpm` and `concurrent`; all of those that the table has. The model is the one of the
/// request, or the same without its date (`gpt-4o-2024-08-06` is `gpt-4o`). The table is asked when a model
/// is first called, and again after five minutes. [`buckets`](Self::buckets) names them instead.
#[derive(Clone, Debug)]
pub struct Limiter {
    settings: Arc<Settings>,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) sluice: Client,
    pub(crate) vendor: Option<Vendor>,
    pub(crate) buckets: Arc<Buckets>,
    pub(crate) patience: Option<Duration>,
    pub(crate) asks_usage: bool,
    pub(crate) longest_call: Duration,
    /// What calls of each model used.
    pub(crate) estimator: Arc<TokenEstimator>,
}

/// A vendor by the name that its buckets begin with.
#[derive(Clone, Debug)]
pub(crate) struct Vendor {
    pub(crate) name: Arc<str>,
    /// Other names that the vendor's buckets may have, if the program named none.
    pub(crate) also: Arc<[String]>,
    pub(crate) profile: Arc<Profile>,
}

impl Limiter {
    /// Limits calls to the hosts of known vendors (`api.openai.com`, `api.anthropic.com` and so on; those of
    /// `SLUICE_VENDORS` too). Calls to other hosts pass.
    #[must_use]
    pub fn new(sluice: Client) -> Self {
        let settings = Settings {
            sluice,
            vendor: None,
            buckets: Arc::default(),
            patience: None,
            asks_usage: false,
            longest_call: LONGEST_CALL,
            estimator: Arc::default(),
        };
        Self { settings: Arc::new(settings) }
    }

    /// As [`new`](Self::new), with a client from the environment: `sluice_sdk::Client::from_env`.
    ///
    /// # Errors
    /// [`ConfigError`] for a variable that cannot be used.
    #[cfg(feature = "aws-config")]
    pub async fn from_env() -> Result<Self, ConfigError> {
        Client::from_env().await.map(Self::new)
    }

    /// Limits calls to any host, by the buckets whose names begin with `vendor`: for a gateway, a proxy, or a
    /// vendor that is not known.
    #[must_use]
    pub fn vendor(mut self, vendor: impl Into<String>) -> Self {
        let name: String = vendor.into();
        let vendors = self.settings.sluice.vendors();
        let profile = Arc::clone(vendors.named(&name).unwrap_or_else(|| vendors.other()));
        self.set().vendor = Some(Vendor { name: name.into(), also: Arc::default(), profile });
        self
    }

    /// Takes from these buckets, rather than from those that the names of vendor and model lead to: for
    /// buckets of other names. A bucket that the table does not have is then an error of each call.
    #[must_use]
    pub fn buckets(mut self, dimensions: impl IntoIterator<Item = impl Into<Dimension>>) -> Self {
        let named = self.settings.buckets.named(dimensions.into_iter().map(Into::into).collect());
        self.set().buckets = Arc::new(named);
        self
    }

    /// The share that pays for the calls, in place of the client's own (`SLUICE_SHARE`); `common` is the part
    /// that no share has. Of a bucket that does not have this share, the part that no share has pays. A
    /// malformed name is an error of each call that a bucket limits.
    #[must_use]
    pub fn share(mut self, share: impl Into<String>) -> Self {
        let of_share = self.settings.buckets.of_share(share.into());
        self.set().buckets = Arc::new(of_share);
        self
    }

    /// How long a call waits for its start; by default `SLUICE_DEFAULT_SLOT_TIMEOUT` (30 s). A client that
    /// gives up earlier loses the place of its call in the queue, and nothing else.
    #[must_use]
    pub fn patience(mut self, longest: Duration) -> Self {
        self.set().patience = Some(longest);
        self
    }

    /// Asks OpenAI-like vendors to state the usage at the end of a stream (`stream_options.include_usage`),
    /// which they do not by themselves: without it, a stream keeps all that it reserved. The stream then has
    /// one more event, whose `choices` are empty: a program that reads `choices[0]` without a check fails at
    /// it.
    #[must_use]
    pub fn ask_usage(mut self) -> Self {
        self.set().asks_usage = true;
        self
    }

    /// How long a call may hold what it took, from the head of its reply; an hour by default. Then its slots
    /// are given back, although the body may go on: for connections that never end, and bodies that nobody
    /// reads. A smaller value frees slots of such calls sooner; it must be above the longest stream.
    #[must_use]
    pub fn longest_call(mut self, longest: Duration) -> Self {
        self.set().longest_call = longest;
        self
    }

    fn set(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }

    /// The vendor that a request goes to. `None` if it is not to be limited.
    pub(crate) fn vendor_of(&self, method: &Method, uri: &Uri) -> Option<Vendor> {
        if method != Method::POST {
            return None;
        }
        self.settings.vendor.clone().or_else(|| {
            let profile = self.settings.sluice.vendors().at(uri.host()?)?;
            Some(Vendor {
                name: profile.vendor.as_str().into(),
                also: profile.also.clone().into(),
                profile: Arc::clone(profile),
            })
        })
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }
}
