//! What the interface points at, and the threads that drive operations.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde_json::Value;
use sluice_bindings::{Answer, Failure, Operation, Target, runtime};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// What operations are called on.
#[derive(Debug)]
pub struct SluiceTarget(pub(crate) Target);

/// An operation that is under way.
#[derive(Debug)]
pub struct SluiceOperation(pub(crate) CancellationToken);

/// The answer to an operation.
#[derive(Debug, Default)]
pub struct SluiceAnswer {
    /// JSON.
    pub(crate) value: String,
    /// JSON; empty if the operation did not fail.
    pub(crate) failure: String,
    pub(crate) bytes: Option<Vec<u8>>,
    pub(crate) made: Option<Target>,
    pub(crate) more: Vec<(Value, Target)>,
}

impl From<Result<Answer, Failure>> for SluiceAnswer {
    fn from(answered: Result<Answer, Failure>) -> Self {
        match answered {
            Ok(Answer { value, made, more, bytes }) => {
                Self { value: value.to_string(), made, more, bytes, failure: String::new() }
            }
            Err(failure) => Self { failure: failure.to_json(), ..Self::default() },
        }
    }
}

impl SluiceAnswer {
    /// The first of more that was made, as an answer of its own.
    pub(crate) fn next(&mut self) -> Option<Self> {
        if self.more.is_empty() {
            return None;
        }
        let (value, made) = self.more.remove(0);
        Some(Self { value: value.to_string(), made: Some(made), ..Self::default() })
    }
}

fn failed(message: impl ToString) -> SluiceAnswer {
    let message = message.to_string();
    Err(Failure { class: "SluiceError", message, retry: Value::Null }).into()
}

fn panicked(cause: &(dyn Any + Send)) -> SluiceAnswer {
    let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_default();
    failed(format!("a fault of sluice, please report it: {text}"))
}

/// Does something in the runtime. A panic does not cross the border: it is a failure.
pub(crate) fn at_once(work: impl FnOnce() -> Result<Answer, Failure>) -> SluiceAnswer {
    let guarded = || match runtime() {
        Ok(runtime) => {
            let _in_runtime = runtime.enter();
            work().into()
        }
        Err(message) => failed(message),
    };
    catch_unwind(AssertUnwindSafe(guarded)).unwrap_or_else(|cause| panicked(&*cause))
}

/// The same for work that waits; the thread waits with it.
pub(crate) fn blocking(work: impl Future<Output = Result<Answer, Failure>>) -> SluiceAnswer {
    let guarded = || match runtime() {
        Ok(runtime) => runtime.block_on(work).into(),
        Err(message) => failed(message),
    };
    catch_unwind(AssertUnwindSafe(guarded)).unwrap_or_else(|cause| panicked(&*cause))
}

/// Begins an operation, and tells its answer, or nothing after a cancellation, to `done`, in a thread of the
/// runtime. Returns an answer that comes within `wait`: most grants from stock are there at once, and a
/// thread that waits is woken sooner than a program by another thread.
pub(crate) fn begin(
    operation: impl FnOnce() -> Operation,
    wait: Duration,
    done: impl FnOnce(Option<SluiceAnswer>) + Send + 'static,
) -> Result<CancellationToken, SluiceAnswer> {
    let runtime = runtime().map_err(failed)?;
    let guarded = || {
        let in_runtime = runtime.enter();
        let mut work = operation();
        let polled = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(in_runtime);
        if polled.is_ready() || wait.is_zero() {
            return (work, polled);
        }
        let waited = runtime.block_on(async { timeout(wait, work.as_mut()).await });
        (work, waited.map_or(Poll::Pending, Poll::Ready))
    };
    let work = match catch_unwind(AssertUnwindSafe(guarded)) {
        Ok((_, Poll::Ready(answered))) => return Err(answered.into()),
        Ok((work, Poll::Pending)) => work,
        Err(cause) => return Err(panicked(&*cause)),
    };
    let cancelled = CancellationToken::new();
    let token = cancelled.clone();
    runtime.spawn(async move {
        // A task of its own, so that a panic ends that alone.
        let working = tokio::spawn(work);
        let abort = working.abort_handle();
        let answer = tokio::select! {
            biased;
            answered = working => match answered {
                Ok(answered) => Some(answered.into()),
                Err(stopped) if stopped.is_panic() => Some(panicked(&*stopped.into_panic())),
                Err(_) => None,
            },
            () = token.cancelled() => {
                // The work is dropped, and gives back what it has.
                abort.abort();
                None
            }
        };
        done(answer);
    });
    Ok(cancelled)
}
