//! Buckets with shares: each line is judged by itself, as a bucket is, and so is what borrows from it and
//! changes it.
//!
//! In the ledger the common line has the name of its bucket, and the line of a share `bucket|share`. A take,
//! a return and a settlement change one line, and the rest of the ledger judges them as it judges those of a
//! bucket: by the line's own brim, level and account, so that what was borrowed goes back to its lender or to
//! nobody. Here stands what only shares have:
//!
//! - who borrows leaves the lender's floor, counts what it borrows, and takes no lot;
//! - what lowers the bucket (a penalty, a vendor's reply) takes as much as it says of all lines together, and
//!   raises none;
//! - only an operator changes lines, to the limits that it declared: their sum is the whole, no level comes
//!   from nowhere, what a removed share has or owes is the common line's, and a share that is declared again
//!   has an anchor that it never had.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Ledger, Touched, Writer};
use crate::row::{BucketRow, Micros, number};
use crate::wire::Purpose;

/// Buckets of this prefix have shares.
pub(crate) const SHARED: &str = "shared#";

/// The line that no share has.
pub(crate) const COMMON: &str = "common";

/// Of the capacity of a line, what a borrower leaves if nothing is stated.
const FLOOR_PART: Micros = 4;

/// A process knows by then that the lines changed.
const OF_LATE: Micros = 10_000_000;

/// A call of the default cost.
const CALL: Micros = 1_000_000;

/// One line of a row.
#[derive(Clone, Debug)]
pub(crate) struct LineRow {
    pub(crate) row: BucketRow,
    floor: Option<Micros>,
    pub(crate) background: bool,
    lots: Micros,
    lent: Micros,
    borrowed: Micros,
    /// What was given back so far: a settlement that returns as much as it takes changes nothing else.
    returned: Micros,
}

/// All lines of a row, by name.
pub(crate) type LinesRow = BTreeMap<String, LineRow>;

/// Rows of buckets with shares, and what operators declared.
#[derive(Debug, Default)]
pub(super) struct SharedRows {
    rows: BTreeMap<String, LinesRow>,
    /// The capacities and rates that the whole of each bucket may have.
    wholes: BTreeMap<String, Vec<(Micros, i128)>>,
    /// The latest anchor that each line ever had.
    anchors: BTreeMap<String, Micros>,
    /// When the lines of each bucket changed last.
    changed_at: BTreeMap<String, Micros>,
    /// Changes of lines, for the history.
    pub(super) changed: Vec<(String, LinesRow)>,
}

/// The name of a line in the ledger.
pub(crate) fn name_of_line(bucket: &str, line: &str) -> String {
    if line == COMMON { bucket.to_owned() } else { format!("{bucket}|{line}") }
}

/// The bucket that a line is of.
pub(super) fn bucket_of_line(line: &str) -> &str {
    line.split_once('|').map_or(line, |(bucket, _)| bucket)
}

fn read(row: &Value) -> Option<LinesRow> {
    let whole = BucketRow::read(row)?;
    let sum = |of: &Value, name| number(of, name, 6).unwrap_or(0);
    let lots = number(row, "lots", 0).unwrap_or(0);
    let [lent, borrowed, returned] = ["lent", "borrowed", "returned"].map(|name| sum(row, name));
    let common =
        LineRow { row: whole.clone(), floor: None, background: false, lots, lent, borrowed, returned };
    let mut lines = LinesRow::from([(COMMON.to_owned(), common)]);
    for (name, line) in row["shares"]["M"].as_object().into_iter().flatten() {
        let line = &line["M"];
        let row = BucketRow {
            capacity: number(line, "c", 6)?,
            tokens: number(line, "t", 6)?,
            rate: number(line, "r", 12)?,
            anchor: number(line, "a", 6)?,
            repaired_at: number(line, "p", 6),
            ..whole.clone()
        };
        let lots = number(line, "l", 0).unwrap_or(0);
        let [lent, borrowed, returned] = ["n", "o", "u"].map(|name| sum(line, name));
        let background = number(line, "b", 0) == Some(1);
        lines.insert(
            name.clone(),
            LineRow { row, floor: number(line, "f", 6), background, lots, lent, borrowed, returned },
        );
    }
    Some(lines)
}

impl LineRow {
    fn is_limited_as(&self, other: &Self) -> bool {
        let limits = |line: &Self| (line.row.capacity, line.row.rate, line.floor, line.background);
        limits(self) == limits(other)
    }

    fn is_where(&self, other: &Self) -> bool {
        let stands = |line: &Self| (line.row.tokens, line.row.anchor, line.lots, line.lent, line.returned);
        stands(self) == stands(other)
    }

    fn level(&self, at: Micros) -> Micros {
        self.row.line(at).min(self.row.capacity)
    }

    /// What a borrower leaves of it: nothing of a background share's, unless the borrower is one.
    pub(crate) fn floor(&self, borrower_is_background: bool) -> Micros {
        let floor = self.floor.unwrap_or((self.row.capacity / FLOOR_PART).max(CALL));
        match (borrower_is_background, self.background) {
            (true, _) => floor + CALL,
            (false, true) => 0,
            (false, false) => floor,
        }
    }
}

/// What one line lent, another borrowed.
fn counts_loans(before: &LinesRow, after: &LinesRow) -> Result<(), String> {
    let rose = |of: fn(&LineRow) -> Micros| -> Vec<(&String, Micros)> {
        let by = after.iter().map(|(name, line)| (name, of(line) - of(&before[name])));
        by.filter(|(_, by)| *by != 0).collect()
    };
    match (rose(|line| line.lent).as_slice(), rose(|line| line.borrowed).as_slice()) {
        ([], []) => Ok(()),
        ([(lender, lent)], [(borrower, borrowed)]) if lender != borrower && lent == borrowed => Ok(()),
        (lent, borrowed) => Err(format!("{lent:?} is counted as lent, and {borrowed:?} as borrowed")),
    }
}

impl Ledger {
    /// An operator is about to give a bucket this capacity and rate.
    pub(crate) fn declares(&mut self, bucket: &str, whole: (Micros, i128)) {
        self.shared.wholes.entry(bucket.to_owned()).or_default().push(whole);
    }

    /// The lines of a bucket.
    pub(crate) fn lines(&self, bucket: &str) -> Option<&LinesRow> {
        self.shared.rows.get(bucket)
    }

    /// When the lines of a bucket changed last.
    pub(crate) fn lines_changed_at(&self, bucket: &str) -> Micros {
        self.shared.changed_at.get(bucket).copied().unwrap_or(Micros::MIN)
    }

    /// Whether the lines of a bucket changed within what a process remembers of it.
    pub(crate) fn changed_of_late(&self, bucket: &str, now: Micros) -> bool {
        self.shared.changed_at.get(bucket).is_some_and(|at| now - at < OF_LATE)
    }

    /// Changes of lines since this was asked last.
    pub(crate) fn changed_lines(&mut self) -> Vec<(String, LinesRow)> {
        std::mem::take(&mut self.shared.changed)
    }

    pub(super) fn lines_changed(
        &mut self,
        writer: Writer<'_>,
        change: &Touched,
        now: Micros,
        error: Micros,
    ) -> Result<Option<String>, String> {
        let (key, by) = (&change.key, writer.name());
        let Some(after) = change.row.as_ref().and_then(read) else {
            return Err(format!("the bucket {key} cannot be read after a write of {by}: {:?}", change.row));
        };
        let Some(before) = self.shared.rows.insert(key.clone(), after.clone()) else {
            return self.lines_made(writer, key, &after, now);
        };
        let (was, is) = (&before[COMMON].row, &after[COMMON].row);
        if is.blocked_until < was.blocked_until {
            return Err(format!("{key}: {by} cut a cool-down short: {before:?}, {after:?}"));
        }
        if is.blocked_until > was.blocked_until {
            self.cooled_down(key, now + error);
        }
        for (name, line) in &after {
            self.buckets.insert(name_of_line(key, name), line.row.clone());
        }
        let is_changed =
            |(name, line): &(&String, &LineRow)| before.get(*name).is_none_or(|was| !line.is_where(was));
        let changed: Vec<&String> = after.iter().filter(is_changed).map(|(name, _)| name).collect();
        if is.version == was.version && changed.is_empty() && before.len() == after.len() {
            return Ok(None);
        }
        if is.version != was.version + 1 {
            return Err(format!("{key}: version went from {} to {}", was.version, is.version));
        }
        let keeps =
            |(name, line): (&String, &LineRow)| before.get(name).is_some_and(|was| line.is_limited_as(was));
        if before.len() != after.len() || !after.iter().all(keeps) {
            return self.split_changed(writer, key, (&before, &after), now);
        }
        counts_loans(&before, &after).map_err(|what| format!("{key}: a write of {by}: {what}"))?;
        match change.purpose {
            Purpose::Take { .. } | Purpose::Return { .. } | Purpose::Settle { .. } => {
                let [name] = changed.as_slice() else {
                    return Err(format!("{key}: {:?} of {by} changed the lines {changed:?}", change.purpose));
                };
                self.one_line_changed(writer, change, name, (&before[*name], &after[*name]), (now, error))?;
            }
            _ => self.lowered_lines(writer, change, (&before, &after), now)?,
        }
        for (name, line) in &after {
            let latest = self.shared.anchors.entry(name_of_line(key, name)).or_insert(line.row.anchor);
            // A stranger may move an anchor back, and with it what follows.
            let is_moved_back = writer == Writer::Stranger && changed.contains(&name);
            *latest = if is_moved_back { line.row.anchor } else { line.row.anchor.max(*latest) };
        }
        Ok(None)
    }

    fn lines_made(
        &mut self,
        writer: Writer<'_>,
        key: &str,
        after: &LinesRow,
        now: Micros,
    ) -> Result<Option<String>, String> {
        if writer != Writer::Operator || after.values().any(|line| line.row.tokens != line.row.capacity) {
            return Err(format!("{key}: {} made it, {after:?}", writer.name()));
        }
        self.adds_up(key, after)?;
        for (name, line) in after {
            let name = name_of_line(key, name);
            self.stood.written(&name, (writer, Purpose::Other, true), &line.row, now);
            self.shared.anchors.insert(name.clone(), line.row.anchor);
            self.buckets.insert(name, line.row.clone());
        }
        self.shared.changed.push((key.to_owned(), after.clone()));
        Ok(None)
    }

    /// Each line has its part of a whole that was declared.
    fn adds_up(&self, key: &str, lines: &LinesRow) -> Result<(), String> {
        let capacity: Micros = lines.values().map(|line| line.row.capacity).sum();
        let rate: i128 = lines.values().map(|line| line.row.rate).sum();
        let declared = self.shared.wholes.get(key).map_or(&[][..], Vec::as_slice);
        if declared.contains(&(capacity, rate)) {
            return Ok(());
        }
        Err(format!(
            "{key}: its lines add up to {capacity} at {rate}, and {declared:?} were declared: {lines:?}"
        ))
    }

    /// A take, a return, or a settlement.
    fn one_line_changed(
        &mut self,
        writer: Writer<'_>,
        change: &Touched,
        name: &str,
        (before, after): (&LineRow, &LineRow),
        (now, error): (Micros, Micros),
    ) -> Result<(), String> {
        let line = Touched {
            key: name_of_line(&change.key, name),
            row: None,
            purpose: change.purpose,
            reclaims: Vec::new(),
            was_spoiled: false,
            is_shown: change.is_shown,
            borrows_beyond: None,
        };
        let (key, by) = (&line.key, writer.name());
        self.stood.written(key, (writer, change.purpose, change.is_shown), &after.row, now);
        self.is_within_the_brim(writer, &line, &before.row, &after.row)?;
        self.rate_changed(writer, &line, &before.row, &after.row, now + error)?;
        let lent = after.lent - before.lent;
        if lent == 0 {
            return Ok(());
        }
        let Purpose::Take { now: planned, from_line } = change.purpose else {
            return Err(format!("{key}: {:?} of {by} lent {lent}: {after:?}", change.purpose));
        };
        self.judgements.push("judged: a loan");
        let brim = if from_line { Micros::MAX } else { before.row.capacity };
        let taken = before.row.line(after.row.anchor).min(brim) - after.row.tokens;
        if lent < 0 || lent > taken + 2 || after.lots != before.lots {
            return Err(format!("{key}: {by} took {taken} and counts {lent} as lent: {before:?}, {after:?}"));
        }
        let (left, floor) = (after.row.line(planned), after.floor(false));
        if left < floor - 2 {
            return Err(format!(
                "{key}: {by} borrowed down to {left} of the {floor} that are never lent: {after:?}"
            ));
        }
        Ok(())
    }

    /// A penalty, a vendor's reply, what a call used beyond its cost, a note.
    fn lowered_lines(
        &mut self,
        writer: Writer<'_>,
        change: &Touched,
        (before, after): (&LinesRow, &LinesRow),
        now: Micros,
    ) -> Result<(), String> {
        let (key, mut sum) = (&change.key, 0);
        for (name, line) in after {
            let was = &before[name];
            if line.is_where(was) {
                continue;
            }
            let brim = if line.row.anchor == was.row.anchor { Micros::MAX } else { was.row.capacity };
            let taken = was.row.line(line.row.anchor).min(brim) - line.row.tokens;
            let moved_back = (1..=4_000_000).contains(&(was.row.anchor - line.row.anchor));
            if taken < -2 || line.lent != was.lent || moved_back {
                let by = writer.name();
                return Err(format!(
                    "{key}: {by} raised {name} by {}, or lent of it: {was:?}, {line:?}",
                    -taken
                ));
            }
            // What is full starts anew.
            if line.row.anchor != was.row.anchor {
                self.filled.insert(name_of_line(key, name), line.row.anchor);
            }
            sum += taken;
            self.stood.written(&name_of_line(key, name), (writer, Purpose::Other, true), &line.row, now);
        }
        if let Purpose::Observe { by, .. } = change.purpose {
            self.judgements.push("judged: a reply to a bucket with shares");
            let rounding = 2 * Micros::try_from(after.len()).unwrap();
            if (sum - by).abs() > rounding {
                return Err(format!(
                    "{key}: a reply lowers by {by}, and the lines by {sum}: {before:?}, {after:?}"
                ));
            }
        }
        Ok(())
    }

    /// Shares were declared, changed or removed, or the limit was.
    fn split_changed(
        &mut self,
        writer: Writer<'_>,
        key: &str,
        (before, after): (&LinesRow, &LinesRow),
        now: Micros,
    ) -> Result<Option<String>, String> {
        if writer != Writer::Operator {
            return Err(format!("{key}: {} changed the shares: {before:?}, {after:?}", writer.name()));
        }
        self.adds_up(key, after)?;
        self.judgements.push("judged: shares change");
        self.shared.changed_at.insert(key.to_owned(), now);
        let at = after[COMMON].row.anchor;
        // What the common line and the shares that go had or owed, and what that line and the shares that
        // come have.
        let pool = |lines: &LinesRow, others: &LinesRow| -> (Micros, Micros) {
            let of_pool = |(name, _): &(&String, &LineRow)| *name == COMMON || !others.contains_key(*name);
            let levels = lines.iter().filter(of_pool).map(|(_, line)| line.level(at));
            levels.fold((0, 0), |(sum, lines), level| (sum + level, lines + 1))
        };
        let ((had, many), (has, more)) = (pool(before, after), pool(after, before));
        let (rounding, is_full) =
            (2 * (many + more), after[COMMON].level(at) >= after[COMMON].row.capacity - 2);
        if has > had + rounding || has < had - rounding && !is_full {
            return Err(format!(
                "{key}: the lines that changed had {had}, and have {has}: {before:?}, {after:?}"
            ));
        }
        for (name, line) in after {
            let full_name = name_of_line(key, name);
            let was = before.get(name);
            if was.is_some_and(|was| was.is_limited_as(line) && was.is_where(line)) {
                continue;
            }
            let latest = self.shared.anchors.insert(full_name.clone(), line.row.anchor);
            if latest.is_some_and(|latest| line.row.anchor <= latest) {
                return Err(format!(
                    "{key}: {name} has an anchor that it had before, {latest:?}: {before:?}, {after:?}"
                ));
            }
            if was.is_some_and(|was| (was.lent, was.borrowed) != (line.lent, line.borrowed)) {
                return Err(format!("{key}: {name} lent or borrowed something else: {was:?}, {line:?}"));
            }
            if let Some(was) = was.filter(|_| name != COMMON) {
                let most = was.level(line.row.anchor).min(line.row.capacity);
                if (line.row.tokens - most).abs() > 2 {
                    return Err(format!(
                        "{key}: {name} had {most}, and has {}: {was:?}, {line:?}",
                        line.row.tokens
                    ));
                }
            }
            // The write of a plain limit is relative. It leaves what a lower limit cuts off, which counts as
            // full.
            if line.row.tokens > line.row.capacity && before.len() + after.len() > 2 {
                return Err(format!("{key}: {name} has more than it holds: {line:?}"));
            }
            self.filled.insert(full_name.clone(), line.row.anchor);
            self.stood.written(&full_name, (writer, Purpose::Other, true), &line.row, now);
        }
        for name in before.keys().filter(|name| !after.contains_key(*name)) {
            self.buckets.remove(&name_of_line(key, name));
            self.filled.insert(name_of_line(key, name), at);
        }
        self.shared.changed.push((key.to_owned(), after.clone()));
        Ok(None)
    }
}
