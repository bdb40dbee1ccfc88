//! Declaring, changing and removing shares, and other changes of the limits of a bucket with shares.
//!
//! A declared share gets a part of the common line's level, and a removed share's level goes there. No write
//! raises the sum of the levels. A line whose limits change keeps its level, cut at its new capacity.

use alloc::borrow::Cow;
use alloc::string::ToString as _;
use alloc::vec::Vec;

use super::change::Change;
use super::lines::{At, Rewrite, effect, whole_line};
use crate::amount::Amount;
use crate::bucket::Bucket;
use crate::bucket::lines::{LineRead, Share};
use crate::limit::split::{ShareLimit, Split};
use crate::limit::{InvalidLimit, Limit};
use crate::schema::SHARES;
use crate::statement::{Operand, Put, Update};
use crate::timestamp::Timestamp;

impl Bucket {
    /// Whether the row states this limit and these shares.
    #[must_use]
    pub fn is_split_as(&self, split: &Split) -> bool {
        if self.limit().is_concurrent() {
            return self.split() == *split && self.changes_to().is_none();
        }
        let bucket = self.clone().seen_from(None);
        let shares: &[Share] = bucket.lines().map_or(&[], |lines| &lines.shares);
        bucket.limit() == split.common()
            && shares.len() == split.shares().len()
            && shares.iter().zip(split.shares()).all(|(share, wanted)| is_as(share, wanted))
    }

    /// The limit and the shares that the row states.
    #[must_use]
    pub fn split(&self) -> Split {
        if self.limit().is_concurrent() {
            return self.split_of_slots();
        }
        let shares = self.lines().into_iter().flat_map(|lines| &lines.shares);
        let shares = shares.map(|share| ShareLimit {
            name: share.name.clone(),
            limit: share.line.limit,
            floor: share.floor,
            background: share.is_background,
        });
        let common = *self.clone().seen_from(None).limit();
        Split::read(self.whole_limit(), common, shares.collect())
    }

    /// The write that creates the row of a bucket that is missing in the table, full, with these shares.
    #[must_use]
    pub fn create_split(&self, split: &Split) -> Put {
        let Put { mut item, statement } =
            Self::full(self.dimension().clone(), *split.common(), self.anchor()).create();
        if !split.shares().is_empty() {
            let line = |share: &ShareLimit| {
                let at = At { level: share.limit.capacity(), anchor: self.anchor() };
                (Cow::Owned(share.name.to_string()), whole_line(share, at))
            };
            item.push((SHARES, Operand::Map(split.shares().iter().map(line).collect())));
        }
        Put { item, statement }
    }
}

fn is_as(share: &Share, wanted: &ShareLimit) -> bool {
    let ShareLimit { name, limit, floor, background } = wanted;
    share.name == *name
        && share.line.limit == *limit
        && share.floor == *floor
        && share.is_background == *background
}

impl Change {
    /// The write that gives `bucket` the limit and the shares of `to` at `now`. Of a concurrency bucket, it
    /// changes the bucket's own row alone, to what the shares leave ([`SlotRows`](crate::SlotRows) changes
    /// all rows).
    ///
    /// # Errors
    /// [`InvalidLimit::KindChange`] between rate and concurrency.
    pub fn split(bucket: &Bucket, to: &Split, now: Timestamp) -> Result<Update, InvalidLimit> {
        if bucket.limit().is_concurrent() || !bucket.has_shares() && to.shares().is_empty() {
            return Self::plan(bucket, to.common(), now);
        }
        let bucket = &bucket.clone().seen_from(None);
        let from = bucket.limit();
        if from.is_concurrent() != to.whole().is_concurrent() {
            let (from, to) = (from.limit_type(), to.whole().limit_type());
            return Err(InvalidLimit::KindChange { from, to });
        }
        let before: &[Share] = bucket.lines().map_or(&[], |lines| &lines.shares);
        let find = |name| before.iter().find(|share| share.name == name);
        let removed: Vec<&Share> = before
            .iter()
            .filter(|share| to.shares().iter().all(|wanted| wanted.name != share.name))
            .collect();
        let (new, kept): (Vec<_>, Vec<_>) =
            to.shares().iter().partition(|wanted| find(wanted.name.clone()).is_none());
        let anchors = removed.iter().map(|share| share.line.anchor.get());
        let at = effect(anchors.chain([bucket.anchor()]), now);
        let level = |line: &LineRead| line.level(at);
        let is_same = removed.is_empty() && new.is_empty() && from == to.common();
        // What the common line has, and what comes back from shares that go.
        let pool = removed.iter().map(|share| level(&share.line)).fold(bucket.level(at), Amount::plus);
        let sum = new.iter().fold(to.common().capacity(), |sum, share| sum.plus(share.limit.capacity()));
        let of_pool = |limit: &Limit| pool.scaled(limit.capacity(), sum).min(limit.capacity());
        let come = |share: &'_ ShareLimit| At { level: of_pool(&share.limit), anchor: at };
        let mut shares: Vec<(&ShareLimit, At)> = new.into_iter().map(|share| (share, come(share))).collect();
        let given = shares.iter().fold(Amount::ZERO, |sum, (_, at)| sum.plus(at.level));
        for wanted in kept {
            let Some(share) = find(wanted.name.clone()).filter(|share| !is_as(share, wanted)) else {
                continue;
            };
            let anchor = effect([share.line.anchor.get()], now);
            let level = share.line.level(anchor).min(wanted.limit.capacity());
            shares.push((wanted, At { level, anchor }));
        }
        let rest = At { level: pool.minus(given).min(to.common().capacity()), anchor: at };
        let common = (!is_same).then_some((*to.common(), rest));
        let removed = removed.into_iter().map(|share| &share.name).collect();
        Ok(Rewrite { common, shares, removed }.update(bucket))
    }

    /// The write that sets the levels of a bucket with shares at `now`, to `level` together: each line in
    /// proportion to its capacity. For an operator, as [`RatePlanner::refill`](crate::RatePlanner::refill).
    #[must_use]
    pub fn refill_lines(bucket: &Bucket, level: Amount, now: Timestamp) -> Update {
        let bucket = &bucket.clone().seen_from(None);
        let split = bucket.split();
        let anchors = bucket.every_line().into_iter().map(|line| line.anchor());
        let anchor = effect(anchors, now);
        let whole = split.whole().capacity();
        let part = |limit: &Limit| limit.capacity().scaled(level, whole);
        let stands = |share: &ShareLimit| At { level: part(&share.limit), anchor };
        let shares: Vec<(&ShareLimit, At)> =
            split.shares().iter().map(|share| (share, stands(share))).collect();
        let level = shares.iter().fold(level, |rest, (_, at)| rest.minus(at.level));
        let common = Some((*split.common(), At { level, anchor }));
        Rewrite { common, shares, removed: Vec::new() }.update(bucket)
    }
}
