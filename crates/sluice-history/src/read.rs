//! Reads histories.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use crate::checker::Checker;
use crate::event::Event;
use crate::verdict::Verdict;

/// Why a file is not a history.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be opened or read.
    #[error("{file} cannot be read: {source}")]
    Io {
        /// The file, or "the history".
        file: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A line is not an event.
    #[error("{file}, line {line}: {source}")]
    Line {
        /// The file, or "the history".
        file: String,
        /// The line; the first is 1.
        line: u64,
        /// What is wrong with the line.
        source: serde_json::Error,
    },
    /// The first line is not `{"event":"history",..}`.
    #[error(
        "{file} does not begin with a line {{\"event\":\"history\",\"version\":1}}: it is not a history, or its beginning is missing"
    )]
    NoHeader {
        /// The file, or "the history".
        file: String,
    },
}

/// Reads one history and decides it.
///
/// # Errors
/// [`ReadError`] for what cannot be read. What can be read and makes no sense is in the verdict.
pub fn check(history: impl BufRead) -> Result<Verdict, ReadError> {
    let mut checker = Checker::new();
    feed_all(&mut checker, "the history", history)?;
    Ok(checker.finish())
}

/// Reads several files as one history, and decides it. All clocks are assumed to err by at least
/// `error_micros`.
///
/// # Errors
/// As [`check`].
pub fn check_files(files: &[impl AsRef<Path>], error_micros: i64) -> Result<Verdict, ReadError> {
    check_files_with(Checker::new().with_error(error_micros), files)
}

/// As [`check_files`], with the assumptions of `checker`.
///
/// # Errors
/// As [`check`].
pub fn check_files_with(mut checker: Checker, files: &[impl AsRef<Path>]) -> Result<Verdict, ReadError> {
    for path in files {
        let name = path.as_ref().display().to_string();
        let file = File::open(path).map_err(|source| ReadError::Io { file: name.clone(), source })?;
        if files.len() > 1 {
            checker.begin_file(&name);
        }
        feed_all(&mut checker, &name, BufReader::with_capacity(1 << 16, file))?;
    }
    Ok(checker.finish())
}

fn feed_all(checker: &mut Checker, file: &str, mut history: impl BufRead) -> Result<(), ReadError> {
    let (mut text, mut line, mut begun) = (Vec::new(), 0, false);
    loop {
        text.clear();
        let read = history.read_until(b'\n', &mut text);
        if read.map_err(|source| ReadError::Io { file: file.to_owned(), source })? == 0 {
            break;
        }
        line += 1;
        if text.trim_ascii().is_empty() {
            checker.skip_line();
            continue;
        }
        let event = serde_json::from_slice(&text);
        let event: Event = event.map_err(|source| ReadError::Line { file: file.to_owned(), line, source })?;
        if !begun && !matches!(event, Event::History(_)) {
            break;
        }
        begun = true;
        checker.feed(event);
    }
    if begun { Ok(()) } else { Err(ReadError::NoHeader { file: file.to_owned() }) }
}
