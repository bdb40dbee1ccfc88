//! Sluice: several products share one vendor's quota, with a DynamoDB table between them and no server.
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
//!     .timeout(Duration::from_secs(25))
//!     .run(async |_slot| Ok::<_, std::io::Error>(call_vendor().await?.text))
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Client::acquire`] never waits and answers [`Outcome::Granted`] or [`Outcome::RetryIn`]; [`Client::slot`] books a start,
//! waits for it, runs a closure and gives back what it held however that ends. [`Client::sweep`] gives back what crashed
//! callers held. What is promised under conflict, clock error and crash stands in `docs/semantics.md`.

mod acquire;
mod admission;
mod attempt;
mod cache;
mod client;
mod clock_offset;
mod config;
mod cool_down;
mod counted;
mod estimate;
mod fallback;
mod gauges;
mod give_back;
mod grant;
mod heal;
mod lane;
mod lease_ids;
mod load;
mod observe;
mod operating;
mod outcome;
mod outlived;
mod penalize;
mod poll;
mod prefetch;
mod rate_limited;
mod refusal;
mod renew;
mod request;
mod seldom;
mod settle;
mod slot;
mod stream;
mod sync;
mod telemetry;
mod ticket;
mod tracker;
mod waiting;

pub use acquire::AcquireError;
pub use admission::{Admission, AdmissionMode, Admit, Admitted, Shed};
pub use client::{Client, ClientBuilder};
pub use config::{Leases, OnUnavailable};
pub use cool_down::CoolDown;
pub use estimate::{EstimatorConfig, TokenEstimator};
pub use gauges::Gauges;
pub use give_back::ReleaseError;
pub use grant::{Basis, Grant};
pub use observe::{Observed, ObservedLevel, ObservedLimit};
pub use outcome::Outcome;
pub use penalize::{PenalizeError, Penalty};
pub use rate_limited::{Decision, Reply};
pub use refusal::{RetryIn, RetryReason};
pub use renew::RenewError;
pub use request::{Quantity, Request, RequestError};
pub use settle::{SettleError, Settled};
pub use slot::{Slot, SlotBuilder, SlotError};
pub use stream::GrantedStream;
pub use ticket::redeem::{RedeemError, Redeemed};
pub use tracker::{
    Reservation, ReservationConfig, ReservationError, ReservationId, ReservationTracker, StaleReport, Tracked,
};

pub use sluice_table::metric::{METRICS, Metric, MetricKind, MetricSource, describe_metrics};
pub use sluice_table::{Clock, ConfigError, CreateTableError, StoreError, create_table, log_level};

pub use sluice_ops as ops;
pub use sluice_ops::Released;

pub use sluice_core as core;
pub use sluice_core::{ClockOffset, ShedReason, Ticket, TicketError};
pub use sluice_vendors as vendors;

/// The README's examples, compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The example of its own page, too.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/admission.md")]
struct AdmissionPage;
