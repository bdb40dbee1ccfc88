//! The SDK for languages that are not Rust: each operation has a name, and takes and returns JSON.
//!
//! A [`Target`] is what operations are called on: a client, a grant, a slot, a tracker, an HTTP call. An
//! operation is one future; dropped, it gives back what it has. Names are those of the SDK in the form
//! `someName`, times are milliseconds, instants are milliseconds since 1970, amounts are numbers of tokens or
//! slots. The border to a language adds threads and handles, and the language its types.

#![warn(unreachable_pub)]

mod answer;
mod arguments;
mod begin;
mod bucket_now;
mod client;
mod credentials;
mod failure;
mod grant;
mod held;
mod http;
mod limits;
pub mod logs;
mod ops;
mod runtime;
mod settings;
mod slot;
mod target;
mod tracker;
mod values;
pub mod words;

pub use answer::{Answer, Bytes, Operation, Target};
pub use begin::{Begun, UnderWay, Waits, begin};
pub use bucket_now::BucketNow;
pub use credentials::{AskedCredentials, CredentialsQuestion};
pub use failure::Failure;
pub use held::RunningSlot;
pub use runtime::runtime;
