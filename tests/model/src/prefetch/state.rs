//! One rate bucket, who holds tokens of it, and how much may be used by now.
//!
//! Everything is told from the present moment: what stands for T and A is the line's height now, `T + (now -
//! A) * R`, and so for what a receipt shows. Nothing counts on for ever, so the states are finitely many
//! though time has no end. The line is flat before its anchor: where the anchor lies ahead, its height now is
//! what it would be without that, and a reading is at the anchor.

/// Holders at most.
pub(crate) const HOLDERS: usize = 3;

/// What a receipt knows of the write that it is for, and of the row since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Receipt {
    /// The line as the write left it, where it would be now.
    pub(crate) bottom: i8,
    /// Tokens that were given back since, by anyone.
    pub(crate) lifted: i8,
    /// now - A of the receipt's anchor, as far as a clock that lags can tell.
    pub(crate) age: i8,
    /// The bucket's anchor is still the receipt's.
    pub(crate) is_anchored: bool,
    /// No lot was taken since.
    pub(crate) is_last: bool,
}

/// How tokens are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Held {
    /// A lot, for so many ticks.
    Lot(u8),
    /// What a plain grant, or a lot that is past its use-by, left unused: to be given back, or nothing.
    Unused,
    /// A grant whose start is booked: used when its level is there.
    Booked,
}

/// Tokens that were taken and are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Holding {
    pub(crate) receipt: Receipt,
    pub(crate) held: Held,
    /// Taken at first.
    pub(crate) taken: i8,
    pub(crate) left: i8,
}

/// One state of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State {
    /// The bucket's line now: `T + (now - A) * R`, which stands above the capacity where the bucket is full,
    /// and below T where the anchor is ahead.
    pub(crate) line: i8,
    /// now - A, as far as a clock that lags can tell.
    pub(crate) age: i8,
    /// What may be used now without one window too full.
    pub(crate) meter: i8,
    pub(crate) holdings: [Option<Holding>; HOLDERS],
}

/// When a clock that shows so many ticks more than there are takes effect on a line whose anchor is so old:
/// not before it.
pub(crate) fn effect(clock: i8, age: i8) -> i8 {
    clock.max(-age)
}

impl State {
    pub(crate) const fn first(capacity: i8) -> Self {
        Self { line: capacity, age: 0, meter: capacity, holdings: [None; HOLDERS] }
    }

    /// Every receipt that is kept.
    pub(crate) fn receipts(&mut self) -> impl Iterator<Item = &mut Receipt> {
        self.holdings.iter_mut().flatten().map(|holding| &mut holding.receipt)
    }
}
