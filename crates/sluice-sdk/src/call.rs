//! The lifetime of a call under a grant: acquired, waited for, streamed, tracked, carried as a ticket.

pub(crate) mod acquire;
pub(crate) mod close;
pub(crate) mod counted;
pub(crate) mod error;
pub(crate) mod held;
pub(crate) mod reply;
pub(crate) mod slot;
pub(crate) mod stream;
pub(crate) mod ticket;
pub(crate) mod tracker;
