//! What may happen next, and how a trace tells it.

use super::state::{Caller, Client, State};
use super::sweeping::Looks;
use crate::action::name;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A caller takes a slot; the scans of these sweeps (one bit each) have been where its row comes.
    Acquire(usize, Client, u8),
    Release(usize),
    Crash(usize),
    End(usize),
    Renew(usize),
    /// DynamoDB's TTL deletes an ended lease, after a week in which no sweep took it.
    Purge(usize),
    /// A foreign client takes a slot and crashes before it writes a lease.
    Leak,
    /// A foreign client gives a slot back that is back already.
    Mint,
    Begin(usize),
    Pass(usize, usize, Looks),
    Reclaim(usize, usize),
    Judge(usize),
    Write(usize),
    Leave(usize),
}

impl Action {
    /// What happens, in plain words.
    pub(crate) fn words(self, before: &State) -> String {
        match self {
            Self::Acquire(claim, Client::Own, 0) => format!("{} acquires", name(claim)),
            Self::Acquire(claim, Client::Own, _) => {
                format!("{} acquires, where scans have been", name(claim))
            }
            Self::Acquire(claim, Client::Foreign, _) => {
                format!("{} acquires by a foreign client", name(claim))
            }
            Self::Release(claim) if before.claims[claim].caller == Caller::Capping => {
                format!("{} deletes its lease alone", name(claim))
            }
            Self::Release(claim) => format!("{} releases", name(claim)),
            Self::Crash(claim) => format!("{} crashes", name(claim)),
            Self::End(claim) => format!("{}'s lease ends", name(claim)),
            Self::Renew(claim) => format!("{} renews", name(claim)),
            Self::Purge(claim) => format!("DynamoDB's TTL deletes {}'s lease", name(claim)),
            Self::Leak => "a foreign client loses a slot".into(),
            Self::Mint => "a foreign client gives a slot back twice".into(),
            Self::Begin(sweeper) => format!("sweep {} reads the bucket", sweeper + 1),
            Self::Pass(sweeper, claim, Looks::Clear) => {
                format!("sweep {} scans {}'s lease", sweeper + 1, name(claim))
            }
            Self::Pass(sweeper, claim, Looks::Close) => {
                format!("sweep {} scans {}'s lease, age unsure", sweeper + 1, name(claim))
            }
            Self::Reclaim(sweeper, claim) => format!("sweep {} reclaims {}", sweeper + 1, name(claim)),
            Self::Judge(sweeper) => format!("sweep {} reads again, and judges", sweeper + 1),
            Self::Write(sweeper) => format!("sweep {} writes its judgement", sweeper + 1),
            Self::Leave(sweeper) => format!("sweep {} ends early", sweeper + 1),
        }
    }
}
