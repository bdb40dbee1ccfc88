//! The first program of README.md, as it stands there (build.rs): it needs the variables of a sandbox.
#![allow(clippy::print_stdout, clippy::print_stderr)]

include!(concat!(env!("OUT_DIR"), "/first_program.rs"));
