//! The flaws that a prefetch could have. Each leaves out a part of the rule, or a condition of a write.

use super::model::Stock;

/// One flaw of a prefetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Flaw {
    /// What has overflowed is used all the same.
    UsedOverTheBrim,
    /// A use takes its tokens off what is left, and not off what is left below the brim.
    SpilledKept,
    /// A lot is used on after its return was sent.
    UsedAfterReturn,
    /// A return gives back what was used too.
    UsedReturned,
    /// A return without an answer is sent again.
    ReturnedAgain,
    /// A return does not ask that no lot was taken since.
    ReturnedUnderALot,
    /// A return does not ask that where T is as its own write left it.
    ReturnedOnTopUnderALot,
    /// A return does not heed what others gave back since.
    ReturnsUncounted,
    /// The return of a start that is still to come does not ask for T as its own write left it.
    ReturnedFromTheMiddle,
    /// The same does not ask that nobody has given back.
    ReturnedAsItLooked,
    /// A return keeps to the brim as the line stands, and not beside a start that is still to come.
    ReturnedBesideStarts,
    /// A return too large for that asks nothing of the level.
    ReturnedBelowZero,
    /// A large call that is booked leaves the anchor where it is.
    LargeOnTheAnchor,
    /// A return is not cut at the brim.
    ReturnedOverTheBrim,
    /// A take does not ask that the level covers it.
    TakenWithoutLevel,
    /// A spend does not ask T <= C - x.
    SpentAboveTheBrim,
    /// A full write does not ask T > C - x.
    FilledUnasked,
    /// A lot has no use-by.
    NoUseBy,
    /// A return does not ask for the anchor.
    ReturnedToAnyAnchor,
    /// A full write moves the anchor back where a clock lags.
    AnchoredBack,
    /// A re-anchor keeps the tokens and moves the anchor back where a clock lags.
    ReanchoredBack,
}

impl Flaw {
    /// Those that break a promise.
    pub const BREAKING: [Self; 19] = [
        Self::UsedOverTheBrim,
        Self::SpilledKept,
        Self::UsedAfterReturn,
        Self::UsedReturned,
        Self::ReturnedAgain,
        Self::ReturnedUnderALot,
        Self::ReturnedOnTopUnderALot,
        Self::ReturnsUncounted,
        Self::ReturnedFromTheMiddle,
        Self::ReturnedAsItLooked,
        Self::ReturnedBesideStarts,
        Self::ReturnedBelowZero,
        Self::LargeOnTheAnchor,
        Self::ReturnedToAnyAnchor,
        Self::ReturnedOverTheBrim,
        Self::TakenWithoutLevel,
        Self::SpentAboveTheBrim,
        Self::FilledUnasked,
        Self::ReanchoredBack,
    ];

    /// Those that break none: a receipt's own line says how much has overflowed, whatever became of
    /// the row and however long it was kept. A use-by is there so that little lies idle, and for cool-downs
    /// and changed limits. No clock that lags finds a bucket full: before its anchor the line stands at T,
    /// which is C at most.
    pub const HARMLESS: [Self; 2] = [Self::NoUseBy, Self::AnchoredBack];

    /// The flaw in a few words.
    #[must_use]
    pub const fn flaw(self) -> &'static str {
        match self {
            Self::ReturnedUnderALot => "a return without lots = :read_lots",
            Self::UsedOverTheBrim => "a lot used beyond C - x - T",
            Self::ReturnedOnTopUnderALot => "a return on tokens = :left alone",
            Self::ReturnsUncounted => "a return without a look at what others gave back",
            Self::SpilledKept => "a use taken off what overflowed",
            Self::UsedAfterReturn => "a lot used after its return was sent",
            Self::UsedReturned => "a return of the whole lot, used or not",
            Self::ReturnedAgain => "a return without an answer sent again",
            Self::ReturnedToAnyAnchor => "a return without last_refill_at = :read_anchor",
            Self::ReturnedFromTheMiddle => "a return of a start to come without tokens = :left",
            Self::ReturnedAsItLooked => "a return of a start to come without returned <= :most_returned",
            Self::ReturnedBesideStarts => "a return without room for a start to come",
            Self::ReturnedBelowZero => "a large return without T >= -x",
            Self::LargeOnTheAnchor => "a large booking on the anchor as it is",
            Self::TakenWithoutLevel => "a take without T >= k - x",
            Self::SpentAboveTheBrim => "a spend without T <= C - x",
            Self::FilledUnasked => "a full write without T > C - x",
            Self::AnchoredBack => "a full write that moves the anchor back",
            Self::ReanchoredBack => "a re-anchor that moves the anchor back",
            Self::NoUseBy => "a lot without a use-by",
            Self::ReturnedOverTheBrim => "a return that is not cut at the brim",
        }
    }

    /// A small state space in which it shows.
    #[must_use]
    pub const fn shows_in(self) -> Stock {
        let patience = match self {
            Self::ReturnedBelowZero
            | Self::ReturnedFromTheMiddle
            | Self::ReturnedAsItLooked
            | Self::ReturnedBesideStarts
            | Self::ReturnedToAnyAnchor
            | Self::LargeOnTheAnchor => 3,
            _ => 0,
        };
        let clock_error = if matches!(self, Self::AnchoredBack | Self::ReanchoredBack) { 1 } else { 0 };
        let holders = if patience > 0 { 3 } else { 2 };
        Stock { capacity: 3, rate: 1, holders, use_by: 1, clock_error, settles: true, patience, largest: 1 }
    }
}
