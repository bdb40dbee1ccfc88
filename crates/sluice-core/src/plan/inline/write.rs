//! The write of a draft: its clauses, and the interleavings that they stop.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::MOST_CHANGES;
use super::draft::Draft;
use crate::amount::{Amount, Cost};
use crate::lease::LeaseId;
use crate::limit::LimitType;
use crate::schema::{
    ADMITTED, ADMITTED_INLINE, BLOCKED_UNTIL, CAPACITY, CAPPED, COUNTED, INLINE_COST, INLINE_ENDS, LEASES, LIMIT_TYPE,
    TOKENS, VERSION,
};
use crate::statement::{Names, Operand, Statement, Update, Values};
use crate::timestamp::Timestamp;

macro_rules! placeholders {
    ($($number:literal)*) => {
        /// The placeholder of each lease's id.
        const IDS: [&str; MOST_CHANGES] = [$(concat!("#", $number)),*];
        /// The placeholder of each value that a lease is set to or compared with.
        const VALUES: [&str; MOST_CHANGES] = [$(concat!(":x", $number)),*];
    };
}

placeholders!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63);

/// An expression under construction.
#[derive(Default)]
struct Wording {
    set: String,
    remove: String,
    condition: String,
    names: Vec<(&'static str, Cow<'static, str>)>,
    values: Values,
    /// How many leases the expression names so far.
    leases: usize,
}

impl Wording {
    fn name(&mut self, placeholder: &'static str, attribute: &'static str) {
        self.names.push((placeholder, Cow::Borrowed(attribute)));
    }

    fn id(&mut self, id: &LeaseId) -> &'static str {
        let placeholder = IDS[self.leases];
        self.leases += 1;
        self.names.push((placeholder, Cow::Owned(String::from(id.as_str()))));
        placeholder
    }

    /// The placeholder of a value. Equal values share one.
    fn value(&mut self, value: Operand) -> &'static str {
        if let Some((placeholder, _)) =
            self.values.iter().find(|(name, other)| name.starts_with(":x") && *other == value)
        {
            return placeholder;
        }
        let made = self.values.iter().filter(|(name, _)| name.starts_with(":x")).count();
        self.values.push((VALUES[made], value));
        VALUES[made]
    }

    fn number(&mut self, placeholder: &'static str, value: impl core::fmt::Display) {
        self.values.push((placeholder, Operand::number(value)));
    }

    /// Appends `parts` to one of the three texts.
    fn add(text: &mut String, parts: &[&str]) {
        parts.iter().for_each(|part| text.push_str(part));
    }
}

impl Draft<'_, '_> {
    /// The write, with a condition for each interleaving that would make it wrong:
    ///
    /// - `#l = :l`: the bucket was removed, and this write would create a row; or the bucket was recreated as
    ///   a rate bucket.
    pub(super) fn update(&self, now: Timestamp) -> Option<Update> {
        if self.released.is_empty() && self.dead.is_empty() && self.taken.is_empty() {
            return None;
        }
        let mut wording = Wording::default();
        wording.name("#l", LIMIT_TYPE);
        wording.values.push((":l", Operand::text(LimitType::Concurrent)));
        wording.condition.push_str("#l = :l");
        self.slots(&mut wording);
        self.grants(&mut wording, now);
        self.leases(&mut wording);
        let Wording { mut set, remove, condition, names, values, .. } = wording;
        if !remove.is_empty() {
            Wording::add(&mut set, &[" REMOVE ", &remove]);
        }
        let statement = Statement { update: set.into(), condition: condition.into(), names: Names::made(names) };
        Some(Update { key: self.bucket.key(), statement: Cow::Owned(statement), values })
    }

    /// The slots, and the counters that every write changes.
    ///
    /// - `#C = :c AND #T < :above`, if slots become free: a resize between the reading and this write, after
    ///   which the room would be judged by the wrong capacity (C); a slot that another client already
    ///   restored (T). Less than a millionth, the noise of a client that counts in floats, takes no room,
    ///   because a reading does not show it.
    /// - The same for every write that takes over or reclaims, with what others hold left out of the room: an
    ///   ended lease states more than it took, and slots that others hold would exist a second time.
    /// - `#C = :c AND #T < :above AND #T >= :seen`, if there is no room for all: slots were taken or given
    ///   back since the reading, and the room has changed (T).
    /// - `#v = :v`, if there is no room for all of what is taken over or reclaimed: others gave back and took
    ///   since the reading, so that T is the same and what they hold is not.
    fn slots(&self, wording: &mut Wording) {
        let moved = self.moved();
        let (tokens, capacity) = (self.bucket.tokens(), self.bucket.capacity_as_read());
        for (placeholder, attribute) in [("#T", TOKENS), ("#v", VERSION), ("#w", COUNTED)] {
            wording.name(placeholder, attribute);
        }
        wording.number(":0", 0);
        wording.number(":1", 1);
        if moved.capped > Amount::ZERO {
            wording.name("#x", CAPPED);
            wording.set.push_str("SET #T = :full, #x = if_not_exists(#x, :0) + :over");
            wording.number(":full", tokens.plus(moved.slots));
            wording.number(":over", moved.capped);
        } else {
            wording.set.push_str("SET #T = #T + :d");
            wording.number(":d", moved.slots);
        }
        wording.set.push_str(", #v = #v + :1, #w = if_not_exists(#w, :0) + :1");
        if moved.slots <= Amount::ZERO && moved.capped == Amount::ZERO && self.dead.is_empty() {
            return;
        }
        wording.name("#C", CAPACITY);
        wording.number(":c", capacity);
        wording.condition.push_str(" AND #C = :c AND #T < :above");
        let most = if moved.capped > Amount::ZERO {
            wording.condition.push_str(" AND #T >= :seen");
            wording.number(":seen", tokens);
            if !self.dead.is_empty() {
                wording.condition.push_str(" AND #v = :v");
                wording.number(":v", self.bucket.version());
            }
            tokens
        } else {
            self.highest()
        };
        wording.number(":above", most.plus(Amount::from_micros(1)));
    }

    /// The grants.
    ///
    /// - `#T >= :need`: others took the slots since the reading; or a resize left the bucket below zero, and
    ///   slots that come back cannot be granted (then `:need` may be below zero itself).
    /// - `#b`: a cool-down began.
    fn grants(&self, wording: &mut Wording, now: Timestamp) {
        let moved = self.moved();
        if moved.granted == Amount::ZERO {
            return;
        }
        for (placeholder, attribute) in [("#n", ADMITTED), ("#i", ADMITTED_INLINE), ("#b", BLOCKED_UNTIL)] {
            wording.name(placeholder, attribute);
        }
        wording.set.push_str(", #n = if_not_exists(#n, :0) + :k, #i = if_not_exists(#i, :0) + :k");
        wording.number(":k", moved.granted);
        // If the condition requires T as it was seen, T is enough.
        if moved.capped == Amount::ZERO {
            wording.condition.push_str(" AND #T >= :need");
            wording.number(":need", Amount::ZERO.minus(moved.slots));
        }
        wording.condition.push_str(" AND (attribute_not_exists(#b) OR #b <= :now)");
        wording.number(":now", now);
    }

    /// The leases.
    ///
    /// - `attribute_exists` of a release: the lease was given back already, and would be given back again.
    /// - `#t = :seen` of a lease that is taken over: as above (a lease that is gone has no end to compare);
    ///   or its holder renewed the lease since the reading.
    /// - `attribute_not_exists` of a take: an earlier try was applied and its reply was lost, and this try
    ///   would take a second slot for one lease. A take that takes over needs this condition too: the dead
    ///   lease of the second try is another one.
    /// - `attribute_not_exists(#L)`: another process created the map since the reading, and its leases would
    ///   be lost.
    /// - `attribute_exists(#L)`: the bucket was recreated, and there is no map to put a lease into. DynamoDB
    ///   answers that with an error and not with the row. If the write removes a lease, the condition on that
    ///   lease checks this already.
    fn leases(&self, wording: &mut Wording) {
        wording.name("#L", LEASES);
        for released in &self.released {
            let id = wording.id(released.id);
            wording.remove(id);
            Wording::add(&mut wording.condition, &[" AND attribute_exists(#L.", id, ")"]);
        }
        if !self.dead.is_empty() {
            wording.name("#t", INLINE_ENDS);
        }
        for dead in &self.dead {
            let (id, seen) = (wording.id(dead.id), wording.value(Operand::number(&dead.lease.ends)));
            wording.remove(id);
            Wording::add(&mut wording.condition, &[" AND #L.", id, ".#t = ", seen]);
        }
        if self.leases.is_none() {
            let lease =
                |take: &&super::InlineTake| (Cow::Owned(String::from(take.id.as_str())), entry(take.cost, take.ends));
            wording.values.push((":m", Operand::Map(self.taken.iter().map(lease).collect())));
            wording.set.push_str(", #L = :m");
            wording.condition.push_str(" AND attribute_not_exists(#L)");
            return;
        }
        if self.released.is_empty() && self.dead.is_empty() {
            wording.condition.push_str(" AND attribute_exists(#L)");
        }
        for take in &self.taken {
            let (id, lease) = (wording.id(&take.id), wording.value(entry(take.cost, take.ends)));
            Wording::add(&mut wording.set, &[", #L.", id, " = ", lease]);
            Wording::add(&mut wording.condition, &[" AND attribute_not_exists(#L.", id, ")"]);
        }
    }
}

impl Wording {
    fn remove(&mut self, id: &str) {
        let comma = if self.remove.is_empty() { "" } else { ", " };
        Self::add(&mut self.remove, &[comma, "#L.", id]);
    }
}

/// A lease as the row stores it.
fn entry(cost: Cost, ends: Timestamp) -> Operand {
    let ends = Operand::number(ends.ceil_to_second());
    Operand::Map(Box::from([(Cow::Borrowed(INLINE_COST), Operand::number(cost)), (Cow::Borrowed(INLINE_ENDS), ends)]))
}

/// The write that lets the inline lease `id` of the bucket `key` end at `ends`, rounded up to a whole second,
/// and never earlier than the lease ends already.
///
/// Interleavings that the condition stops:
/// - The lease ended and was reclaimed, and there is none to renew (a lease that is gone has no end to
///   compare).
/// - An older renewal arrives late and would shorten the lease.
#[must_use]
pub fn renew_inline(key: String, id: &LeaseId, ends: Timestamp) -> Update {
    let names = alloc::vec![
        ("#L", Cow::Borrowed(LEASES)),
        (IDS[0], Cow::Owned(String::from(id.as_str()))),
        ("#t", Cow::Borrowed(INLINE_ENDS)),
        ("#v", Cow::Borrowed(VERSION)),
        ("#w", Cow::Borrowed(COUNTED)),
    ];
    let statement = Statement {
        update: Cow::Borrowed("SET #L.#0.#t = :e, #v = #v + :1, #w = if_not_exists(#w, :0) + :1"),
        condition: Cow::Borrowed("#L.#0.#t <= :e"),
        names: Names::made(names),
    };
    let values = alloc::vec![
        (":e", Operand::number(ends.ceil_to_second())),
        (":0", Operand::number(0)),
        (":1", Operand::number(1)),
    ];
    Update { key, statement: Cow::Owned(statement), values }
}
