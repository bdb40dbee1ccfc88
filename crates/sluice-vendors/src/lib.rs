//! Parses what vendors say about their limits: the headers of a reply, how long a refusal asks to wait, and
//! the kind of the refusal. No I/O, no clock: `now` is an argument.
//!
//! Absent is not zero: what a vendor does not say stays `None`. A value that cannot be read changes nothing
//! and is reported separately ([`Unreadable`]). Each fact names the page that it was taken from;
//! `docs/vendors.md` lists them in one place.
//!
//! ```
//! use std::time::Duration;
//!
//! use sluice_core::{Amount, Dimension, LimitType, Timestamp};
//! use sluice_vendors::{Quota, Vendors, read};
//!
//! let dimension = Dimension::new("openai#gpt-4o#tpm")?;
//! let headers = [("x-ratelimit-remaining-tokens", "149984"), ("x-ratelimit-reset-tokens", "6m0s")];
//! let quota = Quota::of(&dimension, LimitType::Tokens);
//! let vendor = Vendors::builtin().of(&dimension);
//! let reading = read(vendor, quota, &headers, Timestamp::from_secs(1_700_000_000));
//! assert_eq!(reading.reported[0].remaining, Some(Amount::from_tokens(149_984)));
//! assert_eq!(reading.reported[0].reset, Some(Duration::from_secs(360)));
//! assert_eq!(reading.reported[0].limit, None);
//! # Ok::<(), sluice_core::DimensionError>(())
//! ```

mod body;
mod fault;
mod headers;
mod profile;
mod quota;
mod reading;
mod refusal;
mod reported;
mod retry_after;
mod time;
mod vendors;

pub use fault::{HeaderFault, Unreadable};
pub use headers::Headers;
pub use profile::{
    Counted, Counts, Enforced, Failed, Kept, Means, Profile, ProfileError, PublishedLimit, QuotaHeaders,
    RefusalRule, Reserved, TokenCount, Unknown, Weights, Window,
};
pub use quota::Quota;
pub use reading::{HeaderReading, read, unknown_header};
pub use refusal::{VendorRefusal, classify, classify_event, refused_quota};
pub use reported::Reported;
pub use retry_after::{MAX_RETRY_AFTER, RetryAfter, retry_after, should_retry};
pub use vendors::Vendors;
