//! The mistakes that a recount could make. Each heeds less than the recount does, or writes on fewer
//! conditions.

use super::model::Extent;

/// One mistake in a recount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mistake {
    /// One reading and a scan, without the second reading.
    NoSecondReading,
    /// Writes of clients that do not count are taken for counted ones.
    ForeignWritesUnheeded,
    /// A lease that is deleted alone is not counted.
    CappedUncounted,
    /// What the sweep itself gave back is taken for releases of others.
    OwnReturnsUnheeded,
    /// Leases that the sweep lost to others count as if they had been there to the end.
    LostRacesUnheeded,
    /// Every scanned lease is taken to have lived at the first reading.
    YoungTakenForOld,
    /// A lease granted about the first reading is taken to be younger.
    RecentTakenForYoung,
    /// A sweep corrects by itself, without a note of another.
    CorrectedAtOnce,
    /// A correction does not ask that the note is the one that was read.
    NoteUnheeded,
    /// A correction that gives slots back does not ask T <= C - k.
    CorrectedBeyondRoom,
    /// A correction that takes minted slots away asks T <= C - k, as one that gives back does: what was
    /// minted since the first sweep keeps it from ever being made.
    TakenAwayOnlyIfTheRestFits,
    /// A note does not ask that there is none yet, or that it is the one that was read.
    NotedOver,
    /// Taking a note back does not ask that it is the one that was read.
    ForgottenUnread,
}

impl Mistake {
    /// Those that break a promise.
    pub const BREAKING: [Self; 11] = [
        Self::NoSecondReading,
        Self::ForeignWritesUnheeded,
        Self::CappedUncounted,
        Self::OwnReturnsUnheeded,
        Self::LostRacesUnheeded,
        Self::YoungTakenForOld,
        Self::RecentTakenForYoung,
        Self::CorrectedAtOnce,
        Self::NoteUnheeded,
        Self::CorrectedBeyondRoom,
        Self::TakenAwayOnlyIfTheRestFits,
    ];

    /// Those that break none, and only cost a sweep more: a note alone changes no slot, one that is out of
    /// date can be written with the condition too (the newer one may be gone by then), and a correction asks
    /// for the note that was read.
    pub const HARMLESS: [Self; 2] = [Self::NotedOver, Self::ForgottenUnread];

    /// The mistake in a few words.
    #[must_use]
    pub const fn mistake(self) -> &'static str {
        match self {
            Self::NoSecondReading => "one reading and a scan, no second reading",
            Self::ForeignWritesUnheeded => "writes of clients that do not count, unheeded",
            Self::CappedUncounted => "leases deleted alone are not counted",
            Self::OwnReturnsUnheeded => "the sweep's own restores taken for releases",
            Self::LostRacesUnheeded => "leases lost to others taken to be there",
            Self::YoungTakenForOld => "young leases taken for old ones",
            Self::RecentTakenForYoung => "leases about the first reading taken for young",
            Self::CorrectedAtOnce => "corrected by one sweep, without a note",
            Self::NoteUnheeded => "corrected without drift = :read_drift",
            Self::CorrectedBeyondRoom => "given back without T <= C - k",
            Self::TakenAwayOnlyIfTheRestFits => "minted slots taken away only if T <= C - k",
            Self::NotedOver => "noted over the note of another sweep",
            Self::ForgottenUnread => "took back a note that it had not read",
        }
    }

    /// A small state space in which it shows.
    #[must_use]
    pub const fn shows_in(self) -> Extent {
        let (claims, sweeps, faults) = match self {
            Self::NoteUnheeded => (1, 3, 1),
            Self::NotedOver | Self::ForgottenUnread => (1, 4, 1),
            Self::CorrectedBeyondRoom | Self::TakenAwayOnlyIfTheRestFits => (1, 2, 2),
            _ => (2, 2, 2),
        };
        Extent { claims, sweeps, faults, foreign: false }
    }
}
