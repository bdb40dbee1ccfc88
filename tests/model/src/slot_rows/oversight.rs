//! The oversights that shares of slots could have. Each leaves out a condition of a write, or a part of a
//! sum.

use super::model::Rows;

/// One oversight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Oversight {
    /// A borrower asks for a free slot, and not for what stays.
    BorrowedBelowTheFloor,
    /// A borrower does not ask whether anybody waits.
    BorrowedBeforeThoseThatWait,
    /// A borrowed slot goes back to the borrower's own row.
    ReturnedToTheOther,
    /// A row grows from a capacity that it has no more.
    GrewByAnOldCapacity,
    /// A row grows although the other has fallen below zero since.
    GrewBesideOneBelowZero,
    /// A row grows although the name, or what is wanted, has changed since.
    GrewUnderOtherNames,
    /// What is held of a row beyond its capacity is not counted.
    HeldNotCounted,
    /// A row shrinks by the capacity that was read, whatever it has.
    ShrankByAnOldCapacity,
    /// A row shrinks although the change has ended since, or another is under way.
    ShrankAfterTheChange,
    /// A row goes although a slot of it was taken since.
    RemovedWhileHeld,
    /// A name is written over another that was written since.
    NameWrittenOverAnother,
    /// A row is made, and its name stays closed.
    MadeUnderAClosedName,
    /// A change ends although the share's row is not as it was read.
    EndedWithoutTheShare,
}

impl Oversight {
    /// All of them: each breaks a promise.
    pub const ALL: [Self; 13] = [
        Self::BorrowedBelowTheFloor,
        Self::BorrowedBeforeThoseThatWait,
        Self::ReturnedToTheOther,
        Self::GrewByAnOldCapacity,
        Self::GrewBesideOneBelowZero,
        Self::GrewUnderOtherNames,
        Self::HeldNotCounted,
        Self::ShrankByAnOldCapacity,
        Self::ShrankAfterTheChange,
        Self::RemovedWhileHeld,
        Self::NameWrittenOverAnother,
        Self::MadeUnderAClosedName,
        Self::EndedWithoutTheShare,
    ];

    /// The oversight in a few words.
    #[must_use]
    pub const fn oversight(self) -> &'static str {
        match self {
            Self::BorrowedBelowTheFloor => "a borrowing without T >= k + floor",
            Self::BorrowedBeforeThoseThatWait => "a borrowing without waited_until",
            Self::ReturnedToTheOther => "a return to the row of the borrower",
            Self::GrewByAnOldCapacity => "growth without capacity = :read_capacity",
            Self::GrewBesideOneBelowZero => "growth without tokens >= :least",
            Self::GrewUnderOtherNames => "growth without shares and changes_to as read",
            Self::HeldNotCounted => "a sum of C, not of max(C, H)",
            Self::ShrankByAnOldCapacity => "a shrink without capacity = :read_capacity",
            Self::ShrankAfterTheChange => "a shrink without shares and changes_to as read",
            Self::RemovedWhileHeld => "a removal without tokens >= :read_capacity",
            Self::NameWrittenOverAnother => "names without shares, changes_to and capacity as read",
            Self::MadeUnderAClosedName => {
                "a row that is made in another write than the one that opens its name"
            }
            Self::EndedWithoutTheShare => "an end without the share's capacity as read",
        }
    }

    /// A small state space in which it shows.
    #[must_use]
    pub const fn shows_in(self) -> Rows {
        match self {
            Self::BorrowedBelowTheFloor | Self::BorrowedBeforeThoseThatWait | Self::ReturnedToTheOther => {
                Rows::LENT
            }
            Self::GrewBesideOneBelowZero | Self::ShrankByAnOldCapacity => Rows::CHANGED_BY_THREE,
            Self::GrewUnderOtherNames => Rows::LIMIT_CHANGED,
            Self::EndedWithoutTheShare | Self::ShrankAfterTheChange => Rows::SHARE_CHANGED,
            _ => Rows::CHANGED_BY_TWO,
        }
    }
}
