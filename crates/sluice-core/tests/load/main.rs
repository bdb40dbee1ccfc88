//! Loads and admission: what is estimated of a vendor is held beside what it then does, and the ways in which
//! a known system went wrong are gone through.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admission;
mod callers;
mod measuring;
mod row;
mod vendor;
