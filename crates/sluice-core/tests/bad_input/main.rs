//! What others wrote, or mangled: every parser takes any input, reads no more into it than it says, rounds
//! against the caller, and names what is wrong. The fuzz targets (`fuzz/`) hold the same parsers to the same,
//! with input that looks for trouble.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bucket_row;
mod decimals;
mod lease_row;
mod names;
mod row;
