//! The slips that a lane could make.

use super::model::Traffic;

/// One slip of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Slip {
    /// The grant of a caller that left is forgotten.
    GrantForgotten,
    /// A grant that is handed on is given back as well.
    HandedOnAndReturned,
    /// A grant goes to two callers.
    HandedToTwo,
    /// A grant is handed on though its lease has ended.
    EndedHandedOn,
    /// A grant that may be is handed on: a write without a reply asked for it.
    UnsureHandedOn,
    /// A grant is handed to the queue while those before it are in flight.
    HandedPastTheBatch,
    /// The write runs on the task of the first caller, and ends with it.
    WorkerLeaves,
    /// A lost reply is taken for a refusal.
    LostIsRefused,
    /// The lease of a caller that leaves after a lost reply is forgotten.
    UnsureForgotten,
    /// A retry after a lost reply does not look for its own leases.
    OwnLeaseOverlooked,
    /// An own lease that an earlier try put in, and that has ended since, is told as a grant.
    OwnEndedTold,
    /// The write does not ask for the slots that it takes.
    SentWithoutRoom,
    /// All of the batch are told what a part was granted.
    WholeBatchGranted,
    /// The last to come is served first.
    LastComeFirst,
    /// The releases of a write that failed are forgotten.
    FailedReleasesForgotten,
    /// The write does not ask that the leases that it gives back are there.
    ReturnedUnasked,
    /// The write does not ask that the leases that it takes over are there.
    TakenOverUnasked,
    /// A batch that ends wakes nobody: who came meanwhile waits until another comes.
    NobodyWakes,
}

impl Slip {
    /// All slips.
    pub const ALL: [Self; 18] = [
        Self::GrantForgotten,
        Self::HandedOnAndReturned,
        Self::HandedToTwo,
        Self::EndedHandedOn,
        Self::UnsureHandedOn,
        Self::HandedPastTheBatch,
        Self::WorkerLeaves,
        Self::LostIsRefused,
        Self::UnsureForgotten,
        Self::OwnLeaseOverlooked,
        Self::OwnEndedTold,
        Self::SentWithoutRoom,
        Self::WholeBatchGranted,
        Self::LastComeFirst,
        Self::FailedReleasesForgotten,
        Self::ReturnedUnasked,
        Self::TakenOverUnasked,
        Self::NobodyWakes,
    ];

    /// The slip in a few words.
    #[must_use]
    pub const fn slip(self) -> &'static str {
        match self {
            Self::GrantForgotten => "the grant of a caller that left is forgotten",
            Self::HandedOnAndReturned => "a grant handed on and given back as well",
            Self::HandedToTwo => "one grant answered to two callers",
            Self::EndedHandedOn => "a grant handed on after its lease has ended",
            Self::UnsureHandedOn => "a grant handed on that was never confirmed",
            Self::HandedPastTheBatch => "a grant handed on past those in flight",
            Self::WorkerLeaves => "the write ends with the caller that sent it",
            Self::LostIsRefused => "a lost reply taken for a refusal",
            Self::UnsureForgotten => "a lease forgotten of one that left after a lost reply",
            Self::OwnLeaseOverlooked => "a retry without a look for its own leases",
            Self::OwnEndedTold => "an own lease that has ended told as a grant",
            Self::SentWithoutRoom => "a batch without T >= its cost",
            Self::WholeBatchGranted => "a batch granted of which a part fitted",
            Self::LastComeFirst => "the last to come served first",
            Self::FailedReleasesForgotten => "releases of a failed write forgotten",
            Self::ReturnedUnasked => "releases without attribute_exists(lease)",
            Self::TakenOverUnasked => "take-over without ends = :read_ends",
            Self::NobodyWakes => "a batch that ends wakes nobody",
        }
    }

    /// A small state space in which it shows.
    #[must_use]
    pub const fn shows_in(self) -> Traffic {
        let callers = if matches!(self, Self::HandedPastTheBatch | Self::HandedToTwo) { 3 } else { 2 };
        Traffic { capacity: 1, callers, losses: 1, crashes: 1 }
    }
}
