//! What may happen next, and how a trace tells it.

use super::state::{Held, Of, State};
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

/// One step. Where a clock is read, it shows so many ticks more than there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    /// A product takes from its own line.
    Take {
        of: Of,
        tokens: i8,
        purpose: Purpose,
        moves: bool,
        clock: i8,
    },
    /// A call of the common line takes so many tokens of that, and borrows so many of the share's.
    Borrow {
        own: i8,
        tokens: i8,
        purpose: Purpose,
        clock: i8,
    },
    /// Tokens of a lot are used.
    Use {
        holder: usize,
        tokens: i8,
        clock: i8,
    },
    /// A booked call begins at its start.
    Begin {
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
    /// An operator declares the share, with so many tokens.
    Declare {
        tokens: i8,
        clock: i8,
    },
    /// An operator looks at the share.
    Look,
    /// And removes it.
    Remove {
        clock: i8,
    },
}

impl Action {
    /// What happens, in plain words.
    pub(crate) fn words(self, before: &State) -> String {
        let taker = || before.holdings.iter().position(Option::is_none).map_or('-', name);
        match self {
            Self::Tick => "a tick passes".into(),
            Self::Take { of, tokens, purpose, moves, clock } => {
                let line = line_of(of);
                let moved = if moves { ", re-anchored" } else { "" };
                match purpose {
                    Purpose::Lot => {
                        format!("{} takes a lot of {tokens} of {line}{moved}{}", taker(), off(clock))
                    }
                    Purpose::Call => format!("a call takes {tokens} of {line}{moved}{}", off(clock)),
                    Purpose::Nothing => {
                        format!("{} takes {tokens} of {line} unused{moved}{}", taker(), off(clock))
                    }
                }
            }
            Self::Borrow { own, tokens, purpose, clock } => {
                let unused =
                    if purpose == Purpose::Nothing { format!(", {} unused", taker()) } else { String::new() };
                let own = if own > 0 { format!("{own} of its own and ") } else { String::new() };
                format!("a common call takes {own}{tokens} borrowed{unused}{}", off(clock))
            }
            Self::Use { holder, tokens, clock } => format!("{} uses {tokens}{}", name(holder), off(clock)),
            Self::Begin { holder } => format!("{}'s booked call begins", name(holder)),
            Self::Return { holder, clock } => format!("{} gives back{}", name(holder), off(clock)),
            Self::Drop { holder } => format!("{} crashes", name(holder)),
            Self::Declare { tokens, clock } => format!("the share is declared with {tokens}{}", off(clock)),
            Self::Look => "an operator looks at the share".into(),
            Self::Remove { clock } => format!("the share is removed{}", off(clock)),
        }
    }
}

const fn line_of(of: Of) -> &'static str {
    match of {
        Of::Common => "the common line",
        Of::Share => "the share",
    }
}

fn off(clock: i8) -> String {
    if clock == 0 { String::new() } else { format!(", clock {clock:+}") }
}

/// The lines and who holds what.
pub(crate) fn table(state: &State) -> String {
    let held: Vec<String> = state
        .holdings
        .iter()
        .enumerate()
        .filter_map(|(at, holding)| {
            let holding = (*holding)?;
            let how = match holding.held {
                Held::Lot => "lot",
                Held::Unused => "unused",
                Held::Booked => "booked",
            };
            let of = if holding.of == Of::Share { "share" } else { "common" };
            Some(format!("{} {} {how} of {of}", name(at), holding.left))
        })
        .collect();
    let share = state.share.map_or_else(|| "no share".into(), |line| format!("share {}", line.height));
    let State { common, meter, promised, .. } = state;
    format!("common {}, {share}, meter {meter}, promised {promised}; {}", common.height, held.join(", "))
}
