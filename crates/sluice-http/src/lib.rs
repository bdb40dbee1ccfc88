//! Reads one HTTP call to an LLM vendor: what the request will cost, and what its reply used. No I/O, no
//! async, no clock: an adapter passes bytes in and acts on what comes out. This crate knows no client and no
//! bucket.
//!
//! Nothing here fails. A body of an unknown shape gives less knowledge, never an error, and memory is bounded
//! whatever a vendor sends.
//!
//! ```
//! use http::{HeaderMap, Method, StatusCode};
//! use sluice_http::{Api, Exchange};
//!
//! let body = br#"{"model": "gpt-4o", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]}"#;
//! let exchange = Exchange::of(&Method::POST, "/v1/chat/completions", body);
//! assert_eq!(exchange.api(), Some(Api::ChatCompletions));
//! assert_eq!(exchange.asked().max_output, Some(100));
//!
//! let mut reader = exchange.reply(StatusCode::OK, &HeaderMap::new());
//! reader.feed(br#"{"choices": [{"finish_reason": "stop"}], "#);
//! reader.feed(br#""usage": {"prompt_tokens": 9, "completion_tokens": 12}}"#);
//! let replied = reader.finish();
//! let used = replied.used.expect("the reply states its usage");
//! assert_eq!((used.input, used.output), (Some(9), Some(12)));
//! assert!(replied.complete);
//! ```

#[cfg(feature = "limiter")]
mod adapters;
mod api;
mod asked;
mod costs;
mod exchange;
mod json_scan;
#[cfg(feature = "limiter")]
#[cfg_attr(
    not(any(feature = "tower", feature = "reqwest-middleware", feature = "smithy")),
    allow(dead_code, reason = "the adapters use it, and this build has none")
)]
mod limiter;
mod reply;
mod usage_asked;
mod used;

pub use api::{Api, Route};
pub use asked::{Asked, tokens_of};
pub use costs::{Costs, Taken, UNSTATED_OUTPUT};
pub use exchange::Exchange;
pub use reply::{MAX_ERROR_LEN, Replied, ReplyReader};
pub use usage_asked::with_usage_asked;
pub use used::Used;

#[cfg(feature = "tower")]
pub use adapters::Limited;
#[cfg(feature = "limiter")]
pub use limiter::{LimitedBody, Limiter, LimiterError, OpenReply, REFUSED_BY, Started, StartedCall};
