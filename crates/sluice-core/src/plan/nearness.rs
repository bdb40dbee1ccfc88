//! How much of a bucket is used: for the warning before it is empty.

use crate::amount::Amount;
use crate::bucket::Bucket;
use crate::factor::Factor;
use crate::timestamp::Timestamp;

/// How the use of a bucket compares with a part of its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Nearness {
    /// That part is used, or more.
    Near,
    /// Less is used than that part, and more than half of it.
    Between,
    /// At most half of that part is used.
    Far,
}

impl Bucket {
    /// What is used at `now`: tokens that were taken and have not refilled; slots that are held. More than
    /// the capacity if starts are booked.
    #[must_use]
    pub fn used(&self, now: Timestamp) -> Amount {
        let left = if self.limit().is_concurrent() { self.tokens() } else { self.level(now) };
        self.limit().capacity().minus(left).max(Amount::ZERO)
    }

    /// How the use at `now` compares with `part` of the capacity. `None` if the rest beyond that part has no
    /// room for one call: such a bucket is near its limit with nearly every call.
    #[must_use]
    pub fn nearness(&self, part: Factor, now: Timestamp) -> Option<Nearness> {
        let (numerator, denominator) = part.ratio();
        let capacity = self.limit().capacity();
        let warned_at = capacity.fraction(numerator, denominator);
        if capacity.minus(warned_at) < self.limit().cost_per_call().amount() {
            return None;
        }
        let used = self.used(now);
        Some(match used {
            used if used >= warned_at => Nearness::Near,
            used if used > warned_at.half() => Nearness::Between,
            _ => Nearness::Far,
        })
    }
}
