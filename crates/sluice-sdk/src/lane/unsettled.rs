//! Tokens that calls keep because nobody stated what they used. They are counted, and a bucket whose calls
//! never say what they used is reported once.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use sluice_core::Amount;

use crate::bucket::known::Known;
use crate::telemetry;

/// A bucket is reported after this many calls. More would report a product that states the use of few calls
/// later; fewer would report one whose first calls all break off.
const REPORTED_AFTER: u32 = 20;

const MICROS_PER_TOKEN: u64 = 1_000_000;

/// What calls of one bucket kept. All is relaxed: the end of a grant from stock should cost next to nothing.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    /// Tokens that are not in the metric yet, in millionths.
    micros: AtomicU64,
    /// Calls that said nothing, until the bucket is reported.
    calls: AtomicU32,
    /// Whether any call said what it used, or what its vendor replied.
    has_heard: AtomicBool,
}

impl Unsettled {
    /// Notes that a caller said what a call used, or what its vendor replied.
    pub(crate) fn heard(&self) {
        if !self.has_heard.load(Ordering::Relaxed) {
            self.has_heard.store(true, Ordering::Relaxed);
        }
    }

    /// Counts what a call of `bucket` keeps that is over and of which nobody said what it used.
    pub(crate) fn ended(&self, bucket: &Known, amount: Amount) {
        if self.kept(amount) == IsSilent::FoundNow {
            tracing::warn!(
                event = "settle.never",
                dimension = %bucket.dimension,
                calls = REPORTED_AFTER,
                "the calls of this bucket never say what they used, so each keeps all that it reserved: call \
                 `slot.reply`, `slot.used` or `grant.settle`, or reserve what calls use on average"
            );
        }
    }

    /// Adds to the metric of `bucket` what calls kept since the last time.
    pub(crate) fn publish(&self, bucket: &Known) {
        let tokens = self.take_whole();
        if tokens > 0 {
            telemetry::tokens_unsettled(bucket.label(), tokens);
        }
    }

    fn kept(&self, amount: Amount) -> IsSilent {
        self.micros.fetch_add(u64::try_from(amount.micros()).unwrap_or(0), Ordering::Relaxed);
        let is_silent = !self.has_heard.load(Ordering::Relaxed);
        match is_silent && self.calls.fetch_add(1, Ordering::Relaxed) + 1 == REPORTED_AFTER {
            true => IsSilent::FoundNow,
            false => IsSilent::NotFound,
        }
    }

    /// The whole tokens since the last time. A fraction is left for the next time.
    fn take_whole(&self) -> u64 {
        let fraction = |micros: u64| Some(micros % MICROS_PER_TOKEN);
        let before = self.micros.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fraction);
        before.unwrap_or_default() / MICROS_PER_TOKEN
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IsSilent {
    FoundNow,
    NotFound,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_add_up() {
        let unsettled = Unsettled::default();
        let whole = [400_000, 700_000, 2_900_000].map(|micros| {
            unsettled.kept(Amount::from_micros(micros));
            unsettled.take_whole()
        });
        assert_eq!(whole, [0, 1, 3]);
    }

    #[test]
    fn a_bucket_is_found_silent_once_and_never_after_it_was_heard_of() {
        let (silent, heard) = (Unsettled::default(), Unsettled::default());
        heard.heard();
        let found = |unsettled: &Unsettled| {
            let each = (0..100).map(|_| unsettled.kept(Amount::from_tokens(1)));
            each.filter(|found| *found == IsSilent::FoundNow).count()
        };
        assert_eq!((found(&silent), found(&heard)), (1, 0));
    }
}
