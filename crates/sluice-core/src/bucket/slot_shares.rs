//! The shares of a concurrency bucket. Each has a row of its own, which is a concurrency bucket like any
//! other: leases, sweeps, recounts and the order of those that wait need to know nothing of shares. The row
//! of the bucket is its common line, and names the shares.

use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Bucket;
use super::lines::{borrowers_leave, default_floor, read_map};
use crate::amount::{Amount, Cost};
use crate::dimension::Dimension;
use crate::limit::Limit;
use crate::limit::split::{MOST_SHARES, ShareLimit, Split};
use crate::schema::{
    self, CHANGES_TO, COST_CHANGES_TO, COST_PER_CALL, LINE_BACKGROUND, LINE_CAPACITY, LINE_CLOSED,
    LINE_FLOOR, Row, RowError, SHARES,
};
use crate::share::ShareName;

/// A share of a concurrency bucket, as the row of the bucket names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotShare {
    /// Its name.
    pub name: ShareName,
    /// Its row.
    pub row: Dimension,
    /// The slots that it is promised; none of a share that goes. Its row has fewer or more while the shares
    /// change.
    pub capacity: Amount,
    /// As [`DeclaredShare::floor`](crate::DeclaredShare::floor).
    pub floor: Option<Amount>,
    /// As [`DeclaredShare::background`](crate::DeclaredShare::background).
    pub is_background: bool,
    /// Whether it has no row yet, or goes: callers take from the common line.
    pub is_closed: bool,
}

/// What the row of a concurrency bucket says of its shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotShares {
    shares: Vec<SlotShare>,
    changes_to: Option<Limit>,
    /// As they stand in the row.
    whole: Option<Amount>,
    cost: Option<Amount>,
}

impl SlotShare {
    /// Whether it was removed, and its row is still there.
    #[must_use]
    pub fn is_going(&self) -> bool {
        self.is_closed && self.capacity <= Amount::ZERO
    }

    fn read(of: &Dimension, name: &str, entry: Option<&dyn Row>) -> Result<Self, RowError> {
        let bad = |reason: String| RowError::bad(SHARES, name, reason);
        let name = ShareName::new(name).map_err(|error| bad(error.to_string()))?;
        let row = of.of_share(&name).ok_or_else(|| bad(String::from("its name is too long")))?;
        let entry = entry.ok_or_else(|| bad(String::from("it is not a map")))?;
        let flag = |attribute| match entry.field(attribute) {
            Some(_) => schema::count(entry, attribute).map(|value| value == 1),
            None => Ok(false),
        };
        let read = || {
            let floor = entry.field(LINE_FLOOR).map(|_| schema::amount(entry, LINE_FLOOR)).transpose()?;
            Ok(Self {
                name: name.clone(),
                row,
                capacity: schema::amount(entry, LINE_CAPACITY)?.get(),
                floor: floor.map(|floor| floor.get()),
                is_background: flag(LINE_BACKGROUND)?,
                is_closed: flag(LINE_CLOSED)?,
            })
        };
        read().map_err(|error: RowError| bad(error.to_string()))
    }
}

/// Reads the shares of a concurrency bucket. One that cannot be read makes the row unreadable, as for a rate
/// bucket.
pub(super) fn read_slot_shares(of: &Dimension, row: &impl Row) -> Result<Option<Arc<SlotShares>>, RowError> {
    // While one set of shares takes the place of another, the row names both.
    let mut shares = read_map(row, 2 * MOST_SHARES, |name, entry| SlotShare::read(of, name, entry))?;
    shares.sort_unstable_by(|one: &SlotShare, other| one.name.cmp(&other.name));
    let amount =
        |name| schema::optional(row, name, || schema::amount(row, name)).map(|of| of.map(|of| of.get()));
    let (whole, cost) = (amount(CHANGES_TO)?, amount(COST_CHANGES_TO)?);
    let changes_to = whole.and_then(|whole| {
        // A row that states no cost keeps its own.
        let call = cost.or_else(|| schema::amount(row, COST_PER_CALL).ok().map(|own| own.get()))?;
        Limit::concurrent(whole, Cost::new(call.min(whole)).ok()?).ok()
    });
    let says_nothing = shares.is_empty() && whole.is_none() && cost.is_none();
    Ok((!says_nothing).then(|| Arc::new(SlotShares { shares, changes_to, whole, cost })))
}

impl Bucket {
    /// The shares of a concurrency bucket, sorted by name, closed ones too.
    #[must_use]
    pub fn slot_shares(&self) -> &[SlotShare] {
        self.slot_shares.as_ref().map_or(&[], |named| &named.shares)
    }

    /// The limit that all lines of this concurrency bucket will have together, while its shares change.
    /// `None` while they do not.
    #[must_use]
    pub fn changes_to(&self) -> Option<Limit> {
        self.slot_shares.as_ref().and_then(|named| named.changes_to)
    }

    /// The attributes that state it, as they stand in the row.
    pub(crate) fn changes_to_as_read(&self) -> (Option<Amount>, Option<Amount>) {
        self.slot_shares.as_ref().map_or((None, None), |named| (named.whole, named.cost))
    }

    /// Whether this is a concurrency bucket with shares, or one whose shares are being removed.
    #[must_use]
    pub const fn has_slot_shares(&self) -> bool {
        self.slot_shares.is_some()
    }

    /// A share of this concurrency bucket that callers may use.
    #[must_use]
    pub fn slot_share(&self, name: &str) -> Option<&SlotShare> {
        self.slot_shares().iter().find(|share| share.name.as_str() == name && !share.is_closed)
    }

    /// The shares whose slots callers of `borrower` (`None`: of the common line) may borrow, each with what
    /// they leave there; `None` is the common line.
    #[must_use]
    pub fn slot_lenders(&self, borrower: Option<&ShareName>) -> Vec<(Option<&SlotShare>, Amount)> {
        let own = borrower.and_then(|name| self.slot_share(name.as_str()));
        let is_background = own.is_some_and(|own| own.is_background);
        let leaves = |lender| self.slots_kept(lender, is_background);
        let common = borrower.is_some().then(|| (None, leaves(None)));
        let open =
            self.slot_shares().iter().filter(|share| !share.is_closed && Some(&share.name) != borrower);
        common.into_iter().chain(open.map(|share| (Some(share), leaves(Some(share))))).collect()
    }

    /// What borrowers leave in the row of a share, or in the common line: those for background work leave one
    /// call more.
    #[must_use]
    pub fn slots_kept(&self, lender: Option<&SlotShare>, borrower_is_background: bool) -> Amount {
        let call = self.limit().cost_per_call().amount();
        let capacity = lender.map_or(self.limit().capacity(), |share| share.capacity);
        let stated = lender.and_then(|share| share.floor);
        // Of slots, a quarter in whole calls.
        let floor = stated.unwrap_or_else(|| default_floor(capacity, call).in_calls(call));
        borrowers_leave(floor, call, borrower_is_background, lender.is_some_and(|share| share.is_background))
    }

    /// The limit that the vendor knows: the sum over all lines, in this row and in rows of their own. While
    /// shares of slots change, it is what they change to.
    #[must_use]
    pub fn limit_at_vendor(&self) -> Limit {
        if self.has_slot_shares() { *self.split_of_slots().whole() } else { self.whole_limit() }
    }

    /// The limit and the shares of a concurrency bucket, as its row states them: what they change to, while
    /// they change.
    pub(crate) fn split_of_slots(&self) -> Split {
        let (wanted, rate) = (self.changes_to(), self.limit().refill_rate());
        let limit = wanted.unwrap_or(*self.limit());
        let shares = self.slot_shares().iter().filter(|share| !share.is_going()).filter_map(|share| {
            let limit = limit.of_line(share.capacity, rate).ok()?;
            let SlotShare { name, floor, is_background, .. } = share.clone();
            Some(ShareLimit { name, limit, floor, background: is_background })
        });
        let shares: Vec<ShareLimit> = shares.collect();
        let taken = shares.iter().fold(Amount::ZERO, |sum: Amount, share| sum.plus(share.limit.capacity()));
        let common = wanted.and_then(|whole| whole.of_line(whole.capacity().minus(taken), rate).ok());
        let common = common.unwrap_or(*self.limit());
        let whole = shares.iter().fold(common, |sum, share| sum.with(&share.limit));
        Split::read(whole, common, shares)
    }
}
