//! What a lane is built on, of the checker's making: each use is a point at which another task may go on.

use std::cell::Cell;
use std::pin::pin;
use std::sync::PoisonError;
use std::time::Duration;

pub(crate) use shuttle::sync::atomic::{AtomicBool, Ordering};
pub(crate) use shuttle::sync::{Arc, MutexGuard};
pub(crate) use tokio::sync::oneshot;

// All tasks of a run share one thread.
thread_local! {
    /// Whether tasks can be spawned: false after the runtime was shut down.
    static HAS_RUNTIME: Cell<bool> = const { Cell::new(true) };
    /// Whether wake-ups reach only those who wait already: the bug that the checker must find.
    static LOSES_WAKE_UPS: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn runtime_ends() {
    HAS_RUNTIME.set(false);
}

/// A run begins.
pub(crate) fn begin() {
    HAS_RUNTIME.set(true);
    LOSES_WAKE_UPS.set(false);
}

pub(crate) fn lose_wake_ups() {
    LOSES_WAKE_UPS.set(true);
}

/// A lock of the checker that no panic poisons, as the SDK's.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As tokio's, with a point before and after each use at which another task may go on.
#[derive(Debug)]
pub(crate) struct Notify(tokio::sync::Notify);

impl Notify {
    pub(crate) fn new() -> Self {
        Self(tokio::sync::Notify::new())
    }

    pub(crate) fn notify_one(&self) {
        shuttle::thread::yield_now();
        if LOSES_WAKE_UPS.get() {
            self.0.notify_waiters();
        } else {
            self.0.notify_one();
        }
    }

    pub(crate) async fn notified(&self) {
        shuttle::future::yield_now().await;
        self.0.notified().await;
    }
}

/// The runtime of the checker.
#[derive(Clone, Debug)]
pub(crate) struct Handle;

impl Handle {
    pub(crate) fn try_current() -> Result<Self, NoRuntime> {
        if HAS_RUNTIME.get() { Ok(Self) } else { Err(NoRuntime) }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(shuttle::future::spawn(task));
    }
}

#[derive(Debug)]
pub(crate) struct NoRuntime;

pub(crate) async fn yield_now() {
    shuttle::future::yield_now().await;
}

/// A pause that ends, or one that only a wake-up ends.
pub(crate) async fn sleep(pause: Duration) {
    if pause == Duration::MAX {
        std::future::pending::<()>().await;
    }
    shuttle::future::yield_now().await;
}

/// Deadlines are of no matter here: callers are dropped instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant;

impl Instant {
    pub(crate) const fn now() -> Self {
        Self
    }

    pub(crate) const fn elapsed(self) -> Duration {
        Duration::ZERO
    }
}

pub(crate) async fn timeout_at<F: Future>(_: Instant, future: F) -> Result<F::Output, Elapsed> {
    Ok(pin!(future).await)
}

#[derive(Debug)]
pub(crate) struct Elapsed;
