//! The commands in the help, by who uses them.

use std::fmt::Write as _;

use clap::Command;

use crate::output::HEADING;

/// Each command that the help shows is in one group. Those of a build without the lab are left out.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Begin", &["init", "demo", "sandbox"]),
    ("Set limits", &["buckets", "penalize", "cool-down"]),
    ("Call a vendor from a script", &["run", "acquire", "redeem"]),
    ("See what happens", &["watch", "dashboard", "leases", "metrics"]),
    ("Keep the table right", &["doctor", "reconcile"]),
    ("Test and measure", &["stress", "bench", "history"]),
    ("Set up this command", &["completions", "man"]),
];

const TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}{after-help}\n\nOptions:\n{options}";

/// The command with a help that lists its commands in groups.
pub(crate) fn grouped(command: Command) -> Command {
    let listed = list(&command);
    // clap can list commands under one heading alone.
    command.help_template(TEMPLATE).after_help(listed.clone()).after_long_help(listed)
}

fn list(command: &Command) -> String {
    let width = command.get_subcommands().map(|one| one.get_name().len()).max().unwrap_or_default();
    let groups = GROUPS.map(|(heading, names)| {
        let mut text = format!("{}{heading}:{}", HEADING.render(), HEADING.render_reset());
        for one in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = one.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = write!(text, "\n  {:<width$}  {about}", one.get_name());
        }
        text
    });
    format!("{}\n\n`sluice COMMAND --help` says more of each.", groups.join("\n\n"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn every_command_is_in_one_group_and_its_line_fits_a_terminal() {
        let command = Arguments::command();
        let mut shown: Vec<_> =
            command.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name).collect();
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(shown, grouped);
        let long: Vec<_> =
            list(&command).lines().filter(|line| line.chars().count() > 80).map(str::to_owned).collect();
        assert_eq!(long, [""; 0]);
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::grouped().debug_assert();
    }
}
