//! The judgement itself is that of `sluice-core`, called as the sweep calls it; a mutant is told less, or
//! heeds less.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_core::schema::{
    ADMITTED, CAPACITY, CAPPED, COST_PER_CALL, COUNTED, DRIFT, DRIFT_SEEN_AT, LAST_REFILL_AT, LIMIT_TYPE,
    REFILL_RATE, TOKENS, VERSION,
};
use sluice_core::{
    Amount, Bucket, Census, Correction, Cost, Dimension, Drift, Field, Lease, LeaseId, LimitType, ReadAt,
    Returned, Row, Timestamp,
};

use super::mistake::Mistake;
use super::model::Recount;
use super::state::{CAPACITY as SLOTS, Changes, Decision, Note, State, Sweep};

/// The first reading of the sweep.
const READ_AT: Timestamp = Timestamp::from_secs(1_700_000_000);

/// Beyond every clock's error and the longest write.
const LONG: Duration = Duration::from_secs(60);

/// A bucket's row.
struct Attributes(BTreeMap<&'static str, String>);

impl Row for Attributes {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        let text = self.0.get(name)?;
        Some(if name == LIMIT_TYPE { Field::Text(text) } else { Field::Number(text) })
    }
}

impl Recount {
    /// What a sweep that has scanned everything finds. A row that core cannot read says nothing, and then no
    /// slot comes back.
    pub(crate) fn found(&self, state: &State, sweep: &Sweep) -> Drift {
        let mut seen = *sweep;
        let mut free = state.free;
        match self.mistake {
            Some(Mistake::NoSecondReading) => {
                (seen.changes, seen.returned, free) = (Changes::default(), [0; 3], sweep.free)
            }
            Some(Mistake::CappedUncounted) => seen.changes.capped = 0,
            Some(Mistake::OwnReturnsUnheeded) => seen.returned = [0; 3],
            Some(Mistake::LostRacesUnheeded) => seen.returned[2] = 0,
            Some(Mistake::YoungTakenForOld) => seen.census = [sweep.census.iter().sum(), 0, 0],
            Some(Mistake::RecentTakenForYoung) => {
                seen.census = [sweep.census[0], 0, sweep.census[1] + sweep.census[2]]
            }
            _ => {}
        }
        let readings = (bucket(sweep.free, Changes::default(), None), bucket(free, seen.changes, None));
        let (Some(first), Some(last), Some(census)) = (readings.0, readings.1, census(seen.census)) else {
            return Drift::Unknown;
        };
        let [slots, capped, lost] = seen.returned.map(|slots| Amount::from_tokens(slots.into()));
        Drift::between(&first, &last, &census, Returned { slots, capped, lost })
    }

    /// What follows for a sweep that read `note` at first.
    pub(crate) fn decision(&self, sweep: &Sweep, found: Drift) -> Option<Decision> {
        if self.mistake == Some(Mistake::CorrectedAtOnce) {
            return found.signed().map(slots).map(Decision::Correct);
        }
        let first = bucket(sweep.free, Changes::default(), sweep.note)?;
        match Correction::plan(&first, &first, found, READ_AT.after(LONG)) {
            Correction::Correct { slots: amount, .. } => Some(Decision::Correct(slots(amount))),
            Correction::Note(update) if update.statement.update.starts_with("REMOVE") => {
                Some(Decision::Forget)
            }
            Correction::Note(_) if sweep.note.is_some() => found.signed().map(slots).map(Decision::NoteAgain),
            Correction::Note(_) => found.signed().map(slots).map(Decision::Note),
            _ => None,
        }
    }
}

/// Whole slots.
pub(crate) fn slots(amount: Amount) -> i8 {
    i8::try_from(amount.micros() / Amount::from_tokens(1).micros()).unwrap_or(i8::MAX)
}

fn dimension() -> Option<Dimension> {
    Dimension::new("vendor#concurrent").ok()
}

fn bucket(free: i8, changes: Changes, note: Option<Note>) -> Option<Bucket> {
    let mut row = BTreeMap::from([
        (CAPACITY, SLOTS.to_string()),
        (TOKENS, free.to_string()),
        (REFILL_RATE, "0".into()),
        (LAST_REFILL_AT, "0".into()),
        (COST_PER_CALL, "1".into()),
        (LIMIT_TYPE, LimitType::Concurrent.to_string()),
        (VERSION, changes.writes.to_string()),
        (ADMITTED, changes.admitted.to_string()),
        (COUNTED, changes.counted.to_string()),
        (CAPPED, changes.capped.to_string()),
    ]);
    if let Some(note) = note {
        row.insert(DRIFT, note.drift.to_string());
        row.insert(DRIFT_SEEN_AT, READ_AT.to_string());
    }
    Bucket::read(&dimension()?, &Attributes(row)).ok()
}

/// Leases granted long before the first reading, about then, and long after.
fn census(ages: [u8; 3]) -> Option<Census> {
    let mut census = Census::default();
    for (leases, granted_at) in ages.into_iter().zip([READ_AT.before(LONG), READ_AT, READ_AT.after(LONG)]) {
        let id = LeaseId::new("a".into())?;
        let lease = Lease::new(dimension()?, &id, Cost::ONE, granted_at, granted_at.after(LONG), "model");
        (0..leases).for_each(|_| census.count(&lease, ReadAt { begun: READ_AT, done: READ_AT }));
    }
    Some(census)
}
