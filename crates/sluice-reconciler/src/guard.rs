//! Ends a run that panics, or that does not end by itself, while there is still time to report it.

use std::any::Any;
use std::time::Duration;

use tokio::task::AbortHandle;

/// Why a run has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The run panicked.
    #[error("the sweep panicked: {0}")]
    Panicked(String),
    /// The run did not end in time.
    #[error("the sweep did not end within {} ms and was cut off", .0.as_millis())]
    TimedOut(Duration),
}

/// Runs `work` on a task of its own, for `longest` at most.
pub(crate) async fn guarded<T: Send + 'static>(
    longest: Duration,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Lost> {
    let task = tokio::spawn(work);
    let _cut_off = CutOff(task.abort_handle());
    match tokio::time::timeout(longest, task).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(Lost::Panicked(match error.try_into_panic() {
            Ok(panic) => message(panic.as_ref()),
            Err(error) => error.to_string(),
        })),
        Err(_) => Err(Lost::TimedOut(longest)),
    }
}

/// Ends the task when the run is dropped: an event must not sweep beside the next.
struct CutOff(AbortHandle);

impl Drop for CutOff {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_run_that_hangs_is_cut_off_in_time() {
        let longest = Duration::from_secs(59);
        let began = tokio::time::Instant::now();
        let lost = guarded(longest, std::future::pending::<()>()).await;
        assert_eq!((lost, began.elapsed()), (Err(Lost::TimedOut(longest)), longest));
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_its_message() {
        let lost = guarded(Duration::from_secs(1), async { panic!("row {}", 7) }).await;
        assert_eq!(lost, Err::<(), _>(Lost::Panicked("row 7".into())));
    }
}
