//! The lines of a bucket with shares, as the dashboard shows them.

use serde::Serialize;
use sluice_sdk::core::{Amount, Bucket, COMMON, SlotLine, Timestamp};

use super::number::{per_second, tokens};
use super::used::UseBounds;

/// One line of a bucket with shares.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ShareView {
    /// `common` is the part that no share has.
    #[serde(rename = "share")]
    pub(crate) name: String,
    /// What it has. Of slots: those of its row, fewer or more than promised while the shares change.
    pub(crate) capacity: f64,
    /// Tokens a second; 0 for slots.
    pub(crate) refill_rate: f64,
    /// Below zero if starts are booked ahead.
    pub(crate) level: f64,
    /// What others leave when they borrow.
    pub(crate) lends_above: f64,
    #[serde(rename = "background")]
    pub(crate) is_background: bool,
    /// Tokens taken of it per second since the previous survey, whoever took them; `None` if unknown.
    pub(crate) used_per_sec: Option<f64>,
    /// The part of that which callers of others took.
    pub(crate) lent_per_sec: Option<f64>,
    /// Tokens that its callers took of others per second since then.
    pub(crate) borrowed_per_sec: Option<f64>,
    /// Only for slots.
    pub(crate) slots: Option<ShareOfSlots>,
}

/// What becomes of the slots of a share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct ShareOfSlots {
    /// Held of its row, by whomever.
    pub(crate) held: f64,
    /// The part of that which callers of others hold.
    pub(crate) lent: f64,
    /// Held by its callers of the rows of others.
    pub(crate) borrowed: f64,
    /// Whether it has no slots yet, or goes: nobody takes slots of it.
    #[serde(rename = "closed")]
    pub(crate) is_closed: bool,
    /// Whether it was removed, and its row is still there.
    #[serde(rename = "removed")]
    pub(crate) is_going: bool,
    /// The slots that it will have, while the shares change.
    pub(crate) changes_to: Option<f64>,
    /// Whether it has a row that can be read.
    pub(crate) has_row: bool,
}

impl ShareView {
    pub(super) fn all(bucket: &Bucket, before: Option<(&Bucket, Timestamp)>, at: Timestamp) -> Vec<Self> {
        if !bucket.has_shares() {
            return Vec::new();
        }
        let before = before.filter(|(before, then)| before.split() == bucket.split() && *then < at);
        let lines = bucket.every_line();
        let mut shares: Vec<Self> = lines.iter().map(|line| Self::new(line, before, at)).collect();
        // The shares first.
        shares.rotate_left(1);
        shares
    }

    pub(super) fn of_slots(line: &SlotLine) -> Self {
        let (held, lent, borrowed) = (tokens(line.held()), tokens(line.lent), tokens(line.borrowed));
        Self {
            name: line.name().to_owned(),
            capacity: tokens(line.capacity),
            refill_rate: 0.0,
            level: tokens(line.free.unwrap_or_default()),
            lends_above: tokens(line.lends_above),
            is_background: line.is_background,
            used_per_sec: None,
            lent_per_sec: None,
            borrowed_per_sec: None,
            slots: Some(ShareOfSlots {
                held,
                lent,
                borrowed,
                is_closed: line.is_closed,
                is_going: line.is_going(),
                changes_to: (line.guaranteed != line.capacity).then(|| tokens(line.guaranteed)),
                has_row: line.free.is_some(),
            }),
        }
    }

    fn new(line: &Bucket, before: Option<(&Bucket, Timestamp)>, at: Timestamp) -> Self {
        let seen = before.map(|(before, then)| (then, before.clone().seen_from(line.share())));
        let each = |(then, amount): (Timestamp, f64)| amount / at.since(then).as_secs_f64();
        let used = seen.as_ref().and_then(|(then, seen)| {
            // What a reply of the vendor took is no use.
            let is_lowered = seen.observed() != line.observed();
            let used = UseBounds::of_line(seen, *then, line).filter(|_| !is_lowered)?;
            Some((*then, used.least))
        });
        let since = |of: fn(&Bucket) -> Amount| {
            let (then, seen) = seen.as_ref()?;
            Some(each((*then, tokens(of(line).minus(of(seen)).max(Amount::ZERO)))))
        };
        Self {
            name: line.share().map_or_else(|| COMMON.to_owned(), ToString::to_string),
            capacity: tokens(line.limit().capacity()),
            refill_rate: per_second(line.limit().refill_rate()),
            level: tokens(line.level(at)),
            lends_above: tokens(line.lends_above()),
            is_background: line.is_background(),
            used_per_sec: used.map(each),
            lent_per_sec: since(Bucket::lent),
            borrowed_per_sec: since(Bucket::borrowed),
            slots: None,
        }
    }
}
