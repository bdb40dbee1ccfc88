//! Calculates lines anew: shares that are declared or removed, other limits, a refill.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::ToString as _;
use alloc::vec::Vec;
use core::time::Duration;

use super::wording::{OF_LINE, REWRITTEN, Wording};
use crate::amount::Amount;
use crate::bucket::Bucket;
use crate::limit::Limit;
use crate::limit::split::ShareLimit;
use crate::schema::{
    CAPACITY, COST_PER_CALL, LAST_REFILL_AT, LIMIT_TYPE, LINE_ANCHOR, LINE_BACKGROUND, LINE_CAPACITY,
    LINE_FLOOR, LINE_RATE, LINE_TOKENS, REFILL_RATE, SHARES, TOKENS,
};
use crate::share::ShareName;
use crate::statement::{Operand, Update};
use crate::timestamp::Timestamp;

/// The lines of a bucket as a rewrite leaves them.
pub(in crate::plan) struct Rewrite<'a> {
    /// The limit of the common line, if it changes, and where it stands.
    pub(in crate::plan) common: Option<(Limit, At)>,
    /// Shares that change or come, and where they stand.
    pub(in crate::plan) shares: Vec<(&'a ShareLimit, At)>,
    /// Shares that go.
    pub(in crate::plan) removed: Vec<&'a ShareName>,
}

/// A level, and the anchor at which the line has it.
#[derive(Clone, Copy, Debug)]
pub(in crate::plan) struct At {
    pub(in crate::plan) level: Amount,
    pub(in crate::plan) anchor: Timestamp,
}

/// When a rewrite of lines with these anchors takes effect: after each of them, so that no write that was
/// planned before passes after it. A line that keeps what it has goes by its own anchor alone: another's may
/// lie in the future.
pub(in crate::plan) fn effect(anchors: impl IntoIterator<Item = Timestamp>, now: Timestamp) -> Timestamp {
    anchors.into_iter().fold(now, |at, anchor| at.max(anchor.after(Duration::from_micros(1))))
}

impl Rewrite<'_> {
    /// The write. `bucket` is seen from its common line.
    ///
    /// Interleavings that the condition stops:
    /// - `version`: anything was written since the reading. (A cool-down leaves the version, and concerns no
    ///   line.)
    /// - `last_refill_at`: the bucket was recreated, and counts its writes from the start again.
    pub(in crate::plan) fn update(&self, bucket: &Bucket) -> Update {
        let mut wording = Wording::default();
        wording.attribute(LAST_REFILL_AT);
        wording.number(":read_version", bucket.version());
        wording.number(":read_anchor", bucket.anchor_as_read());
        wording.asks(&["#version = :read_version AND #last_refill_at = :read_anchor"]);
        if let Some((limit, at)) = &self.common {
            let (number, _) = wording.line(None);
            let [tokens, anchor, ..] = OF_LINE[number];
            let [capacity, rate, ..] = REWRITTEN[number];
            [TOKENS, CAPACITY, REFILL_RATE, COST_PER_CALL, LIMIT_TYPE]
                .into_iter()
                .for_each(|name| wording.attribute(name));
            wording.number(tokens, at.level);
            wording.number(anchor, at.anchor);
            wording.number(capacity, limit.capacity());
            wording.number(rate, limit.refill_rate());
            wording.number(":cost_per_call", limit.cost_per_call());
            wording.values.push((":limit_type", Operand::text(limit.limit_type())));
            wording.set(&["#tokens = ", tokens, ", #last_refill_at = ", anchor]);
            wording.set(&["#capacity = ", capacity, ", #refill_rate = ", rate]);
            wording.set(&["#cost_per_call = :cost_per_call, #limit_type = :limit_type"]);
        }
        self.shares(bucket, &mut wording);
        wording.update(bucket)
    }

    fn shares(&self, bucket: &Bucket, wording: &mut Wording) {
        let before = bucket.lines();
        let Some(before) = before else {
            if !self.shares.is_empty() {
                let line = |(share, at): &(&ShareLimit, At)| {
                    (Cow::Owned(share.name.to_string()), whole_line(share, *at))
                };
                wording.attribute(SHARES);
                wording.values.push((":shares", Operand::Map(self.shares.iter().map(line).collect())));
                wording.set(&["#shares = :shares"]);
            }
            return;
        };
        if before.shares.len() == self.removed.len() && self.shares.is_empty() {
            wording.attribute(SHARES);
            wording.remove(&["#shares"]);
            return;
        }
        for (share, at) in &self.shares {
            let (number, path) = wording.line(Some(&share.name));
            let [tokens_value, anchor_value, ..] = OF_LINE[number];
            let [capacity, rate, floor, line] = REWRITTEN[number];
            if before.share(share.name.as_str()).is_none() {
                wording.values.push((line, whole_line(share, *at)));
                wording.set(&[path.trim_end_matches('.'), " = ", line]);
                continue;
            }
            let (tokens, anchor) = wording.tokens_and_anchor(Some(&share.name), &path);
            wording.number(tokens_value, at.level);
            wording.number(anchor_value, at.anchor);
            wording.number(capacity, share.limit.capacity());
            wording.number(rate, share.limit.refill_rate());
            wording.set(&[&tokens, " = ", tokens_value, ", ", &anchor, " = ", anchor_value]);
            let of_capacity = wording.entry("#c", LINE_CAPACITY);
            let of_rate = wording.entry("#r", LINE_RATE);
            wording.set(&[&path, of_capacity, " = ", capacity, ", ", &path, of_rate, " = ", rate]);
            let of_floor = wording.entry("#f", LINE_FLOOR);
            match share.floor {
                Some(tokens) => {
                    wording.number(floor, tokens);
                    wording.set(&[&path, of_floor, " = ", floor]);
                }
                None => wording.remove(&[&path, of_floor]),
            }
            let of_background = wording.entry("#b", LINE_BACKGROUND);
            match share.background {
                true => wording.set(&[&path, of_background, " = :1"]),
                false => wording.remove(&[&path, of_background]),
            }
        }
        for name in &self.removed {
            let (_, path) = wording.line(Some(name));
            wording.remove(&[path.trim_end_matches('.')]);
        }
    }
}

/// A share's line as a new entry of the row.
pub(in crate::plan) fn whole_line(share: &ShareLimit, at: At) -> Operand {
    let mut line = alloc::vec![
        (Cow::Borrowed(LINE_TOKENS), Operand::number(at.level)),
        (Cow::Borrowed(LINE_ANCHOR), Operand::number(at.anchor)),
        (Cow::Borrowed(LINE_CAPACITY), Operand::number(share.limit.capacity())),
        (Cow::Borrowed(LINE_RATE), Operand::number(share.limit.refill_rate())),
    ];
    line.extend(share.floor.map(|floor| (Cow::Borrowed(LINE_FLOOR), Operand::number(floor))));
    if share.background {
        line.push((Cow::Borrowed(LINE_BACKGROUND), Operand::number(1)));
    }
    Operand::Map(Box::from(line))
}
