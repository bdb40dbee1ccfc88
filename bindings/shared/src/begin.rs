//! How a border begins an operation for a program that does not block.
//!
//! The operation runs in the caller's thread until it has to wait: most grants from stock are there at once,
//! and a request is on its way. The runtime takes it over where it is woken, in the thread that has the
//! answer: no thread is woken for it before.

use std::mem::replace;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// Who is told the answer: `None` after a cancellation.
type Done<T> = Box<dyn FnOnce(Option<T>) + Send>;

/// What has become of an operation in the thread that began it.
pub enum Begun<T> {
    /// It is done.
    Done(T),
    /// It waits.
    Waits(Waits<T>),
}

/// An operation that waits, and does not go on until it is known who is told its answer.
pub struct Waits<T> {
    work: Work<T>,
    waiting: Arc<Waiting<T>>,
}

/// Begins `work` in this thread, inside of the runtime.
pub fn begin<T: Send + 'static>(mut work: Work<T>, runtime: &Handle) -> Begun<T> {
    let waiting = Arc::new(Waiting {
        runtime: runtime.clone(),
        cancelled: CancellationToken::new(),
        state: Mutex::new(State::Polled { is_woken: false }),
    });
    let waker = Waker::from(Arc::clone(&waiting));
    let _in_runtime = runtime.enter();
    match work.as_mut().poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(answer) => Begun::Done(answer),
        Poll::Pending => Begun::Waits(Waits { work, waiting }),
    }
}

impl<T: Send + 'static> Waits<T> {
    /// Tells `done` the answer, once, in a thread of the runtime.
    pub fn tell(self, done: impl FnOnce(Option<T>) + Send + 'static) -> UnderWay {
        let Self { work, waiting } = self;
        waiting.wait(work, Box::new(done));
        UnderWay(waiting)
    }
}

/// An operation that is under way. Dropping this changes nothing.
#[derive(Clone)]
pub struct UnderWay(Arc<dyn Cancel>);

impl UnderWay {
    /// Ends the operation, unless it has its answer: it gives back what it has.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

trait Cancel: Send + Sync {
    fn cancel(&self);
}

/// The waker of an operation, until the runtime has it.
struct Waiting<T> {
    runtime: Handle,
    cancelled: CancellationToken,
    state: Mutex<State<T>>,
}

enum State<T> {
    /// It is polled for the first time, and may be woken meanwhile.
    Polled { is_woken: bool },
    /// Nothing has woken it.
    Asleep(Work<T>, Done<T>),
    /// The runtime has it.
    HandedOver,
}

impl<T: Send + 'static> Waiting<T> {
    fn wait(&self, work: Work<T>, done: Done<T>) {
        let before = replace(&mut *self.state.lock(), State::Asleep(work, done));
        if let State::Polled { is_woken: true } = before {
            self.hand_over();
        }
    }

    fn hand_over(&self) {
        let mut state = self.state.lock();
        let (work, done) = match replace(&mut *state, State::HandedOver) {
            State::Asleep(work, done) => (work, done),
            State::Polled { .. } => {
                *state = State::Polled { is_woken: true };
                return;
            }
            State::HandedOver => return,
        };
        drop(state);
        let cancelled = self.cancelled.clone();
        self.runtime.spawn(async move {
            let answer = tokio::select! {
                biased;
                answer = work => Some(answer),
                // The work is dropped, and gives back what it has.
                () = cancelled.cancelled() => None,
            };
            done(answer);
        });
    }
}

impl<T: Send + 'static> Wake for Waiting<T> {
    fn wake(self: Arc<Self>) {
        self.hand_over();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.hand_over();
    }
}

impl<T: Send + 'static> Cancel for Waiting<T> {
    fn cancel(&self) {
        self.cancelled.cancel();
        self.hand_over();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn, ready};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::oneshot;

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    }

    fn under_way<T: Send + 'static>(
        runtime: &Runtime,
        work: impl Future<Output = T> + Send + 'static,
    ) -> (UnderWay, Receiver<Option<T>>) {
        let Begun::Waits(waits) = begin(Box::pin(work), runtime.handle()) else { panic!("it does not wait") };
        let (told, answer) = channel();
        (waits.tell(move |answer| told.send(answer).unwrap()), answer)
    }

    fn next<T>(answers: &Receiver<T>) -> T {
        answers.recv_timeout(Duration::from_secs(10)).unwrap()
    }

    #[test]
    fn an_answer_that_is_there_at_once_is_returned() {
        assert!(matches!(begin(Box::pin(ready(7)), runtime().handle()), Begun::Done(7)));
    }

    #[test]
    fn an_operation_that_is_woken_later_goes_on_in_the_runtime() {
        let runtime = runtime();
        let (first, of_first) = oneshot::channel::<u8>();
        let (second, of_second) = oneshot::channel::<u8>();
        let (_, told) = under_way(&runtime, async move {
            let first = of_first.await.unwrap();
            (first + of_second.await.unwrap(), std::thread::current().name().map(str::to_owned))
        });
        first.send(1).unwrap();
        second.send(2).unwrap();
        let (sum, thread) = next(&told).unwrap();
        assert_eq!(sum, 3);
        assert!(thread.unwrap().starts_with("tokio"), "the caller's thread is not used again");
    }

    #[test]
    fn an_operation_that_is_woken_while_it_is_polled_goes_on() {
        let (runtime, mut is_first) = (runtime(), true);
        let (_, told) = under_way(
            &runtime,
            poll_fn(move |context| {
                if std::mem::take(&mut is_first) {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(7)
            }),
        );
        assert_eq!(next(&told), Some(7));
    }

    #[test]
    fn a_cancelled_operation_is_dropped_and_nothing_is_told_of_it() {
        let runtime = runtime();
        let (held, given_back) = channel::<()>();
        let (waiting, told) = under_way(&runtime, async move {
            let _held = held;
            pending::<()>().await;
        });
        waiting.cancel();
        assert_eq!(next(&told), None);
        assert!(given_back.recv_timeout(Duration::from_secs(10)).is_err());
        // It has ended.
        waiting.cancel();
    }

    #[test]
    fn an_operation_that_was_woken_can_be_cancelled() {
        let runtime = runtime();
        let (first, of_first) = oneshot::channel::<u8>();
        let (woken, has_woken) = channel();
        let (waiting, told) = under_way(&runtime, async move {
            woken.send(of_first.await.unwrap()).unwrap();
            pending::<()>().await;
        });
        first.send(1).unwrap();
        next(&has_woken);
        waiting.cancel();
        assert_eq!(next(&told), None);
    }
}
