//! Futures that are dropped at one of their awaits.

use std::pin::Pin;
use std::task::{Context, Poll};

/// A future that is dropped at one of its awaits.
pub(super) struct Dying<F> {
    future: Option<Pin<Box<F>>>,
    polls_left: Option<u32>,
}

impl<F: Future> Dying<F> {
    pub(super) fn new(future: F, polls_left: Option<u32>) -> Self {
        Self { future: Some(Box::pin(future)), polls_left }
    }
}

impl<F: Future> Future for Dying<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(left) = &mut self.polls_left {
            if *left == 0 {
                self.future = None;
                return Poll::Ready(None);
            }
            *left -= 1;
        }
        let Some(future) = &mut self.future else { return Poll::Ready(None) };
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // One that waits for nothing but one event would never be polled again to die.
            Poll::Pending => {
                if self.polls_left == Some(0) {
                    self.future = None;
                    return Poll::Ready(None);
                }
                Poll::Pending
            }
        }
    }
}
