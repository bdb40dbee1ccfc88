//! What needs the embedded engine and is not for production: demo, sandbox, benchmark, stress. The feature
//! `lab`, on by default. A production binary is built without it: `cargo build -p sluice-cli --release
//! --no-default-features`.

pub(crate) mod bench;
pub(crate) mod demo;
mod figures;
pub(crate) mod sandbox;
pub(crate) mod stress;
