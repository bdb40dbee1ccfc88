//! Lines that borrow of each other.

use alloc::vec::Vec;

use super::Bucket;
use crate::amount::{Amount, Cost};
use crate::schema::{self, Row};
use crate::share::ShareName;
use crate::timestamp::Timestamp;

/// What a line lent and borrowed so far. Both counts only rise: what comes back of a loan is not taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loans {
    /// Taken of this line by callers of others.
    pub(crate) lent: Amount,
    /// Taken of others by callers of this line.
    pub(crate) borrowed: Amount,
}

impl Loans {
    /// Counts for people, which no plan rests on: one that is missing or cannot be read is 0, and the bucket
    /// can be used.
    pub(super) fn read<R: Row + ?Sized>(line: &R, lent: &'static str, borrowed: &'static str) -> Self {
        let count = |of| schema::amount(line, of).map_or(Amount::ZERO, |count| count.get());
        Self { lent: count(lent), borrowed: count(borrowed) }
    }
}

/// A line that another one may borrow of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lender {
    line: Bucket,
    floor: Amount,
    borrower: Option<ShareName>,
}

impl Lender {
    /// The bucket as seen from the line that lends.
    #[must_use]
    pub const fn line(&self) -> &Bucket {
        &self.line
    }

    /// What the borrower leaves there.
    #[must_use]
    pub const fn floor(&self) -> Amount {
        self.floor
    }

    /// The share that borrows; `None` for the common line.
    pub(crate) const fn borrower(&self) -> Option<&ShareName> {
        self.borrower.as_ref()
    }
}

impl Bucket {
    /// The lines that this one may borrow `cost` of, by this reading: the one with the most room first.
    #[must_use]
    pub fn lenders(&self, cost: Cost, now: Timestamp) -> Vec<Lender> {
        let Some(lines) = self.lines() else { return Vec::new() };
        let mut rooms: Vec<(Amount, Option<&ShareName>, Amount)> = Vec::new();
        for (name, line) in lines.iter().filter(|(name, _)| *name != self.share()) {
            let floor = lines.floor(self.share(), name);
            let room = line.level(now).minus(floor);
            if room >= cost.amount() {
                rooms.push((room, name, floor));
            }
        }
        rooms.sort_by_key(|(room, ..)| core::cmp::Reverse(*room));
        let lender = |(_, name, floor)| Lender {
            line: self.clone().seen_from(name),
            floor,
            borrower: self.share().cloned(),
        };
        rooms.into_iter().map(lender).collect()
    }

    /// What callers of other lines have taken of this one so far. Only rises: what they gave back is not
    /// taken off.
    #[must_use]
    pub fn lent(&self) -> Amount {
        self.loans().map_or(Amount::ZERO, |loans| loans.lent)
    }

    /// What callers of this line have taken of others so far, as [`lent`](Self::lent) counts it. Callers of
    /// earlier versions do not count it.
    #[must_use]
    pub fn borrowed(&self) -> Amount {
        self.loans().map_or(Amount::ZERO, |loans| loans.borrowed)
    }

    fn loans(&self) -> Option<Loans> {
        self.lines().and_then(|lines| lines.line(self.share())).map(|line| line.loans)
    }
}
