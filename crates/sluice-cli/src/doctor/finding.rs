//! The result of a check: how much it matters, and what to do about it.

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::output::{BOLD, DIM, GREEN, RED, YELLOW, lines_beside};

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
    anstream::println!("{}{table}{}", BOLD.render(), BOLD.render_reset());
    for Finding { weight, check, of, what, todo } in findings {
        let (sign, style) = match weight {
            Weight::Fine => ("ok", GREEN),
            Weight::Note => ("--", YELLOW),
            Weight::Problem => ("!!", RED),
            Weight::Danger => ("!!", LOUD),
        };
        let what = if of == table { what.clone() } else { format!("{of}: {what}") };
        let mut lines = lines_beside(MARGIN, &what).into_iter();
        let (first, check) = (lines.next().unwrap_or_default(), check.as_str());
        anstream::println!("{}{sign}{} {check:13} {first}", style.render(), style.render_reset());
        lines.for_each(|line| anstream::println!("{:MARGIN$}{line}", ""));
        for line in todo.iter().flat_map(|todo| lines_beside(MARGIN, todo)) {
            anstream::println!("{:MARGIN$}{}{line}{}", "", DIM.render(), DIM.render_reset());
        }
    }
    match findings.iter().filter(|finding| finding.is_problem()).count() {
        0 => anstream::println!("nothing to do"),
        1 => anstream::println!("1 problem"),
        problems => anstream::println!("{problems} problems"),
    }
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
}
