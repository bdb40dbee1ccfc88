//! Two lines, who holds tokens of them, and how much may be used by now. Everything is told from the present
//! moment, as in the model of prefetch.

use super::line::{Line, Receipt};

/// Holders at most.
pub(crate) const HOLDERS: usize = 3;

/// A line of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Of {
    /// Of callers that name no share.
    Common,
    Share,
}

/// How tokens are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Held {
    /// A lot, to be used.
    Lot,
    /// Left unused by their call: to be given back, or nothing.
    Unused,
    /// A grant whose start is booked: used when its level is there.
    Booked,
}

/// Tokens that were taken and are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Holding {
    /// The line that they came from.
    pub(crate) of: Of,
    /// Whether a call of another product took them.
    pub(crate) is_borrowed: bool,
    pub(crate) receipt: Receipt,
    pub(crate) held: Held,
    pub(crate) left: i8,
}

/// One state of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State {
    pub(crate) common: Line,
    /// The line of the share, if it is declared.
    pub(crate) share: Option<Line>,
    /// What may be used now without one window of the vendor too full.
    pub(crate) meter: i8,
    /// What the share has been promised.
    pub(crate) promised: i8,
    /// The height that an operator saw, who removes the share without asking again.
    pub(crate) seen: Option<i8>,
    pub(crate) holdings: [Option<Holding>; HOLDERS],
}

impl State {
    pub(crate) fn line(&self, of: Of) -> Option<Line> {
        match of {
            Of::Common => Some(self.common),
            Of::Share => self.share,
        }
    }

    pub(crate) fn set(&mut self, of: Of, line: Line) {
        match of {
            Of::Common => self.common = line,
            Of::Share => self.share = Some(line),
        }
    }

    /// The receipts of one line that are kept.
    pub(crate) fn receipts(&mut self, of: Of) -> impl Iterator<Item = &mut Receipt> {
        let holdings = self.holdings.iter_mut().flatten();
        holdings.filter(move |holding| holding.of == of).map(|holding| &mut holding.receipt)
    }
}
