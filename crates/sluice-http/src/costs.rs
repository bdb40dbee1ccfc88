//! What a call takes from each bucket, and what it used of it, as its vendor counts tokens.

#[cfg(feature = "limiter")]
use sluice_core::LimitType;
use sluice_core::{Amount, Dimension, Limit};
use sluice_vendors::{Counted, Profile, Quota, Reserved, TokenCount};

use crate::asked::Asked;
use crate::reply::Replied;

/// The output tokens that are reserved for a call that states no `max_tokens`, while no call of its model is
/// known.
pub const UNSTATED_OUTPUT: u64 = 1_000;

/// A bucket that a call takes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Taken {
    /// The bucket.
    pub dimension: Dimension,
    /// The quota that it stands for.
    pub quota: Quota,
    /// The most that a call can take of it.
    pub capacity: Amount,
}

impl Taken {
    /// A bucket with this name and limit.
    #[must_use]
    pub fn of(dimension: Dimension, limit: &Limit) -> Self {
        let quota = Quota::of(&dimension, limit.limit_type());
        Self { dimension, quota, capacity: limit.capacity() }
    }

    /// A bucket of which the table knows nothing yet.
    #[cfg(feature = "limiter")]
    pub(crate) fn unknown(dimension: Dimension) -> Self {
        let quota = Quota::of(&dimension, LimitType::Requests);
        Self { dimension, quota, capacity: Amount::from_micros(i64::MAX) }
    }

    /// Whether the bucket counts tokens.
    #[must_use]
    pub const fn is_of_tokens(&self) -> bool {
        !matches!(self.quota, Quota::Requests | Quota::Concurrency)
    }
}

/// How a vendor counts the tokens of a call to one model.
#[derive(Clone, Copy, Debug)]
pub struct Costs<'a> {
    count: Option<&'a TokenCount>,
}

impl<'a> Costs<'a> {
    /// How `vendor` counts calls to `model`.
    #[must_use]
    pub fn of(vendor: &'a Profile, model: &str) -> Self {
        Self { count: vendor.tokens_of(model) }
    }

    /// What the call takes from a bucket of `quota` when it starts. `likely_output` is what calls of its kind
    /// most likely use. `None` for requests and slots, of which every call takes what the bucket says.
    ///
    /// - A vendor that counts when the call arrives, or reserves then, is followed: what it reserves is
    ///   taken. If a token costs more at the end than it does then, and what the call will most likely cost
    ///   is more, that is taken.
    /// - Of a vendor that looks at the output as it is made, the likely output is taken, at most
    ///   `max_tokens`.
    /// - A call that states no `max_tokens` takes the likely output, or [`UNSTATED_OUTPUT`].
    #[must_use]
    pub fn reserve(self, quota: Quota, asked: &Asked, likely_output: Option<u64>) -> Option<Amount> {
        let unstated = || likely_output.unwrap_or(UNSTATED_OUTPUT);
        let most = || asked.max_output.unwrap_or_else(unstated);
        let likely =
            || asked.max_output.map_or_else(unstated, |most| likely_output.unwrap_or(most).min(most));
        let output = || if self.is_reserved_whole() { most() } else { likely() };
        let tokens = match quota {
            Quota::Requests | Quota::Concurrency => return None,
            Quota::InputTokens | Quota::PriorityInputTokens => self.weigh(asked.input, 0, 0),
            Quota::OutputTokens | Quota::PriorityOutputTokens => self.weigh(0, 0, output()),
            _ => match self.count.map(|count| count.reserved) {
                // Without `max_tokens`, such a vendor counts its estimate of the input.
                Some(Reserved::Larger) => {
                    self.weigh(asked.input, 0, 0).max(self.weigh(0, 0, asked.max_output.unwrap_or(0)))
                }
                _ => {
                    let at_the_end =
                        likely_output.map_or(Amount::ZERO, |_| self.weigh(asked.input, 0, likely()));
                    self.weigh_on_arrival(asked.input, output()).max(at_the_end)
                }
            },
        };
        // A cost of zero cannot be asked for.
        Some(tokens.max(Amount::from_tokens(1)))
    }

    /// What the call used of a bucket of `quota`, as far as `replied` says: `taken` is what it took. `None`
    /// if that is not known, and for requests and slots.
    ///
    /// Of a reply that was cut off in the middle, or by an error, the output is too low: then what was taken
    /// stays, unless more was used already.
    #[must_use]
    pub fn used(self, quota: Quota, replied: &Replied, taken: Amount) -> Option<Amount> {
        let used = replied.used?;
        let input = || Some(self.weigh(used.input?, used.cached, 0));
        match quota {
            Quota::Requests | Quota::Concurrency => None,
            // Vendors state the input before the output.
            Quota::InputTokens | Quota::PriorityInputTokens => input(),
            Quota::OutputTokens | Quota::PriorityOutputTokens => {
                Some(whole(self.weigh(0, 0, used.output?), replied, taken))
            }
            // Counted when the call arrives, by its input as the vendor reads it. Its output adds nothing.
            _ if self.is_on_arrival()
                && self.count.is_some_and(|count| count.reserved == Reserved::Larger) =>
            {
                Some(input()?.max(taken))
            }
            _ => Some(whole(
                self.weigh(used.input.unwrap_or(0), used.cached, used.output.unwrap_or(0)),
                replied,
                taken,
            )),
        }
    }

    /// Whether the vendor counts the call when it arrives, by what it may use.
    #[must_use]
    pub fn is_on_arrival(self) -> bool {
        self.count.is_some_and(|count| count.counted == Counted::OnArrival)
    }

    /// Whether the vendor reserves the most output that the call allows.
    fn is_reserved_whole(self) -> bool {
        self.count
            .is_some_and(|count| count.counted == Counted::OnArrival || count.reserved != Reserved::Input)
    }

    fn weigh(self, input: u64, cached: u64, output: u64) -> Amount {
        let weights = self.count.map(|count| count.weights).unwrap_or_default();
        weighed(input, weights.input)
            .plus(weighed(cached, weights.cached_input))
            .plus(weighed(output, weights.output))
    }

    /// What of the input will come from a cache is not known then.
    fn weigh_on_arrival(self, input: u64, output: u64) -> Amount {
        let weights =
            self.count.map(|count| count.reserved_weights.unwrap_or(count.weights)).unwrap_or_default();
        weighed(input, weights.input).plus(weighed(output, weights.output))
    }
}

/// `tokens` times `weight`, at most what an amount can hold.
fn weighed(tokens: u64, weight: f64) -> Amount {
    let weight =
        if weight == 1.0 { Amount::from_tokens(1) } else { weight.to_string().parse().unwrap_or_default() };
    let micros = i64::try_from(u128::from(tokens) * u128::from(weight.micros().unsigned_abs()));
    Amount::from_micros(micros.unwrap_or(i64::MAX))
}

fn whole(used: Amount, replied: &Replied, taken: Amount) -> Amount {
    if replied.complete && replied.error.is_none() { used } else { used.max(taken) }
}
