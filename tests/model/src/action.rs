//! What may happen next, and how a trace tells it.

use crate::state::{CAPACITY, Caller, Late, Part, State};

/// What a caller asks of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Acquire,
    /// Puts its lease into a row that has no map of leases, as it was read.
    AcquireFirst,
    /// Takes the place of this claim's lease.
    TakeOver(usize),
    Renew,
    Release,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Judged by its conditions and answered.
    Answered,
    /// Its sender hears nothing. It stays on its way, and arrives at any later time or never: soon, it is a
    /// lost reply; never, a lost request; after a retry, a duplicate.
    Unanswered,
    /// Refused for another transaction on the same item: nothing happened.
    Conflict,
}

/// One step. Claims and sweepers go by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A caller sends a request.
    Call(usize, Request, Fate),
    /// A process sends one write for several of its callers, as its lane does: leases to put in, to remove,
    /// and to take over (one bit each).
    Join { takes: u8, releases: u8, dead: u8, fate: Fate },
    /// A joined write on its way arrives.
    JoinedArrives,
    /// A retry is answered by the request that was applied, under the same token.
    AnsweredByToken(usize),
    /// The mutant's retry.
    RetryUnderNewId(usize),
    /// The mutant's second write.
    SecondWrite(usize),
    /// A caller crashes, is dropped, or gives up.
    Crash(usize),
    /// The next instant of a claim is past, for every clock.
    Time(usize),
    /// A request on its way arrives, the first or the second.
    Arrives(usize, usize),
    /// A refused caller is shown a lease that has ended. Others of its process are shown it too.
    Covet(usize),
    /// A sweeper's scan comes upon a lease that has ended.
    Scan { sweeper: usize, claim: usize },
    /// A sweeper gives back what is on its list of these claims (one bit each).
    Reclaim { sweeper: usize, claims: u8, fate: Fate },
    /// A sweeper deletes one lease without its slot.
    Fill { sweeper: usize, claim: usize, fate: Fate },
    /// A sweeper crashes, or leaves the rest to the next sweep.
    Leave(usize),
    /// A reclaim on its way arrives.
    ReclaimArrives,
    /// DynamoDB's TTL deletes a lease row.
    Ttl(usize),
    /// An administrator sets the capacity.
    Resize(i8, Fate),
    /// A resize on its way arrives.
    ResizeArrives,
    /// A client without the delete's condition gives back a slot that is back already.
    Mint,
}

impl Action {
    /// What happens, in plain words.
    pub(crate) fn words(self, before: &State) -> String {
        match self {
            Self::Call(claim, Request::Release, fate)
                if matches!(before.claims[claim].caller, Caller::Releasing(Part::Fill(..) | Part::Alone)) =>
            {
                format!("{} deletes its lease alone{}", name(claim), ends(fate))
            }
            Self::Call(claim, request, fate) => format!("{} {}{}", name(claim), asks(request), ends(fate)),
            Self::Join { takes, releases, dead, fate } => {
                let parts = [(releases, "releases"), (dead, "takes over"), (takes, "acquires")];
                let parts = parts.into_iter().filter(|(claims, _)| *claims > 0);
                let parts: Vec<String> =
                    parts.map(|(claims, what)| format!("{what} {}", names(claims))).collect();
                format!("one write {}{}", parts.join(", "), ends(fate))
            }
            Self::JoinedArrives => "a late joined write arrives".into(),
            Self::AnsweredByToken(claim) => format!("{} retries: the token says, applied", name(claim)),
            Self::RetryUnderNewId(claim) => {
                let new = before.claims.iter().position(|claim| claim.caller == Caller::Outside);
                format!("{} retries under a new id, {}", name(claim), new.map_or('?', name))
            }
            Self::SecondWrite(claim) => format!("{} gives the slot back", name(claim)),
            Self::Crash(claim) => format!("{} crashes", name(claim)),
            Self::Time(claim) if before.claims[claim].past + 1 == before.claims[claim].ends => {
                format!("{}'s lease ends", name(claim))
            }
            Self::Time(claim) => format!("time passes for {}", name(claim)),
            Self::Arrives(claim, at) => format!("{}'s late {} arrives", name(claim), late(before, claim, at)),
            Self::Covet(claim) => format!("a refused caller sees {}'s lease ended", name(claim)),
            Self::Scan { sweeper, claim } => {
                format!("sweep {} finds {}'s lease ended", sweeper + 1, name(claim))
            }
            Self::Reclaim { sweeper, claims, fate } => {
                format!("sweep {} reclaims {}{}", sweeper + 1, names(claims), ends(fate))
            }
            Self::Fill { sweeper, claim, fate } => {
                format!("sweep {} deletes {}'s lease alone{}", sweeper + 1, name(claim), ends(fate))
            }
            Self::Leave(sweeper) => format!("sweep {} ends early", sweeper + 1),
            Self::ReclaimArrives => "a late reclaim arrives".into(),
            Self::Ttl(claim) => format!("DynamoDB's TTL deletes {}'s lease", name(claim)),
            Self::Resize(to, fate) => format!("the capacity is set from {CAPACITY} to {to}{}", ends(fate)),
            Self::ResizeArrives => "the late resize arrives".into(),
            Self::Mint => "a foreign client gives a slot back twice".into(),
        }
    }
}

/// A claim's letter.
pub(crate) fn name(claim: usize) -> char {
    ['A', 'B', 'C', 'D'].get(claim).copied().unwrap_or('?')
}

/// The letters of claims by their bits.
fn names(claims: u8) -> String {
    (0..8).filter(|claim| claims & (1 << claim) > 0).map(name).collect()
}

fn asks(request: Request) -> String {
    match request {
        Request::Acquire => "acquires".into(),
        Request::AcquireFirst => "acquires, the first in the row".into(),
        Request::TakeOver(dead) => format!("takes over {}'s slot", name(dead)),
        Request::Renew => "renews".into(),
        Request::Release => "releases".into(),
    }
}

const fn ends(fate: Fate) -> &'static str {
    match fate {
        Fate::Answered => "",
        Fate::Unanswered => ", unanswered",
        Fate::Conflict => ", conflict",
    }
}

fn late(before: &State, claim: usize, at: usize) -> &'static str {
    match before.claims[claim].late[at] {
        Late::Nothing => "nothing",
        Late::Acquire => "acquire",
        Late::AcquireFirst => "first acquire",
        Late::TakeOver => "take-over",
        Late::Renew(_) => "renewal",
        Late::Release(_) => "release",
    }
}
