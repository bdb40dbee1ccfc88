//! `sluice completions` and `sluice man`: what a package installs beside the command. Knows no command: each
//! function is told the whole command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::{Ended, Failure};

#[derive(Debug, Args)]
pub(crate) struct CompletionOptions {
    /// The shell
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManOptions {
    /// Write the pages of all commands into this folder, as sluice.1 and sluice-buckets.1
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// The command without what only the command itself calls.
fn shown(command: &Command) -> Command {
    let commands: Vec<_> = command.get_subcommands().filter(|one| !one.is_hide_set()).cloned().collect();
    // A page of the manual has the short one in NAME, which is a line.
    let about = command.get_about().cloned().unwrap_or_default();
    let long_about = command.get_long_about().cloned().unwrap_or_else(|| about.clone());
    let shown = Command::new("sluice").version(env!("CARGO_PKG_VERSION"));
    shown.about(about).long_about(long_about).subcommands(commands)
}

pub(crate) fn completions(options: &CompletionOptions, command: &Command) -> Ended {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut shown(command), "sluice", &mut text);
    print!("{}", String::from_utf8_lossy(&text));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(options: &ManOptions, command: &Command) -> Ended {
    match &options.dir {
        Some(dir) => {
            let failed = |error| Failure::new(format!("{}: {error}", dir.display()));
            std::fs::create_dir_all(dir).map_err(failed)?;
            clap_mangen::generate_to(shown(command), dir).map_err(failed)?;
        }
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(shown(command)).render(&mut text)?;
            print!("{}", String::from_utf8_lossy(&text));
        }
    }
    Ok(ExitCode::SUCCESS)
}
