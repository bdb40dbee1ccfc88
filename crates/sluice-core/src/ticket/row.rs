//! The row of a ticket, and the decision whether the ticket may be used.
//!
//! A ticket holds what refused when it was booked. The other dimensions of its request are its rest: they had
//! enough, nothing of them is taken, and the row lists them with their costs. The redeemer takes the rest as
//! any caller does. So a slack bucket does not end the ticket: tokens that were taken from it ahead of the
//! start would overflow soon.
//!
//! The booking took a ticket's tokens. Whether the tokens may be used late, and how late, depends on one
//! number: U, the tokens that the vendor still allows. U gains R a second, never exceeds C, and each call
//! that starts takes its cost from U. Let L be the line of the bucket, and O the tokens of all grants whose
//! calls have not started. `U >= L + O` holds as long as `L + O` does not exceed C. Otherwise U stops at C
//! while L and O go on.
//!
//! Let p be the earliest of these grants, and s the instant at which the line, as p's take left it, is at
//! zero.
//!
//! - A take after p lowers L by as much as it raises O. Once its call has started, or the take has lapsed, it
//!   lowers the sum.
//! - A return from a take after p raises L by what it takes from O.
//! - A return from a take before p raises L alone, and `returned` counts it.
//!
//! So at t
//!
//! `L + O <= cost + (t - s) * R + (returned now - returned then)`
//!
//! and p may be used as long as the right side is C at most. Later, some of p has overflowed. The
//! right side only grows. So what has lapsed stays lapsed, and what has not lapsed never overflowed.
//! Each later ticket is judged by its own line, without the tickets that lapsed. A ticket that is never
//! redeemed leaves U higher than it could be.
//!
//! At a start in time (t = s) only the cost is left of the first two terms, and the cost is C at most: then
//! only returns of earlier takes can stand in the way.
//!
//! All of this depends on the limits as they were at the booking, and on a line that nothing else lifted. A
//! bucket is not believed if its line is higher than p's own line and the returns explain (limits raised and
//! lowered again, a recreated bucket, a bucket that a wrong clock found full).

use alloc::borrow::{Cow, ToOwned as _};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use super::booked::{Booked, read_part, read_share};
use super::{Ticket, TicketId, vendor_of};
use crate::amount::Cost;
use crate::bucket::Bucket;
use crate::dimension::Dimension;
use crate::plan::receipt::RateReceipt;
use crate::schema::{
    self, BOOKED, COST, Field, KEY, PURGE_AT, REDEEMED_BY, REST, Row, RowError, SHARE, TICKET_PREFIX,
};
use crate::share::ShareName;
use crate::statement::{Operand, Put, Statement, Update};
use crate::timestamp::Timestamp;

/// Time between the end of a ticket and its deletion: longer than clocks err, and short because every sweep
/// reads the row.
const PURGE_AFTER: Duration = Duration::from_secs(60 * 60);

/// How long the row of a redeemed ticket stays. A send of the write that created it may be thought lost and
/// be under way for half a minute: without the row, it would recreate it, for somebody else to redeem. Found
/// by the simulation (seed 448).
const SPENT_FOR: Duration = Duration::from_secs(60);

/// A ticket's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketRow {
    id: TicketId,
    /// Whether the key has the vendor, as all have but those of an older version.
    names_vendor: bool,
    /// Sorted by dimension.
    parts: Vec<Booked>,
    /// What the redeemer takes in addition, sorted by dimension.
    rest: Vec<(Dimension, Cost)>,
    /// The share that the caller named.
    share: Option<ShareName>,
    redeemed_by: Option<String>,
}

/// Whether a ticket may be used now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Yes: the receipts that its grant is made of, in the order of the row.
    Good(Vec<RateReceipt>),
    /// Not yet, or not during a cool-down. The ticket stays good in the meantime.
    Wait {
        /// From the caller's `now`.
        wait: Duration,
        /// Which bucket causes the wait.
        dimension: Dimension,
        /// Whether the cause is a cool-down.
        cooling_down: bool,
    },
    /// No longer: some of it has overflowed, or the limits are not those of the booking.
    Lapsed,
}

/// Interleavings that the condition stops:
/// - An id was drawn twice.
/// - A send arrives after another send was applied and after the ticket was redeemed (its row is still
///   there).
///
/// After a lost reply, the failed condition shows a put that was applied.
static WRITE: Statement = Statement::guard("attribute_not_exists(#key)", &[KEY]);

/// Interleavings that the condition stops:
/// - `redeemed_by`: two clients redeem one ticket, or one message is delivered twice.
/// - `key`: a request that arrives after the row was removed would recreate the row.
static REDEEM: Statement = Statement::fixed(
    "SET #redeemed_by = :redeemed_by, #purge_at = :purge_at",
    "attribute_exists(#key) AND attribute_not_exists(#redeemed_by)",
    &[KEY, REDEEMED_BY, PURGE_AT],
);

/// Interleaving that the condition stops: the write is sent twice, and the second send arrives after someone
/// else has redeemed the ticket. That send would let the ticket be redeemed once more.
static TAKE_BACK: Statement = Statement::fixed(
    "REMOVE #redeemed_by SET #purge_at = :purge_at",
    "#redeemed_by = :redeemed_by",
    &[REDEEMED_BY, PURGE_AT],
);

impl TicketRow {
    /// The dimensions of `receipts` that one ticket cannot hold: at the latest start, their tokens are good
    /// for less than `least`, or they have no room below the brim. If the dimension with the latest start is
    /// among them, there is no ticket.
    #[must_use]
    pub fn too_short<'a>(
        receipts: impl IntoIterator<Item = &'a RateReceipt>,
        least: Duration,
    ) -> Vec<Dimension> {
        let parts: Vec<(&RateReceipt, Booked)> =
            receipts.into_iter().map(|receipt| (receipt, Booked::of(receipt))).collect();
        let start =
            parts.iter().map(|(_, part)| part.start()).fold(Timestamp::from_micros(0), Timestamp::max);
        let is_short = |(receipt, part): &(&RateReceipt, Booked)| {
            part.use_by() < start.after(least) || receipt.room(start) < receipt.cost().amount()
        };
        parts.into_iter().filter(is_short).map(|(_, part)| part.dimension().clone()).collect()
    }

    /// The row of a ticket for what was booked. `None` if a part could not be used at the ticket's own start:
    /// the start of another part is too late for it, or its cost leaves no room below the brim.
    #[must_use]
    pub fn book<'a>(id: TicketId, receipts: impl IntoIterator<Item = &'a RateReceipt>) -> Option<Self> {
        let receipts: Vec<&RateReceipt> = receipts.into_iter().collect();
        let mut parts: Vec<Booked> = receipts.iter().map(|receipt| Booked::of(receipt)).collect();
        parts.sort_by(|a, b| a.dimension().cmp(b.dimension()));
        let row = Self { id, names_vendor: true, parts, rest: Vec::new(), share: None, redeemed_by: None };
        let start = row.start_at();
        let is_usable = |receipt: &&RateReceipt| receipt.room(start) >= receipt.cost().amount();
        (row.use_by() > start && receipts.iter().all(is_usable)).then_some(row)
    }

    /// The same row with a rest: dimensions that are not booked, which the redeemer takes.
    #[must_use]
    pub fn with_rest(mut self, rest: impl IntoIterator<Item = (Dimension, Cost)>) -> Self {
        self.rest = rest.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect();
        self
    }

    /// The same row of a caller that named this share: the rest is taken from it too.
    #[must_use]
    pub fn of_share(self, share: Option<ShareName>) -> Self {
        Self { share, ..self }
    }

    fn key(&self) -> String {
        self.id.key(self.names_vendor.then(|| vendor_of(self.parts.iter().map(Booked::dimension))))
    }

    /// The share that the caller named.
    #[must_use]
    pub const fn share(&self) -> Option<&ShareName> {
        self.share.as_ref()
    }

    /// Reads a ticket's row.
    ///
    /// # Errors
    /// [`RowError`] names the attribute.
    pub fn read(row: &impl Row) -> Result<Self, RowError> {
        let key = schema::text(row, KEY)?;
        let bad_key = |reason| RowError::bad(KEY, key, reason);
        let name = key.strip_prefix(TICKET_PREFIX).ok_or_else(|| bad_key("it is not the key of a ticket"))?;
        let (vendor, id) = name.rsplit_once('#').map_or((None, name), |(vendor, id)| (Some(vendor), id));
        let id = TicketId::new(id.to_owned()).ok_or_else(|| bad_key("it is not the key of a ticket"))?;
        let (mut parts, mut fault) = (BTreeMap::new(), None);
        let is_map = row.entries(BOOKED, &mut |name, entry| match read_part(name, entry) {
            Ok(part) => drop(parts.insert(part.dimension().clone(), part)),
            Err(error) => fault = Some(error),
        });
        if let Some(error) = fault {
            return Err(error);
        }
        if !is_map || parts.is_empty() {
            return Err(RowError::bad(
                BOOKED,
                "",
                "it must be a map from each dimension to what is booked of it",
            ));
        }
        let redeemed_by = match row.field(REDEEMED_BY) {
            None => None,
            Some(Field::Text(by)) => Some(by.to_owned()),
            // Whoever wrote this value, the ticket does not count as unused.
            Some(_) => Some(String::new()),
        };
        let (rest, share) = (read_rest(row)?, read_share(row)?);
        if vendor.is_some_and(|vendor| vendor != vendor_of(parts.keys())) {
            return Err(bad_key("its vendor is not that of what is booked"));
        }
        let names_vendor = vendor.is_some();
        Ok(Self { id, names_vendor, parts: parts.into_values().collect(), rest, share, redeemed_by })
    }

    /// The write that creates the row. DynamoDB deletes it an hour after the ticket's end.
    #[must_use]
    pub fn put(&self) -> Put {
        let entries =
            self.parts.iter().map(|part| (Cow::Owned(part.dimension().to_string()), part.operand()));
        let mut item = alloc::vec![
            (KEY, Operand::text(self.key())),
            (BOOKED, Operand::Map(entries.collect())),
            (PURGE_AT, Operand::number(self.purge_at())),
        ];
        item.extend(self.share.iter().map(|share| (SHARE, Operand::text(share))));
        if !self.rest.is_empty() {
            let costs = self.rest.iter().map(|(dimension, cost)| {
                let cost = Operand::Map([(Cow::Borrowed(COST), Operand::number(cost))].into());
                (Cow::Owned(dimension.to_string()), cost)
            });
            item.push((REST, Operand::Map(costs.collect())));
        }
        Put { item, statement: &WRITE }
    }

    /// The write that redeems the ticket for `by`, a text that nobody else uses. DynamoDB may delete the row
    /// a minute later. A second send of this write fails, and shows `by` in the row: that is success.
    #[must_use]
    pub fn redeem(&self, by: &str, now: Timestamp) -> Update {
        let purge_at = now.after(SPENT_FOR).ceil_to_second();
        let values =
            alloc::vec![(":redeemed_by", Operand::text(by)), (":purge_at", Operand::number(purge_at))];
        Update { key: self.key(), statement: Cow::Borrowed(&REDEEM), values }
    }

    /// The write of a client that redeemed the ticket and may not call, as in a cool-down: the ticket is good
    /// again. A second send of this write fails, and shows a row that nobody has redeemed: that is success.
    #[must_use]
    pub fn take_back(&self, by: &str) -> Update {
        let values =
            alloc::vec![(":redeemed_by", Operand::text(by)), (":purge_at", Operand::number(self.purge_at()))];
        Update { key: self.key(), statement: Cow::Borrowed(&TAKE_BACK), values }
    }

    /// The ticket, to be carried as text.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        let mut parts: Vec<&Booked> = self.parts.iter().collect();
        parts.sort_by_key(|part| Reverse(part.start()));
        let dimensions = parts.into_iter().map(|part| part.dimension().clone()).collect();
        let (start, use_by) = (self.start_at(), self.use_by());
        Ticket {
            id: self.id.clone(),
            start,
            use_by: use_by.max(start),
            dimensions,
            names_vendor: self.names_vendor,
            has_rest: !self.rest.is_empty(),
        }
    }

    /// What the ticket holds, sorted by dimension.
    #[must_use]
    pub fn parts(&self) -> &[Booked] {
        &self.parts
    }

    /// What the redeemer takes in addition, sorted by dimension.
    #[must_use]
    pub fn rest(&self) -> &[(Dimension, Cost)] {
        &self.rest
    }

    /// Whether nobody has redeemed the ticket.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.redeemed_by.is_none()
    }

    /// Whether `by` redeemed the ticket.
    #[must_use]
    pub fn is_redeemed_by(&self, by: &str) -> bool {
        self.redeemed_by.as_deref() == Some(by)
    }

    /// Whether the ticket may be used at `now`, by its parts' `buckets` as read, in the order of
    /// [`parts`](Self::parts). What others do to them after that reading comes behind the start.
    #[must_use]
    pub fn judge(&self, buckets: &[Arc<Bucket>], now: Timestamp) -> Judgement {
        if let Some(part) =
            self.parts.iter().max_by_key(|part| part.start()).filter(|part| part.start() > now)
        {
            let (wait, dimension) = (part.start().since(now), part.dimension().clone());
            return Judgement::Wait { wait, dimension, cooling_down: false };
        }
        let cooling =
            buckets.iter().filter_map(|bucket| Some((bucket.cooling_down(now)?, bucket.dimension())));
        if let Some((wait, dimension)) = cooling.max_by_key(|(wait, _)| *wait) {
            return Judgement::Wait { wait, dimension: dimension.clone(), cooling_down: true };
        }
        let receipts = self.parts.iter().zip(buckets).map(|(part, bucket)| part.receipt(bucket, now));
        match receipts.collect::<Option<Vec<_>>>().filter(|receipts| receipts.len() == self.parts.len()) {
            Some(receipts) => Judgement::Good(receipts),
            None => Judgement::Lapsed,
        }
    }

    /// The latest start of the parts. Never before the epoch, which a ticket's text cannot state.
    fn start_at(&self) -> Timestamp {
        self.parts.iter().map(Booked::start).fold(Timestamp::from_micros(0), Timestamp::max)
    }

    fn purge_at(&self) -> Timestamp {
        self.use_by().after(PURGE_AFTER).ceil_to_second()
    }

    fn use_by(&self) -> Timestamp {
        self.parts.iter().map(Booked::use_by).min().unwrap_or_default()
    }
}

/// Reads the rest of a ticket. A row without it has none.
fn read_rest(row: &impl Row) -> Result<Vec<(Dimension, Cost)>, RowError> {
    let (mut rest, mut fault) = (BTreeMap::new(), None);
    let is_map = row.entries(REST, &mut |name, entry| match read_cost(name, entry) {
        Ok((dimension, cost)) => drop(rest.insert(dimension, cost)),
        Err(error) => fault = Some(error),
    });
    match fault {
        Some(error) => Err(error),
        None if !is_map && row.field(REST).is_some() => {
            Err(RowError::bad(REST, "", "it must be a map from each dimension to its cost"))
        }
        None => Ok(rest.into_iter().collect()),
    }
}

fn read_cost(name: &str, entry: Option<&dyn Row>) -> Result<(Dimension, Cost), RowError> {
    let bad = |reason: String| RowError::bad(REST, name, reason);
    let dimension = Dimension::new(name).map_err(|error| bad(error.reason.to_owned()))?;
    let entry = entry.ok_or_else(|| bad("it is not a map".to_owned()))?;
    let cost = schema::amount(entry, COST).map_err(|error| bad(error.to_string()))?.get();
    let cost = Cost::new(cost).map_err(|error| bad(error.to_string()))?;
    Ok((dimension, cost))
}
