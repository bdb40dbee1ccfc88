//! The mutants: the protocol with one condition left out, or one reply misread. Each stands for the mistake
//! that the condition exists to stop.

use crate::protocol::Scope;

/// Where a lease lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leases {
    /// In rows of their own, changed with the bucket in one transaction (design, section 6).
    Rows,
    /// In the bucket's row (design, section 7).
    Inline,
}

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mutant {
    /// Acquire does not ask that the lease is not there.
    AcquireOverLease,
    /// Acquire does not ask T >= k.
    AcquireWithoutRoom,
    /// A failed acquire is taken for one that was applied before, without a look for the own lease.
    AnyFailureIsSuccess,
    /// A retry after a lost reply asks under a new lease id.
    RetryUnderNewId,
    /// Release does not ask that the lease is there.
    ReleaseWithoutLease,
    /// Reclaim asks that the lease is there, not that it ends as it was seen to.
    ReclaimRenewed,
    /// Reclaim asks nothing of the lease.
    ReclaimWithoutLease,
    /// Whoever judges that a lease has ended does it by its own fast clock, without the margin.
    NoClockMargin,
    /// Renewal does not ask that the lease is there.
    RenewWithoutLease,
    /// Renewal does not ask that the lease ends no later already.
    RenewBackwards,
    /// Resize does not ask that the capacity is the one it was planned from.
    ResizeFromAnyCapacity,
    /// Giving back does not ask for the capacity that it was planned with.
    GiveBackToAnyCapacity,
    /// Giving back does not ask T <= C - k.
    GiveBackWithoutRoom,
    /// Deleting a lease of a full bucket without its slot does not ask tokens = :read_tokens.
    FillUnseen,
    /// Deleting a lease of a full bucket without its slot does not ask for the capacity that it was planned
    /// with.
    FillAnyCapacity,
    /// A changed capacity is read as "already at capacity": the lease is deleted alone.
    ResizedIsCapped,
    /// `TransactionConflict` is read as "already at capacity": the lease is deleted alone.
    ConflictIsCapped,
    /// A release deletes the lease and gives the slot back in two writes.
    TwoWrites,
    /// DynamoDB's TTL is on `ttl`, not on `purge_at`.
    TtlOnTtl,
    /// Take-over asks that the dead lease is there, not that it ends as it was seen to.
    TakeOverUnseen,
    /// Take-over does not ask T >= k - dead cost.
    TakeOverWithoutRoom,
    /// Take-over does not ask that there is no lease under the own id yet.
    TakeOverOwnLease,
    /// A joined write does not ask for the slots that it takes beyond those that it brings.
    JoinedWithoutSlots,
    /// A joined write is content where its conditions hold for one lease of each kind.
    OneOfEachKind,
    /// The first lease in a row does not ask that there is no map of leases yet.
    FirstOverMap,
}

impl Mutant {
    const BOTH: [Self; 15] = [
        Self::AcquireOverLease,
        Self::AcquireWithoutRoom,
        Self::AnyFailureIsSuccess,
        Self::RetryUnderNewId,
        Self::ReleaseWithoutLease,
        Self::ReclaimRenewed,
        Self::ReclaimWithoutLease,
        Self::NoClockMargin,
        Self::RenewWithoutLease,
        Self::RenewBackwards,
        Self::ResizeFromAnyCapacity,
        Self::GiveBackToAnyCapacity,
        Self::GiveBackWithoutRoom,
        Self::FillUnseen,
        Self::FillAnyCapacity,
    ];
    const ROWS: [Self; 4] = [Self::ResizedIsCapped, Self::ConflictIsCapped, Self::TwoWrites, Self::TtlOnTtl];
    const INLINE: [Self; 6] = [
        Self::TakeOverUnseen,
        Self::TakeOverWithoutRoom,
        Self::TakeOverOwnLease,
        Self::JoinedWithoutSlots,
        Self::OneOfEachKind,
        Self::FirstOverMap,
    ];

    /// All mistakes that can be made with leases of this kind.
    pub fn of(leases: Leases) -> impl Iterator<Item = Self> {
        let own: &[Self] = match leases {
            Leases::Rows => &Self::ROWS,
            Leases::Inline => &Self::INLINE,
        };
        Self::BOTH.into_iter().chain(own.iter().copied())
    }

    /// A small state space in which it shows.
    #[must_use]
    pub const fn shows_in(self) -> Scope {
        match self {
            // It takes a minted slot, a resize and a duplicate: two claims, for there is much of the rest.
            Self::FillAnyCapacity => Scope { claims: 2, faults: 3, renewals: 0 },
            // Where renewals show nothing, what else there is to show comes sooner.
            Self::ReclaimWithoutLease | Self::FillUnseen => Scope { claims: 3, faults: 2, renewals: 0 },
            _ => Scope { claims: 3, faults: 2, renewals: 2 },
        }
    }

    /// The mistake in a few words.
    #[must_use]
    pub const fn mistake(self) -> &'static str {
        match self {
            Self::AcquireOverLease => "acquire without attribute_not_exists(lease)",
            Self::AcquireWithoutRoom => "acquire without T >= k",
            Self::AnyFailureIsSuccess => "a failed retry is success, own lease there or not",
            Self::RetryUnderNewId => "a retry after a lost reply takes a new lease id",
            Self::ReleaseWithoutLease => "release without attribute_exists(lease)",
            Self::ReclaimRenewed => "reclaim without ttl = :read_ends, existence alone",
            Self::ReclaimWithoutLease => "reclaim without any condition on the lease",
            Self::NoClockMargin => "the end judged by a fast clock, without the margin",
            Self::RenewWithoutLease => "renewal without existence of the lease",
            Self::RenewBackwards => "renewal without ttl <= :ends",
            Self::ResizeFromAnyCapacity => "resize without capacity = :read_capacity",
            Self::GiveBackToAnyCapacity => "give back without capacity = :read_capacity",
            Self::GiveBackWithoutRoom => "give back without T <= C - k",
            Self::FillUnseen => "a lease of a full bucket deleted without tokens = :read_tokens",
            Self::FillAnyCapacity => "the same without capacity = :read_capacity",
            Self::ResizedIsCapped => "changed capacity read as already at capacity",
            Self::ConflictIsCapped => "TransactionConflict read as already at capacity",
            Self::TwoWrites => "release in two writes instead of one transaction",
            Self::TtlOnTtl => "DynamoDB's TTL on ttl instead of purge_at",
            Self::TakeOverUnseen => "take-over without ends = :read_ends, existence alone",
            Self::TakeOverWithoutRoom => "take-over without T >= k - dead cost",
            Self::TakeOverOwnLease => "take-over without attribute_not_exists(own lease)",
            Self::JoinedWithoutSlots => "a joined write without T >= taken - released - dead",
            Self::OneOfEachKind => "a joined write that asks of one lease of each kind",
            Self::FirstOverMap => "the first lease without attribute_not_exists(leases)",
        }
    }
}
