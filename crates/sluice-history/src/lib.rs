//! Histories, and a checker for them. A history records who was granted what, when, and when it was given
//! back, one JSON object a line. The checker decides from such a file alone whether the promises of
//! `docs/semantics.md` were kept.
//!
//! This crate shares no code with the rest of Sluice, so that an error in the bucket arithmetic cannot hide
//! itself. `docs/history.md` states what is decided, and in which form.
//!
//! ```
//! use sluice_history::{Checker, Event, Granted, Kind, Limit, Violation};
//!
//! let mut checker = Checker::new();
//! checker.feed(Event::Limit(Limit::new("openai#rpm", Kind::Requests, 1_000_000, 500_000_000_000, 0)));
//! // One request at once and one every two seconds: the second comes a second early.
//! checker.feed(Event::Granted(Granted::at("a", "p1", "openai#rpm", 1_000_000, 10_000_000)));
//! checker.feed(Event::Granted(Granted::at("b", "p2", "openai#rpm", 1_000_000, 11_000_000)));
//! let verdict = checker.finish();
//! assert!(matches!(verdict.violations[..], [Violation::RateExceeded { .. }]));
//! ```

mod busiest;
mod checker;
mod decide;
mod edges;
mod event;
mod extent;
mod fault;
mod guarantee;
mod lines;
mod live;
mod log;
mod merge;
mod order;
mod outstanding;
mod rate;
mod read;
mod timeline;
mod verdict;
mod write;

pub use checker::Checker;
pub use event::{
    End, Ending, Event, FORMAT_VERSION, Granted, Header, Kind, Limit, Paused, Refused, Released, Returned,
    Settled, Share,
};
pub use fault::{FaultKind, HistoryFault};
pub use merge::merge;
pub use rate::{RateError, pico_per_sec};
pub use read::{ReadError, check, check_files, check_files_with};
pub use verdict::{BucketFigures, FreeSlot, Guarantee, ShareFigures, Verdict, Violation, Window};
pub use write::Writer;
