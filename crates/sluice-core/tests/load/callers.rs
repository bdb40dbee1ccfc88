//! What each caller used, as notes add it to a load row.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use sluice_core::schema::{
    CALLERS, CALLERS_PERIOD, CALLERS_VERSION, Field, PROCESSES, PROCESSES_BEFORE, Row, USED_NOW,
};
use sluice_core::{
    Amount, Load, MOST_CALLERS, Operand, Timestamp, USE_PERIOD, Update, Use, note_use, note_use_again,
    period_of_use,
};

use super::row::dimension;

const START: Timestamp = Timestamp::from_secs(1_709_550_000);

/// A load row in a table.
#[derive(Clone, Debug, Default)]
struct Table(BTreeMap<String, Operand>);

struct Entry<'a>(&'a [(std::borrow::Cow<'static, str>, Operand)]);

fn field(value: &Operand) -> Field<'_> {
    match value {
        Operand::Text(text) => Field::Text(text),
        Operand::Number(text) => Field::Number(text),
        Operand::Map(_) => Field::Other,
    }
}

impl Row for Entry<'_> {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        self.0.iter().find(|(of, _)| of == name).map(|(_, value)| field(value))
    }
}

impl Row for Table {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        self.0.get(name).map(field)
    }

    fn entries(&self, name: &str, visit: &mut dyn FnMut(&str, Option<&dyn Row>)) -> bool {
        let Some(Operand::Map(entries)) = self.0.get(name) else { return false };
        for (name, value) in entries {
            match value {
                Operand::Map(entry) => visit(name, Some(&Entry(entry))),
                _ => visit(name, None),
            }
        }
        true
    }
}

/// The first note of a process.
fn first_use(caller: &str, used: i32) -> Use<'_> {
    Use { caller, used: Amount::from_tokens(used), counted_in: None }
}

impl Table {
    /// Whether the condition held, and the update was applied: by hand, as the statements say. The real
    /// engine runs them in `tests/tests/integration/use_by_caller.rs`.
    fn write(&mut self, update: &Update) -> bool {
        let value = |name: &str| {
            update.values.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone())
        };
        let version = self.0.get(CALLERS_VERSION).cloned();
        if let Some(callers) = value(":callers") {
            let holds = version.is_none() || version == value(":read_callers_version");
            if holds {
                self.0.insert(CALLERS.into(), callers);
                self.0.insert(CALLERS_PERIOD.into(), value(":callers_period").unwrap());
                self.0.insert(CALLERS_VERSION.into(), value(":callers_version").unwrap());
                self.0.insert(PROCESSES.into(), value(":processes").unwrap());
                self.0.insert(PROCESSES_BEFORE.into(), value(":processes_before").unwrap());
            }
            return holds;
        }
        let caller = update.statement.names.get("#caller").unwrap().to_owned();
        let (Some(Operand::Number(version)), true) =
            (version, self.0.get(CALLERS_PERIOD) == value(":callers_period").as_ref())
        else {
            return false;
        };
        let Some(Operand::Number(processes)) = self.0.get(PROCESSES).cloned() else { return false };
        let Some(Operand::Map(callers)) = self.0.get_mut(CALLERS) else { return false };
        let Some((_, Operand::Map(entry))) = callers.iter_mut().find(|(name, _)| *name == caller) else {
            return false;
        };
        let (_, used) = entry.iter_mut().find(|(name, _)| name == USED_NOW).unwrap();
        let (Operand::Number(before), Some(Operand::Number(more))) = (&*used, value(":used")) else {
            panic!("numbers")
        };
        let sum = before.parse::<Amount>().unwrap().plus(more.parse().unwrap());
        *used = Operand::Number(sum.to_string());
        let version = version.parse::<i64>().unwrap() + 1;
        self.0.insert(CALLERS_VERSION.into(), Operand::Number(version.to_string()));
        let Some(Operand::Number(one)) = value(":process") else { panic!("a number") };
        let processes = processes.parse::<i64>().unwrap() + one.parse::<i64>().unwrap();
        self.0.insert(PROCESSES.into(), Operand::Number(processes.to_string()));
        true
    }

    /// Notes a use as a process does that has counted itself. Returns the number of writes.
    fn note(&mut self, caller: &str, used: i32, now: Timestamp) -> usize {
        self.note_of(Use { counted_in: Some(period_of_use(now)), ..first_use(caller, used) }, now)
    }

    fn note_of(&mut self, noted: Use<'_>, now: Timestamp) -> usize {
        if self.write(&note_use(&dimension(), noted, now)) {
            return 1;
        }
        let again = note_use_again(&dimension(), self, noted, now);
        assert!(self.write(&again), "nobody else writes");
        2
    }

    fn uses(&self, now: Timestamp) -> Vec<(String, i64)> {
        let uses = Load::read(&dimension(), self).unwrap().use_by_caller(now).callers;
        uses.into_iter().map(|one| (one.caller, one.used.micros() / 1_000_000)).collect()
    }

    fn bytes(&self) -> usize {
        fn of(value: &Operand) -> usize {
            match value {
                Operand::Text(text) => text.len(),
                Operand::Number(text) => text.len().div_ceil(2) + 1,
                Operand::Map(entries) => {
                    3 + entries.iter().map(|(name, value)| name.len() + 1 + of(value)).sum::<usize>()
                }
            }
        }
        self.0.iter().map(|(name, value)| name.len() + of(value)).sum()
    }
}

#[test]
fn a_caller_that_is_there_costs_one_write_and_a_new_one_two() {
    let mut table = Table::default();
    assert_eq!(table.note("api", 5, START), 2);
    assert_eq!(table.note("api", 7, START), 1);
    assert_eq!(table.note("worker", 3, START), 2);
    assert_eq!(table.uses(START), [("api".to_owned(), 12), ("worker".to_owned(), 3)]);
    let next = START.after(USE_PERIOD);
    assert_eq!(
        (table.note("api", 1, next), table.note("api", 1, next)),
        (2, 1),
        "the first of a period begins it"
    );
}

#[test]
fn a_process_counts_itself_once_in_a_period_and_the_last_period_counts_too() {
    let (mut table, next) = (Table::default(), START.after(USE_PERIOD));
    let processes = |table: &Table, now| Load::read(&dimension(), table).unwrap().processes(now);
    assert_eq!(processes(&table, START), 0);
    for caller in ["api", "api", "worker"] {
        table.note_of(first_use(caller, 5), START);
        table.note(caller, 5, START);
    }
    assert_eq!(processes(&table, START), 3);
    let again = Use { counted_in: Some(period_of_use(START)), ..first_use("api", 1) };
    assert_eq!(table.note_of(again, next), 2);
    assert_eq!(processes(&table, next), 3, "two have not noted anything yet, or left");
    assert_eq!(processes(&table, next.after(USE_PERIOD)), 1);
    assert_eq!(processes(&table, next.after(USE_PERIOD * 2)), 0);
    table.0.insert(PROCESSES.into(), Operand::Text("many".into()));
    table.note_of(again, next);
    assert_eq!(processes(&table, next), 3, "of the period before");
}

#[test]
fn use_is_shown_for_this_period_and_the_last_and_then_dropped() {
    let mut table = Table::default();
    table.note("api", 5, START);
    table.note("worker", 3, START);
    let next = START.after(USE_PERIOD);
    assert_eq!(table.uses(next), [("api".to_owned(), 5), ("worker".to_owned(), 3)], "nobody wrote since");
    table.note("worker", 9, next);
    assert_eq!(table.uses(next), [("worker".to_owned(), 12), ("api".to_owned(), 5)]);
    let later = next.after(USE_PERIOD);
    table.note("cron", 1, later);
    assert_eq!(table.uses(later), [("worker".to_owned(), 9), ("cron".to_owned(), 1)]);
    assert_eq!(table.uses(later.after(USE_PERIOD * 2)), []);
    table.note("api", 2, later.after(USE_PERIOD * 50));
    assert_eq!(table.uses(later.after(USE_PERIOD * 50)), [("api".to_owned(), 2)]);
}

#[test]
fn a_writer_whose_clock_is_ahead_takes_nothing_from_the_others() {
    let mut table = Table::default();
    let boundary = Timestamp::from_secs(1_709_550_000);
    table.note("ahead", 4, boundary.after(Duration::from_secs(1)));
    table.note("behind", 6, boundary.before(Duration::from_secs(1)));
    let now = boundary.after(Duration::from_secs(2));
    assert_eq!(table.uses(now), [("behind".to_owned(), 6), ("ahead".to_owned(), 4)]);
}

#[test]
fn a_write_that_overtook_is_not_lost() {
    let mut table = Table::default();
    table.note("api", 5, START);
    let stale = table.clone();
    table.note("api", 7, START);
    let late = note_use_again(&dimension(), &stale, first_use("worker", 1), START);
    assert!(!table.write(&late), "it would drop the 7");
    assert_eq!(table.uses(START), [("api".to_owned(), 12)]);
}

#[test]
fn attributes_of_another_kind_are_replaced() {
    for (name, value) in [(CALLERS, "many"), (CALLERS_PERIOD, "soon")] {
        let mut table = Table::default();
        table.note("api", 5, START);
        table.0.insert(name.into(), Operand::Text(value.into()));
        table.note("api", 3, START);
        assert_eq!(table.uses(START).last(), Some(&("api".to_owned(), 3)), "{name}");
    }
}

/// Ten processes that note 60 a minute each are one caller, which uses more than any of twenty that note 130.
#[test]
fn a_caller_of_many_processes_gets_an_entry_however_little_each_of_them_notes() {
    let (mut table, mut now, mut shown) = (Table::default(), START, 0);
    for _ in 0..60 {
        now = now.after(Duration::from_secs(60));
        for one in 0..MOST_CALLERS {
            table.note(&format!("worker-{one}"), 130, now);
        }
        for _ in 0..10 {
            table.note("api", 60, now);
        }
        shown += u32::from(table.uses(now).iter().any(|(name, _)| name == "api"));
    }
    assert_eq!(table.uses(now).first().map(|(name, _)| name.as_str()), Some("api"));
    assert!(shown >= 50, "shown in {shown} of 60 minutes");
}

#[test]
fn what_came_back_is_taken_off_and_shows_no_use_below_nothing() {
    let mut table = Table::default();
    table.note("api", 5, START);
    table.note("api", -3, START);
    assert_eq!(table.uses(START), [("api".to_owned(), 2)]);
    table.note("api", -7, START);
    table.note("worker", -7, START);
    assert_eq!(table.uses(START), [("api".to_owned(), 0)]);
}

#[test]
fn a_name_is_cut_between_letters_and_never_empty() {
    let mut table = Table::default();
    table.note(&"é".repeat(50), 1, START);
    table.note("", 2, START);
    let names: Vec<String> = table.uses(START).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["unknown".to_owned(), "é".repeat(32)]);
}

proptest! {
    #[test]
    fn nothing_is_lost_and_the_row_stays_small(
        notes in proptest::collection::vec((0_usize..60, 1_i32..2_000_000, 0_u64..40), 1..300),
        longest in 1_usize..80,
    ) {
        let mut table = Table::default();
        let (mut now, mut noted) = (START, Vec::new());
        for (caller, used, seconds) in notes {
            now = now.after(Duration::from_secs(seconds));
            let name = format!("{caller}{}", "x".repeat(longest * (caller % 3)));
            table.note(&name, used, now);
            noted.push((now, i64::from(used)));
            prop_assert!(table.bytes() <= 600, "{} bytes", table.bytes());
            prop_assert!(table.uses(now).len() <= MOST_CALLERS + 1);
        }
        let since = Load::read(&dimension(), &table).unwrap().use_by_caller(now).since;
        let expected: i64 = noted.iter().filter(|(at, _)| *at >= since).map(|(_, used)| used).sum();
        prop_assert_eq!(table.uses(now).iter().map(|(_, used)| used).sum::<i64>(), expected);
    }
}
