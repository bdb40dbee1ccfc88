//! The SDK with a C interface. What the operations are is in `sluice-bindings`; `include/sluice.h` is made from
//! `abi.rs`.

pub mod abi;
mod work;
