//! Whether a file is there as a whole: it counts its events, and says where it ends.

use crate::event::{End, Event};
use crate::fault::FaultKind;

/// The events of one file so far.
#[derive(Debug, Default)]
pub(crate) struct Extent {
    events: u64,
    stage: Stage,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    Ended,
    /// Events came after the end, which was reported.
    Overrun,
}

impl Extent {
    /// Counts an event. Returns what is wrong with its place.
    pub(crate) fn take(&mut self, event: &Event) -> Option<FaultKind> {
        match (&self.stage, event) {
            (Stage::Open, Event::End(End { events: counted })) => {
                self.stage = Stage::Ended;
                (*counted != self.events)
                    .then_some(FaultKind::WrongCount { counted: *counted, found: self.events })
            }
            (Stage::Open, _) => {
                self.events += 1;
                None
            }
            (Stage::Ended, _) => {
                self.stage = Stage::Overrun;
                Some(FaultKind::AfterEnd)
            }
            (Stage::Overrun, _) => None,
        }
    }

    /// Ends the file, and begins the next. Returns whether it had an end.
    pub(crate) fn close(&mut self) -> bool {
        std::mem::take(self).stage != Stage::Open
    }
}
