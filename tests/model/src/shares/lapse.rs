//! The lapses that shares could have. Each leaves out a part of the rule, or a condition of a write.

use super::model::Split;

/// One lapse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lapse {
    /// A borrower leaves nothing of the share's line.
    BorrowedBelowTheFloor,
    /// A borrower that finds the line full does not ask what it leaves.
    FilledBelowTheFloor,
    /// A borrower books ahead, as a call of the share may.
    BorrowedAhead,
    /// A borrowing does not ask that the level covers it.
    BorrowedWithoutLevel,
    /// A borrowing does not ask T <= C - x of a line that is full.
    BorrowedAboveTheBrim,
    /// A write over two lines asks the share's line alone.
    JoinedUnasked,
    /// What was borrowed goes back to the borrower's own line.
    ReturnedToTheOther,
    /// A share is declared although it is there.
    DeclaredAgain,
    /// A share is declared full, whatever the common line has.
    DeclaredFull,
    /// A share that is declared again has the anchor that it had.
    DeclaredOnTheOldAnchor,
    /// The common line keeps its anchor when a share is declared.
    DeclaredBesideReturns,
    /// A share is removed with the level that was seen, whatever was taken since.
    RemovedAsSeen,
    /// A share is removed with more than its capacity.
    RemovedAboveTheBrim,
}

impl Lapse {
    /// All of them: each breaks a promise.
    pub const ALL: [Self; 13] = [
        Self::BorrowedBelowTheFloor,
        Self::FilledBelowTheFloor,
        Self::BorrowedAhead,
        Self::BorrowedWithoutLevel,
        Self::BorrowedAboveTheBrim,
        Self::JoinedUnasked,
        Self::ReturnedToTheOther,
        Self::DeclaredAgain,
        Self::DeclaredFull,
        Self::DeclaredOnTheOldAnchor,
        Self::DeclaredBesideReturns,
        Self::RemovedAsSeen,
        Self::RemovedAboveTheBrim,
    ];

    /// The lapse in a few words.
    #[must_use]
    pub const fn lapse(self) -> &'static str {
        match self {
            Self::BorrowedBelowTheFloor => "a borrowing without the floor",
            Self::FilledBelowTheFloor => "a borrowing of a full line without the floor",
            Self::BorrowedAhead => "a borrowing with patience",
            Self::BorrowedWithoutLevel => "a borrowing without T >= k + floor - x",
            Self::BorrowedAboveTheBrim => "a borrowing without T <= C - x",
            Self::JoinedUnasked => "a write over two lines without the condition of one",
            Self::ReturnedToTheOther => "a return to the line of the borrower",
            Self::DeclaredAgain => "a declaration without attribute_not_exists",
            Self::DeclaredFull => "a declaration without T >= part - x",
            Self::DeclaredOnTheOldAnchor => "a declaration with the anchor of the share before",
            Self::DeclaredBesideReturns => "a declaration that leaves the common anchor",
            Self::RemovedAsSeen => "a removal without tokens = :read_tokens",
            Self::RemovedAboveTheBrim => "a removal that is not cut at the brim",
        }
    }

    /// A small state space in which it shows.
    #[must_use]
    pub const fn shows_in(self) -> Split {
        let holders = if matches!(self, Self::DeclaredBesideReturns) { 2 } else { 1 };
        Split { patience: 2, holders, ..Split::SMALL }
    }
}
