//! Two rows, the name of the share, who holds slots, and what operators and a borrower have read.

/// Operators at most.
pub(crate) const OPERATORS: usize = 3;

/// The reading of a sweep, behind those of the operators.
pub(crate) const SWEEP: usize = OPERATORS;

/// A row of the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Of {
    Common,
    Share,
}

impl Of {
    pub(crate) const BOTH: [Self; 2] = [Self::Common, Self::Share];

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Common => Self::Share,
            Self::Share => Self::Common,
        }
    }

    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Common => "the common row",
            Self::Share => "the share's row",
        }
    }
}

/// A row as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Row {
    pub(crate) capacity: i8,
    /// Below zero if it shrank while its slots were held.
    pub(crate) free: i8,
}

impl Row {
    pub(crate) const fn full(capacity: i8) -> Self {
        Self { capacity, free: capacity }
    }

    pub(crate) const fn held(self) -> i8 {
        self.capacity - self.free
    }

    /// What it may have in use at once, now or later.
    pub(crate) fn counts(self) -> i8 {
        self.capacity.max(self.held())
    }
}

/// The share as the bucket's row names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Named {
    /// What it is promised; 0 if it goes.
    pub(crate) capacity: i8,
    pub(crate) is_closed: bool,
}

/// What the table says of the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Table {
    pub(crate) common: Row,
    pub(crate) share: Option<Row>,
    pub(crate) named: Option<Named>,
    /// The slots that both rows will have, while they change.
    pub(crate) changes_to: Option<i8>,
}

impl Table {
    /// What may be in use at once, now or later.
    pub(crate) fn counts(&self) -> i8 {
        self.common.counts() + self.share.map_or(0, Row::counts)
    }

    pub(crate) const fn row(&self, of: Of) -> Option<Row> {
        match of {
            Of::Common => Some(self.common),
            Of::Share => self.share,
        }
    }

    pub(crate) const fn set(&mut self, of: Of, row: Row) {
        match of {
            Of::Common => self.common = row,
            Of::Share => self.share = Some(row),
        }
    }
}

/// Calls that hold a slot of a row, by how they came to it and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Holders {
    pub(crate) own: i8,
    pub(crate) borrowed: i8,
    /// Crashed: their leases are there until a sweep.
    pub(crate) crashed: i8,
}

impl Holders {
    pub(crate) const fn all(self) -> i8 {
        self.own + self.borrowed + self.crashed
    }
}

/// One state of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State {
    pub(crate) table: Table,
    /// Of the common row, and of the share's.
    pub(crate) holders: [Holders; 2],
    /// Whether callers wait for the row.
    pub(crate) waited: [bool; 2],
    /// What each operator read last, and the sweep.
    pub(crate) readings: [Option<Table>; OPERATORS + 1],
    /// The row that a borrower is about to take from, by an old reading.
    pub(crate) borrows: Option<Of>,
    /// A borrower took what stays, or what others waited for.
    pub(crate) is_wronged: bool,
    /// A row grew beyond what was wanted at that time.
    pub(crate) is_beyond: bool,
}
