//! The text of a write that changes several lines, and its values.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use crate::bucket::Bucket;
use crate::limit::split::MOST_SHARES;
use crate::schema::{LAST_REFILL_AT, LINE_ANCHOR, LINE_TOKENS, SHARES, TOKENS, VERSION};
use crate::share::ShareName;
use crate::statement::{AttributeNames, Operand, Statement, Update, Values};

macro_rules! placeholders {
    ($($number:literal)*) => {
        /// The placeholder of each share's name. All are short: an expression may have 4 KB.
        pub(super) const NAMES: [&str; MOST] = [$(concat!("#s", $number)),*];
        /// For each line: the tokens, the anchor, and two bounds.
        pub(super) const OF_LINE: [[&str; 4]; MOST] = [$([
            concat!(":t", $number),
            concat!(":a", $number),
            concat!(":l", $number),
            concat!(":h", $number),
        ]),*];
        /// For each line that is rewritten: its capacity, rate, floor, and the whole line.
        pub(super) const REWRITTEN: [[&str; 4]; MOST] = [$([
            concat!(":c", $number),
            concat!(":r", $number),
            concat!(":f", $number),
            concat!(":n", $number),
        ]),*];
    };
}

/// Lines that one write can change: the common line, shares that go, and shares that come.
const MOST: usize = 2 * MOST_SHARES + 1;

placeholders!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);

/// A write under construction.
#[derive(Default)]
pub(super) struct Wording {
    set: String,
    remove: String,
    condition: String,
    attributes: Vec<&'static str>,
    entries: Vec<(&'static str, String)>,
    pub(super) values: Values,
    lines: usize,
}

impl Wording {
    fn add(text: &mut String, between: &str, parts: &[&str]) {
        if !text.is_empty() {
            text.push_str(between);
        }
        parts.iter().for_each(|part| text.push_str(part));
    }

    pub(super) fn set(&mut self, parts: &[&str]) {
        Self::add(&mut self.set, ", ", parts);
    }

    pub(super) fn remove(&mut self, parts: &[&str]) {
        Self::add(&mut self.remove, ", ", parts);
    }

    pub(super) fn asks(&mut self, parts: &[&str]) {
        Self::add(&mut self.condition, " AND ", parts);
    }

    pub(super) fn number(
        &mut self,
        placeholder: &'static str,
        value: impl core::fmt::Display,
    ) -> &'static str {
        self.values.push((placeholder, Operand::number(value)));
        placeholder
    }

    pub(super) fn attribute(&mut self, name: &'static str) {
        if !self.attributes.contains(&name) {
            self.attributes.push(name);
        }
    }

    /// The placeholder of an attribute in a line, or of an entry of the map of shares.
    pub(super) fn entry(&mut self, placeholder: &'static str, name: &str) -> &'static str {
        if !self.entries.iter().any(|(known, _)| *known == placeholder) {
            self.entries.push((placeholder, String::from(name)));
        }
        placeholder
    }

    /// The next line: its number, and the path of the share.
    pub(super) fn line(&mut self, share: Option<&ShareName>) -> (usize, String) {
        let at = self.lines;
        self.lines += 1;
        let Some(share) = share else { return (at, String::new()) };
        self.attribute(SHARES);
        (at, ["#shares.", self.entry(NAMES[at], share.as_str()), "."].concat())
    }

    /// The paths of the tokens and the anchor of a line.
    pub(super) fn tokens_and_anchor(&mut self, share: Option<&ShareName>, path: &str) -> (String, String) {
        if share.is_none() {
            self.attribute(TOKENS);
            self.attribute(LAST_REFILL_AT);
            return (String::from("#tokens"), String::from("#last_refill_at"));
        }
        let (tokens, anchor) = (self.entry("#t", LINE_TOKENS), self.entry("#a", LINE_ANCHOR));
        ([path, tokens].concat(), [path, anchor].concat())
    }

    pub(super) fn update(mut self, bucket: &Bucket) -> Update {
        self.attribute(VERSION);
        self.number(":1", 1);
        self.set(&["#version = #version + :1"]);
        let mut update = ["SET ", &self.set].concat();
        if !self.remove.is_empty() {
            update = [&update, " REMOVE ", &self.remove].concat();
        }
        let names = AttributeNames { attributes: self.attributes.into(), entries: self.entries };
        let statement = Statement { update: update.into(), condition: self.condition.into(), names };
        Update { key: bucket.key(), statement: Cow::Owned(statement), values: self.values }
    }
}
