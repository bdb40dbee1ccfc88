//! What a vendor allows.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::amount::{Amount, Cost};
use crate::rate::Rate;

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
    /// The name on the wire.
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
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        match text {
            "requests" => Ok(Self::Requests),
            "tokens" => Ok(Self::Tokens),
            "concurrent" => Ok(Self::Concurrent),
            _ => Err(LimitError::UnknownType(String::from(text))),
        }
    }
}

/// Capacity, refill rate and default cost of a bucket. One that exists makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    limit_type: LimitType,
    capacity: Amount,
    rate: Rate,
    cost_per_call: Cost,
}

/// Why numbers do not make a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// Not one of the three types.
    #[error("unknown limit type {0:?}: it takes requests, tokens or concurrent")]
    UnknownType(String),
    /// Nothing could ever be granted.
    #[error("capacity {0} must be above 0")]
    Capacity(Amount),
    /// A rate bucket that never refills.
    #[error("a limit of type {0} needs a refill rate above 0")]
    NoRefill(LimitType),
    /// A concurrency bucket refills by releases alone.
    #[error("a limit of type concurrent takes no refill rate or window")]
    Refill,
    /// A default call that could never be granted.
    #[error("cost_per_call {cost} is above the capacity {capacity}, so no call could ever be granted")]
    Cost {
        /// The default cost.
        cost: Cost,
        /// The capacity.
        capacity: Amount,
    },
    /// Slots come back by release, tokens by time: a row cannot turn from one into the other while it is in use.
    #[error("a bucket cannot change from {from} to {to}: remove it and apply it again when nobody uses it")]
    KindChange {
        /// The type in the table.
        from: LimitType,
        /// The type asked for.
        to: LimitType,
    },
}

impl Limit {
    /// A limit over time: `capacity` is the largest burst, `rate` what flows back.
    ///
    /// # Errors
    /// [`LimitError`] for a capacity or rate of zero, a cost above the capacity, and the type `concurrent`.
    pub fn rate(limit_type: LimitType, capacity: Amount, rate: Rate, cost_per_call: Cost) -> Result<Self, LimitError> {
        if limit_type == LimitType::Concurrent {
            return Err(LimitError::Refill);
        }
        if rate.is_zero() {
            return Err(LimitError::NoRefill(limit_type));
        }
        Self::checked(Self { limit_type, capacity, rate, cost_per_call })
    }

    /// A limit on calls at the same time: `capacity` slots, of which a call takes `cost_per_call`.
    ///
    /// # Errors
    /// [`LimitError`] for a capacity of zero and a cost above the capacity.
    pub fn concurrent(capacity: Amount, cost_per_call: Cost) -> Result<Self, LimitError> {
        Self::checked(Self { limit_type: LimitType::Concurrent, capacity, rate: Rate::ZERO, cost_per_call })
    }

    fn checked(self) -> Result<Self, LimitError> {
        let Self { capacity, cost_per_call: cost, .. } = self;
        if capacity <= Amount::ZERO {
            return Err(LimitError::Capacity(capacity));
        }
        if cost.amount() > capacity {
            return Err(LimitError::Cost { cost, capacity });
        }
        Ok(self)
    }

    /// What it counts.
    #[must_use]
    pub const fn limit_type(&self) -> LimitType {
        self.limit_type
    }

    /// Whether it counts slots that come back by release and not by time.
    #[must_use]
    pub const fn is_concurrent(&self) -> bool {
        matches!(self.limit_type, LimitType::Concurrent)
    }

    /// Most tokens (or slots) the bucket holds.
    #[must_use]
    pub const fn capacity(&self) -> Amount {
        self.capacity
    }

    /// What flows back; zero for concurrency.
    #[must_use]
    pub const fn refill_rate(&self) -> Rate {
        self.rate
    }

    /// What a call takes that names no cost.
    #[must_use]
    pub const fn cost_per_call(&self) -> Cost {
        self.cost_per_call
    }

    /// The limit that the vendor reports, `reported` in each `window` (calls at once, for concurrency), where that is lower: refill
    /// rate and burst in the same proportion. `None` where it is not lower by a hundredth at least (a refill rate is often written
    /// with few decimals), or leaves no room for one call.
    #[must_use]
    pub fn lowered_to(&self, reported: Amount, window: Duration) -> Option<Self> {
        if self.is_concurrent() {
            let is_lower = reported < self.capacity;
            return Self::concurrent(reported, self.cost_per_call).ok().filter(|_| is_lower);
        }
        let own = self.rate.accrued_floor(window);
        if reported >= own.fraction(99, 100) {
            return None;
        }
        let rate = Rate::per(reported, window)?;
        let capacity = i128::from(self.capacity.micros()) * i128::from(reported.micros()) / i128::from(own.micros());
        Self::rate(self.limit_type, Amount::clamped(capacity), rate, self.cost_per_call).ok()
    }

    /// `numerator / denominator` of the limit, rounded down, for a process that is on its own; `None` where that leaves no
    /// room for one call.
    #[must_use]
    pub fn share(&self, numerator: u32, denominator: u32) -> Option<Self> {
        let capacity = self.capacity.fraction(numerator, denominator);
        Self::checked(Self { capacity, rate: self.rate.fraction(numerator, denominator), ..*self }).ok()
    }
}
