//! What may happen next, and how a trace tells it.

use super::state::{ALL, Caller, Lease, PROCESSES, State, Work, members};

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is judged, and its reply is on its way.
    Answered,
    /// It is judged, and its reply is lost.
    Lost,
    /// It stays on its way, and arrives at any later time or never.
    Late,
}

/// One step. Callers, leases and processes go by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A caller joins the queue of its process.
    Come(usize),
    /// A caller takes its answer.
    TakeAnswer(usize),
    /// A caller has done, and its lease is to be given back.
    Release(usize),
    /// A caller is dropped.
    Leave(usize),
    /// A worker sends a write for its batch.
    Send(usize, Fate),
    /// The reply reaches the worker; or it gives up to wait for it.
    Reply(usize),
    Crash(usize),
    /// A lease ends, for every clock.
    End(usize),
    LateArrives,
}

impl Action {
    /// What happens, in plain words.
    pub(crate) fn words(self, before: &State) -> String {
        match self {
            Self::Come(caller) => format!("{} comes", name(caller)),
            Self::TakeAnswer(caller) => format!("{} takes its grant", name(caller)),
            Self::Release(caller) => format!("{} has done", name(caller)),
            Self::Leave(caller) => format!("{} leaves", name(caller)),
            Self::Send(process, Fate::Answered) => format!("process {} sends a write", process + 1),
            Self::Send(process, Fate::Lost) => format!("process {} sends, the reply is lost", process + 1),
            Self::Send(process, Fate::Late) => format!("process {} sends, it gets stuck", process + 1),
            Self::Reply(process) if matches!(before.lanes[process].work, Work::Lost(_)) => {
                format!("process {} waits no more", process + 1)
            }
            Self::Reply(process) => format!("process {} has the reply", process + 1),
            Self::Crash(process) => format!("process {} crashes", process + 1),
            Self::End(lease) => format!("{}'s lease ends", name(lease)),
            Self::LateArrives => "the stuck write arrives".into(),
        }
    }
}

/// A caller's name: the first process has A, B, C, the second X, Y, Z.
fn name(caller: usize) -> char {
    ['A', 'B', 'C', 'X', 'Y', 'Z'].get(caller).copied().unwrap_or('?')
}

fn names(set: u8) -> String {
    members(set).map(name).collect()
}

/// The row and the callers in a few words.
pub(crate) fn table(state: &State) -> String {
    let leases = names(state.with(|lease| lease != Lease::Absent));
    let callers: Vec<String> = (0..ALL)
        .filter_map(|at| match state.callers[at] {
            Caller::Outside | Caller::Gone => None,
            Caller::Waiting => Some(format!("{} waits", name(at))),
            Caller::Batched => Some(format!("{} in the batch", name(at))),
            Caller::Answered(lease) => Some(format!("{} answered {}", name(at), name(lease.into()))),
            Caller::Holding(lease) => Some(format!("{} holds {}", name(at), name(lease.into()))),
        })
        .collect();
    let idle: u8 = (0..PROCESSES).fold(0, |set, process| set | state.lanes[process].idle);
    let idle = if idle == 0 { String::new() } else { format!("; idle {}", names(idle)) };
    format!(
        "{} free, leases {}; {}{idle}",
        state.free,
        if leases.is_empty() { "-" } else { &leases },
        callers.join(", ")
    )
}
