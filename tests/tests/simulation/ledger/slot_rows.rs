//! Shares of slots: each row is judged as a concurrency bucket is, and so are all rows of a bucket together.
//!
//! - What may be in use at once, now or later, is the sum of max(C, H) over the rows: C is the capacity of a
//!   row, H what is taken of it. No write raises it but an operator's, and that not above the limit that the
//!   operator declared; and a sweep's or a caller's, not above what the bucket's row says that it changes to.
//! - A share that is open, or goes, has a row, and one that is not open yet has none. Each row is named by
//!   the bucket's own row, and a row that goes has no lease. While no change is under way, each share has the
//!   slots that its name says.
//! - Who borrows leaves what the lender keeps, by some names that the bucket had of late, and takes nothing
//!   that others wait for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;

use super::{Ledger, Touched, Writer};
use crate::row::{BucketRow, Micros, number};
use crate::wire::FARTHEST_MARK;

/// Buckets of this prefix have slots, and shares with rows of their own.
pub(crate) const SLOTTED: &str = "slotted#";

/// A call of the default cost.
const CALL: Micros = 1_000_000;

/// Of the capacity of a row, what a borrower leaves if nothing is stated.
const FLOOR_PART: Micros = 4;

/// A process looks at the names at most ten seconds after it did last, if the table answers.
const NAMES_KNOWN_FOR: Micros = 60_000_000;

/// A write is on its way for so long at most.
const UNDERWAY: Micros = 60_000_000;

/// A share as the bucket's row names it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    capacity: Micros,
    floor: Option<Micros>,
    is_background: bool,
    is_closed: bool,
}

/// The names of a bucket, and what its common row has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Names {
    common: Micros,
    changes_to: Option<Micros>,
    shares: BTreeMap<String, Named>,
}

/// The capacities of all rows of a bucket, for the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotLines {
    /// What may be in use at once.
    pub(crate) whole: Micros,
    /// With what every borrower leaves.
    pub(crate) shares: BTreeMap<String, (Micros, Option<Micros>)>,
    /// Whether some share is being made or removed.
    pub(crate) has_closed: bool,
}

/// Buckets whose shares have rows of their own.
#[derive(Debug, Default)]
pub(super) struct SlotRows {
    /// The limits that each operator declared, each until it declared another.
    declared: BTreeMap<(String, String), VecDeque<(Micros, Micros)>>,
    /// The names that each bucket had, the latest last, each until it had others.
    names: BTreeMap<String, VecDeque<(Micros, Names)>>,
    counted: BTreeMap<String, Micros>,
    /// The slots of all rows of each bucket.
    capacities: BTreeMap<String, Micros>,
    lines: BTreeMap<String, SlotLines>,
    /// When a process borrowed of a row last.
    borrowed_at: BTreeMap<(String, String), Micros>,
    /// Changes of rows, for the history.
    changed: Vec<(String, SlotLines)>,
}

/// The bucket that a row is of.
fn whole_of(row: &str) -> &str {
    row.split_once('@').map_or(row, |(whole, _)| whole)
}

impl Names {
    fn read(row: &Value) -> Option<Self> {
        let common = number(row, "capacity", 6)?;
        let named = |(name, share): (&String, &Value)| {
            let share = &share["M"];
            let flag = |name| number(share, name, 0) == Some(1);
            let named = Named {
                capacity: number(share, "c", 6)?,
                floor: number(share, "f", 6),
                is_background: flag("b"),
                is_closed: flag("x"),
            };
            Some((name.clone(), named))
        };
        let shares =
            row["shares"]["M"].as_object().into_iter().flatten().map(named).collect::<Option<_>>()?;
        Some(Self { common, changes_to: number(row, "changes_to", 6), shares })
    }

    /// The least that anybody who borrows leaves in a line; `None` if nobody may use it.
    fn kept(&self, line: Option<&str>) -> Option<Micros> {
        let (capacity, stated, is_background) = match line {
            None => (self.common, None, false),
            Some(name) => {
                let named = self.shares.get(name).filter(|named| !named.is_closed)?;
                (named.capacity, named.floor, named.is_background)
            }
        };
        let default = (capacity / FLOOR_PART / CALL * CALL).max(CALL);
        Some(if is_background { 0 } else { stated.unwrap_or(default) })
    }
}

impl Ledger {
    /// An operator is about to give a bucket this limit.
    pub(crate) fn declares_slots(&mut self, bucket: &str, operator: &str, limit: Micros, now: Micros) {
        let declared = self.slot_rows.declared.entry((bucket.to_owned(), operator.to_owned())).or_default();
        if let Some((until, _)) = declared.back_mut() {
            *until = now;
        }
        declared.push_back((Micros::MAX, limit));
    }

    /// Changes of rows since this was asked last.
    pub(crate) fn changed_slot_lines(&mut self) -> Vec<(String, SlotLines)> {
        std::mem::take(&mut self.slot_rows.changed)
    }

    /// The line that callers of a share are of since then: none if the bucket had it at some time, and at
    /// another not.
    pub(crate) fn own_line<'a>(
        &self,
        bucket: &str,
        share: Option<&'a str>,
        since: Micros,
    ) -> Option<&'a str> {
        let names =
            self.slot_rows.names.get(bucket)?.iter().filter(|(until, _)| *until >= since - NAMES_KNOWN_FOR);
        let share = share.unwrap_or(super::COMMON);
        let is_open =
            |(_, names): &(Micros, Names)| names.shares.get(share).is_some_and(|named| !named.is_closed);
        let (mut always, mut never) = (true, true);
        for named in names {
            (always, never) = (always && is_open(named), never && !is_open(named));
        }
        match (always, never) {
            (true, false) => Some(share),
            (false, true) => Some(super::COMMON),
            _ => None,
        }
    }

    /// Whether a process borrowed of a row since.
    pub(crate) fn has_borrowed(&self, process: &str, row: &str, since: Micros) -> bool {
        self.slot_rows.borrowed_at.get(&(process.to_owned(), row.to_owned())).is_some_and(|at| *at >= since)
    }

    /// The buckets of whose rows a request changed some.
    pub(super) fn slotted(rows: &[Touched]) -> BTreeSet<String> {
        rows.iter()
            .filter(|row| row.key.starts_with(SLOTTED))
            .map(|row| whole_of(&row.key).to_owned())
            .collect()
    }

    /// The names as they are after a write of the bucket's own row.
    pub(super) fn named(&mut self, change: &Touched, now: Micros) {
        if !change.key.starts_with(SLOTTED) || change.key.contains('@') {
            return;
        }
        let Some(names) = change.row.as_ref().and_then(Names::read) else { return };
        let known = self.slot_rows.names.entry(change.key.clone()).or_default();
        if known.back().is_some_and(|(_, before)| *before == names) {
            return;
        }
        if let Some((until, before)) = known.back_mut() {
            *until = now;
            let removes = before.shares.keys().any(|name| !names.shares.contains_key(name));
            self.judgements.extend(removes.then_some("slots: the name of a share goes"));
            let opens = |(name, named): (&String, &Named)| {
                !named.is_closed && before.shares.get(name).is_some_and(|before| before.is_closed)
            };
            self.judgements.extend(names.shares.iter().any(opens).then_some("slots: a share opens"));
        }
        known.push_back((Micros::MAX, names));
        known.retain(|(until, _)| *until >= now - 2 * NAMES_KNOWN_FOR);
    }

    /// A take: what a caller of another share leaves.
    pub(super) fn slots_taken(
        &mut self,
        writer: Writer<'_>,
        change: &Touched,
        (before, after): (&BucketRow, &BucketRow),
        (now, error): (Micros, Micros),
    ) -> Result<(), String> {
        let (key, by) = (&change.key, writer.name());
        let taken = after.admitted - before.admitted;
        let Some(far) = change.borrows_beyond.filter(|_| key.starts_with(SLOTTED) && taken > 0) else {
            return Ok(());
        };
        self.judgements.push("judged: a borrowed slot");
        self.slot_rows.borrowed_at.insert((by.to_owned(), key.clone()), now);
        // By a write that was long on its way, a mark of now is too far in the future.
        let believed = far.min(now - error + FARTHEST_MARK);
        let waited = before.waited_until.filter(|until| *until > now + error && *until <= believed);
        if let Some(until) = waited {
            return Err(format!(
                "{key}: {by} borrowed at {now}, and callers wait for its slots until {until}"
            ));
        }
        let names = self.slot_rows.names.get(whole_of(key)).into_iter().flatten();
        let of_late = names.filter(|(until, _)| *until >= now - NAMES_KNOWN_FOR);
        let line = key.split_once('@').map(|(_, share)| share);
        let Some(kept) = of_late.filter_map(|(_, names)| names.kept(line)).min() else {
            return Err(format!("{key}: {by} borrowed of a share that is closed"));
        };
        // One write may take for the lender's callers, too: for all but one call.
        if after.tokens + taken - CALL < kept {
            let left = after.tokens;
            return Err(format!(
                "{key}: {by} borrowed down to {left} of the {kept} that stay: {before:?}, {after:?}"
            ));
        }
        Ok(())
    }

    /// A row goes, and no lease is left without it.
    pub(super) fn slots_removed(&self, key: &str) -> Result<(), String> {
        let held = self.held(key);
        if key.starts_with(SLOTTED) && held > 0 {
            return Err(format!("{key} is removed, and leases hold {held} of it"));
        }
        Ok(())
    }

    /// All rows of a bucket after a request.
    pub(super) fn slot_rows_add_up(
        &mut self,
        writer: Writer<'_>,
        bucket: &str,
        now: Micros,
    ) -> Result<(), String> {
        let is_of = |name: &&String| whole_of(name) == bucket;
        let rows: Vec<&String> =
            self.buckets.range(bucket.to_owned()..).map(|(name, _)| name).take_while(is_of).collect();
        let counts = |row: &BucketRow| row.capacity.max(row.capacity - row.tokens);
        let after: Micros = rows.iter().map(|name| counts(&self.buckets[*name])).sum();
        let before = self.slot_rows.counted.get(bucket).copied().unwrap_or_default();
        let slots: Micros = rows.iter().map(|name| self.buckets[*name].capacity).sum();
        let grows = self.slot_rows.capacities.insert(bucket.to_owned(), slots).is_some_and(|had| slots > had);
        let is_valid = |(until, limit): &(Micros, Micros)| (*until >= now - UNDERWAY).then_some(*limit);
        let declared = self.slot_rows.declared.iter().filter(|((of, _), _)| of == bucket);
        let declared = declared.flat_map(|(_, limits)| limits).filter_map(is_valid).max().unwrap_or_default();
        let names = self.slot_rows.names.get(bucket);
        // The write that ends a change says so no more.
        let until_now = names.into_iter().flatten().filter(|(until, _)| *until >= now);
        let stated = until_now.filter_map(|(_, names)| names.changes_to).max().unwrap_or_default();
        let names = names.and_then(|names| names.back()).map(|(_, names)| names);
        let most = match writer {
            Writer::Operator => before.max(declared),
            Writer::Sweeper(_) | Writer::Process(_) if grows => before.max(stated),
            _ => before,
        };
        if after > most {
            let by = writer.name();
            let rows: Vec<_> = rows.iter().map(|name| (name, &self.buckets[*name])).collect();
            return Err(format!(
                "{bucket}: after a write of {by} {after} may be in use at once, {before} before, {declared} is declared: {rows:?}"
            ));
        }
        match writer {
            Writer::Sweeper(_) if after > before => {
                self.judgements.push("judged: a sweep gives slots to shares");
            }
            Writer::Process(_) if after > before => {
                self.judgements.push("judged: a caller gives slots to shares");
            }
            _ => {}
        }
        let held: Micros = rows.iter().map(|name| self.held(name)).sum();
        if held > after {
            return Err(format!("{bucket}: leases hold {held} in all rows, and {after} may be in use"));
        }
        let has_row =
            |share: &str| rows.iter().any(|row| row.split_once('@').is_some_and(|(_, of)| of == share));
        for (share, named) in names.into_iter().flat_map(|names| &names.shares) {
            let should = !named.is_closed || named.capacity == 0;
            if has_row(share) != should {
                let by = writer.name();
                return Err(format!("{bucket}: after a write of {by}, {share} has a row or none: {named:?}"));
            }
        }
        if let Some(names) = names {
            self.shares_are_as_named(bucket, names).map_err(|why| format!("{why}, by {}", writer.name()))?;
        }
        let is_named = |share: &str| names.is_some_and(|names| names.shares.contains_key(share));
        let shares = rows.iter().filter_map(|row| Some((*row, row.split_once('@')?.1)));
        let has_closed = names.is_some_and(|names| names.shares.values().any(|named| named.is_closed));
        let mut lines = SlotLines { whole: after, shares: BTreeMap::new(), has_closed };
        for (row, share) in shares {
            if !is_named(share) {
                return Err(format!("{row}: after a write of {}, {bucket} does not name it", writer.name()));
            }
            let kept = names.and_then(|names| names.kept(Some(share)));
            lines.shares.insert(share.to_owned(), (self.buckets[row].capacity, kept));
        }
        self.slot_rows.counted.insert(bucket.to_owned(), after);
        if self.slot_rows.lines.get(bucket) != Some(&lines) {
            self.judgements.push("judged: slots of shares change");
            self.slot_rows.lines.insert(bucket.to_owned(), lines.clone());
            self.slot_rows.changed.push((bucket.to_owned(), lines));
        }
        Ok(())
    }

    /// While no change is under way, each share has the slots that its name says.
    fn shares_are_as_named(&self, bucket: &str, names: &Names) -> Result<(), String> {
        let has = |share: &str| self.buckets.get(&format!("{bucket}@{share}")).map(|row| row.capacity);
        let is_other = |(share, named): &(&String, &Named)| has(share) != Some(named.capacity);
        match names.shares.iter().find(is_other).filter(|_| names.changes_to.is_none()) {
            None => Ok(()),
            Some((share, named)) => {
                let has = has(share);
                Err(format!("{bucket}: no change is under way, and {share} has {has:?}: {named:?}"))
            }
        }
    }
}
