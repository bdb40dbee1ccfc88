//! Declaring, changing and removing shares of a concurrency bucket: one step after the other, each from a
//! reading of all rows, until the rows are as wanted.
//!
//! | step | writes, in one transaction | condition |
//! |---|---|---|
//! | names | `shares` and `changes_to` of the bucket's row | both as read |
//! | shrink | C = wanted, T = T - (C - wanted) | C as read |
//! | remove | delete a share's row, and its name | C as read, T >= C; `shares` and `changes_to` as read |
//! | grow | C = C + m, T = T + m; or a row is made, and its name opens | as counted, of all rows |
//! | end | `shares` as wanted, no `changes_to` | both as read |
//!
//! As counted: C as read, T >= min(T as read, 0); and `shares` and `changes_to` as read. m is 0 for rows that
//! stay. With H = C - T, what is held of a line, each step keeps the sum over the lines of max(C, H) at the
//! whole limit or below, once it is there. So the vendor never sees more calls at once than that. A line that
//! shrinks while its slots are held goes below zero, and gives nothing until they come back; the others grow
//! by as much as has come back.
//!
//! From the first step to the last, the bucket's row says what is wanted: `changes_to` is the whole limit,
//! and `shares` has what each share will have. So whoever reads it can go on, also after a crash: an
//! operator, or a sweep, which only grows lines and ends changes ([`SlotRows::resumed`]).
//!
//! A share is open as long as it has a row, and callers use it, with as few slots as it has so far. It is
//! closed before that, and when it goes (its entry promises nothing then). Its row is made in the write that
//! opens it, and deleted in the write that takes its name away: there is no row without a name.

use alloc::vec::Vec;
use core::time::Duration;

use super::change::Change;
use crate::amount::Amount;
use crate::bucket::Bucket;
use crate::bucket::slot_shares::SlotShare;
use crate::dimension::Dimension;
use crate::limit::Limit;
use crate::limit::split::{MOST_SHARES, ShareLimit, Split};
use crate::share::ShareName;
use crate::statement::{Operand, Values, Write};
use crate::timestamp::Timestamp;

mod writes;

use writes::{grow, growth, made, own_row, remove};

/// The rows of a concurrency bucket: its own, and those of its shares.
#[derive(Clone, Debug)]
pub struct SlotRows {
    /// The bucket's own row.
    pub common: Bucket,
    /// The row of each share that [`names`](Self::names) lists; `None` for one that does not exist.
    pub shares: Vec<Option<Bucket>>,
}

/// What brings the rows nearer to what is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlotStep {
    /// The rows are as wanted.
    Done,
    /// What an operator wants: these writes, in one transaction. Then the rows are read again, whether they
    /// were applied or not.
    Write(Vec<Write>),
    /// What follows of it: slots that came back go to lines that lack some, or the change ends. As
    /// [`Write`](Self::Write).
    GoOn(Vec<Write>),
    /// The row of this share is not used any more, and goes with these writes.
    Remove(Dimension, Vec<Write>),
    /// So many slots are still held by calls that began before. Nothing can be done until they come back.
    Wait(Amount),
}

/// One row, with what it is to be.
struct Line<'a> {
    row: Dimension,
    now: Option<&'a Bucket>,
    /// `None` for a share that goes.
    wanted: Option<&'a Limit>,
}

impl Line<'_> {
    fn capacity(&self) -> Amount {
        self.now.map_or(Amount::ZERO, |bucket| bucket.limit().capacity())
    }

    /// What the line may have in use at once, now or later: max(C, H).
    fn counts(&self) -> Amount {
        let held = self.now.map_or(Amount::ZERO, |bucket| bucket.limit().capacity().minus(bucket.tokens()));
        self.capacity().max(held)
    }

    fn is_as_wanted(&self) -> bool {
        self.now.map(Bucket::limit) == self.wanted
    }

    fn lacks(&self) -> Amount {
        self.wanted.map_or(Amount::ZERO, |wanted| wanted.capacity().minus(self.capacity()).max(Amount::ZERO))
    }
}

impl SlotRows {
    /// The shares whose rows are to be read: those that `common` names, and those of `to`, sorted.
    #[must_use]
    pub fn names(common: &Bucket, to: &Split) -> Vec<ShareName> {
        let named = common.slot_shares().iter().map(|share| share.name.clone());
        let mut names: Vec<_> = named.chain(to.shares().iter().map(|share| share.name.clone())).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// What to do next, so that the rows become as `to` says.
    #[must_use]
    pub fn next(&self, to: &Split, now: Timestamp) -> SlotStep {
        let (names, lines, whole) = (self.names_while_changing(to), self.lines(to), to.whole().capacity());
        let is_named = names == self.common.slot_shares();
        if names.iter().all(|share| !share.is_closed) && lines.iter().all(Line::is_as_wanted) {
            return match is_named && self.common.changes_to().is_none() {
                true => SlotStep::Done,
                false => SlotStep::GoOn(alloc::vec![own_row(&self.common, &names, None, None)]),
            };
        }
        if names.len() > 2 * MOST_SHARES {
            // The rows of shares that go are still in use, and a row with more names could not be read.
            return SlotStep::Wait(to.whole().cost_per_call().amount());
        }
        if !is_named || self.common.changes_to() != Some(whole) {
            return SlotStep::Write(alloc::vec![own_row(&self.common, &names, Some(whole), None)]);
        }
        for line in &lines {
            if let Some(step) = line.now.and_then(|bucket| self.shrink(bucket, line.wanted, now)) {
                return step;
            }
        }
        let counted = lines.iter().fold(Amount::ZERO, |sum, line| sum.plus(line.counts()));
        let lacking = lines.iter().fold(Amount::ZERO, |sum, line| sum.plus(line.lacks()));
        if lacking > Amount::ZERO {
            let grows = self.grow(&lines, to, whole.minus(counted), now);
            return grows.map_or(SlotStep::Wait(lacking), SlotStep::GoOn);
        }
        // All that is wanted is there, beside shares that go.
        SlotStep::Wait(counted.minus(whole).max(Amount::ZERO))
    }

    /// The next writes of a change that an operator began: slots that came back go to the lines that lack
    /// some, or the change ends. `None` if no change is under way, if nothing has come back, or if the next
    /// step is an operator's.
    #[must_use]
    pub fn resumed(&self, now: Timestamp) -> Option<Vec<Write>> {
        self.common.changes_to()?;
        match self.next(&self.common.split(), now) {
            SlotStep::GoOn(writes) => Some(writes),
            _ => None,
        }
    }

    fn has_row(&self, row: &Dimension) -> bool {
        self.shares.iter().flatten().any(|bucket| bucket.dimension() == row)
    }

    /// The names while the rows change: all that have a row, and all that are wanted.
    fn names_while_changing(&self, to: &Split) -> Vec<SlotShare> {
        let wanted = to.shares().iter().filter_map(|share| named(share, &self.common));
        let wanted = wanted.map(|share| SlotShare { is_closed: !self.has_row(&share.row), ..share });
        let named_now = self.common.slot_shares().iter();
        let going = named_now.filter(|share| !is_wanted(share, to) && self.has_row(&share.row));
        let going = going.map(|share| SlotShare {
            capacity: Amount::ZERO,
            floor: None,
            is_background: false,
            is_closed: true,
            ..share.clone()
        });
        let mut all: Vec<SlotShare> = wanted.chain(going).collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all
    }

    fn lines<'a>(&'a self, to: &'a Split) -> Vec<Line<'a>> {
        let row = |name: &ShareName| self.common.dimension().of_share(name);
        let at = |row: &Dimension| self.shares.iter().flatten().find(|bucket| bucket.dimension() == row);
        let shares = Self::names(&self.common, to).into_iter().filter_map(|name| {
            let row = row(&name)?;
            let wanted = to.shares().iter().find(|share| share.name == name).map(|share| &share.limit);
            Some(Line { now: at(&row), row, wanted })
        });
        let own =
            Line { row: self.common.dimension().clone(), now: Some(&self.common), wanted: Some(to.common()) };
        core::iter::once(own).chain(shares).collect()
    }

    /// The step of a line that has more than it is to have, or another cost of a call.
    fn shrink(&self, bucket: &Bucket, wanted: Option<&Limit>, now: Timestamp) -> Option<SlotStep> {
        let limit = bucket.limit();
        let Some(wanted) = wanted else {
            if bucket.tokens() >= limit.capacity() {
                return Some(self.remove(bucket));
            }
            // A row without any slot could not be read.
            let call = limit.cost_per_call();
            let least = Limit::concurrent(call.amount(), call)
                .ok()
                .filter(|least| least.capacity() < limit.capacity())?;
            return resized(bucket, &least, now);
        };
        let has_more = limit.capacity() > wanted.capacity();
        match has_more || limit.capacity() == wanted.capacity() && limit != wanted {
            true => resized(bucket, wanted, now),
            false => None,
        }
    }

    /// The row of a share that is free goes, with its name.
    fn remove(&self, bucket: &Bucket) -> SlotStep {
        let stays = |share: &&SlotShare| share.row != *bucket.dimension();
        let names: Vec<SlotShare> = self.common.slot_shares().iter().filter(stays).cloned().collect();
        let writes = [own_row(&self.common, &names, self.common.changes_to(), None), remove(bucket)];
        SlotStep::Remove(bucket.dimension().clone(), writes.into())
    }

    /// Returns the transaction that gives `free` slots to the lines that lack some; `None` if no line would
    /// get a whole call. It goes over all rows, since all were counted.
    fn grow(&self, lines: &[Line<'_>], to: &Split, free: Amount, now: Timestamp) -> Option<Vec<Write>> {
        let call = to.whole().cost_per_call();
        let parts = parts(lines, free, call.amount());
        if parts.iter().all(|part| *part <= Amount::ZERO) {
            return None;
        }
        let mut names = self.common.slot_shares().to_vec();
        let (mut own, mut others) = (Values::new(), Vec::new());
        for (at, (line, more)) in lines.iter().zip(parts).enumerate() {
            match line.now {
                Some(bucket) => {
                    let cost = line.wanted.map_or(bucket.limit().cost_per_call(), Limit::cost_per_call);
                    // The bucket's own row is the first.
                    match at {
                        0 => own = growth(bucket, cost, more),
                        _ => others.push(grow(bucket, cost, more)),
                    }
                }
                None => {
                    // Its name stays closed until it gets a call, and nobody else makes its row: that changes
                    // the names.
                    let Ok(limit) = Limit::concurrent(more, call) else { continue };
                    others.push(made(&line.row, limit, &self.common, now));
                    let opens = names.iter_mut().filter(|share| share.row == line.row);
                    opens.for_each(|share| share.is_closed = false);
                }
            }
        }
        let cools_until = self.common.blocked_until().unwrap_or(now).max(now);
        own.push((":blocked_until", Operand::number(cools_until.after(Duration::from_micros(1)))));
        let own = own_row(&self.common, &names, self.common.changes_to(), Some(own));
        Some(core::iter::once(own).chain(others).collect())
    }
}

fn is_wanted(share: &SlotShare, to: &Split) -> bool {
    to.shares().iter().any(|wanted| wanted.name == share.name)
}

fn named(share: &ShareLimit, common: &Bucket) -> Option<SlotShare> {
    Some(SlotShare {
        name: share.name.clone(),
        row: common.dimension().of_share(&share.name)?,
        capacity: share.limit.capacity(),
        floor: share.floor,
        is_background: share.background,
        is_closed: false,
    })
}

fn resized(bucket: &Bucket, to: &Limit, now: Timestamp) -> Option<SlotStep> {
    Change::plan(bucket, to, now).ok().map(|update| SlotStep::Write(alloc::vec![Write::Update(update)]))
}

/// The slots that each line gets of `free`: first a call for each that has no row yet, so that it can be
/// used; then all that it lacks, or as many whole calls as are left.
fn parts(lines: &[Line<'_>], mut free: Amount, call: Amount) -> Vec<Amount> {
    let mut take = |most: Amount| {
        let part = if most <= free { most } else { free.max(Amount::ZERO).in_calls(call) };
        free = free.minus(part);
        part
    };
    let first: Vec<Amount> = lines
        .iter()
        .map(|line| if line.now.is_none() { take(line.lacks().min(call)) } else { Amount::ZERO })
        .collect();
    lines.iter().zip(first).map(|(line, first)| first.plus(take(line.lacks().minus(first)))).collect()
}
