//! How the slots of a bucket stood at one moment, and what departed until another: by conservation, as in the
//! load row.

use crate::amount::Amount;
use crate::bucket::Bucket;
use crate::load::Load;

/// How the slots of a concurrency bucket stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    taken: Amount,
    admitted: Amount,
    uncounted: i64,
}

impl Standing {
    /// The slots as a reply showed the bucket.
    #[must_use]
    pub fn of(bucket: &Bucket) -> Self {
        let taken = bucket.limit().capacity().minus(bucket.tokens());
        Self { taken, admitted: bucket.admitted().unwrap_or_default(), uncounted: bucket.uncounted() }
    }

    /// The slots as the last sweep found them; `None` if no sweep has measured.
    #[must_use]
    pub fn measured(load: &Load) -> Option<Self> {
        Some(Self { taken: load.taken(), admitted: load.admitted()?, uncounted: load.uncounted()? })
    }

    /// Slots that are not free; zero if the bucket holds more than its capacity.
    #[must_use]
    pub fn taken(&self) -> Amount {
        self.taken.max(Amount::ZERO)
    }

    /// The cost of the live leases at `later`, if it was `pending` now: `pending` and what was granted since.
    /// Too high if leases ended and nobody gave them back, too low by what was granted while the sweep
    /// counted. `None` if something departed meanwhile, or if that is unknown.
    #[must_use]
    pub fn live_at(&self, pending: Amount, later: &Self) -> Option<Amount> {
        let has_stood = self.departed(later) == Some(Amount::ZERO);
        has_stood.then(|| pending.plus(later.admitted.minus(self.admitted)))
    }

    /// What departed until `later`. `None` if unknown: clients wrote that do not count, or the bucket was
    /// recreated.
    #[must_use]
    pub fn departed(&self, later: &Self) -> Option<Amount> {
        let granted = later.admitted.minus(self.admitted);
        let is_known = later.uncounted == self.uncounted && granted >= Amount::ZERO;
        is_known.then(|| granted.minus(later.taken.minus(self.taken)).max(Amount::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(taken: i32, admitted: i32, uncounted: i64) -> Standing {
        Standing { taken: Amount::from_tokens(taken), admitted: Amount::from_tokens(admitted), uncounted }
    }

    #[test]
    fn what_was_granted_and_is_not_there_any_more_has_departed() {
        let before = standing(3, 10, 0);
        assert_eq!(before.departed(&standing(3, 10, 0)), Some(Amount::ZERO));
        assert_eq!(before.departed(&standing(4, 11, 0)), Some(Amount::ZERO), "one more came");
        assert_eq!(before.departed(&standing(3, 11, 0)), Some(Amount::from_tokens(1)), "one came, one left");
        assert_eq!(before.departed(&standing(0, 10, 0)), Some(Amount::from_tokens(3)));
    }

    #[test]
    fn what_nobody_holds_is_not_live() {
        let (one, two) = (Amount::from_tokens(1), Amount::from_tokens(2));
        let measured = standing(3, 10, 0);
        assert_eq!(measured.live_at(one, &standing(3, 10, 0)), Some(one), "two were lost before");
        assert_eq!(measured.live_at(one, &standing(4, 11, 0)), Some(two), "and one was granted since");
        assert_eq!(measured.live_at(one, &standing(5, 10, 0)), Some(one), "or two more were lost");
        assert_eq!(measured.live_at(one, &standing(2, 10, 0)), None, "one departed");
        assert_eq!(measured.live_at(one, &standing(3, 10, 2)), None, "another client wrote");
    }

    #[test]
    fn nothing_is_told_of_what_is_not_counted() {
        let before = standing(3, 10, 0);
        assert_eq!(before.departed(&standing(3, 10, 2)), None, "another client wrote");
        assert_eq!(before.departed(&standing(1, 1, 0)), None, "made anew");
    }
}
