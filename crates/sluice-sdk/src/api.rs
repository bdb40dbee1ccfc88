//! What callers send and receive: requests, refusals, errors. No I/O.

pub(crate) mod basis;
pub(crate) mod error;
pub(crate) mod error_kind;
pub(crate) mod no_ticket;
pub(crate) mod quantity;
pub(crate) mod refusal;
pub(crate) mod request;
