//! The checker's own promises: a good history passes, a bad one is named with its window, and a slower way of
//! counting comes to the same.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod file;
mod limits;
mod million;
mod nonsense;
mod oracle;
mod order;
mod rates;
mod shares;
mod slot_oracle;
mod slot_shares;
mod slots;
mod story;
