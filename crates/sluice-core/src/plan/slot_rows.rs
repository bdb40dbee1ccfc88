//! Declaring, changing and removing shares of a concurrency bucket: one step after the other, each from a
//! reading of all rows, until the rows are as wanted.
//!
//! | step | writes, in one transaction | condition |
//! |---|---|---|
//! | names | `shares`, `changes_to` and `cost_changes_to` of the bucket's row | as stated |
//! | shrink | C = wanted, T = T - (C - wanted); the cost of a call | as stated; C as read |
//! | grow | C = C + m, T = T + m; or a row is made, and its name opens | as stated; as counted, all rows; (1) |
//! | remove | delete a share's row, and its name | as stated; C as read, T >= C |
//!
//! As stated: what the names step writes, and C of the bucket's row, as read. As counted: C as read, T >=
//! min(T as read, 0). m is 0 for rows that stay. The growth that leaves all rows as wanted ends the change:
//! it takes `changes_to` and `cost_changes_to` away. (1) Also `blocked_until` and `protocol` of the bucket's
//! row as read, and a row that is made does not exist: it gets both.
//!
//! With H = C - T, what is held of a line, each step keeps the sum over the lines of max(C, H) at the whole
//! limit or below, once it is there. So the vendor never sees more calls at once than that. A line that
//! shrinks while its slots are held goes below zero, and gives nothing until they come back; the others grow
//! by as much as has come back.
//!
//! From its first write to its last, the bucket's row says what is wanted: `changes_to` is the whole limit,
//! `cost_changes_to` the cost of a call, and `shares` has what each share will have. So whoever reads it can
//! go on, also after a crash: an operator; or, once every line is small enough, a sweep or a caller that
//! finds no slot, which only grow lines ([`SlotRows::resumed`]).
//!
//! A share is open as long as it has a row, and callers use it, with as few slots as it has so far. It is
//! closed before that, and when it goes: then it keeps its row and its name, and promises nothing. Its row
//! is made in the write that opens it, and deleted in the write that takes its name away: there is no row
//! without a name.

use alloc::vec::Vec;

use super::change::Change;
use crate::amount::Amount;
use crate::bucket::Bucket;
use crate::bucket::slot_shares::SlotShare;
use crate::dimension::Dimension;
use crate::limit::Limit;
use crate::limit::split::{MOST_SHARES, ShareLimit, Split};
use crate::rate::Rate;
use crate::share::ShareName;
use crate::statement::Write;

mod writes;

use writes::{OwnSlots, grow, made, own_row, remove};

/// The rows of a concurrency bucket: its own, and those of its shares.
#[derive(Clone, Debug)]
pub struct SlotRows {
    /// The bucket's own row.
    pub common: Bucket,
    /// The row of each share that [`names`](Self::names) lists; `None` for one that does not exist, or that
    /// was not read.
    pub shares: Vec<Option<Bucket>>,
}

/// What brings the rows nearer to what is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlotStep {
    /// The rows are as wanted.
    Done,
    /// Only an operator sends these writes, in one transaction. Then the rows are read again, whether they
    /// were applied or not.
    Write(Vec<Write>),
    /// An operator, a sweep or a caller sends these: slots that came back go to lines that lack some, and if
    /// none lacks any, the change ends. As [`Write`](Self::Write).
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
    is_background: bool,
}

impl Line<'_> {
    fn capacity(&self) -> Amount {
        self.now.map_or(Amount::ZERO, |bucket| bucket.limit().capacity())
    }

    /// What the line may have in use at once, now or later: max(C, H).
    fn may_be_in_use(&self) -> Amount {
        let held = self.now.map_or(Amount::ZERO, |bucket| bucket.limit().capacity().minus(bucket.tokens()));
        self.capacity().max(held)
    }

    fn is_as_wanted(&self) -> bool {
        self.now.map(Bucket::limit) == self.wanted
    }

    /// What the row is to be before any grows: with no more slots than wanted, and the wanted cost of a call
    /// as far as it has room for one. That of a share that goes drains to one call.
    fn shrunk(&self) -> Option<(&Bucket, Limit)> {
        let bucket = self.now?;
        let call = bucket.limit().cost_per_call();
        let limit = match self.wanted {
            Some(wanted) => wanted.of_line(self.capacity().min(wanted.capacity()), Rate::ZERO),
            None => Limit::concurrent(self.capacity().min(call.amount()), call),
        };
        limit.ok().filter(|limit| limit != bucket.limit()).map(|limit| (bucket, limit))
    }

    /// A row that is not used any more.
    fn free_row_that_goes(&self) -> Option<&Bucket> {
        self.now.filter(|bucket| self.wanted.is_none() && bucket.tokens() >= bucket.limit().capacity())
    }

    /// What a call takes of it.
    fn call(&self) -> Amount {
        self.wanted.map_or(Amount::ZERO, |wanted| wanted.cost_per_call().amount())
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
    pub fn next(&self, to: &Split) -> SlotStep {
        let (names, whole) = self.named_while_changing(to);
        let lines = self.lines(&names, to);
        let is_named = names == self.common.slot_shares();
        if is_named && self.common.changes_to().is_none() && lines.iter().all(Line::is_as_wanted) {
            return SlotStep::Done;
        }
        if !is_named || self.common.changes_to() != Some(whole) {
            return SlotStep::Write(alloc::vec![own_row(&self.common, &names, Some(whole), None)]);
        }
        let whole = whole.capacity();
        if let Some((bucket, limit)) = lines.iter().find_map(Line::shrunk) {
            return SlotStep::Write(self.resize(bucket, &limit));
        }
        let counted = lines.iter().fold(Amount::ZERO, |sum, line| sum.plus(line.may_be_in_use()));
        if let Some(writes) = self.grow(&lines, whole.minus(counted)) {
            return SlotStep::GoOn(writes);
        }
        if let Some(bucket) = lines.iter().find_map(Line::free_row_that_goes) {
            return self.remove(bucket);
        }
        // Also for shares that are not named yet.
        let wanted = lines.iter().filter(|line| line.wanted.is_some());
        let lacking = wanted.fold(to.whole().capacity(), |rest, line| rest.minus(line.capacity()));
        SlotStep::Wait(lacking.max(counted.minus(whole)))
    }

    /// The next writes of a change that an operator began: slots that came back go to the lines that lack
    /// some, and if none lacks any, the change ends. `None` if no change is under way, if nothing has come
    /// back, or if the next step is an operator's. It is that, too, if a row was not read, since its share is
    /// named as if it had one: the row may have all of the slots that seem to be free.
    #[must_use]
    pub fn resumed(&self) -> Option<Vec<Write>> {
        self.common.changes_to()?;
        match self.next(&self.common.split()) {
            SlotStep::GoOn(writes) => Some(writes),
            _ => None,
        }
    }

    /// Whether the change that is under way needs an operator for its next step: sweeps and callers do not go
    /// on with it.
    #[must_use]
    pub fn needs_operator(&self) -> bool {
        let next = || self.next(&self.common.split());
        self.common.changes_to().is_some() && matches!(next(), SlotStep::Write(_) | SlotStep::Remove(..))
    }

    fn has_row(&self, row: &Dimension) -> bool {
        self.shares.iter().flatten().any(|bucket| bucket.dimension() == row)
    }

    /// The names while the rows change, all that have a row and all that are wanted; and the limit of the
    /// lines that are named.
    fn named_while_changing(&self, to: &Split) -> (Vec<SlotShare>, Limit) {
        let wanted = to.shares().iter().filter_map(|share| named(share, &self.common));
        let wanted = wanted.map(|share| SlotShare { is_closed: !self.has_row(&share.row), ..share });
        let named_now = self.common.slot_shares();
        let going = named_now.iter().filter(|share| !is_wanted(share, to) && self.has_row(&share.row));
        let going = going.map(|share| SlotShare {
            capacity: Amount::ZERO,
            floor: None,
            is_background: false,
            is_closed: true,
            ..share.clone()
        });
        let mut all: Vec<SlotShare> = wanted.chain(going).collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let mut whole = *to.whole();
        if all.len() > 2 * MOST_SHARES {
            // A row with more names could not be read. New ones come when others have gone.
            all.retain(|share| named_now.iter().any(|named| named.name == share.name));
            let named = all.iter().fold(to.common().capacity(), |sum, share| sum.plus(share.capacity));
            whole = whole.of_line(named, Rate::ZERO).unwrap_or(whole);
        }
        (all, whole)
    }

    /// The bucket's own row is the first.
    fn lines<'a>(&'a self, names: &[SlotShare], to: &'a Split) -> Vec<Line<'a>> {
        let at = |row: &Dimension| self.shares.iter().flatten().find(|bucket| bucket.dimension() == row);
        let wanted =
            |name: &ShareName| to.shares().iter().find(|share| share.name == *name).map(|share| &share.limit);
        let shares = names.iter().map(|share| Line {
            row: share.row.clone(),
            now: at(&share.row),
            wanted: wanted(&share.name),
            is_background: share.is_background,
        });
        let own = Line {
            row: self.common.dimension().clone(),
            now: Some(&self.common),
            wanted: Some(to.common()),
            is_background: false,
        };
        core::iter::once(own).chain(shares).collect()
    }

    /// A row loses slots, or gets another cost of a call. The write is rejected if the change has ended: no
    /// attribute would then say that the row has too few slots.
    fn resize(&self, bucket: &Bucket, to: &Limit) -> Vec<Write> {
        let (more, cost) = (to.capacity().minus(bucket.limit().capacity()), to.cost_per_call());
        let is_own = bucket.dimension() == self.common.dimension();
        let slots = is_own.then_some(OwnSlots { cost, more, all_are_counted: false });
        let own = own_row(&self.common, self.common.slot_shares(), self.common.changes_to(), slots);
        let of_share = (!is_own).then(|| Write::Update(Change::resize(bucket, to)));
        core::iter::once(own).chain(of_share).collect()
    }

    /// The row of a share that is free goes, with its name.
    fn remove(&self, bucket: &Bucket) -> SlotStep {
        let stays = |share: &&SlotShare| share.row != *bucket.dimension();
        let names: Vec<SlotShare> = self.common.slot_shares().iter().filter(stays).cloned().collect();
        let writes = [own_row(&self.common, &names, self.common.changes_to(), None), remove(bucket)];
        SlotStep::Remove(bucket.dimension().clone(), writes.into())
    }

    /// Returns the transaction that gives `free` slots to the lines that lack some, and ends the change if
    /// then none lacks any; `None` if no line would get a whole call. It goes over all rows, since all were
    /// counted.
    fn grow(&self, lines: &[Line<'_>], free: Amount) -> Option<Vec<Write>> {
        let parts = parts(lines, free);
        let is_last =
            lines.iter().zip(&parts).all(|(line, part)| line.wanted.is_some() && line.lacks() == *part);
        if !is_last && parts.iter().all(|part| *part <= Amount::ZERO) {
            return None;
        }
        let mut names = self.common.slot_shares().to_vec();
        let (mut own, mut others) = (None, Vec::new());
        for (at, (line, more)) in lines.iter().zip(parts).enumerate() {
            match line.now {
                Some(bucket) => {
                    let cost = line.wanted.map_or(bucket.limit().cost_per_call(), Limit::cost_per_call);
                    match at {
                        0 => own = Some(OwnSlots { cost, more, all_are_counted: true }),
                        _ => others.push(grow(bucket, cost, more)),
                    }
                }
                None => {
                    // Its name stays closed until its row has the slots of one call. If another writer has
                    // made the row, the names have changed, and this write is rejected.
                    let limit = line.wanted.and_then(|wanted| wanted.of_line(more, Rate::ZERO).ok());
                    let Some(limit) = limit else { continue };
                    others.push(made(&line.row, limit, &self.common));
                    let opens = names.iter_mut().filter(|share| share.row == line.row);
                    opens.for_each(|share| share.is_closed = false);
                }
            }
        }
        let changes_to = self.common.changes_to().filter(|_| !is_last);
        let own = own_row(&self.common, &names, changes_to, own);
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

/// The slots that each line gets of `free`: first a call for each that has no row yet, so that it can be
/// used; then all that it lacks, or as many whole calls as are left. Shares for background work, and then the
/// common line, which is the first of the lines, come last.
fn parts(lines: &[Line<'_>], mut free: Amount) -> Vec<Amount> {
    let mut parts = alloc::vec![Amount::ZERO; lines.len()];
    let mut give = |at: usize, most: Amount| {
        let most = most.minus(parts[at]);
        let part = if most <= free { most } else { free.max(Amount::ZERO).in_calls(lines[at].call()) };
        (parts[at], free) = (parts[at].plus(part), free.minus(part));
    };
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.now.is_none()) {
        give(at, line.lacks().min(line.call()));
    }
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.sort_by_key(|at| (*at == 0, lines[*at].is_background));
    for at in order {
        give(at, lines[at].lacks());
    }
    parts
}
