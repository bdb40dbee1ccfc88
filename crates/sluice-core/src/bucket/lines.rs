//! The lines of a bucket with shares: the common line, which is the row's own, and one line for each share.
//!
//! A line is what a bucket is: tokens at an anchor, a capacity and a refill rate. A [`Bucket`] is seen from
//! one of its lines. So all that plans for a bucket plans for a share too, and only the names of the
//! attributes in its writes differ ([`Statement::in_share`](crate::Statement)).

use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Bucket;
use super::lender::Loans;
use crate::amount::Amount;
use crate::limit::Limit;
use crate::limit::split::MOST_SHARES;
use crate::line::Line;
use crate::rate::Rate;
use crate::schema::{
    self, AttributeFault, Exact, LINE_ANCHOR, LINE_BACKGROUND, LINE_BORROWED, LINE_CAPACITY, LINE_FLOOR,
    LINE_LENT, LINE_LOTS, LINE_RATE, LINE_REPAIRED_AT, LINE_RETURNED, LINE_TOKENS, Row, RowError, SHARES,
};
use crate::share::ShareName;
use crate::timestamp::Timestamp;

/// One line as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LineRead {
    pub(crate) limit: Limit,
    pub(crate) capacity: Exact<Amount>,
    pub(crate) rate: Exact<Rate>,
    pub(crate) tokens: Exact<Amount>,
    pub(crate) anchor: Exact<Timestamp>,
    pub(crate) lots: i64,
    pub(crate) returned: Amount,
    pub(crate) repaired_at: Option<Timestamp>,
    pub(crate) loans: Loans,
}

/// A share as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) name: ShareName,
    pub(crate) line: LineRead,
    /// What a borrower leaves, if the row states it.
    pub(crate) floor: Option<Amount>,
    pub(crate) is_background: bool,
}

/// All lines of a bucket as they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lines {
    pub(crate) common: LineRead,
    /// Sorted by name; never empty.
    pub(crate) shares: Vec<Share>,
}

/// The part of the capacity that a borrower leaves in a line, unless the share states another.
const FLOOR: (u32, u32) = (1, 4);

impl LineRead {
    pub(crate) const fn line(&self) -> Line {
        Line::new(self.tokens.get(), self.anchor.get(), self.limit.refill_rate())
    }

    pub(crate) fn level(&self, now: Timestamp) -> Amount {
        self.line().at(now).min(self.limit.capacity())
    }

    /// C - x, rounded down. The line is full if T is above it.
    pub(crate) fn brim(&self, now: Timestamp) -> Amount {
        self.limit.capacity().minus(self.line().accrued_ceil(now))
    }

    fn default_floor(&self) -> Amount {
        default_floor(self.limit.capacity(), self.limit.cost_per_call().amount())
    }
}

/// What a borrower leaves if nothing else is stated: a quarter of the capacity, and at least one call.
pub(super) fn default_floor(capacity: Amount, call: Amount) -> Amount {
    let (part, of) = FLOOR;
    capacity.fraction(part, of).max(call)
}

/// What a borrower leaves in a line with this floor.
///
/// A background share leaves one call more than others do, so that it is the last to borrow. Others may empty
/// the line of a background share: its callers that wait for tokens have booked, and a booked line has
/// nothing to lend. Those that wait for slots are waited for: nobody borrows then.
pub(super) fn borrowers_leave(
    floor: Amount,
    call: Amount,
    borrower_is_background: bool,
    lender_is_background: bool,
) -> Amount {
    // A floor below zero can be in the row by hand alone: nobody borrows what is not there.
    let floor = floor.max(Amount::ZERO);
    match (borrower_is_background, lender_is_background) {
        (true, _) => floor.plus(call),
        (false, true) => Amount::ZERO,
        (false, false) => floor,
    }
}

impl Lines {
    pub(crate) fn share(&self, name: &str) -> Option<&Share> {
        let at = self.shares.binary_search_by(|share| share.name.as_str().cmp(name)).ok()?;
        self.shares.get(at)
    }

    /// The line of a share, or the common line.
    pub(crate) fn line(&self, share: Option<&ShareName>) -> Option<&LineRead> {
        match share {
            None => Some(&self.common),
            Some(name) => self.share(name.as_str()).map(|share| &share.line),
        }
    }

    /// Each line with its share; the common line first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Option<&ShareName>, &LineRead)> {
        let shares = self.shares.iter().map(|share| (Some(&share.name), &share.line));
        core::iter::once((None, &self.common)).chain(shares)
    }

    fn is_background(&self, share: Option<&ShareName>) -> bool {
        share.and_then(|name| self.share(name.as_str())).is_some_and(|share| share.is_background)
    }

    /// What a borrower of one line leaves in another.
    pub(super) fn floor(&self, borrower: Option<&ShareName>, lender: Option<&ShareName>) -> Amount {
        let Some(line) = self.line(lender) else { return Amount::from_micros(i64::MAX) };
        let stated = lender.and_then(|name| self.share(name.as_str())).and_then(|share| share.floor);
        let floor = stated.unwrap_or_else(|| line.default_floor());
        let call = line.limit.cost_per_call().amount();
        borrowers_leave(floor, call, self.is_background(borrower), self.is_background(lender))
    }
}

impl Bucket {
    /// Whether the bucket has shares.
    #[must_use]
    pub const fn has_shares(&self) -> bool {
        self.lines.is_some()
    }

    /// The share that the bucket is seen from; `None` for the common line, which is all of a bucket without
    /// shares.
    #[must_use]
    pub const fn share(&self) -> Option<&ShareName> {
        self.share.as_ref()
    }

    /// The shares of the bucket, sorted by name.
    pub fn shares(&self) -> impl Iterator<Item = &ShareName> {
        self.lines.iter().flat_map(|lines| lines.shares.iter().map(|share| &share.name))
    }

    /// The bucket as a caller of `share` sees it: the level and the limit are those of the share. A share
    /// that the bucket does not have is the common line, as is `None`.
    #[must_use]
    pub fn seen_from(self, share: Option<&ShareName>) -> Self {
        let Some(lines) = self.lines.clone() else { return self };
        let share = share.filter(|name| lines.share(name.as_str()).is_some());
        if self.share.as_ref() == share {
            return self;
        }
        let Some(line) = lines.line(share).cloned() else { return self };
        let LineRead { limit, capacity, rate, tokens, anchor, lots, returned, repaired_at, loans: _ } = line;
        let (tokens, share) = (tokens.get(), share.cloned());
        Self { limit, capacity, rate, tokens, anchor, lots, returned, repaired_at, share, ..self }
    }

    /// The bucket as seen from each of its lines; the common line first.
    #[must_use]
    pub fn every_line(&self) -> Vec<Self> {
        let shares = self.shares().map(|name| self.clone().seen_from(Some(name)));
        core::iter::once(self.clone().seen_from(None)).chain(shares).collect()
    }

    /// What a borrower leaves in this line that is not for background work: what the share states, or a
    /// quarter of its capacity and at least one call; nothing in a background share.
    #[must_use]
    pub fn lends_above(&self) -> Amount {
        let Some(lines) = &self.lines else { return self.limit.capacity() };
        if lines.is_background(self.share()) {
            return Amount::ZERO;
        }
        let stated = self.share().and_then(|name| lines.share(name.as_str())).and_then(|share| share.floor);
        stated.unwrap_or_else(|| lines.line(self.share()).map_or(Amount::ZERO, LineRead::default_floor))
    }

    /// Whether the share that the bucket is seen from is for background work.
    #[must_use]
    pub fn is_background(&self) -> bool {
        self.lines.as_ref().is_some_and(|lines| lines.is_background(self.share()))
    }

    /// The limit of the whole row: the sum over its lines, which is its limit if it has none. A share of a
    /// concurrency bucket has a row of its own, and [`split`](Self::split) has the sum over the rows.
    #[must_use]
    pub fn whole_limit(&self) -> Limit {
        let Some(lines) = &self.lines else { return self.limit };
        let sum = |sum: Limit, (_, line): (_, &LineRead)| sum.with(&line.limit);
        lines.iter().skip(1).fold(lines.common.limit, sum)
    }

    /// The level of the whole bucket at `now`: the sum over its lines, which is its level if it has no
    /// shares.
    #[must_use]
    pub fn whole_level(&self, now: Timestamp) -> Amount {
        let Some(lines) = &self.lines else { return self.level(now) };
        let level = |(name, line): (Option<&ShareName>, &LineRead)| match name == self.share() {
            true => self.level(now),
            false => line.level(now),
        };
        lines.iter().map(level).fold(Amount::ZERO, Amount::plus)
    }

    /// What the lines hold together, without what is booked ahead: others cannot use that, and it is no
    /// level.
    pub(crate) fn held_by_lines(&self, now: Timestamp) -> Amount {
        let Some(lines) = &self.lines else { return self.level(now) };
        lines.iter().map(|(_, line)| line.level(now).max(Amount::ZERO)).fold(Amount::ZERO, Amount::plus)
    }

    pub(crate) fn lines(&self) -> Option<&Lines> {
        self.lines.as_deref()
    }
}

/// Reads the shares of a row, whose own line is `common`. A share that cannot be read makes the row
/// unreadable: its part of the limit would be unknown.
pub(super) fn read_lines(row: &impl Row, common: LineRead) -> Result<Option<Arc<Lines>>, RowError> {
    let mut shares = read_map(row, MOST_SHARES, |name, entry| read_share(name, entry, &common.limit))?;
    shares.sort_unstable_by(|one: &Share, other| one.name.cmp(&other.name));
    Ok((!shares.is_empty()).then(|| Arc::new(Lines { common, shares })))
}

/// Reads each entry of the map of shares, `most` at most; none if the row has no map.
pub(super) fn read_map<T>(
    row: &impl Row,
    most: usize,
    read: impl Fn(&str, Option<&dyn Row>) -> Result<T, RowError>,
) -> Result<Vec<T>, RowError> {
    if row.field(SHARES).is_none() {
        return Ok(Vec::new());
    }
    let (mut shares, mut fault) = (Vec::new(), None);
    let is_map = row.entries(SHARES, &mut |name, entry| match read(name, entry) {
        Ok(share) => shares.push(share),
        Err(error) => fault = fault.take().or(Some(error)),
    });
    if !is_map {
        return Err(RowError { attribute: SHARES, fault: AttributeFault::WrongType { expected: "map (M)" } });
    }
    if let Some(fault) = fault {
        return Err(fault);
    }
    if shares.len() > most {
        let reason = alloc::format!("it has {} shares, more than {most}", shares.len());
        return Err(RowError::bad(SHARES, "", reason));
    }
    Ok(shares)
}

fn read_share(name: &str, entry: Option<&dyn Row>, whole: &Limit) -> Result<Share, RowError> {
    let bad = |reason: String| RowError::bad(SHARES, name, reason);
    let name = ShareName::new(name).map_err(|error| bad(error.to_string()))?;
    let entry = entry.ok_or_else(|| bad(String::from("it is not a map")))?;
    let read = || -> Result<Share, RowError> {
        let optional = |attribute: &'static str| match entry.field(attribute) {
            Some(_) => schema::count(entry, attribute).map(Some),
            None => Ok(None),
        };
        let (capacity, rate) = (schema::amount(entry, LINE_CAPACITY)?, schema::rate(entry, LINE_RATE)?);
        let limit = whole
            .of_line(capacity.get(), rate.get())
            .map_err(|error| RowError::bad(LINE_CAPACITY, &alloc::format!("{capacity} at {rate}"), error))?;
        let returned =
            entry.field(LINE_RETURNED).map(|_| schema::amount(entry, LINE_RETURNED)).transpose()?;
        let repaired_at = entry.field(LINE_REPAIRED_AT).map(|_| schema::timestamp(entry, LINE_REPAIRED_AT));
        let floor = entry.field(LINE_FLOOR).map(|_| schema::amount(entry, LINE_FLOOR)).transpose()?;
        let line = LineRead {
            limit,
            capacity,
            rate,
            tokens: schema::amount(entry, LINE_TOKENS)?,
            anchor: schema::timestamp(entry, LINE_ANCHOR)?,
            lots: optional(LINE_LOTS)?.unwrap_or(0),
            returned: returned.map_or(Amount::ZERO, |sum| sum.get()),
            repaired_at: repaired_at.transpose()?.map(|at| at.get()),
            loans: Loans::read(entry, LINE_LENT, LINE_BORROWED),
        };
        let is_background = optional(LINE_BACKGROUND)? == Some(1);
        Ok(Share { name: name.clone(), line, floor: floor.map(|floor| floor.get()), is_background })
    };
    read().map_err(|error| bad(error.to_string()))
}
