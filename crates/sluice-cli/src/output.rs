//! How commands print: tables for people, JSON for programs, colour only on a terminal.

use std::borrow::Cow;
use std::io::IsTerminal as _;

use anstyle::{AnsiColor, Style};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::Value;
use sluice_sdk::core::Timestamp;

use crate::duration;
use crate::failure::Failure;

pub(crate) const RED: Style = AnsiColor::Red.on_default().bold();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();
/// As clap prints headings.
pub(crate) const HEADING: Style = Style::new().bold().underline();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();

/// Replaces control characters in text from the table or a remote answer, which a terminal takes for
/// commands: anybody who can write a row could put them there. JSON has its own escapes.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_control) {
        text.chars()
            .map(|letter| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter })
            .collect()
    } else {
        Cow::Borrowed(text)
    }
}

pub(crate) fn print_error(error: impl ToString) {
    let error = error.to_string();
    let lines: Vec<_> = error.lines().map(plain).collect();
    anstream::eprintln!("{}error:{} {}", RED.render(), RED.render_reset(), lines.join("\n"));
}

/// Asks a person on the terminal. Only "y" and "yes" agree.
pub(crate) fn agrees(question: &str) -> std::io::Result<bool> {
    eprint!("{} ", plain(question));
    let mut answer = String::new();
    if std::io::stdin().read_line(&mut answer)? == 0 {
        // Nobody ended the line of the question.
        eprintln!();
    }
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

/// A decimal of the table: text for people with every digit, and a number in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decimal(String);

impl Decimal {
    pub(crate) fn of(value: impl ToString) -> Self {
        Self(value.to_string())
    }
}

impl std::ops::Deref for Decimal {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for Decimal {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.0.parse::<i64>(), self.0.parse::<f64>()) {
            (Ok(whole), _) => serializer.serialize_i64(whole),
            // Its digits are the same up to fifteen of them.
            (_, Ok(number)) => serializer.serialize_f64(number),
            _ => serializer.serialize_str(&self.0),
        }
    }
}

/// Alignment of a column: numbers to the right.
pub(crate) enum Align {
    Left,
    Right,
}

/// Ends the program if nobody reads its output any more, as in `sluice history ... | head`, with the exit
/// code that a shell uses for that. If the output cannot be written, as on a full disk, ends with an error.
/// Rust's `println!` panics in both cases.
pub(crate) fn end_with_the_reader() {
    /// 128 plus SIGPIPE.
    const NOBODY_READS: i32 = 141;
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let message = info.payload_as_str().unwrap_or_default();
        match message.strip_prefix("failed printing to stdout: ") {
            Some(error) if error.starts_with("Broken pipe") => std::process::exit(NOBODY_READS),
            Some(error) => {
                print_error(format!("the output cannot be written: {error}"));
                std::process::exit(1)
            }
            None => others(info),
        }
    }));
}

/// Prints rows under a header; a column is as wide as its widest cell.
pub(crate) fn table<const N: usize>(columns: [(&str, Align); N], rows: Vec<[String; N]>) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns.iter().map(|(name, _)| (*name).to_owned()));
    for row in rows {
        table.add_row(row.iter().map(|cell| plain(cell)));
    }
    for (column, (_, align)) in table.column_iter_mut().zip(&columns) {
        column.set_padding((0, 2));
        if matches!(align, Align::Right) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for (n, line) in table.lines().enumerate() {
        let line = line.trim_end();
        if n == 0 {
            anstream::println!("{}{line}{}", BOLD.render(), BOLD.render_reset());
        } else {
            anstream::println!("{line}");
        }
    }
}

/// The lines of `text` beside a margin of so many columns: broken between words to fit the terminal. If the
/// output is no terminal, the text stays one line, so that `grep` finds all of it.
pub(crate) fn lines_beside(margin: usize, text: &str) -> Vec<String> {
    /// Longer lines are hard to read.
    const MOST: usize = 100;
    let text = plain(text);
    if !std::io::stdout().is_terminal() {
        return vec![text.into_owned()];
    }
    let columns = ratatui::crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns));
    wrapped(&text, columns.saturating_sub(1).min(MOST).saturating_sub(margin).max(20))
}

/// Breaks `text` between words. A word longer than a line gets a line of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    println!("{}", serde_json::to_string(value)?);
    Ok(())
}

#[derive(Debug, Serialize)]
pub(crate) struct Unreadable {
    pub(crate) key: String,
    pub(crate) error: String,
}

/// Rows, followed by the unreadable ones, which have the field `error`.
pub(crate) fn with_unreadable(
    rows: &[impl Serialize],
    unreadable: &[Unreadable],
) -> Result<Vec<Value>, Failure> {
    let rows = rows.iter().map(serde_json::to_value).chain(unreadable.iter().map(serde_json::to_value));
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(crate) fn print_unreadable(rows: &[Unreadable]) {
    for Unreadable { key, error } in rows {
        let (key, error) = (plain(key), plain(error));
        anstream::eprintln!("{}cannot be read:{} {key}: {error}", RED.render(), RED.render_reset());
    }
}

/// "12s ago", "in 1m 44s".
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    let secs = if at > now { at.since(now).as_secs_f64() } else { -now.since(at).as_secs_f64() };
    duration::relative(secs)
}

/// At most three decimals, without trailing zeros.
pub(crate) fn short(number: &str) -> String {
    match number.split_once('.') {
        Some((whole, decimals)) => {
            let cut = format!("{whole}.{}", &decimals[..decimals.len().min(3)]);
            cut.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        None => number.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Decimal, plain, wrapped};

    #[test]
    fn a_decimal_is_a_number_in_json_with_its_digits() {
        for text in ["50", "-3", "57.666345226615", "1764132135.123456", "0.0001", "123456789.123456"] {
            assert_eq!(serde_json::to_string(&Decimal::of(text)).unwrap(), text);
        }
        assert_eq!(serde_json::to_string(&Decimal::of("0.000001")).unwrap(), "1e-6", "a number too");
    }

    #[test]
    fn a_terminal_gets_no_commands_from_a_row() {
        let (sequences, plain_ones) =
            ("a\u{1b}[2Jb\u{9b}31mc\u{7f}\r\nd", "a\u{fffd}[2Jb\u{fffd}31mc\u{fffd}\u{fffd}\u{fffd}d");
        assert_eq!(plain(sequences), plain_ones);
        assert_eq!(plain("naïve#モデル#rpm \"quoted\""), "naïve#モデル#rpm \"quoted\"");
    }

    #[test]
    fn no_line_is_wider_than_the_screen_and_no_word_is_lost() {
        let text = "the slots of crashed callers do not come back: see that the reconciler runs, or run `sluice reconcile`";
        let lines = wrapped(text, 30);
        assert!(lines.iter().all(|line| line.chars().count() <= 30), "{lines:?}");
        assert_eq!(lines.join(" "), text);
    }
}
