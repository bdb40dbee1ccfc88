//! The file that is read, and its faults so far.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeValue, Error};

use sluice_core::ShareName;

use crate::failure::Failure;

/// The file, and its faults so far.
pub(super) struct Place<'a> {
    name: &'a str,
    text: &'a str,
    faults: RefCell<Vec<Fault>>,
}

struct Fault {
    line: usize,
    text: String,
    is_syntax: bool,
}

/// A fault was found, and is in the list of the place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faulty;

/// A field that a bucket may have.
#[derive(Debug)]
pub(super) enum Written<T> {
    Missing,
    /// It cannot be used, which is noted.
    Faulty,
    Sound(Field<T>),
}

impl<T> Written<T> {
    /// The field, or `None` if there is none.
    pub(super) const fn get(&self) -> Result<Option<&Field<T>>, Faulty> {
        match self {
            Self::Missing => Ok(None),
            Self::Faulty => Err(Faulty),
            Self::Sound(field) => Ok(Some(field)),
        }
    }

    /// The value of a field that makes sense.
    pub(super) const fn value(&self) -> Option<&T> {
        match self {
            Self::Sound(field) => Some(&field.value),
            _ => None,
        }
    }
}

/// A value of the file that makes sense by itself.
#[derive(Debug)]
pub(super) struct Field<T> {
    pub(super) name: String,
    pub(super) value: T,
    /// Where the value is written.
    at: Range<usize>,
}

impl<T> Field<T> {
    pub(super) fn new(name: &str, written: &Spanned<DeValue<'_>>, value: T) -> Self {
        Self::at(name, written.span(), value)
    }

    pub(super) fn at(name: &str, at: Range<usize>, value: T) -> Self {
        Self { name: name.to_owned(), value, at }
    }
}

/// The most characters of a value that a message quotes.
const MOST_QUOTED: usize = 60;

impl<'a> Place<'a> {
    pub(super) const fn new(name: &'a str, text: &'a str) -> Self {
        Self { name, text, faults: RefCell::new(Vec::new()) }
    }

    pub(super) fn line(&self, at: usize) -> usize {
        self.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
    }

    pub(super) fn line_of<T>(&self, field: &Field<T>) -> usize {
        self.line(field.at.start)
    }

    /// Notes that a field cannot be used, with its value as the user wrote it.
    pub(super) fn fault<T>(&self, field: &Field<T>, reason: impl fmt::Display) -> Faulty {
        self.fault_in(&field.name, field.at.clone(), reason)
    }

    /// The same, of a value that could not be read.
    pub(super) fn fault_in(&self, name: &str, at: Range<usize>, reason: impl fmt::Display) -> Faulty {
        let written = self.text.get(at.clone()).unwrap_or_default().lines().next().unwrap_or_default();
        let quoted: String = written.chars().take(MOST_QUOTED).collect();
        let cut = if quoted.len() < written.len() { "..." } else { "" };
        self.note(at.start, format!("{name} = {quoted}{cut}: {reason}"))
    }

    /// Notes a fault that is not about a value.
    pub(super) fn note(&self, at: usize, text: impl fmt::Display) -> Faulty {
        self.add(at, text, false)
    }

    fn add(&self, at: usize, text: impl fmt::Display, is_syntax: bool) -> Faulty {
        let line = self.line(at);
        self.faults.borrow_mut().push(Fault { line, text: text.to_string(), is_syntax });
        Faulty
    }

    /// Notes that this is not TOML. For the usual reason, missing quotes, the message has the line as it
    /// should be.
    pub(super) fn note_syntax(&self, error: &Error) {
        let at = error.span().map_or(0, |span| span.start.min(self.text.len()));
        let written = self.text.split('\n').nth(self.line(at) - 1).unwrap_or_default().trim();
        let name = written.split_once('=').map(|(name, _)| name.trim());
        let text = match (without_quotes(written), head(written)) {
            _ if error.message().contains("duplicate key") => {
                let column =
                    at - self.text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
                let line = self.text.split('\n').nth(self.line(at) - 1).unwrap_or_default();
                let is_inside = line.find('{').is_some_and(|brace| brace < column);
                let twice = if is_inside { "a name in it" } else { "it" };
                format!(
                    "{}: {twice} is stated twice: remove one of the two, or rename it",
                    name.unwrap_or(written)
                )
            }
            _ if name.is_some_and(is_share_to_quote) => {
                let name = name.unwrap_or_default();
                format!("{name}: write this name in quotes: \"{name}\"")
            }
            (Some((name, value)), _) => format!("{name} = {value}: write it in quotes: {name} = \"{value}\""),
            (None, Some(head)) => format!("{written}: write {head}"),
            (None, None) => error.message().to_owned(),
        };
        self.add(at, text, true);
    }

    /// Whether the file is TOML so far. If it is not, what seems to be missing may be what could not be read.
    pub(super) fn is_toml(&self) -> bool {
        self.faults.borrow().iter().all(|fault| !fault.is_syntax)
    }

    /// All faults in the order of the file, a line each; `None` if there are none. Of a line that is not
    /// TOML, only that is said, and once.
    pub(super) fn failure(self) -> Option<Failure> {
        let mut faults = self.faults.into_inner();
        faults.sort_by_key(|fault| (fault.line, !fault.is_syntax));
        faults
            .dedup_by(|next, first| next.line == first.line && (first.is_syntax || next.text == first.text));
        let lines: Vec<_> =
            faults.iter().map(|Fault { line, text, .. }| format!("{}:{line}: {text}", self.name)).collect();
        (!lines.is_empty()).then(|| Failure::new(lines.join("\n")))
    }
}

/// Whether TOML takes this name of a share in quotes only: `checkout/batch`.
fn is_share_to_quote(name: &str) -> bool {
    name.contains('/') && ShareName::is_valid(name)
}

/// How the head of a table should be written, for a line like `[[bucket]`.
fn head(line: &str) -> Option<&'static str> {
    let line = line.split(" #").next().unwrap_or(line);
    match line.strip_prefix('[')?.trim_matches(['[', ']', ' ']) {
        "bucket" => Some(TWO_BRACKETS),
        "bucket.shares" => Some("[bucket.shares], with one bracket on each side"),
        _ => None,
    }
}

pub(super) const TWO_BRACKETS: &str = "[[bucket]], with two brackets on each side";

/// The field and the value of a line like `window = 60s`. `None` if quotes would not mend it.
fn without_quotes(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let value = value.split(" #").next().unwrap_or(value);
    let (name, value) = (name.trim(), value.trim());
    let is_plain = |text: &str, more: &str| {
        !text.is_empty() && text.chars().all(|letter| letter.is_ascii_alphanumeric() || more.contains(letter))
    };
    (is_plain(name, "_-") && is_plain(value, "_-.#/:@ ")).then_some((name, value))
}
