//! Writes that change several lines of a bucket with shares.
//!
//! | write | what it does to a line | its condition |
//! |---|---|---|
//! | lower | T = T - d, or T = C - d at a new anchor if the line is full | A as read, T at most C - x, or above it |
//! | rewrite | T and A as calculated, with the new limits | `version` as read |
//!
//! What lowers a bucket (a vendor's reply, a penalty) comes while callers take, so it is relative and asks
//! only what one line asks. What changes the lines (shares that are declared or removed, limits, a refill) is
//! rare: it is calculated from one reading, and any write since makes it fail. See `docs/adr/0009-shares.md`.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::time::Duration;

use crate::amount::Amount;
use crate::bucket::Bucket;
use crate::bucket::lines::{LineRead, Lines};
use crate::limit::Limit;
use crate::limit::split::{MOST_SHARES, ShareLimit};
use crate::schema::{
    CAPACITY, COST_PER_CALL, LAST_REFILL_AT, LIMIT_TYPE, LINE_ANCHOR, LINE_BACKGROUND, LINE_CAPACITY,
    LINE_FLOOR, LINE_RATE, LINE_TOKENS, REFILL_RATE, SHARES, TOKENS, VERSION,
};
use crate::share::ShareName;
use crate::statement::{AttributeNames, Operand, Statement, Update, Values};
use crate::timestamp::Timestamp;

macro_rules! placeholders {
    ($($number:literal)*) => {
        /// The placeholder of each share's name. All are short: an expression may have 4 KB.
        const NAMES: [&str; MOST] = [$(concat!("#s", $number)),*];
        /// For each line: the tokens, the anchor, and two bounds.
        const OF_LINE: [[&str; 4]; MOST] = [$([
            concat!(":t", $number),
            concat!(":a", $number),
            concat!(":l", $number),
            concat!(":h", $number),
        ]),*];
        /// For each line that is rewritten: its capacity, rate, floor, and the whole line.
        const REWRITTEN: [[&str; 4]; MOST] = [$([
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

/// How a line is to be lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// Whatever others took since the reading.
    Whatever,
    /// Unless others took since the reading.
    Nothing,
}

/// A write under construction.
#[derive(Default)]
struct Wording {
    set: String,
    remove: String,
    condition: String,
    attributes: Vec<&'static str>,
    entries: Vec<(&'static str, String)>,
    values: Values,
    lines: usize,
}

impl Wording {
    fn add(text: &mut String, between: &str, parts: &[&str]) {
        if !text.is_empty() {
            text.push_str(between);
        }
        parts.iter().for_each(|part| text.push_str(part));
    }

    fn set(&mut self, parts: &[&str]) {
        Self::add(&mut self.set, ", ", parts);
    }

    fn remove(&mut self, parts: &[&str]) {
        Self::add(&mut self.remove, ", ", parts);
    }

    fn asks(&mut self, parts: &[&str]) {
        Self::add(&mut self.condition, " AND ", parts);
    }

    fn number(&mut self, placeholder: &'static str, value: impl core::fmt::Display) -> &'static str {
        self.values.push((placeholder, Operand::number(value)));
        placeholder
    }

    fn attribute(&mut self, name: &'static str) {
        if !self.attributes.contains(&name) {
            self.attributes.push(name);
        }
    }

    /// The placeholder of an attribute in a line, or of an entry of the map of shares.
    fn entry(&mut self, placeholder: &'static str, name: &str) -> &'static str {
        if !self.entries.iter().any(|(known, _)| *known == placeholder) {
            self.entries.push((placeholder, String::from(name)));
        }
        placeholder
    }

    /// The next line: its number, and the path of the share.
    fn line(&mut self, share: Option<&ShareName>) -> (usize, String) {
        let at = self.lines;
        self.lines += 1;
        let Some(share) = share else { return (at, String::new()) };
        self.attribute(SHARES);
        (at, ["#shares.", self.entry(NAMES[at], share.as_str()), "."].concat())
    }

    /// The paths of the tokens and the anchor of a line.
    fn tokens_and_anchor(&mut self, share: Option<&ShareName>, path: &str) -> (String, String) {
        if share.is_none() {
            self.attribute(TOKENS);
            self.attribute(LAST_REFILL_AT);
            return (String::from("#tokens"), String::from("#last_refill_at"));
        }
        let (tokens, anchor) = (self.entry("#t", LINE_TOKENS), self.entry("#a", LINE_ANCHOR));
        ([path, tokens].concat(), [path, anchor].concat())
    }

    fn update(mut self, bucket: &Bucket) -> Update {
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

/// The parts of `amount` that lower each line with a level above zero: in proportion to the levels. Lines
/// without a level stay.
fn parts_of(lines: &Lines, amount: Amount, now: Timestamp) -> Vec<(Option<&ShareName>, &LineRead, Amount)> {
    let level = |line: &LineRead| line.level(now).max(Amount::ZERO);
    let sum = lines.iter().map(|(_, line)| level(line)).fold(Amount::ZERO, Amount::plus);
    if sum == Amount::ZERO {
        // Nothing is there: the common line owes it.
        return alloc::vec![(None, &lines.common, amount)];
    }
    let part = |(name, line)| (name, line, level(line).scaled(amount, sum));
    let mut parts: Vec<_> = lines.iter().map(part).filter(|(.., part)| *part > Amount::ZERO).collect();
    // What was lost by rounding down.
    let rest = parts.iter().fold(amount, |rest, (.., part)| rest.minus(*part));
    if let Some((.., part)) = parts.iter_mut().max_by_key(|(.., part)| *part) {
        *part = part.plus(rest);
    }
    parts
}

/// The write that takes `amount` from the lines of `bucket`, from each in proportion to its level.
///
/// Interleavings that the condition stops:
/// - A line filled up, or its anchor moved, since the reading, and the refill that it has in reserve would
///   swallow what is taken. (As for the one line of a bucket without shares.)
/// - The share was removed: there is no anchor to compare.
/// - With [`Since::Nothing`]: others took since the reading.
pub(super) fn lower_lines(
    bucket: &Bucket,
    lines: &Lines,
    amount: Amount,
    since: Since,
    now: Timestamp,
) -> Update {
    lowering(lines, amount, since, now).update(bucket)
}

/// As [`lower_lines`], with what a vendor's reply leaves in the row.
///
/// Interleaving that the condition stops in addition: another reply lowered the bucket in the meantime, and
/// this one would lower it for the same calls again.
pub(super) fn observe_lines(
    bucket: &Bucket,
    lines: &Lines,
    excess: Amount,
    version: i64,
    now: Timestamp,
) -> Update {
    use crate::schema::{OBSERVED, OBSERVED_VERSION};
    let mut wording = lowering(lines, excess, Since::Nothing, now);
    wording.attribute(OBSERVED);
    wording.attribute(OBSERVED_VERSION);
    wording.number(":0", 0);
    wording.number(":excess", excess);
    wording.number(":observed_version", version);
    wording.number(":read_observed", bucket.observed());
    wording
        .set(&["#observed = if_not_exists(#observed, :0) + :excess, #observed_version = :observed_version"]);
    wording.asks(&["(attribute_not_exists(#observed) OR #observed = :read_observed)"]);
    wording.update(bucket)
}

fn lowering(lines: &Lines, amount: Amount, since: Since, now: Timestamp) -> Wording {
    let mut wording = Wording::default();
    for (share, line, part) in parts_of(lines, amount, now) {
        let (at, path) = wording.line(share);
        let (tokens, anchor) = wording.tokens_and_anchor(share, &path);
        let [part_of, moved, low, high] = OF_LINE[at];
        let brim = line.brim(now);
        wording.number(low, &line.anchor);
        wording.asks(&[&anchor, " = ", low]);
        wording.number(high, brim);
        if line.tokens.get() > brim {
            wording.number(part_of, line.limit.capacity().minus(part));
            wording.number(moved, line.line().effect(now));
            wording.set(&[&tokens, " = ", part_of, ", ", &anchor, " = ", moved]);
            wording.asks(&[&tokens, " > ", high]);
            continue;
        }
        wording.number(part_of, part);
        wording.set(&[&tokens, " = ", &tokens, " - ", part_of]);
        wording.asks(&[&tokens, " <= ", high]);
        if since == Since::Nothing {
            wording.number(moved, &line.tokens);
            wording.asks(&[&tokens, " >= ", moved]);
        }
    }
    wording
}

/// The lines of a bucket as a rewrite leaves them.
pub(super) struct Rewrite<'a> {
    /// The limit of the common line, if it changes, and where it stands.
    pub(super) common: Option<(Limit, At)>,
    /// Shares that change or come, and where they stand.
    pub(super) shares: Vec<(&'a ShareLimit, At)>,
    /// Shares that go.
    pub(super) removed: Vec<&'a ShareName>,
}

/// A level, and the anchor at which the line has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) level: Amount,
    pub(super) anchor: Timestamp,
}

/// When a rewrite of lines with these anchors takes effect: after each of them, so that no write that was
/// planned before passes after it. A line that keeps what it has goes by its own anchor alone: another's may
/// lie in the future.
pub(super) fn effect(anchors: impl IntoIterator<Item = Timestamp>, now: Timestamp) -> Timestamp {
    anchors.into_iter().fold(now, |at, anchor| at.max(anchor.after(Duration::from_micros(1))))
}

impl Rewrite<'_> {
    /// The write. `bucket` is seen from its common line.
    ///
    /// Interleavings that the condition stops:
    /// - `version`: anything was written since the reading. (A cool-down leaves the version, and concerns no
    ///   line.)
    /// - `last_refill_at`: the bucket was recreated, and counts its writes from the start again.
    pub(super) fn update(&self, bucket: &Bucket) -> Update {
        let mut wording = Wording::default();
        wording.attribute(LAST_REFILL_AT);
        wording.number(":read_version", bucket.version());
        wording.number(":read_anchor", bucket.anchor_as_read());
        wording.asks(&["#version = :read_version AND #last_refill_at = :read_anchor"]);
        if let Some((limit, at)) = &self.common {
            let (number, _) = wording.line(None);
            let [tokens, anchor, ..] = OF_LINE[number];
            let [capacity, rate, ..] = REWRITTEN[number];
            [TOKENS, CAPACITY, REFILL_RATE, COST_PER_CALL, LIMIT_TYPE]
                .into_iter()
                .for_each(|name| wording.attribute(name));
            wording.number(tokens, at.level);
            wording.number(anchor, at.anchor);
            wording.number(capacity, limit.capacity());
            wording.number(rate, limit.refill_rate());
            wording.number(":cost_per_call", limit.cost_per_call());
            wording.values.push((":limit_type", Operand::text(limit.limit_type())));
            wording.set(&["#tokens = ", tokens, ", #last_refill_at = ", anchor]);
            wording.set(&["#capacity = ", capacity, ", #refill_rate = ", rate]);
            wording.set(&["#cost_per_call = :cost_per_call, #limit_type = :limit_type"]);
        }
        self.shares(bucket, &mut wording);
        wording.update(bucket)
    }

    fn shares(&self, bucket: &Bucket, wording: &mut Wording) {
        let before = bucket.lines();
        let Some(before) = before else {
            if !self.shares.is_empty() {
                let line = |(share, at): &(&ShareLimit, At)| {
                    (Cow::Owned(share.name.to_string()), whole_line(share, *at))
                };
                wording.attribute(SHARES);
                wording.values.push((":shares", Operand::Map(self.shares.iter().map(line).collect())));
                wording.set(&["#shares = :shares"]);
            }
            return;
        };
        if before.shares.len() == self.removed.len() && self.shares.is_empty() {
            wording.attribute(SHARES);
            wording.remove(&["#shares"]);
            return;
        }
        for (share, at) in &self.shares {
            let (number, path) = wording.line(Some(&share.name));
            let [tokens_value, anchor_value, ..] = OF_LINE[number];
            let [capacity, rate, floor, line] = REWRITTEN[number];
            if before.share(share.name.as_str()).is_none() {
                wording.values.push((line, whole_line(share, *at)));
                wording.set(&[path.trim_end_matches('.'), " = ", line]);
                continue;
            }
            let (tokens, anchor) = wording.tokens_and_anchor(Some(&share.name), &path);
            wording.number(tokens_value, at.level);
            wording.number(anchor_value, at.anchor);
            wording.number(capacity, share.limit.capacity());
            wording.number(rate, share.limit.refill_rate());
            wording.set(&[&tokens, " = ", tokens_value, ", ", &anchor, " = ", anchor_value]);
            let of_capacity = wording.entry("#c", LINE_CAPACITY);
            let of_rate = wording.entry("#r", LINE_RATE);
            wording.set(&[&path, of_capacity, " = ", capacity, ", ", &path, of_rate, " = ", rate]);
            let of_floor = wording.entry("#f", LINE_FLOOR);
            match share.floor {
                Some(tokens) => {
                    wording.number(floor, tokens);
                    wording.set(&[&path, of_floor, " = ", floor]);
                }
                None => wording.remove(&[&path, of_floor]),
            }
            let of_background = wording.entry("#b", LINE_BACKGROUND);
            match share.background {
                true => wording.set(&[&path, of_background, " = :1"]),
                false => wording.remove(&[&path, of_background]),
            }
        }
        for name in &self.removed {
            let (_, path) = wording.line(Some(name));
            wording.remove(&[path.trim_end_matches('.')]);
        }
    }
}

/// A share's line as a new entry of the row.
pub(super) fn whole_line(share: &ShareLimit, at: At) -> Operand {
    let mut line = alloc::vec![
        (Cow::Borrowed(LINE_TOKENS), Operand::number(at.level)),
        (Cow::Borrowed(LINE_ANCHOR), Operand::number(at.anchor)),
        (Cow::Borrowed(LINE_CAPACITY), Operand::number(share.limit.capacity())),
        (Cow::Borrowed(LINE_RATE), Operand::number(share.limit.refill_rate())),
    ];
    line.extend(share.floor.map(|floor| (Cow::Borrowed(LINE_FLOOR), Operand::number(floor))));
    if share.background {
        line.push((Cow::Borrowed(LINE_BACKGROUND), Operand::number(1)));
    }
    Operand::Map(Box::from(line))
}
