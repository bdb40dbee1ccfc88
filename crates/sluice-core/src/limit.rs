//! The limit of a bucket: what a vendor allows.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::amount::{Amount, Cost};
use crate::rate::Rate;

pub(crate) mod any_window;
pub(crate) mod split;
pub(crate) mod warning;

/// What a bucket counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitType {
    /// Calls in a window of time.
    Requests,
    /// LLM tokens (or any other quantity) in a window of time.
    Tokens,
    /// Calls at the same time.
    Concurrent,
}

impl LimitType {
    /// The name in the table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::Concurrent => "concurrent",
        }
    }
}

impl fmt::Display for LimitType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for LimitType {
    type Err = InvalidLimit;

    fn from_str(text: &str) -> Result<Self, InvalidLimit> {
        match text {
            "requests" => Ok(Self::Requests),
            "tokens" => Ok(Self::Tokens),
            "concurrent" => Ok(Self::Concurrent),
            _ => Err(InvalidLimit::UnknownType(String::from(text))),
        }
    }
}

/// Capacity, refill rate and default cost of a bucket. A `Limit` that exists is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    limit_type: LimitType,
    capacity: Amount,
    rate: Rate,
    cost_per_call: Cost,
}

/// Why the given numbers are not a valid limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLimit {
    /// The type is not one of the three.
    #[error("unknown limit type {0:?}: use requests, tokens or concurrent")]
    UnknownType(String),
    /// The capacity is zero or less, so nothing could ever be granted.
    #[error("capacity {0} must be above 0")]
    Capacity(Amount),
    /// A rate bucket would never refill.
    #[error("a limit of type {0} needs a refill rate above 0")]
    NoRefill(LimitType),
    /// A concurrency bucket refills by releases alone.
    #[error("a limit of type concurrent has no refill rate and no window: leave them out")]
    Refill,
    /// A call of the default cost could never be granted.
    #[error("cost_per_call {cost} is above the capacity {capacity}, so no call could ever be granted")]
    Cost {
        /// The default cost.
        cost: Cost,
        /// The capacity.
        capacity: Amount,
    },
    /// The burst is the whole of what the vendor allows in a window, or more.
    #[error(
        "a burst of {burst} leaves nothing of the limit {amount} to flow back: choose a burst below {amount}"
    )]
    Burst {
        /// The burst.
        burst: Amount,
        /// What the vendor allows in each window.
        amount: Amount,
    },
    /// The refill rate is higher than a [`Rate`] can be.
    #[error(
        "{amount} in {window:?} is above the highest refill rate, {} a second: state a longer window",
        Rate::MAX
    )]
    TooFast {
        /// What flows back in the window.
        amount: Amount,
        /// The window, with what lies between starts and arrivals.
        window: Duration,
    },
    /// The kind cannot change while the row is in use: slots come back by release, tokens by time.
    #[error(
        "a bucket cannot change from {from} to {to}: while nobody uses the bucket, remove it and apply it again"
    )]
    KindChange {
        /// The type in the table.
        from: LimitType,
        /// The requested type.
        to: LimitType,
    },
}

impl Limit {
    /// A limit over time: `capacity` is the largest burst, `rate` the refill rate.
    ///
    /// # Errors
    /// [`InvalidLimit`] for a capacity or rate of zero, a cost above the capacity, and the type `concurrent`.
    pub fn rate(
        limit_type: LimitType,
        capacity: Amount,
        rate: Rate,
        cost_per_call: Cost,
    ) -> Result<Self, InvalidLimit> {
        if limit_type == LimitType::Concurrent {
            return Err(InvalidLimit::Refill);
        }
        if rate.is_zero() {
            return Err(InvalidLimit::NoRefill(limit_type));
        }
        Self::checked(Self { limit_type, capacity, rate, cost_per_call })
    }

    /// A limit on calls at the same time: `capacity` slots, of which a call takes `cost_per_call`.
    ///
    /// # Errors
    /// [`InvalidLimit`] for a capacity of zero and a cost above the capacity.
    pub fn concurrent(capacity: Amount, cost_per_call: Cost) -> Result<Self, InvalidLimit> {
        Self::checked(Self { limit_type: LimitType::Concurrent, capacity, rate: Rate::ZERO, cost_per_call })
    }

    fn checked(self) -> Result<Self, InvalidLimit> {
        let Self { capacity, cost_per_call: cost, .. } = self;
        if capacity <= Amount::ZERO {
            return Err(InvalidLimit::Capacity(capacity));
        }
        if cost.amount() > capacity {
            return Err(InvalidLimit::Cost { cost, capacity });
        }
        Ok(self)
    }

    /// What the bucket counts.
    #[must_use]
    pub const fn limit_type(&self) -> LimitType {
        self.limit_type
    }

    /// Whether the bucket counts slots, which come back by release and not by time.
    #[must_use]
    pub const fn is_concurrent(&self) -> bool {
        matches!(self.limit_type, LimitType::Concurrent)
    }

    /// The most tokens (or slots) that the bucket holds.
    #[must_use]
    pub const fn capacity(&self) -> Amount {
        self.capacity
    }

    /// The refill rate; zero for concurrency.
    #[must_use]
    pub const fn refill_rate(&self) -> Rate {
        self.rate
    }

    /// The cost of a call that names no cost.
    #[must_use]
    pub const fn cost_per_call(&self) -> Cost {
        self.cost_per_call
    }

    /// The cost of a call that names none, if somebody chose it. `None` for a bucket of tokens whose
    /// `cost_per_call` is 1, the value of a bucket that declares none: no call uses one token, and a
    /// forgotten cost would be charged as one.
    #[must_use]
    pub fn default_cost(&self) -> Option<Cost> {
        let is_stated = self.limit_type != LimitType::Tokens || self.cost_per_call != Cost::ONE;
        is_stated.then_some(self.cost_per_call)
    }

    /// The limit of one line of the bucket. A call of the default cost takes no more than the line holds.
    pub(crate) fn of_line(&self, capacity: Amount, rate: Rate) -> Result<Self, InvalidLimit> {
        let cost_per_call =
            Cost::new(self.cost_per_call.amount().min(capacity)).unwrap_or(self.cost_per_call);
        if !self.is_concurrent() && rate.is_zero() {
            return Err(InvalidLimit::NoRefill(self.limit_type));
        }
        Self::checked(Self { capacity, rate, cost_per_call, ..*self })
    }

    /// The limit of this line and another together.
    pub(crate) fn with(&self, other: &Self) -> Self {
        let (capacity, rate) = (self.capacity.plus(other.capacity), self.rate.plus(other.rate));
        Self { capacity, rate, cost_per_call: self.cost_per_call.max(other.cost_per_call), ..*self }
    }

    /// The lower limit if the vendor reports `reported` in each `window` (calls at once, for concurrency,
    /// whose window is zero): refill rate and burst are lowered in proportion, and the burst keeps room for
    /// one call of the default cost. `None` if it is not lower by at least a hundredth (a refill rate is
    /// often written with few decimals), if nothing would flow back, or if a quota of a window is compared
    /// with calls at once.
    #[must_use]
    pub fn lowered_to(&self, reported: Amount, window: Duration) -> Option<Self> {
        let one_call = self.cost_per_call.amount();
        if self.is_concurrent() {
            let slots = reported.max(one_call);
            let is_lower = window.is_zero() && slots < self.capacity;
            return Self::concurrent(slots, self.cost_per_call).ok().filter(|_| is_lower);
        }
        let own = self.rate.accrued_floor(window);
        if reported >= own.fraction(99, 100) {
            return None;
        }
        let rate = Rate::per(reported, window)?;
        let capacity =
            i128::from(self.capacity.micros()) * i128::from(reported.micros()) / i128::from(own.micros());
        let capacity = Amount::clamped(capacity).max(one_call);
        Self::rate(self.limit_type, capacity, rate, self.cost_per_call).ok()
    }

    /// The least limit that a bucket of this limit adopts from its vendor if nobody chose one: a tenth, as
    /// requests or tokens a minute. For concurrency, a tenth of the slots in whole slots, and at least one
    /// call.
    #[must_use]
    pub fn default_floor(&self) -> Amount {
        if self.is_concurrent() {
            return self.capacity.fraction(1, 10).whole().max(self.cost_per_call.amount());
        }
        self.rate.per_minute().fraction(1, 10)
    }

    /// `numerator / denominator` of the limit, rounded down; `None` if that has no room for one call.
    #[must_use]
    pub fn share(&self, numerator: u32, denominator: u32) -> Option<Self> {
        let capacity = self.capacity.fraction(numerator, denominator);
        Self::checked(Self { capacity, rate: self.rate.fraction(numerator, denominator), ..*self }).ok()
    }
}
