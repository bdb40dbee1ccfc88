//! `sluice watch`: shows the table live in a terminal.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::connect::client;
use crate::failure::{Ended, Failure};
use crate::view::{SurveyReader, interval};

mod alerts;
mod detail;
mod figure;
mod lines;
mod list;
mod live;
mod once;
mod screen;
mod sort;
#[cfg(test)]
mod tests;
mod words;

use once::Form;
use screen::Screen;
use sort::Sort;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Print one frame and stop, for scripts; reads the table twice, to show what is used a second
    #[arg(long)]
    once: bool,
    /// With --once, print JSON: what the dashboard serves at /api/picture, without the last hour
    #[arg(long, requires = "once")]
    json: bool,
    /// Time between two readings, one second at least; a large table is read less often
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "1s")]
    interval: Duration,
    /// Only buckets whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,
    /// What comes first: the lowest level, the most use, the most holders, the longest wait
    #[arg(long, value_enum, default_value_t = Sort::Name)]
    sort: Sort,
}

impl Options {
    /// Whether the command draws on the screen from now on. A log line would be lost in the frame, and break
    /// it.
    pub(crate) fn owns_the_screen(&self) -> bool {
        !self.once && std::io::stderr().is_terminal()
    }
}

pub(crate) async fn run(options: Options) -> Ended {
    if !options.once && !std::io::stdout().is_terminal() {
        return Err(Failure::new(
            "the output is not a terminal: `sluice watch --once` prints one frame and stops",
        ));
    }
    let client = client().await?;
    let reader = SurveyReader::new(client.clone(), options.interval);
    let screen = Screen::new(options.filter, options.sort);
    if options.once {
        let form = if options.json { Form::Json } else { Form::Frame };
        once::print(client.table(), reader, screen, form).await?;
    } else {
        live::watch(&client, reader, screen).await?;
    }
    Ok(ExitCode::SUCCESS)
}
