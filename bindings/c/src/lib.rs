//! The SDK with a C interface. What the operations are is in `sluice-bindings`; `include/sluice.h` is made
//! from `abi.rs` and `handed_over.rs`.

pub mod abi;
pub mod handed_over;
mod work;
