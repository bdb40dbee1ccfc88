//! The first program of docs/rust.md, as it stands there (build.rs): it needs the variables of a sandbox.
#![allow(clippy::print_stdout, clippy::print_stderr)]

include!(concat!(env!("OUT_DIR"), "/quick_start.rs"));
