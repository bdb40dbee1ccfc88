//! Sweep after sweep of one bucket, with what they write: what was lost or minted comes right in the end,
//! whatever came between two of them, and no correction goes beyond what is there.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use sluice_core::schema::{self, Field, Row as _};
use sluice_core::{
    Amount, Bucket, Census, Correction, Cost, Drift, Lease, LeaseId, Operand, ReadAt, Returned,
};
use sluice_core::{Timestamp, Update};

use crate::table::{Item, name};

const CAPACITY: i32 = 8;

/// After the last fault: one sweep for what an older note said, one that notes the rest, one that corrects
/// it.
const ENOUGH: usize = 3;

#[derive(Clone, Debug)]
enum Event {
    /// A fault loses slots, or (below zero) mints them.
    Drift(i32),
    Take,
    Release,
    /// A lease is deleted without its slot.
    Cap,
    /// One more sweep, from its first reading to its write; the events come between its last reading and its
    /// write.
    Sweep(Vec<Self>),
    Pass,
    /// Someone puts a note there that no sweep wrote.
    Forge(&'static str, &'static str),
}

/// One concurrency bucket with leases of one slot each, in rows of their own.
struct World {
    row: Item,
    leases: i32,
    now: Timestamp,
    /// What went wrong.
    too_much: Option<String>,
}

impl World {
    fn new() -> Self {
        let numbers = [
            (schema::CAPACITY, CAPACITY),
            (schema::TOKENS, CAPACITY),
            (schema::REFILL_RATE, 0),
            (schema::LAST_REFILL_AT, 0),
            (schema::COST_PER_CALL, 1),
            (schema::VERSION, 1),
        ];
        let mut row: BTreeMap<_, _> = numbers.map(|(name, value)| (name, (false, value.to_string()))).into();
        row.insert(schema::LIMIT_TYPE, (true, "concurrent".into()));
        Self { row: Item(row), leases: 0, now: Timestamp::from_secs(1_000_000), too_much: None }
    }

    fn bucket(&self) -> Bucket {
        Bucket::read(&name(), &self.row).unwrap()
    }

    fn number(&self, name: &'static str) -> i64 {
        match self.row.field(name) {
            Some(Field::Number(text)) => text.parse::<Amount>().unwrap().micros() / 1_000_000,
            _ => 0,
        }
    }

    fn add(&mut self, name: &'static str, by: i64) {
        let sum = self.number(name) + by;
        self.row.0.insert(name, (false, sum.to_string()));
    }

    fn drift(&self) -> i64 {
        i64::from(CAPACITY - self.leases) - self.number(schema::TOKENS)
    }

    /// A write by a client that counts.
    fn counts(&mut self, tokens: i64, admitted: i64, capped: i64) {
        let changes = [(schema::TOKENS, tokens), (schema::ADMITTED, admitted), (schema::CAPPED, capped)];
        changes.into_iter().for_each(|(name, by)| self.add(name, by));
        [schema::VERSION, schema::COUNTED].into_iter().for_each(|name| self.add(name, 1));
    }

    fn happens(&mut self, event: &Event) {
        match event {
            Event::Drift(slots) => {
                self.add(schema::TOKENS, -i64::from(*slots));
                self.add(schema::VERSION, 1);
            }
            Event::Take if self.number(schema::TOKENS) > 0 => {
                self.leases += 1;
                self.counts(-1, 1, 0);
            }
            Event::Release if self.leases > 0 && self.number(schema::TOKENS) < i64::from(CAPACITY) => {
                self.leases -= 1;
                self.counts(1, 0, 0);
            }
            Event::Cap if self.leases > 0 && self.number(schema::TOKENS) >= i64::from(CAPACITY) => {
                self.leases -= 1;
                self.counts(0, 0, 1);
            }
            Event::Sweep(meanwhile) => self.sweep(meanwhile),
            Event::Pass => self.now = self.now.after(Duration::from_secs(30 * 60)),
            Event::Forge(drift, seen_at) => {
                self.row.0.insert(schema::DRIFT, (false, (*drift).to_owned()));
                self.row.0.insert(schema::DRIFT_SEEN_AT, (false, (*seen_at).to_owned()));
            }
            _ => {}
        }
    }

    fn sweep(&mut self, meanwhile: &[Event]) {
        self.now = self.now.after(Duration::from_secs(60));
        let (read, mut census) = (self.bucket(), Census::default());
        let id = LeaseId::new("a".into()).unwrap();
        let began = self.now.before(Duration::from_secs(3_600));
        let lease =
            Lease::new(name(), &id, Cost::ONE, began, self.now.after(Duration::from_secs(60)), "test");
        (0..self.leases).for_each(|_| census.count(&lease, ReadAt { begun: self.now, done: self.now }));
        let found = Drift::between(&read, &read, &census, Returned::default());
        assert_eq!(
            found.signed().unwrap_or(Amount::ZERO).micros() / 1_000_000,
            self.drift(),
            "nothing is written"
        );
        let correction = Correction::plan(&read, &read, found, self.now);
        meanwhile.iter().for_each(|event| self.happens(event));
        let before = self.drift();
        match &correction {
            Correction::Note(update) => self.apply(update),
            Correction::Correct { update, .. } => self.apply(update),
            _ => {}
        }
        let after = self.drift();
        if before.signum() * after.signum() < 0 || after.abs() > before.abs() {
            self.too_much = Some(format!("from {before} to {after} by {correction:?}"));
        }
    }

    /// Applies a write if its condition holds: clauses joined by AND, some of them in parentheses and joined
    /// by OR.
    fn apply(&mut self, update: &Update) {
        let inner = |clause: &str| {
            clause.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).map(str::to_owned)
        };
        let clauses = update.statement.condition.replace(") AND ", ")\n").replace(" AND (", "\n(");
        let holds = clauses.lines().all(|clause| match inner(clause) {
            Some(either) => either.split(" OR ").any(|term| self.holds(update, term)),
            None => clause.split(" AND ").all(|term| self.holds(update, term)),
        });
        if !holds {
            return;
        }
        let (set, removed) = match update.statement.update.split_once("REMOVE ") {
            Some(("", rest)) => rest.split_once(" SET ").map_or(("", rest), |(removed, set)| (set, removed)),
            Some((set, removed)) => (set.trim_end(), removed),
            None => (&*update.statement.update, ""),
        };
        for assignment in set.strip_prefix("SET ").unwrap_or(set).split(", #") {
            let (target, sum) = assignment.trim_start_matches('#').split_once(" = ").unwrap();
            let target = attribute(update, &format!("#{target}"));
            let value = sent(update, sum.rsplit(' ').next().unwrap());
            if sum.contains(" + ") {
                self.add(target, value.parse::<Amount>().unwrap().micros() / 1_000_000);
            } else {
                self.row.0.insert(target, (false, value.to_owned()));
            }
        }
        for name in removed.split(", ").filter(|name| !name.is_empty()) {
            self.row.0.remove(attribute(update, name));
        }
    }

    fn holds(&self, update: &Update, term: &str) -> bool {
        let names =
            |function: &str| Some(term.strip_prefix(function)?.split([',', ')']).next().unwrap().to_owned());
        if let Some(path) = names("attribute_not_exists(").or_else(|| names("NOT attribute_type(")) {
            // Nobody spoils the notes here.
            return self.row.field(attribute(update, &path)).is_none();
        }
        let [path, operator, value] = term.split(' ').collect::<Vec<_>>()[..] else { panic!("{term}") };
        let value = sent(update, value);
        match self.row.field(attribute(update, path)) {
            Some(Field::Number(text)) if operator == "=" && text == value => true,
            Some(Field::Number(text)) => {
                let amounts = (text.parse::<Amount>(), value.parse::<Amount>());
                let (Ok(one), Ok(other)) = amounts else { return false };
                match operator {
                    "=" => one == other,
                    "<=" => one <= other,
                    ">=" => one >= other,
                    other => panic!("{other}"),
                }
            }
            Some(Field::Text(text)) => operator == "=" && text == value,
            _ => false,
        }
    }
}

fn attribute(update: &Update, placeholder: &str) -> &'static str {
    let name = update.statement.names.get(placeholder).unwrap();
    let known = [
        schema::TOKENS,
        schema::CAPACITY,
        schema::DRIFT,
        schema::DRIFT_SEEN_AT,
        schema::VERSION,
        schema::COUNTED,
        schema::CAPPED,
        schema::LIMIT_TYPE,
    ];
    known.into_iter().find(|known| *known == name).unwrap()
}

fn sent<'a>(update: &'a Update, placeholder: &str) -> &'a str {
    match &update.values.iter().find(|(name, _)| *name == placeholder).unwrap().1 {
        Operand::Number(text) | Operand::Text(text) => text,
        other => panic!("{other:?}"),
    }
}

/// What may come between the last reading of a sweep and its write, of clients that count.
fn counted() -> impl Strategy<Value = Event> {
    prop_oneof![3 => Just(Event::Take), 2 => Just(Event::Release), 2 => Just(Event::Cap), 1 => Just(Event::Sweep(vec![]))]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => counted(),
        3 => (-3..=3).prop_map(Event::Drift),
        4 => prop::collection::vec(counted(), 0..4).prop_map(Event::Sweep),
        1 => Just(Event::Pass),
        1 => (prop::sample::select(vec!["0", "1e40", "-1e40"]), prop::sample::select(vec!["1000000", "1e40"]))
            .prop_map(|(drift, seen_at)| Event::Forge(drift, seen_at)),
    ]
}

proptest! {
    #![proptest_config(crate::cases::cases(4_000))]

    #[test]
    fn corrections_converge_and_none_goes_too_far(events in prop::collection::vec(event(), 0..24)) {
        let mut world = World::new();
        for event in &events {
            world.happens(event);
            prop_assert!(world.too_much.is_none(), "{:?}", world.too_much);
        }
        let left = world.drift();
        (0..ENOUGH).for_each(|_| world.sweep(&[]));
        prop_assert_eq!(world.drift(), 0, "of {} that were left", left);
    }
}
