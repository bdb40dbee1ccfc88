//! The ledger: it sees every write in the order in which the engine applied it, and says at once which of
//! them no promise allows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;

use crate::account::Account;
use crate::row::{BucketRow, LeaseRow, Micros};
use crate::wire::Purpose;

mod births;
mod damage;
mod inline;
mod lives;
mod loads;
mod marks;
mod rates;
mod recovery;
mod refusals;
mod shares;
mod slot_rows;
mod slots;
mod tickets;
mod vendor;

use births::Births;
pub(crate) use births::{MORTAL, name_of_life};
pub(crate) use damage::FRAIL;
use damage::{Damage, Kind, is_damage};
use lives::Lives;
use loads::{Loads, is_over_for_all};
use marks::Marks;
use recovery::Recovery;
pub(crate) use refusals::Refused;
use refusals::Stood;
pub(crate) use shares::{COMMON, LineRow, LinesRow, SHARED, name_of_line};
use shares::{SharedRows, bucket_of_line};
use slot_rows::SlotRows;
pub(crate) use slot_rows::{SLOTTED, SlotLines};
use tickets::TicketRow;
pub(crate) use vendor::Said;
use vendor::VendorEvents;

/// By this much a clock may be wrong: a lease has ended for everyone so long after its end.
const CLOCK_ERROR: Micros = 2_000_000;

/// Who wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer<'a> {
    /// A client of the SDK, by the name of its process.
    Process(&'a str),
    /// A sweep, by the name of its process.
    Sweeper(&'a str),
    /// An operator: limits and penalties.
    Operator,
    /// A client in another language.
    Stranger,
    /// Someone who edits rows by hand.
    Vandal,
}

impl Writer<'_> {
    /// Whether it may make or widen a row of a bucket with shares of slots: sweeps, and callers that found
    /// none, go on with what an operator began.
    pub(crate) fn may_give_slots(&self, key: &str) -> bool {
        matches!(self, Self::Sweeper(_) | Self::Process(_)) && key.starts_with(SLOTTED)
    }

    pub(crate) const fn name(&self) -> &str {
        match self {
            Self::Process(name) | Self::Sweeper(name) => name,
            Self::Operator => "operator",
            Self::Stranger => "stranger",
            Self::Vandal => "vandal",
        }
    }
}

/// The table as it must be, and what was made of it.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    buckets: BTreeMap<String, BucketRow>,
    leases: BTreeMap<String, LeaseRow>,
    tickets: BTreeMap<String, TicketRow>,
    /// Tickets that a caller was granted.
    taken_up: BTreeSet<String>,
    /// By process and bucket.
    pub(crate) accounts: BTreeMap<(String, String), Account>,
    /// Slots lost (above zero) or minted by hand, or with a lease that DynamoDB's TTL deleted, by bucket.
    pub(crate) gaps: BTreeMap<String, Micros>,
    /// What someone edited by hand recently: the bucket, when, and by how much what is neither free nor held
    /// grew.
    edits: VecDeque<(String, Micros, Micros)>,
    /// Leases of each process that others gave back, and how many it had left to them.
    pub(crate) swept: BTreeMap<String, u64>,
    pub(crate) abandoned: BTreeMap<String, u64>,
    /// Leases that had ended, by who gave them back.
    gave_back: BTreeMap<String, u64>,
    /// The anchor at which each rate bucket was last found full.
    filled: BTreeMap<String, Micros>,
    /// Checks that had something to judge: one that never has proves nothing.
    pub(crate) judgements: Vec<&'static str>,
    /// Buckets whose limits changed, for the history.
    pub(crate) changed: Vec<(String, BucketRow)>,
    /// Tokens that went back, by bucket, for the history.
    pub(crate) given_back: Vec<(String, Micros)>,
    /// What vendors said, and the rows that it may be of.
    vendor_events: VendorEvents,
    /// When cool-downs began, by bucket.
    pub(crate) cool_downs: Vec<(String, Micros)>,
    /// When leases lived, and how buckets stood.
    lives: Lives,
    /// Load rows, and who marked them.
    loads: Loads,
    /// The mark of the table.
    marks: Marks,
    /// How soon slots are back that nobody holds any more.
    recovery: Recovery,
    /// How rate buckets stood of late.
    stood: Stood,
    /// When buckets were made, and removed.
    births: Births,
    /// Wrong numbers in rows.
    damage: Damage,
    /// Buckets with shares.
    shared: SharedRows,
    /// Concurrency buckets with shares.
    slot_rows: SlotRows,
    /// Whether someone spoils rows: what cannot be read is not counted, and not given back.
    is_vandalized: bool,
}

/// A row that a write may have changed, as it is now.
pub(crate) struct Touched {
    pub(crate) key: String,
    pub(crate) row: Option<Value>,
    pub(crate) purpose: Purpose,
    /// Leases that the write gives back because they ended.
    pub(crate) reclaims: Vec<String>,
    /// Whether the write replaced what someone had spoiled.
    pub(crate) was_spoiled: bool,
    /// Whether its reply shows the row: that of a transaction does not.
    pub(crate) is_shown: bool,
    /// For a write that takes slots for callers of another share: a mark of callers that is later than this
    /// is not believed.
    pub(crate) borrows_beyond: Option<Micros>,
}

impl Ledger {
    /// An empty one, of a run in which a sweep takes so many microseconds longer than usual.
    pub(crate) fn new(slack: Micros) -> Self {
        Self { recovery: Recovery::with(slack), ..Self::default() }
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = (&String, &LeaseRow)> {
        self.leases.iter()
    }

    /// How many leases that had ended a process gave back so far.
    pub(crate) fn gave_back(&self, process: &str) -> u64 {
        self.gave_back.get(process).copied().unwrap_or(0)
    }

    pub(crate) fn bucket(&self, name: &str) -> Option<&BucketRow> {
        self.buckets.get(name)
    }

    pub(crate) fn account(&mut self, process: &str, bucket: &str) -> &mut Account {
        self.accounts.entry((process.to_owned(), bucket.to_owned())).or_default()
    }

    /// Rows of buckets and leases.
    pub(crate) fn rows(&self) -> usize {
        self.buckets.len() + self.leases.len()
    }

    /// Takes in what one request of `writer` changed, at the true time `now` where clocks are wrong by
    /// `error` at most.
    pub(crate) fn applied(
        &mut self,
        writer: Writer<'_>,
        rows: Vec<Touched>,
        now: Micros,
        error: Micros,
    ) -> Result<(), String> {
        let mut touched: Vec<String> = Vec::new();
        let mut taking = false;
        let slotted = Self::slotted(&rows);
        let blocked: Vec<_> = rows.iter().filter_map(|change| self.is_blocked_for(change)).collect();
        for change in rows {
            let dimension = if change.key.starts_with("ticket#") {
                self.ticket_changed(writer, &change.key, change.row.as_ref())?;
                None
            } else if change.key.starts_with("load#") {
                self.load_changed(writer, &change, now, error)?;
                None
            } else if change.key.starts_with("lease#") {
                let change = self.lease_changed(writer, &change, now, error)?;
                taking |= matches!(change, Some((_, Grip::Taken)));
                change.map(|(dimension, _)| dimension)
            } else {
                taking |= self.inline_changed(writer, &change, now, error)?;
                self.bucket_changed(writer, &change, now, error)?
            };
            touched.extend(dimension);
        }
        // What takes slots shows in their leases.
        for (key, until, at, concurrent) in blocked {
            if matches!(writer, Writer::Process(_)) && (taking || !concurrent) {
                return Err(format!(
                    "{key}: {} was granted at {at} what is blocked until {until}",
                    writer.name()
                ));
            }
        }
        for dimension in touched {
            self.live_on(&dimension, now);
            self.slots_add_up(writer, &dimension, taking, now)?;
        }
        for bucket in slotted {
            self.slot_rows_add_up(writer, &bucket, now)?;
        }
        Ok(())
    }

    fn lease_changed(
        &mut self,
        writer: Writer<'_>,
        change: &Touched,
        now: Micros,
        error: Micros,
    ) -> Result<Option<(String, Grip)>, String> {
        let (key, row) = (&change.key, change.row.as_ref());
        if is_damage(writer, key) {
            self.lease_damaged(key, row, now);
            return Ok(None);
        }
        let is_reclaimed = change.reclaims.contains(key);
        let before = self.leases.remove(key);
        let after = row.and_then(LeaseRow::read).map(|lease| self.damage.took(key, lease));
        if row.is_some() && after.is_none() {
            return Err(format!("{key} was written so that it cannot be read: {row:?}"));
        }
        let change = match (&before, &after) {
            (None, Some(lease)) => {
                self.is_of_a_bucket(writer, key, &lease.dimension)?;
                Some((lease.dimension.clone(), Grip::Taken))
            }
            (Some(lease), None) => {
                let mine = writer.name() == lease.caller && !is_reclaimed;
                let (ends, caller) = (lease.ends, lease.caller.clone());
                if !mine && ends > now {
                    return Err(format!(
                        "{key} of {caller} was taken from it {} us before its end",
                        ends - now
                    ));
                }
                let dimension = lease.dimension.clone();
                self.damage.lease_gone(key, Kind::Row, is_reclaimed);
                if is_reclaimed {
                    self.reclaimed(writer, &dimension, key, ends, (now, error))?;
                }
                *self.swept.entry(caller).or_default() += u64::from(!mine);
                Some((dimension, Grip::Left))
            }
            (Some(was), Some(is)) if is.ends < was.ends => return Err(format!("{key} was shortened")),
            (Some(was), Some(is)) if is.cost != was.cost => return Err(format!("the cost of {key} changed")),
            // A renewal.
            (Some(_), Some(lease)) => Some((lease.dimension.clone(), Grip::Kept)),
            (None, None) => None,
        };
        if let Some(after) = after {
            self.leases.insert(key.to_owned(), after);
        }
        Ok(change)
    }

    /// A lease was given back since it had ended: for every clock, and a lease row by a process only if it
    /// had marked the table.
    fn reclaimed(
        &mut self,
        writer: Writer<'_>,
        bucket: &str,
        key: &str,
        ends: Micros,
        (now, error): (Micros, Micros),
    ) -> Result<(), String> {
        if !is_over_for_all(ends, now, error) {
            let ago = now - ends;
            return Err(format!(
                "{key}: {} gave it back {ago} us after its end, and some clock was before it",
                writer.name()
            ));
        }
        self.came_back(bucket, ends, now, error);
        *self.gave_back.entry(writer.name().to_owned()).or_default() += 1;
        match writer {
            // Of any bucket: a healing scan deletes the ended leases of rates, too.
            Writer::Process(by) => self.healed(bucket, by),
            _ => Ok(()),
        }
    }

    fn bucket_changed(
        &mut self,
        writer: Writer<'_>,
        change: &Touched,
        now: Micros,
        error: Micros,
    ) -> Result<Option<String>, String> {
        // What the clock of its writer says at most.
        let latest = now + error;
        let (key, by) = (&change.key, writer.name());
        if change.row.is_none() {
            return self.removed(writer, key, now);
        }
        if key.starts_with(SHARED) {
            return self.lines_changed(writer, change, now, error);
        }
        self.named(change, now);
        let Some(after) = change.row.as_ref().and_then(BucketRow::read) else {
            return Err(format!("the bucket {key} cannot be read after a write of {by}: {:?}", change.row));
        };
        if is_damage(writer, key) {
            self.bucket_damaged(key, after, now);
            return Ok(None);
        }
        let after = self.damage.truly(after);
        let before = self.buckets.insert(key.clone(), after.clone());
        let Some(before) = before else { return self.made(writer, key, &after, now) };
        if after.blocked_until < before.blocked_until {
            return Err(format!("{key}: {by} cut a cool-down short: {before:?}, {after:?}"));
        }
        if after.blocked_until > before.blocked_until {
            self.cooled_down(key, latest);
        }
        if after.version == before.version && after.tokens == before.tokens && after.anchor == before.anchor {
            return Ok(None);
        }
        if after.version != before.version + 1 {
            return Err(format!("{key}: version went from {} to {}", before.version, after.version));
        }
        if after.capacity != before.capacity || after.rate != before.rate {
            let grows = after.capacity > before.capacity && after.rate == before.rate;
            if writer != Writer::Operator && !(grows && writer.may_give_slots(key)) {
                return Err(format!("{key}: {by} changed the limits"));
            }
            let most = before.line(after.anchor).min(before.capacity.max(after.capacity));
            if !after.concurrent && after.tokens > most + 2 {
                return Err(format!(
                    "{key}: a change of its limits raised its level from {most} to {}",
                    after.tokens
                ));
            }
            if !key.starts_with(SLOTTED) {
                self.changed.push((self.name_in_history(key), after.clone()));
            }
        }
        self.slots_taken(writer, change, (&before, &after), (now, error))?;
        if !after.concurrent {
            self.vendor_events.written(key, change.purpose, &before, &after);
            self.stood.written(key, (writer, change.purpose, change.is_shown), &after, now);
            self.is_within_the_brim(writer, change, &before, &after)?;
            self.rate_changed(writer, change, &before, &after, latest)?;
        }
        Ok(after.concurrent.then(|| key.clone()))
    }
}

/// What became of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grip {
    Taken,
    Kept,
    Left,
}
