//! Sluice: several products share one vendor's quota through one DynamoDB table, without a server.
//!
//! ```no_run
//! use std::time::Duration;
//! use sluice_sdk::Client;
//!
//! # struct Reply { text: String }
//! # async fn call_vendor() -> Result<Reply, std::io::Error> { Ok(Reply { text: String::new() }) }
//! # async fn handler() -> Result<(), Box<dyn std::error::Error>> {
//! let sluice = Client::from_env().await?;
//! let text = sluice
//!     .slot(["openai#rpm", "openai#tpm"])
//!     .cost("openai#tpm", 1_200)
//!     .max_wait(Duration::from_secs(20))
//!     .run(async |_slot| Ok::<_, Box<dyn std::error::Error>>(call_vendor().await?.text))
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Client::acquire`] never waits: [`Outcome::Granted`] or [`Outcome::RetryIn`]. [`Client::slot`] books a
//! start, waits, runs a closure, and gives back what it held; [`SlotBuilder::grant`] waits and returns the
//! grant. [`Client::ops`] is for operators: its sweep
//! gives back what crashed callers held. `docs/semantics.md` states what is promised.

pub mod admission;
mod api;
mod bucket;
mod builder;
mod call;
mod client;
mod client_ops;
mod config;
mod extensions;
mod gauges;
mod grant;
mod heal;
mod lane;
mod lazy;
mod telemetry;
mod vendor;

pub use crate::api::basis::Basis;
pub use crate::api::error::AcquireError;
pub use crate::api::no_ticket::NoTicket;
pub use crate::api::quantity::Quantity;
pub use crate::api::refusal::{RetryIn, RetryReason};
pub use crate::api::request::{Request, RequestError};
pub use crate::builder::ClientBuilder;
pub use crate::call::close::{Closed, Left};
pub use crate::call::error::LimitError;
pub use crate::call::held::{Ending, HeldGrant};
pub use crate::call::slot::retry::RetrySlot;
pub use crate::call::slot::{Slot, SlotBuilder};
pub use crate::call::stream::GrantedStream;
pub use crate::call::ticket::redeem::{RedeemError, Redeemed};
pub use crate::client::Client;
pub use crate::config::Leases;
pub use crate::config::mode::Mode;
pub use crate::config::on_unavailable::{OnUnavailable, OnUnavailableError};
pub use crate::gauges::Gauges;
pub use crate::grant::Grant;
pub use crate::grant::held_leases::RenewError;
pub use crate::grant::outcome::Outcome;
pub use crate::lane::release::ReleaseError;
pub use crate::lane::settle::{SettleError, Settled};
pub use crate::vendor::estimate::output_cap::OutputCap;
pub use crate::vendor::estimate::{EstimatorConfig, TokenEstimator};
pub use crate::vendor::rate_limited::{Decision, Reply};
pub use crate::vendor::reply::{Replied, Usage};

pub use sluice_table::{Clock, ConfigError, StoreError};

pub use sluice_ops as ops;
pub use sluice_ops::Released;

pub use sluice_core as core;
pub use sluice_core::{Dimension, ShareName, Ticket};
pub use sluice_vendors as vendors;

/// What the single reactions to a vendor return: [`Client::observe`](crate::Client::observe),
/// [`penalize`](crate::Client::penalize), [`cool_down`](crate::Client::cool_down), and
/// [`refill`](crate::Client::refill). `reply` needs none of them.
pub mod reactions {
    pub use crate::vendor::cool_down::{CoolDown, EndedCoolDown};
    pub use crate::vendor::observe::{Observed, ObservedLevel, ObservedLimit};
    pub use crate::vendor::penalize::{PenalizeError, Penalty};
    pub use crate::vendor::refill::{RefillError, Refilled};
}

/// Grants of calls whose two ends do not share a scope:
/// [`Client::reservations`](crate::Client::reservations).
pub mod reservations {
    pub use crate::call::tracker::config::ReservationConfig;
    pub use crate::call::tracker::index::{Reservation, ReservationId};
    pub use crate::call::tracker::stale::StaleReport;
    pub use crate::call::tracker::{ReservationError, ReservationTracker, Tracked};
}

/// Metrics of callers in AWS Lambda, which no collector can scrape: CloudWatch reads them from the log.
///
/// ```no_run
/// sluice_sdk::emf::install()?; // once, at the start of the program; or set SLUICE_METRICS=emf
/// # Ok::<(), sluice_sdk::emf::InstallError>(())
/// ```
pub mod emf {
    pub use crate::telemetry::emf::{InstallError, flush, install};
}

/// Credentials that a program has:
/// [`ClientBuilder::connect_with_credentials`](crate::ClientBuilder::connect_with_credentials).
#[cfg(feature = "aws-config")]
pub mod credentials {
    pub use sluice_table::{AwsCredentials, CredentialsSource};
}

/// What tasks share or take with them.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    const fn is_sent<T: Send>() {}
    is_shared::<Client>();
    is_shared::<ClientBuilder>();
    is_shared::<TokenEstimator>();
    is_shared::<reservations::ReservationTracker>();
    is_shared::<ops::Ops>();
    is_shared::<AcquireError>();
    is_shared::<LimitError>();
    is_shared::<StoreError>();
    is_sent::<Grant>();
    is_sent::<Outcome>();
    is_sent::<Redeemed>();
};

/// The README's examples, compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
