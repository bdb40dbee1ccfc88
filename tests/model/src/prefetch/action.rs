//! What may happen next, and how a trace tells it.

use super::state::{Held, State};
use crate::action::name;

/// What a take is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A lot.
    Lot,
    /// A call that uses them at once, or at its start.
    Call,
    /// What a call will leave unused. (What it uses beyond that is another call's take just before.)
    Nothing,
}

/// Which write takes the tokens of a bucket that is not full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Spend,
    Reanchor,
}

/// One step. Where a clock is read, it shows so many ticks more than there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    Take {
        tokens: i8,
        purpose: Purpose,
        form: Form,
        clock: i8,
    },
    Use {
        holder: usize,
        tokens: i8,
        clock: i8,
    },
    /// A booked call begins at its start.
    Begin {
        holder: usize,
    },
    /// The same, of a call that will leave all of it unused. (What it uses beyond that is another booking
    /// just before.)
    BeginUnused {
        holder: usize,
    },
    /// A holder gives back what is left.
    Return {
        holder: usize,
        clock: i8,
    },
    /// A holder crashes, or what it holds is not worth a write.
    Drop {
        holder: usize,
    },
}

impl Action {
    /// What happens, in plain words.
    pub(crate) fn words(self, before: &State) -> String {
        match self {
            Self::Tick => "a tick passes".into(),
            Self::Take { tokens, purpose, form, clock } => {
                let taker = before.holdings.iter().position(Option::is_none).map_or('-', name);
                let of = match purpose {
                    Purpose::Lot => format!("{taker} takes a lot of {tokens}"),
                    Purpose::Call => format!("a call takes {tokens}"),
                    Purpose::Nothing => format!("{taker} takes {tokens} unused"),
                };
                format!("{of}{}{}", if form == Form::Reanchor { ", re-anchored" } else { "" }, off(clock))
            }
            Self::Use { holder, tokens, clock } => format!("{} uses {tokens}{}", name(holder), off(clock)),
            Self::Begin { holder } => format!("{}'s booked call begins", name(holder)),
            Self::BeginUnused { holder } => {
                format!("{}'s booked call begins, and uses nothing", name(holder))
            }
            Self::Return { holder, clock } => format!("{} gives back{}", name(holder), off(clock)),
            Self::Drop { holder } => format!("{} crashes", name(holder)),
        }
    }
}

fn off(clock: i8) -> String {
    if clock == 0 { String::new() } else { format!(", clock {clock:+}") }
}

/// The bucket and who holds what.
pub(crate) fn table(state: &State) -> String {
    let held: Vec<String> = state
        .holdings
        .iter()
        .enumerate()
        .filter_map(|(at, holding)| {
            let holding = (*holding)?;
            let how = match holding.held {
                Held::Lot(_) => "lot",
                Held::Unused => "unused",
                Held::Booked => "booked",
            };
            Some(format!("{} {} {how} from {}", name(at), holding.left, holding.receipt.bottom))
        })
        .collect();
    format!("line {}, meter {}; {}", state.line, state.meter, held.join(", "))
}
