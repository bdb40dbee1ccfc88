//! How long a pause is: for ever, so that only a wake-up ends it. A lost wake-up then is a deadlock, which
//! the checker finds.

use std::time::Duration;

use crate::lane::setback::Setback;
use crate::lane::sync::Instant;

#[derive(Debug, Default)]
pub(crate) struct Poll;

/// Those whom a pause keeps waiting.
pub(crate) struct WaitContext {
    pub(crate) crowd: Option<u32>,
    pub(crate) until: Option<Instant>,
    pub(crate) gives_back: bool,
    pub(crate) next_look: Option<Duration>,
}

/// What is known of the other processes that wait.
pub(crate) struct Others {
    pub(crate) crowd: Option<u32>,
    pub(crate) next_look: Option<Duration>,
}

impl Poll {
    pub(crate) fn next(&mut self, _: &Setback, _: WaitContext) -> Duration {
        Duration::MAX
    }

    pub(crate) fn succeeded(&mut self) {}
}
