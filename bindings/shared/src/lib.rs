//! The SDK for languages that are not Rust: each operation has a name, and takes and returns JSON.
//!
//! A [`Target`] is what operations are called on: a client, a grant, a slot, a tracker, an HTTP call. An operation is one future;
//! dropped, it gives back what it has. Names are those of the SDK in the form `someName`, times are milliseconds, instants are
//! milliseconds since 1970, amounts are numbers of tokens or slots. The border to a language adds threads and handles,
//! and the language its types.

#![warn(unreachable_pub)]

mod arguments;
mod begin;
mod client;
mod credentials;
mod failure;
mod grant;
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

pub use begin::{Begun, UnderWay, Waits, begin};
pub use credentials::{AskedCredentials, CredentialsQuestion};
pub use failure::Failure;
pub use runtime::runtime;
pub use target::{Answer, Bytes, Operation, Target};
