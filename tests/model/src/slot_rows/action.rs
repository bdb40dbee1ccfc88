//! What may happen next, and how a trace tells it.

use super::state::{Of, Row, State};

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A caller takes a slot of its own row.
    Take(Of),
    /// Callers begin to wait for a row without a free slot.
    Wait(Of),
    /// They wait no more.
    Leave(Of),
    /// A borrower reads a row that lends.
    Look(Of),
    /// And takes a slot of it, if its condition holds.
    Borrow,
    /// A call that took of its own row ends.
    GiveBack(Of),
    /// A call that borrowed of the row ends.
    GiveBackBorrowed(Of),
    /// A call of the row crashes.
    Crash(Of),
    /// A sweep gives back what a crashed call of the row had.
    Sweep(Of),
    /// An operator reads the rows and the name.
    Read(usize),
    /// And writes what they lack.
    Write(usize),
    /// A sweep reads them.
    SweepReads,
    /// And goes on with a change that they show.
    GoOn,
}

impl Action {
    /// What happens, in plain words.
    pub(crate) fn words(self) -> String {
        match self {
            Self::Take(of) => format!("a call takes a slot of {}", of.words()),
            Self::Wait(of) => format!("callers wait for {}", of.words()),
            Self::Leave(of) => format!("nobody waits for {} any more", of.words()),
            Self::Look(of) => format!("a borrower looks at {}", of.words()),
            Self::Borrow => "it borrows".into(),
            Self::GiveBack(of) => format!("a call gives its slot of {} back", of.words()),
            Self::GiveBackBorrowed(of) => format!("a borrower gives its slot of {} back", of.words()),
            Self::Crash(of) => format!("a call of {} crashes", of.words()),
            Self::Sweep(of) => format!("a sweep gives back a slot of {}", of.words()),
            Self::Read(who) => format!("operator {who} reads"),
            Self::Write(who) => format!("operator {who} writes"),
            Self::SweepReads => "a sweep reads".into(),
            Self::GoOn => "the sweep goes on".into(),
        }
    }
}

/// The rows, the name, and who holds what.
pub(crate) fn table(state: &State) -> String {
    let row = |row: Row| format!("{} of {}", row.free, row.capacity);
    let share = state.table.share.map_or_else(|| "no row".into(), row);
    let named = state.table.named.map_or_else(
        || "no name".into(),
        |named| format!("named with {}{}", named.capacity, if named.is_closed { ", closed" } else { "" }),
    );
    let changes = state.table.changes_to.map_or_else(String::new, |slots| format!(", changing to {slots}"));
    let [common, of_share] = state.holders.map(|holders| holders.all());
    format!(
        "common {}, share {share}, {named}{changes}; {common} and {of_share} are held",
        row(state.table.common)
    )
}
