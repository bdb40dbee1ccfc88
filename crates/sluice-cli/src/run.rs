//! `sluice run`: runs a command inside a slot.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::path::Path;
use std::pin::pin;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use clap::Args;
use sluice_sdk::{LimitError, RetryIn, RetryReason};
use tokio::process::Command;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::acquire::{of_share, refusal, request};
use crate::connect::client_called;
use crate::duration::duration;
use crate::failure::{Ended, TRY_AGAIN};
use crate::output::{YELLOW, print_error};
use crate::signals::{interrupted, terminated};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Buckets, as in openai#rpm; openai#tpm=1200 takes 1200 from it
    #[arg(required = true, value_name = "DIMENSION")]
    dimensions: Vec<String>,
    /// How long to wait for the slot
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    wait: Duration,
    /// The share that pays, rather than SLUICE_SHARE; `common` is the part that no share has
    #[arg(long)]
    share: Option<String>,
    /// The command and its arguments; a single argument is run by the shell
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// What a shell returns for a command that does not exist, and for one that it may not run.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;
/// After this time, a user is told what the command waits for.
const SILENCE: Duration = Duration::from_secs(1);

pub(crate) async fn run(options: Options) -> Ended {
    let program = &options.command[0];
    // Before the wait for a slot, which may be long.
    if options.command.len() > 1 && !exists(program, std::env::var_os("PATH").as_deref()) {
        print_error(format!("{program}: there is no such command"));
        return Ok(ExitCode::from(NOT_FOUND));
    }
    let client = client_called(holder(program)).await?;
    let request = of_share(request(&options.dimensions)?, options.share.as_deref());
    let slot = client.slot(request).max_wait(options.wait);
    let begun = Notify::new();
    let slot = slot.run(async |_slot| {
        begun.notify_one();
        child(&options.command).await.map_err(NoStatus::Child)
    });
    let status = tokio::select! {
        status = slot => status,
        never = tell_of_the_wait(&begun, &options) => match never {},
    };
    match status {
        Ok(status) => Ok(ExitCode::from(exit_code(status))),
        Err(NoStatus::Limit(LimitError::Refused(retry))) => {
            anstream::eprintln!(
                "{}refused{} {}",
                YELLOW.render(),
                YELLOW.render_reset(),
                refused(&retry, options.wait)
            );
            client.finish_healing().await;
            Ok(ExitCode::from(TRY_AGAIN))
        }
        Err(NoStatus::Child(error)) => {
            print_error(format!("{program}: {error}"));
            Ok(ExitCode::from(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE }))
        }
        Err(NoStatus::Limit(error)) => Err(error.into()),
    }
}

/// What a person reads of a refusal after this wait. Nobody who waited in vain for a slot needs a guess of
/// when one comes free.
fn refused(retry: &RetryIn, waited: Duration) -> String {
    match retry.reason() {
        RetryReason::NoFreeSlot if !waited.is_zero() => {
            let waited = humantime::format_duration(waited);
            format!("{}: no slot came free within {waited}", retry.dimension())
        }
        _ => refusal(retry),
    }
}

/// Whether a shell would find the program.
fn exists(program: &str, path: Option<&std::ffi::OsStr>) -> bool {
    if program.contains(std::path::MAIN_SEPARATOR) {
        return Path::new(program).exists();
    }
    // Without a PATH, only the system knows where it looks.
    path.is_none_or(|path| std::env::split_paths(path).any(|folder| folder.join(program).exists()))
}

/// The name of the command that holds the slot: of a line for the shell, its first word.
fn holder(program: &str) -> &str {
    let word = program.split_whitespace().next().unwrap_or_default();
    word.rsplit(std::path::MAIN_SEPARATOR).next().unwrap_or(word)
}

/// Says once what the command waits for, if its slot does not begin soon. Never ends.
async fn tell_of_the_wait(begun: &Notify, options: &Options) -> Infallible {
    if timeout(SILENCE, begun.notified()).await.is_err() {
        let (names, wait) = (options.dimensions.join(", "), humantime::format_duration(options.wait));
        anstream::eprintln!("waiting for {names}, for {wait} at most");
    }
    std::future::pending().await
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_for_where_a_shell_looks() {
        let path = std::ffi::OsStr::new("/nowhere:/bin");
        assert!(exists("sh", Some(path)) && exists("/bin/sh", None) && exists("anything", None));
        assert!(!exists("no-such-program", Some(path)) && !exists("/bin/no-such-program", Some(path)));
    }

    #[test]
    fn a_slot_is_held_by_the_name_of_its_command() {
        assert_eq!(
            ["/opt/nightly.sh", "make", "exec sleep 30", ""].map(holder),
            ["nightly.sh", "make", "exec", ""]
        );
    }
}
