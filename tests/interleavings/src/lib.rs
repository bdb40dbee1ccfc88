//! The lanes of the SDK, built on the primitives of a concurrency checker (`shuttle`), which runs their tasks
//! in random orders: the hand-over of a service from its caller's task to its own, callers that are dropped
//! at any moment, runtimes that end, and wake-ups.
//!
//! `queue.rs` is the file that the SDK compiles. What it takes from the SDK stands here again as far as it
//! needs: how long a pause is and why a caller waits does not matter for the order of tasks.
#![allow(dead_code, unreachable_pub)]

/// The files of the SDK.
#[path = "../../../crates/sluice-sdk/src/lane"]
mod sdk {
    pub(crate) mod queue;
}

/// The folder of the SDK, as far as it is needed.
mod lane {
    pub(crate) use crate::sdk::queue;

    pub(crate) mod poll;
    pub(crate) mod setback;
    pub(crate) mod sync;
}

pub mod slots;
