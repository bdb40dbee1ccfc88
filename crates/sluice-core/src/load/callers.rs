//! What each caller used of a bucket, in its load row. Each process adds what it used, at most once a minute.
//!
//! Time is divided into periods of [`USE_PERIOD`]. The row keeps what was used in this period and in the last
//! one, for as many callers as have room. Those that used least share one entry, [`OTHER_CALLERS`].
//!
//! The same notes count the processes: each counts itself with its first note of a period.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use super::Load;
use crate::amount::Amount;
use crate::dimension::Dimension;
use crate::schema::{
    self, CALLERS, CALLERS_PERIOD, CALLERS_VERSION, Field, PROCESSES, PROCESSES_BEFORE, Row, USED_BEFORE,
    USED_NOW,
};
use crate::statement::{AttributeNames, Operand, Statement, Update};
use crate::timestamp::{Timestamp, whole_micros};

/// How often a process notes what it used of a bucket: once a minute. More often costs more writes; more
/// rarely shows use later.
pub const NOTE_USE_EVERY: Duration = Duration::from_secs(60);

/// Use is shown for this period and the last: five to ten minutes. Longer shows a caller that has stopped for
/// longer.
pub const USE_PERIOD: Duration = Duration::from_secs(5 * 60);

/// The most callers with an entry of their own.
pub const MOST_CALLERS: usize = 20;

/// The most bytes that the entries take, as DynamoDB counts them: with the other notes of sweeps and
/// processes, the row stays below 1 KB, which is one write unit.
const MOST_BYTES: usize = 512;

/// The entry of callers that have none of their own.
pub const OTHER_CALLERS: &str = "other";

/// The longest name of a caller in the row, in bytes; the rest is cut off.
const LONGEST_NAME: usize = 64;

/// Adds to the entry of a caller that has one in this period.
///
/// Interleaving that the condition stops: another process has begun the next period or given the entry to
/// [`OTHER_CALLERS`], and the use would be counted in the wrong period, or an attribute that is not there
/// would fail the request.
const ADD: &str = "SET #callers.#caller.#used_now = #callers.#caller.#used_now + :used, \
                   #callers_version = #callers_version + :1, #processes = #processes + :process";
const ADD_IF: &str = "#callers_period = :callers_period AND attribute_type(#callers_version, :number) \
                      AND attribute_type(#callers.#caller.#used_now, :number) AND attribute_type(#processes, :number)";

/// Writes all entries again: a caller is new, or the period is.
///
/// Interleaving that the condition stops: another process has added to an entry since the row was read, and
/// that use would be lost.
static REPLACE: Statement = Statement::fixed(
    "SET #callers = :callers, #callers_period = :callers_period, #callers_version = :callers_version, \
     #processes = :processes, #processes_before = :processes_before",
    "attribute_not_exists(#callers_version) OR NOT attribute_type(#callers_version, :number) \
     OR #callers_version = :read_callers_version",
    &[CALLERS, CALLERS_PERIOD, CALLERS_VERSION, PROCESSES, PROCESSES_BEFORE],
);

/// What one caller used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerUse {
    /// The name of the caller, or [`OTHER_CALLERS`].
    pub caller: String,
    /// What it used: tokens; of a concurrency bucket, slots times seconds, counted when slots are given back.
    pub used: Amount,
}

/// What the callers of a bucket used, as of an instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UseByCaller {
    /// The callers, those that used most first. Empty if none noted a use within the last two periods.
    pub callers: Vec<CallerUse>,
    /// Since when: five to ten minutes ago.
    pub since: Timestamp,
}

/// The entries of a load row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Callers {
    period: i64,
    version: i64,
    entries: Vec<Entry>,
    processes: i64,
    processes_before: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    caller: String,
    /// In the row's period.
    now: Amount,
    /// In the period before.
    before: Amount,
}

impl Entry {
    fn total(&self) -> Amount {
        self.now.plus(self.before)
    }

    /// What the entry takes of the row, at most: the name, and two numbers of one letter in a map
    /// (Developer Guide, "DynamoDB item sizes and formats").
    fn bytes(&self) -> usize {
        let number = |amount: Amount| 2 + amount.to_string().len().div_ceil(2) + 1;
        self.caller.len() + 4 + number(self.now) + number(self.before) + 2
    }
}

impl Callers {
    /// Reads the entries. What cannot be read counts as none: the next note replaces it.
    pub(super) fn read(row: &impl Row) -> Self {
        let count = |name| schema::count(row, name).unwrap_or_default();
        let mut entries = Vec::new();
        row.entries(CALLERS, &mut |caller, entry| {
            let amount = |entry: &dyn Row, name| match entry.field(name) {
                Some(Field::Number(text)) => text.parse::<Amount>().unwrap_or_default(),
                _ => Amount::ZERO,
            };
            if let Some(entry) = entry {
                let (now, before) = (amount(entry, USED_NOW), amount(entry, USED_BEFORE));
                entries.push(Entry { caller: caller.to_string(), now, before });
            }
        });
        Self {
            period: count(CALLERS_PERIOD),
            version: count(CALLERS_VERSION),
            entries,
            processes: count(PROCESSES).max(0),
            processes_before: count(PROCESSES_BEFORE).max(0),
        }
    }

    /// The entries at `now`, with those of periods that are over gone.
    fn at(mut self, now: Timestamp) -> Self {
        let is_next = match period(now).saturating_sub(self.period) {
            // Another process, whose clock is ahead, has begun the next period.
            -1 | 0 => return self,
            1 => true,
            _ => false,
        };
        self.period = period(now);
        self.processes_before = if is_next { self.processes } else { 0 };
        self.processes = 0;
        for entry in &mut self.entries {
            entry.before = if is_next { entry.now } else { Amount::ZERO };
            entry.now = Amount::ZERO;
        }
        self.entries.retain(|entry| entry.total() > Amount::ZERO);
        self
    }

    fn add(&mut self, caller: &str, used: Amount) {
        match self.entries.iter_mut().find(|entry| entry.caller == caller) {
            Some(entry) => entry.now = entry.now.plus(used),
            // What came back of an entry that is gone.
            None if used <= Amount::ZERO => {}
            None => self.entries.push(Entry { caller: caller.to_string(), now: used, before: Amount::ZERO }),
        }
    }

    /// Moves the entries that have no room into [`OTHER_CALLERS`], those that used least first.
    ///
    /// A `newcomer` notes a minute of one process, and the entries hold up to ten minutes of all processes of
    /// a caller. So a newcomer without room is not only compared: by chance, it takes the place of the last
    /// entry. The chance is its part of what both used, so a caller that uses much has an entry soon. What
    /// decides is [`draw`] of the row's version, which each note changes.
    fn fit(self, newcomer: &str) -> Self {
        let fitted = self.clone().ranked(None);
        let has_entry = fitted.entries.iter().any(|entry| entry.caller == newcomer);
        let last = fitted.entries.iter().rev().find(|entry| entry.caller != OTHER_CALLERS);
        let (Some(last), false) = (last, has_entry || newcomer == OTHER_CALLERS) else { return fitted };
        let of = |amount: Amount| u128::from(amount.micros().max(0).unsigned_abs());
        let used =
            self.entries.iter().filter(|entry| entry.caller == newcomer).map(|entry| of(entry.total())).sum();
        let both: u128 = of(last.total()).saturating_add(used);
        let takes_its_place = u128::from(draw(self.version)).saturating_mul(both) < used << 32;
        if takes_its_place { self.ranked(Some(newcomer)) } else { fitted }
    }

    /// Moves the entries that have no room into [`OTHER_CALLERS`]: `first` has room, then those that used
    /// most.
    fn ranked(mut self, first: Option<&str>) -> Self {
        let is_first = |entry: &Entry| first == Some(entry.caller.as_str());
        self.entries.sort_by(|one, two| {
            let by_use = two.total().cmp(&one.total()).then_with(|| one.caller.cmp(&two.caller));
            is_first(two).cmp(&is_first(one)).then(by_use)
        });
        let mut other =
            Entry { caller: String::from(OTHER_CALLERS), now: Amount::ZERO, before: Amount::ZERO };
        let (mut bytes, mut kept) = (other.bytes() + 16, Vec::new());
        for entry in self.entries {
            bytes += entry.bytes();
            if entry.caller == OTHER_CALLERS || kept.len() == MOST_CALLERS || bytes > MOST_BYTES {
                other.now = other.now.plus(entry.now);
                other.before = other.before.plus(entry.before);
            } else {
                kept.push(entry);
            }
        }
        if other.total() > Amount::ZERO {
            kept.push(other);
        }
        Self { entries: kept, ..self }
    }

    pub(super) fn processes(&self, now: Timestamp) -> u32 {
        let at = self.clone().at(now);
        u32::try_from(at.processes.max(at.processes_before)).unwrap_or(u32::MAX)
    }

    pub(super) fn shown(&self, now: Timestamp) -> UseByCaller {
        let mut at = self.clone().at(now);
        at.entries
            .sort_by(|one, two| two.total().cmp(&one.total()).then_with(|| one.caller.cmp(&two.caller)));
        let since = at.period.saturating_sub(1).saturating_mul(length());
        let uses = at
            .entries
            .into_iter()
            .map(|entry| CallerUse { used: entry.total().max(Amount::ZERO), caller: entry.caller });
        UseByCaller { callers: uses.collect(), since: Timestamp::from_micros(since) }
    }

    fn operand(&self) -> Operand {
        let entry = |entry: &Entry| {
            let uses = [(USED_NOW, entry.now), (USED_BEFORE, entry.before)];
            let uses = uses.map(|(name, amount)| (Cow::Borrowed(name), Operand::number(amount)));
            (Cow::Owned(entry.caller.clone()), Operand::Map(uses.into()))
        };
        Operand::Map(self.entries.iter().map(entry).collect())
    }
}

/// A number that looks random, made of a row's version: the finalizer of SplitMix64 (Steele, Lea, Flood,
/// "Fast splittable pseudorandom number generators", 2014).
const fn draw(version: i64) -> u32 {
    let mut mixed = version.cast_unsigned().wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed >> 32) as u32
}

fn length() -> i64 {
    whole_micros(USE_PERIOD)
}

fn period(now: Timestamp) -> i64 {
    now.micros().div_euclid(length())
}

/// What a process notes of its use of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use<'a> {
    /// Who used it.
    pub caller: &'a str,
    /// How much, as in [`CallerUse::used`]; below zero if more came back than was used.
    pub used: Amount,
    /// The period in which the process last counted itself, as [`period_of_use`] returned it.
    pub counted_in: Option<i64>,
}

/// The number of the period of [`USE_PERIOD`] that `now` is in.
#[must_use]
pub fn period_of_use(now: Timestamp) -> i64 {
    period(now)
}

/// The name of a caller in the row: no longer than there is room for, and never empty.
fn name_of(caller: &str) -> &str {
    let mut end = caller.len().min(LONGEST_NAME);
    while !caller.is_char_boundary(end) {
        end -= 1;
    }
    if end == 0 { "unknown" } else { &caller[..end] }
}

/// The first try of a note: adds to the entry that the caller has in the period of `now`. If its condition is
/// false, [`note_use_again`] follows from the row in the reply. A note that is sent twice counts twice. Both
/// replies, success and failed condition, show the load row.
#[must_use]
pub fn note_use(dimension: &Dimension, noted: Use<'_>, now: Timestamp) -> Update {
    let names = AttributeNames {
        attributes: Cow::Borrowed(&[CALLERS, CALLERS_PERIOD, CALLERS_VERSION, PROCESSES, USED_NOW]),
        entries: alloc::vec![("#caller", name_of(noted.caller).to_string())],
    };
    Update {
        key: Load::key(dimension),
        statement: Cow::Owned(Statement {
            update: Cow::Borrowed(ADD),
            condition: Cow::Borrowed(ADD_IF),
            names,
        }),
        values: alloc::vec![
            (":used", Operand::number(noted.used)),
            (":callers_period", Operand::number(period(now))),
            (":1", Operand::number(1)),
            (":process", Operand::number(noted.processes(now))),
            (":number", Operand::text("N")),
        ],
    }
}

/// The next try of a note whose condition was false for `row`: writes the entries of `row` with the use,
/// without what is older than the last period.
#[must_use]
pub fn note_use_again(dimension: &Dimension, row: &impl Row, noted: Use<'_>, now: Timestamp) -> Update {
    let read = schema::number(row, CALLERS_VERSION).map_or_else(|_| String::from("0"), String::from);
    let mut callers = Callers::read(row).at(now);
    callers.add(name_of(noted.caller), noted.used);
    callers.processes = callers.processes.saturating_add(noted.processes(now));
    let callers = callers.fit(name_of(noted.caller));
    Update {
        key: Load::key(dimension),
        statement: Cow::Borrowed(&REPLACE),
        values: alloc::vec![
            (":callers", callers.operand()),
            (":callers_period", Operand::number(callers.period)),
            (":callers_version", Operand::number(callers.version.saturating_add(1))),
            (":processes", Operand::number(callers.processes)),
            (":processes_before", Operand::number(callers.processes_before)),
            (":read_callers_version", Operand::Number(read)),
            (":number", Operand::text("N")),
        ],
    }
}

impl Use<'_> {
    /// How many processes it adds to those of the period: one that has not counted itself.
    fn processes(self, now: Timestamp) -> i64 {
        i64::from(self.counted_in.is_none_or(|counted_in| counted_in < period(now)))
    }
}
