//! The write of a draft: its clauses, and the interleavings that they stop.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use super::draft::Draft;
use super::{InlineTake, MOST_CHANGES};
use crate::amount::Amount;
use crate::bucket::FARTHEST_MARK;
use crate::lease::LeaseId;
use crate::limit::LimitType;
use crate::schema::{
    ADMITTED, ADMITTED_INLINE, BLOCKED_UNTIL, CAPACITY, CAPPED, COUNTED, INLINE_BORROWED_BY, INLINE_COST,
    INLINE_ENDS, LEASES, LIMIT_TYPE, SERVED, TOKENS, VERSION, WAITED_UNTIL,
};
use crate::statement::{AttributeNames, Operand, Statement, Update, Values};
use crate::timestamp::Timestamp;

macro_rules! placeholders {
    ($($number:literal)*) => {
        /// The placeholder of each lease's id.
        const IDS: [&str; MOST_CHANGES] = [$(concat!("#lease", $number)),*];
        /// The placeholder of each lease that is put.
        const LEASES_PUT: [&str; MOST_CHANGES] = [$(concat!(":lease", $number)),*];
        /// The placeholder of each end that is compared.
        const ENDS_READ: [&str; MOST_CHANGES] = [$(concat!(":read_ends", $number)),*];
    };
}

placeholders!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63);

/// The most attributes of a write.
const MOST_ATTRIBUTES: usize = 12;

/// An expression under construction.
#[derive(Default)]
struct Wording {
    set: String,
    remove: String,
    condition: String,
    attributes: Vec<&'static str>,
    leases: Vec<(&'static str, String)>,
    values: Values,
}

impl Wording {
    fn id(&mut self, id: &LeaseId) -> &'static str {
        let placeholder = IDS[self.leases.len()];
        self.leases.push((placeholder, String::from(id.as_str())));
        placeholder
    }

    /// The placeholder of a value, one of `placeholders`. Equal values share one.
    fn value(&mut self, placeholders: &[&'static str; MOST_CHANGES], value: Operand) -> &'static str {
        let kind = placeholders[0].trim_end_matches('0');
        let made = || self.values.iter().filter(|(name, _)| name.starts_with(kind));
        if let Some((placeholder, _)) = made().find(|(_, other)| *other == value) {
            return placeholder;
        }
        let placeholder = placeholders[made().count()];
        self.values.push((placeholder, value));
        placeholder
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
    /// - `#limit_type = :concurrent`: the bucket was removed, and this write would create a row; or the
    ///   bucket was recreated as a rate bucket.
    pub(super) fn update(&self, now: Timestamp) -> Option<Update> {
        if self.released.is_empty() && self.dead.is_empty() && self.taken.is_empty() {
            return None;
        }
        let mut wording = Wording { attributes: Vec::with_capacity(MOST_ATTRIBUTES), ..Wording::default() };
        wording.attributes.push(LIMIT_TYPE);
        wording.values.push((":concurrent", Operand::text(LimitType::Concurrent)));
        wording.condition.push_str("#limit_type = :concurrent");
        self.slots(&mut wording);
        self.grants(&mut wording, now);
        self.leases(&mut wording);
        let Wording { mut set, remove, condition, attributes, leases, values } = wording;
        if !remove.is_empty() {
            Wording::add(&mut set, &[" REMOVE ", &remove]);
        }
        let names = AttributeNames { attributes: attributes.into(), entries: leases };
        let statement = Statement { update: set.into(), condition: condition.into(), names };
        Some(Update { key: self.bucket.key(), statement: Cow::Owned(statement), values })
    }

    /// The slots, and the counters that every write changes.
    ///
    /// - `#capacity = :read_capacity AND #tokens < :above`, if slots become free: a resize between the
    ///   reading and this write, after which the room would be judged by the wrong capacity; a slot that
    ///   another client already restored (`tokens`). Less than a millionth, the noise of a client that counts
    ///   in floats, takes no room, because a reading does not show it.
    /// - The same for every write that takes over or reclaims, with what others hold left out of the room: an
    ///   ended lease states more than it took, and slots that others hold would exist a second time.
    /// - The same and `#tokens >= :read_tokens`, if there is no room for all: slots were taken or given back
    ///   since the reading, and the room has changed.
    /// - `#version = :read_version`, if there is no room for all of what is taken over or reclaimed: others
    ///   gave back and took since the reading, so that `tokens` is the same and what they hold is not.
    fn slots(&self, wording: &mut Wording) {
        let moved = self.moved();
        let (tokens, capacity) = (self.bucket.tokens(), self.bucket.capacity_as_read());
        wording.attributes.extend([TOKENS, VERSION, COUNTED]);
        wording.number(":0", 0);
        wording.number(":1", 1);
        if moved.capped > Amount::ZERO {
            wording.attributes.push(CAPPED);
            wording.set.push_str("SET #tokens = :tokens, #capped = if_not_exists(#capped, :0) + :capped");
            wording.number(":tokens", tokens.plus(moved.slots));
            wording.number(":capped", moved.capped);
        } else {
            wording.set.push_str("SET #tokens = #tokens + :step");
            wording.number(":step", moved.slots);
        }
        wording.set.push_str(", #version = #version + :1, #counted = if_not_exists(#counted, :0) + :1");
        if moved.slots <= Amount::ZERO && moved.capped == Amount::ZERO && self.dead.is_empty() {
            return;
        }
        wording.attributes.push(CAPACITY);
        wording.number(":read_capacity", capacity);
        wording.condition.push_str(" AND #capacity = :read_capacity AND #tokens < :above");
        let most = if moved.capped > Amount::ZERO {
            wording.condition.push_str(" AND #tokens >= :read_tokens");
            wording.number(":read_tokens", tokens);
            if !self.dead.is_empty() {
                wording.condition.push_str(" AND #version = :read_version");
                wording.number(":read_version", self.bucket.version());
            }
            tokens
        } else {
            self.highest()
        };
        wording.number(":above", most.plus(Amount::from_micros(1)));
    }

    /// The grants.
    ///
    /// - `#tokens >= :need`: others took the slots since the reading, or those that a caller who borrows
    ///   leaves; or a resize left the bucket below zero, and slots that come back cannot be granted (then
    ///   `:need` may be below zero itself).
    /// - `#blocked_until`: a cool-down began.
    /// - `#waited_until`, if a caller borrows: callers of the share wait since, and the slot is theirs.
    /// - `#served = :read_served`, if a grant passes over numbers of others: others passed over the same, and
    ///   numbers after them would be passed over whose callers wait. (What is counted otherwise is soon made
    ///   good if it is wrong, and not worth a failed write.)
    fn grants(&self, wording: &mut Wording, now: Timestamp) {
        let moved = self.moved();
        if moved.granted == Amount::ZERO {
            return;
        }
        wording.attributes.extend([ADMITTED, ADMITTED_INLINE, BLOCKED_UNTIL]);
        wording.set.push_str(", #admitted = if_not_exists(#admitted, :0) + :granted");
        wording.set.push_str(", #admitted_inline = if_not_exists(#admitted_inline, :0) + :granted");
        wording.number(":granted", moved.granted);
        if moved.served > 0 && self.bucket.counts_served() {
            wording.attributes.push(SERVED);
            wording.set.push_str(", #served = if_not_exists(#served, :0) + :served");
            wording.number(":served", moved.served);
            if self.taken.iter().any(|take| take.serves.passes_over) {
                wording.condition.push_str(" AND (attribute_not_exists(#served) OR #served = :read_served)");
                wording.number(":read_served", self.bucket.served());
            }
        }
        // If the condition requires `tokens` as read, they are enough.
        if moved.capped == Amount::ZERO {
            wording.condition.push_str(" AND #tokens >= :need");
            wording.number(":need", self.leaves().minus(moved.slots));
        }
        wording.condition.push_str(" AND (attribute_not_exists(#blocked_until) OR #blocked_until <= :now)");
        wording.number(":now", now);
        if self.taken.iter().any(|take| take.borrows.is_some()) {
            wording.attributes.push(WAITED_UNTIL);
            wording.condition.push_str(
                " AND (attribute_not_exists(#waited_until) OR #waited_until <= :now OR #waited_until > :far)",
            );
            wording.number(":far", now.after(FARTHEST_MARK));
        }
    }

    /// The leases.
    ///
    /// - `attribute_exists` of a release: the lease was given back already, and would be given back again.
    /// - `#ends = :read_ends` of a lease that is taken over: as above (a lease that is gone has no end to
    ///   compare); or its holder renewed the lease since the reading.
    /// - `attribute_not_exists` of a take: an earlier try was applied and its reply was lost, and this try
    ///   would take a second slot for one lease. A take that takes over needs this condition too: the dead
    ///   lease of the second try is another one.
    /// - `attribute_not_exists(#leases)`: another process created the map since the reading, and its leases
    ///   would be lost.
    /// - `attribute_exists(#leases)`: the bucket was recreated, and there is no map to put a lease into.
    ///   DynamoDB answers that with an error and not with the row. If the write removes a lease, the
    ///   condition on that lease checks this already.
    fn leases(&self, wording: &mut Wording) {
        wording.attributes.push(LEASES);
        for released in &self.released {
            let id = wording.id(released.id);
            wording.remove(id);
            Wording::add(&mut wording.condition, &[" AND attribute_exists(#leases.", id, ")"]);
        }
        if !self.dead.is_empty() {
            wording.attributes.push(INLINE_ENDS);
        }
        for dead in &self.dead {
            let (id, seen) =
                (wording.id(dead.id), wording.value(&ENDS_READ, Operand::number(&dead.lease.ends)));
            wording.remove(id);
            Wording::add(&mut wording.condition, &[" AND #leases.", id, ".#ends = ", seen]);
        }
        if self.leases.is_none() {
            let lease = |take: &&InlineTake| (Cow::Owned(String::from(take.id.as_str())), entry(take));
            wording.values.push((":leases", Operand::Map(self.taken.iter().map(lease).collect())));
            wording.set.push_str(", #leases = :leases");
            wording.condition.push_str(" AND attribute_not_exists(#leases)");
            return;
        }
        if self.released.is_empty() && self.dead.is_empty() {
            wording.condition.push_str(" AND attribute_exists(#leases)");
        }
        for take in &self.taken {
            let (id, lease) = (wording.id(&take.id), wording.value(&LEASES_PUT, entry(take)));
            Wording::add(&mut wording.set, &[", #leases.", id, " = ", lease]);
            Wording::add(&mut wording.condition, &[" AND attribute_not_exists(#leases.", id, ")"]);
        }
    }
}

impl Wording {
    fn remove(&mut self, id: &str) {
        let comma = if self.remove.is_empty() { "" } else { ", " };
        Self::add(&mut self.remove, &[comma, "#leases.", id]);
    }
}

/// A lease as the row stores it.
fn entry(take: &InlineTake) -> Operand {
    let (cost, ends) = (Operand::number(take.cost), Operand::number(take.ends.ceil_to_second()));
    let stated = [(Cow::Borrowed(INLINE_COST), cost), (Cow::Borrowed(INLINE_ENDS), ends)];
    let borrowed_by = take.borrows.as_ref().map(|borrowing| Operand::text(borrowing.by_name()));
    let borrowed_by = borrowed_by.map(|by| (Cow::Borrowed(INLINE_BORROWED_BY), by));
    Operand::Map(stated.into_iter().chain(borrowed_by).collect())
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
    let leases = alloc::vec![(IDS[0], String::from(id.as_str()))];
    let statement = Statement {
        update: Cow::Borrowed(
            "SET #leases.#lease0.#ends = :ends, #version = #version + :1, #counted = if_not_exists(#counted, :0) + :1",
        ),
        condition: Cow::Borrowed("#leases.#lease0.#ends <= :ends"),
        names: AttributeNames {
            entries: leases,
            ..AttributeNames::of(&[LEASES, INLINE_ENDS, VERSION, COUNTED])
        },
    };
    let values = alloc::vec![
        (":ends", Operand::number(ends.ceil_to_second())),
        (":0", Operand::number(0)),
        (":1", Operand::number(1)),
    ];
    Update { key, statement: Cow::Owned(statement), values }
}
