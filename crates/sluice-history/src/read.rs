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
    /// The first line is not `{"event":"history",..}`.
    #[error(
        "{file} is not a history: {found}. A history is NDJSON that begins with {HEADER}, as `sluice stress DIM --history FILE` writes it"
    )]
    NotAHistory {
        /// The file, or "the history".
        file: String,
        /// What is there instead.
        found: String,
    },
    /// A later line is not an event.
    #[error("{file}, line {line} is not an event of a history: {reason} (docs/history.md lists the events)")]
    Line {
        /// The file, or "the history".
        file: String,
        /// The line; the first is 1.
        line: u64,
        /// What is wrong with the line.
        reason: String,
    },
    /// The last line breaks off in its middle.
    #[error("{file} was cut off: its last line, line {line}, breaks off in the middle")]
    CutOff {
        /// The file, or "the history".
        file: String,
        /// The line; the first is 1.
        line: u64,
    },
}

/// What the first line of a history looks like.
const HEADER: &str = r#"{"event":"history","version":2}"#;

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
    let (mut text, mut line, mut has_header) = (Vec::new(), 0, false);
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
        if !has_header && !matches!(event, Ok(Event::History(_))) {
            let found = format!("its line {line} is {}", excerpt(&text));
            return Err(ReadError::NotAHistory { file: file.to_owned(), found });
        }
        has_header = true;
        checker.feed(event.map_err(|error| not_an_event(file, line, &text, &error))?);
    }
    if !has_header {
        return Err(ReadError::NotAHistory { file: file.to_owned(), found: "it is empty".to_owned() });
    }
    checker.end_file();
    Ok(())
}

fn not_an_event(file: &str, line: u64, text: &[u8], error: &serde_json::Error) -> ReadError {
    let file = file.to_owned();
    if error.is_eof() && !text.ends_with(b"\n") {
        return ReadError::CutOff { file, line };
    }
    let reason = if error.is_data() {
        // The position that serde_json appends is within the line, whose number it calls 1.
        let words = error.to_string();
        words.rsplit_once(" at line ").map_or(words.clone(), |(words, _)| words.to_owned())
    } else {
        format!("{} is not JSON", excerpt(text))
    };
    ReadError::Line { file, line, reason }
}

/// The beginning of a line, for a person.
fn excerpt(text: &[u8]) -> String {
    const LENGTH: usize = 40;
    let text = String::from_utf8_lossy(text.trim_ascii());
    let plain = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let begin: String = text.chars().take(LENGTH).map(plain).collect();
    let rest = if text.chars().nth(LENGTH).is_some() { "..." } else { "" };
    format!("`{begin}{rest}`")
}
