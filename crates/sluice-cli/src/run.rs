//! `sluice run`: runs a command inside a slot.

use std::pin::pin;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use clap::Args;
use sluice_sdk::LimitError;
use tokio::process::Command;

use crate::connect::client;
use crate::duration::duration;
use crate::failure::{Ended, Failure, TRY_AGAIN};
use crate::output::YELLOW;
use crate::signals::{interrupted, terminated};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Buckets, as in openai#rpm; openai#tpm=1200 takes 1200 from it
    #[arg(required = true)]
    dimensions: Vec<String>,
    /// How long to wait for the slot
    #[arg(long, value_parser = duration, default_value = "30s")]
    wait: Duration,
    /// The command and its arguments; a single argument is run by the shell
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

pub(crate) async fn run(options: Options) -> Ended {
    let client = client().await?;
    let slot = client.slot(crate::acquire::request(&options.dimensions)?).max_wait(options.wait);
    let status = slot.run(async |_slot| child(&options.command).await.map_err(NoStatus::Child)).await;
    match status {
        Ok(status) => Ok(ExitCode::from(exit_code(status))),
        Err(NoStatus::Limit(LimitError::Refused(retry))) => {
            anstream::eprintln!("{}refused{} {retry}", YELLOW.render(), YELLOW.render_reset());
            client.finish_healing().await;
            Ok(ExitCode::from(TRY_AGAIN))
        }
        Err(NoStatus::Child(error)) => Err(Failure::new(format!("{}: {error}", options.command[0]))),
        Err(NoStatus::Limit(error)) => Err(error.into()),
    }
}

/// Why there is no exit code of the command.
enum NoStatus {
    Limit(LimitError),
    /// The command could not be started.
    Child(std::io::Error),
}

impl From<LimitError> for NoStatus {
    fn from(error: LimitError) -> Self {
        Self::Limit(error)
    }
}

async fn child(command: &[String]) -> std::io::Result<ExitStatus> {
    let mut process = match command {
        [line] => {
            let mut shell = Command::new("sh");
            shell.args(["-c", line]);
            shell
        }
        [program, arguments @ ..] => {
            let mut process = Command::new(program);
            process.args(arguments);
            process
        }
        [] => return Err(std::io::Error::other("no command")),
    };
    // Ctrl-C reaches the child directly, in this process group: wait for its end, then release. SIGTERM
    // reaches only this process, and is passed on. Both are listened for before the child exists.
    let (mut at_terminate, mut at_interrupt) = (pin!(terminated()), pin!(interrupted()));
    let mut child = process.kill_on_drop(true).spawn()?;
    loop {
        tokio::select! {
            status = child.wait() => return status,
            () = &mut at_terminate => {
                pass_on_terminate(&child);
                at_terminate.set(terminated());
            }
            () = &mut at_interrupt => at_interrupt.set(interrupted()),
        }
    }
}

fn pass_on_terminate(child: &tokio::process::Child) {
    if let Some(id) = child.id() {
        let _ = std::process::Command::new("kill").arg(id.to_string()).status();
    }
}

/// The child's exit code, or 128 plus the signal that ended it, as a shell returns it.
fn exit_code(status: ExitStatus) -> u8 {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return u8::try_from(128 + signal).unwrap_or(u8::MAX);
    }
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
