//! Whether the environment switches limits off: the table does not know in which mode its clients are.

use sluice_sdk::Mode;

use super::finding::{Check, Finding};

pub(super) fn examine(mode: Mode, table: &str) -> Option<Finding> {
    let what = "SLUICE_MODE is shadow here: programs with these variables count their calls, and no limit holds for them";
    let todo = "nothing during a trial; to let limits hold, remove SLUICE_MODE";
    (mode == Mode::Shadow).then(|| Finding::note(Check::Limits, table, what, todo))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shadow_mode_is_told_and_is_no_problem() {
        assert!(examine(Mode::Enforce, "the-table").is_none());
        let finding = examine(Mode::Shadow, "the-table").expect("a finding");
        assert!(finding.what.contains("SLUICE_MODE") && !finding.is_problem());
    }
}
