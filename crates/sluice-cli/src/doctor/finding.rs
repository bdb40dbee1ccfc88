//! The result of a check: how much it matters, and what to do about it.

use std::io::IsTerminal as _;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::output::{BOLD, DIM, GREEN, RED, YELLOW, plain};

/// How much a finding matters, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Weight {
    /// Nothing is wrong.
    Fine,
    /// Worth knowing; nobody has to act.
    Note,
    /// Somebody should act.
    Problem,
    /// Something is being lost until somebody acts.
    Danger,
}

/// The check that a finding comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Check {
    Table,
    Key,
    Ttl,
    Backups,
    Protection,
    Rights,
    Clock,
    Latency,
    Rows,
    Limits,
    CoolDown,
    Slots,
    Shares,
    HotBuckets,
    InlineLeases,
    Leases,
    Load,
    Sweeps,
}

impl Check {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Key => "key",
            Self::Ttl => "TTL",
            Self::Backups => "backups",
            Self::Protection => "protection",
            Self::Rights => "rights",
            Self::Clock => "clock",
            Self::Latency => "latency",
            Self::Rows => "rows",
            Self::Limits => "limits",
            Self::CoolDown => "cool-down",
            Self::Slots => "slots",
            Self::Shares => "shares",
            Self::HotBuckets => "hot buckets",
            Self::InlineLeases => "inline leases",
            Self::Leases => "leases",
            Self::Load => "load",
            Self::Sweeps => "sweeps",
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) weight: Weight,
    pub(super) check: Check,
    /// The table or the row.
    pub(super) of: String,
    pub(super) what: String,
    /// What to do about it; `None` if nothing is wrong.
    pub(super) todo: Option<String>,
}

impl Finding {
    pub(super) fn fine(check: Check, of: impl ToString, what: impl Into<String>) -> Self {
        Self { weight: Weight::Fine, check, of: of.to_string(), what: what.into(), todo: None }
    }

    pub(super) fn note(
        check: Check,
        of: impl ToString,
        what: impl Into<String>,
        todo: impl Into<String>,
    ) -> Self {
        Self { weight: Weight::Note, todo: Some(todo.into()), ..Self::fine(check, of, what) }
    }

    pub(super) fn problem(
        check: Check,
        of: impl ToString,
        what: impl Into<String>,
        todo: impl Into<String>,
    ) -> Self {
        Self { weight: Weight::Problem, ..Self::note(check, of, what, todo) }
    }

    pub(super) fn danger(
        check: Check,
        of: impl ToString,
        what: impl Into<String>,
        todo: impl Into<String>,
    ) -> Self {
        Self { weight: Weight::Danger, ..Self::note(check, of, what, todo) }
    }

    /// The same finding, but at most a note if `only_a_note` holds: a problem for real use may be none in a
    /// sandbox.
    pub(super) fn at_most_a_note_if(self, only_a_note: bool) -> Self {
        let weight = if only_a_note { self.weight.min(Weight::Note) } else { self.weight };
        Self { weight, ..self }
    }

    /// Whether somebody has to act.
    pub(super) fn is_problem(&self) -> bool {
        self.weight >= Weight::Problem
    }
}

/// Sorted by weight, highest first; findings of one weight keep their order.
pub(super) fn sorted(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
    findings
}

/// White on red, for what must not be overlooked.
const LOUD: Style = Style::new()
    .fg_color(Some(anstyle::Color::Ansi(AnsiColor::BrightWhite)))
    .bg_color(Some(anstyle::Color::Ansi(AnsiColor::Red)))
    .bold();

/// The columns before the text: the sign, the check, and the space between them.
const MARGIN: usize = 17;

pub(super) fn print(table: &str, findings: &[Finding]) {
    let width = width();
    anstream::println!("{}{table}{}", BOLD.render(), BOLD.render_reset());
    for Finding { weight, check, of, what, todo } in findings {
        let (sign, style) = match weight {
            Weight::Fine => ("ok", GREEN),
            Weight::Note => ("--", YELLOW),
            Weight::Problem => ("!!", RED),
            Weight::Danger => ("!!", LOUD),
        };
        let what = if of == table { what.clone() } else { format!("{of}: {what}") };
        let mut lines = wrapped(&plain(&what), width).into_iter();
        let (first, check) = (lines.next().unwrap_or_default(), check.as_str());
        anstream::println!("{}{sign}{} {check:13} {first}", style.render(), style.render_reset());
        lines.for_each(|line| anstream::println!("{:MARGIN$}{line}", ""));
        for line in todo.iter().flat_map(|todo| wrapped(todo, width)) {
            anstream::println!("{:MARGIN$}{}{line}{}", "", DIM.render(), DIM.render_reset());
        }
    }
    match findings.iter().filter(|finding| finding.is_problem()).count() {
        0 => anstream::println!("nothing to do"),
        1 => anstream::println!("1 problem"),
        problems => anstream::println!("{problems} problems"),
    }
}

/// The columns of the text; `None` if the output is not a terminal, so that each line stays whole for `grep`.
fn width() -> Option<usize> {
    /// Longer lines are hard to read.
    const MOST: usize = 100;
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let columns = ratatui::crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns));
    Some(columns.saturating_sub(1).min(MOST).saturating_sub(MARGIN).max(20))
}

/// Breaks `text` between words. A word longer than a line gets a line of its own.
fn wrapped(text: &str, width: Option<usize>) -> Vec<String> {
    let Some(width) = width else { return vec![text.to_owned()] };
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut();
        match last {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_comes_first_and_equals_stay_in_order() {
        let of = |weight, of: &str| Finding { weight, ..Finding::fine(Check::Table, of, "") };
        let findings = vec![
            of(Weight::Fine, "a"),
            of(Weight::Problem, "b"),
            of(Weight::Note, "c"),
            of(Weight::Danger, "d"),
            of(Weight::Problem, "e"),
        ];
        let order: String = sorted(findings).into_iter().map(|finding| finding.of).collect();
        assert_eq!(order, "dbeca");
    }

    #[test]
    fn no_line_is_wider_than_the_screen_and_no_word_is_lost() {
        let text = "the slots of crashed callers do not come back: see that the reconciler runs, or run `sluice reconcile`";
        let lines = wrapped(text, Some(30));
        assert!(lines.iter().all(|line| line.chars().count() <= 30), "{lines:?}");
        assert_eq!(lines.join(" "), text);
        assert_eq!(wrapped(text, None), [text]);
    }
}
