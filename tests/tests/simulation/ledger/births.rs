//! Buckets that are made, removed, and made anew.
//!
//! A bucket that is made anew is another one: it starts full, whatever the one before it granted, and nothing
//! that was planned for that one changes it. Leases with rows of their own outlast their bucket, and are of
//! the next one of their name, as far as it has slots: what they hold is minted when it is made, and no write
//! makes that more. Leases in the row go with it.

use std::collections::BTreeMap;

use super::damage::FRAIL;
use super::{Ledger, Writer, bucket_of_line};
use crate::row::{BucketRow, Micros};
use crate::wire::Purpose;

/// Buckets of this prefix are made anew in the middle of a run.
pub(crate) const MORTAL: &str = "mortal#";

/// The lives of buckets, by name.
#[derive(Debug, Default)]
pub(super) struct Births(BTreeMap<String, Vec<Life>>);

/// One life of a bucket.
#[derive(Clone, Copy, Debug)]
struct Life {
    born: Micros,
    gone: Micros,
    concurrent: bool,
}

impl Births {
    /// Its bound is judged anew from now on.
    pub(super) fn goes_on_as_another(&mut self, bucket: &str, now: Micros) {
        let Some(lives) = self.0.get_mut(bucket) else { return };
        let Some(last) = lives.last_mut() else { return };
        last.gone = now;
        let concurrent = last.concurrent;
        lives.push(Life { born: now, gone: Micros::MAX, concurrent });
    }
}

impl Ledger {
    /// Only an operator removes a bucket.
    pub(super) fn removed(
        &mut self,
        writer: Writer<'_>,
        key: &str,
        now: Micros,
    ) -> Result<Option<String>, String> {
        self.slots_removed(key)?;
        if self.buckets.remove(key).is_none() {
            return Ok(None);
        }
        if writer != Writer::Operator {
            return Err(format!("{key}: {} removed it", writer.name()));
        }
        if let Some(life) = self.births.0.get_mut(key).and_then(|lives| lives.last_mut()) {
            life.gone = now;
        }
        self.filled.remove(key);
        self.gaps.remove(key);
        self.vendor_events.forget(key);
        self.stood.forget(key);
        self.judgements.push("a bucket is removed");
        Ok(None)
    }

    /// Only an operator makes a bucket; a sweep and a caller make rows of shares, too. Each starts full.
    pub(super) fn made(
        &mut self,
        writer: Writer<'_>,
        key: &str,
        row: &BucketRow,
        now: Micros,
    ) -> Result<Option<String>, String> {
        let may = writer == Writer::Operator || key.contains('@') && writer.may_give_slots(key);
        if !may || row.tokens != row.capacity {
            return Err(format!("{key}: {} made it, {row:?}", writer.name()));
        }
        let lives = self.births.0.entry(key.to_owned()).or_default();
        let before = lives.last().copied();
        lives.push(Life { born: now, gone: Micros::MAX, concurrent: row.concurrent });
        if let Some(before) = before {
            self.judgements.push("a bucket is made anew");
            self.judgements
                .extend((before.concurrent != row.concurrent).then_some("a bucket changes its type"));
        }
        if !row.concurrent {
            self.stood.written(key, (writer, Purpose::Other, true), row, now);
            if key.starts_with(MORTAL) || key.starts_with(FRAIL) {
                self.changed.push((self.name_in_history(key), row.clone()));
            }
            return Ok(None);
        }
        // What leases of the one before hold was minted with it.
        let minted = self.gap(key).unwrap_or_default();
        self.judgements
            .extend((minted < 0).then_some("a bucket is made anew while leases of the last one live"));
        self.gaps.insert(key.to_owned(), minted);
        Ok(Some(key.to_owned()))
    }

    /// A lease is of a bucket that is there.
    pub(super) fn is_of_a_bucket(&self, writer: Writer<'_>, lease: &str, bucket: &str) -> Result<(), String> {
        if self.buckets.contains_key(bucket) {
            return Ok(());
        }
        Err(format!("{} took {lease}, and there is no {bucket}", writer.name()))
    }

    /// Whether a bucket was made or removed since.
    pub(super) fn is_another_since(&self, bucket: &str, since: Micros) -> bool {
        let lives = self.births.0.get(bucket).into_iter().flatten();
        lives.skip(1).any(|life| life.born >= since) || !self.buckets.contains_key(bucket)
    }

    /// Whether there was a bucket of this name.
    pub(super) fn was_there(&self, bucket: &str) -> bool {
        self.births.0.contains_key(bucket)
    }

    /// Whether there was no bucket of this name at some moment since.
    pub(crate) fn was_absent_since(&self, bucket: &str, since: Micros) -> bool {
        let last = self.births.0.get(bucket).and_then(|lives| lives.last());
        last.is_none_or(|life| life.born >= since || life.gone < Micros::MAX)
    }

    /// Which of its lives a bucket was in, and whether it had slots; `None` where there was none.
    pub(crate) fn life_at(&self, bucket: &str, at: Micros) -> Option<(usize, bool)> {
        let lives = self.births.0.get(bucket)?;
        let found = lives.iter().rposition(|life| life.born <= at && at < life.gone)?;
        Some((found, lives[found].concurrent))
    }

    /// A history knows no bucket that is made anew: each life has a name of its own.
    pub(super) fn name_in_history(&self, bucket: &str) -> String {
        let bucket = bucket_of_line(bucket);
        let lives = self.births.0.get(bucket).map_or(0, Vec::len);
        name_of_life(bucket, lives.saturating_sub(1))
    }
}

/// The name of one life of a bucket in a history.
pub(crate) fn name_of_life(bucket: &str, life: usize) -> String {
    if life == 0 { bucket.to_owned() } else { format!("{bucket}@{life}") }
}
