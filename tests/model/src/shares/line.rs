//! The rules of one line: takes, and what goes back.

/// What a receipt knows of the write that it is for, and of the line since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Receipt {
    /// The line as the write left it, where it would be now.
    pub(crate) bottom: i8,
    /// Tokens that were given back since, by anyone.
    pub(crate) lifted: i8,
    /// now - A of the receipt's anchor, as far as a clock that lags can tell.
    pub(crate) age: i8,
    /// The line's anchor is still the receipt's.
    pub(crate) is_anchored: bool,
    /// No lot was taken since.
    pub(crate) is_last: bool,
    /// The line's size when the write was made.
    pub(crate) size: Size,
}

/// What a line is, apart from its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Size {
    pub(crate) capacity: i8,
    pub(crate) rate: i8,
}

/// A line, told from the present moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Line {
    /// `T + (now - A) * R`, which stands above the capacity where the line is full, and below T where the
    /// anchor is ahead.
    pub(crate) height: i8,
    /// now - A, as far as a clock that lags can tell.
    pub(crate) age: i8,
}

/// What a take asks of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) tokens: i8,
    /// What the level may be afterwards, at least.
    pub(crate) leaves: i8,
    /// Whether the anchor moves.
    pub(crate) moves: bool,
    /// How many ticks more than there are the caller's clock shows.
    pub(crate) clock: i8,
}

/// A line after a take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TookFrom {
    pub(crate) line: Line,
    pub(crate) is_moved: bool,
    /// Whether the tokens are there, or will be.
    pub(crate) is_there: bool,
}

impl Line {
    pub(crate) const fn at_now(level: i8) -> Self {
        Self { height: level, age: 0 }
    }

    /// The line through `level` at the moment of effect.
    pub(crate) const fn through(level: i8, effect: i8, rate: i8) -> Self {
        Self { height: level - effect * rate, age: -effect }
    }

    /// When a clock that is off so much takes effect: not before the anchor.
    pub(crate) fn effect(self, clock: i8) -> i8 {
        clock.max(-self.age)
    }

    /// The line as such a clock reads it.
    pub(crate) fn read(self, clock: i8, rate: i8) -> i8 {
        self.height + self.effect(clock) * rate
    }

    /// Takes as the write of a bucket does. `None` where its condition does not hold.
    pub(crate) fn take(self, ask: Ask, Size { capacity, rate }: Size) -> Option<TookFrom> {
        let Ask { tokens, leaves, moves, clock } = ask;
        let effect = self.effect(clock);
        let level = self.read(clock, rate);
        if level > capacity {
            let left = capacity - tokens;
            let line = Self::through(left, effect, rate);
            return (left >= leaves).then_some(TookFrom { line, is_moved: true, is_there: true });
        }
        if level - tokens < leaves {
            return None;
        }
        let spent = Self { height: self.height - tokens, ..self };
        let is_there = level >= tokens;
        if !moves {
            return Some(TookFrom { line: spent, is_moved: false, is_there });
        }
        // Forward by all means.
        let line = Self { age: self.age.min(-clock), ..spent };
        Some(TookFrom { line, is_moved: true, is_there })
    }

    /// How much of what is unused a return puts back, for a call whose start is to come or not.
    pub(crate) fn takes_back(
        self,
        of: Receipt,
        (is_booked, unused, clock): (bool, i8, i8),
        largest: i8,
    ) -> i8 {
        let Size { capacity, rate } = of.size;
        if !of.is_anchored || !of.is_last {
            return 0;
        }
        let effect = clock.max(-of.age);
        if is_booked && of.bottom + effect * rate < 0 {
            let is_as_left = self.height == of.bottom && of.lifted == 0;
            return if is_as_left { unused } else { 0 };
        }
        let in_room = unused.min(capacity - (of.bottom + of.lifted + effect * rate)).max(0);
        let beside_starts = capacity - largest - of.lifted;
        if in_room <= beside_starts {
            return in_room;
        }
        let is_above = self.height + effect * rate >= 0;
        if is_above && of.lifted == 0 { in_room } else { beside_starts.max(0) }
    }
}
