//! The primitives of a lane. `tests/interleavings` compiles the lane with those of a concurrency checker.

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use parking_lot::{Mutex, MutexGuard};

pub(crate) use tokio::runtime::Handle;
pub(crate) use tokio::sync::{Notify, oneshot};
pub(crate) use tokio::task::yield_now;
pub(crate) use tokio::time::{Instant, sleep, timeout_at};
