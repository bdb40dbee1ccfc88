//! What a vendor allows, and how a bucket's row follows when that changes.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::amount::{Amount, Cost};
use crate::bucket::Bucket;
use crate::rate::Rate;
use crate::schema::{CAPACITY, COST_PER_CALL, COUNTED, LAST_REFILL_AT, LIMIT_TYPE, REFILL_RATE, TOKENS, VERSION};
use crate::statement::{Operand, Statement, Update};
use crate::timestamp::Timestamp;

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

/// Interleaving that the condition stops: another change of limits, or a caller's re-anchor, lands between the read and this
/// write; the relative step would then be taken from another line. A spend in between is harmless and must not be in the way,
/// so the version is not compared.
static CHANGE_RATE: Statement = Statement::fixed(
    "SET #T = #T + :d, #A = :t, #C = :C, #R = :R, #k = :k, #l = :l, #v = #v + :1",
    "#A = :a AND #R = :r AND #C = :c AND #T <= :hi",
    CHANGE_NAMES,
);

/// As above, where the bucket is full: the level is the capacity, whatever the line says.
static CHANGE_RATE_FULL: Statement = Statement::fixed(
    "SET #T = :T, #A = :t, #C = :C, #R = :R, #k = :k, #l = :l, #v = #v + :1",
    "#A = :a AND #R = :r AND #C = :c AND #T > :hi",
    CHANGE_NAMES,
);

const CHANGE_NAMES: &[(&str, &str)] = &[
    ("#T", TOKENS),
    ("#A", LAST_REFILL_AT),
    ("#C", CAPACITY),
    ("#R", REFILL_RATE),
    ("#k", COST_PER_CALL),
    ("#l", LIMIT_TYPE),
    ("#v", VERSION),
];

/// Interleavings that the condition stops: two resizes from one reading would add the difference twice (C); the bucket was removed and made
/// anew as a limit over time since, of the same capacity, and would gain tokens (l).
static RESIZE: Statement = Statement::fixed(
    "SET #T = #T + :d, #C = :C, #k = :k, #v = #v + :1, #w = if_not_exists(#w, :0) + :1",
    "#l = :l AND #C = :c",
    &[("#T", TOKENS), ("#C", CAPACITY), ("#k", COST_PER_CALL), ("#v", VERSION), ("#w", COUNTED), ("#l", LIMIT_TYPE)],
);

/// A change of a bucket's limits that keeps its level.
pub struct Change;

impl Change {
    /// The write that gives `bucket` the limits `to` at `now`: a rate bucket keeps the level it has reached at the old rate
    /// (re-anchored, relative), a concurrency bucket gains or loses free slots and may go below zero until holders release.
    ///
    /// # Errors
    /// [`LimitError::KindChange`] between rate and concurrency.
    pub fn plan(bucket: &Bucket, to: &Limit, now: Timestamp) -> Result<Update, LimitError> {
        let from = bucket.limit();
        if from.is_concurrent() != to.is_concurrent() {
            return Err(LimitError::KindChange { from: from.limit_type(), to: to.limit_type() });
        }
        Ok(if to.is_concurrent() { Self::resize(bucket, to) } else { Self::rate(bucket, to, now) })
    }

    fn resize(bucket: &Bucket, to: &Limit) -> Update {
        Update {
            key: bucket.key(),
            statement: Cow::Borrowed(&RESIZE),
            values: alloc::vec![
                (":d", Operand::number(to.capacity.minus(bucket.limit().capacity))),
                (":C", Operand::number(to.capacity)),
                (":k", Operand::number(to.cost_per_call)),
                (":c", Operand::number(bucket.capacity_as_read())),
                (":l", Operand::text(LimitType::Concurrent)),
                (":0", Operand::number(0)),
                (":1", Operand::number(1)),
            ],
        }
    }

    fn rate(bucket: &Bucket, to: &Limit, now: Timestamp) -> Update {
        let from = bucket.limit();
        // The anchor must move, so that a write planned before this change cannot pass after it.
        let at = now.max(bucket.anchor().after(Duration::from_micros(1)));
        let line = bucket.line();
        let brim = from.capacity.minus(line.accrued_ceil(at));
        let full = bucket.tokens() > brim;
        let tokens =
            if full { (":T", Operand::number(from.capacity)) } else { (":d", Operand::number(line.accrued_floor(at))) };
        Update {
            key: bucket.key(),
            statement: Cow::Borrowed(if full { &CHANGE_RATE_FULL } else { &CHANGE_RATE }),
            values: alloc::vec![
                tokens,
                (":t", Operand::number(at)),
                (":C", Operand::number(to.capacity)),
                (":R", Operand::number(to.rate)),
                (":k", Operand::number(to.cost_per_call)),
                (":l", Operand::text(to.limit_type)),
                (":a", Operand::number(bucket.anchor_as_read())),
                (":r", Operand::number(bucket.rate_as_read())),
                (":c", Operand::number(bucket.capacity_as_read())),
                (":hi", Operand::number(brim)),
                (":1", Operand::number(1)),
            ],
        }
    }
}
