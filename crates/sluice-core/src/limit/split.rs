//! How the limit of a bucket is split into shares, as an operator declares it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{InvalidLimit, Limit};
use crate::amount::{Amount, Cost};
use crate::factor::Factor;
use crate::rate::Rate;
use crate::share::ShareName;

/// The most shares of a bucket. Each write pays for the whole row: with all of them it is about 1 KB, so a
/// write costs one unit, or two where all shares have floors of their own and are background work.
pub const MOST_SHARES: usize = 16;

/// One share as it is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredShare {
    /// Its name.
    pub name: ShareName,
    /// The part of the bucket's capacity and refill rate that it is guaranteed.
    pub part: Factor,
    /// What others leave in its line when they borrow, in tokens. `None`: a quarter of its capacity, and at
    /// least one call.
    pub floor: Option<Amount>,
    /// Whether it is for background work: it is the last to borrow, and others may empty its line.
    pub background: bool,
}

/// A limit, and how it is split into shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    whole: Limit,
    common: Limit,
    shares: Vec<ShareLimit>,
}

/// The line of one share, as it is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareLimit {
    /// The share.
    pub name: ShareName,
    /// Its capacity and refill rate.
    pub limit: Limit,
    /// As [`DeclaredShare::floor`].
    pub floor: Option<Amount>,
    /// As [`DeclaredShare::background`].
    pub background: bool,
}

/// Why a limit cannot be split like this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSplit {
    /// A name appears twice.
    #[error("the share {0} is declared twice")]
    Twice(ShareName),
    /// More than the row should hold.
    #[error("{0} shares are more than the {MOST_SHARES} that a bucket can have")]
    TooMany(usize),
    /// The share has no room for a call.
    #[error(
        "the share {name} holds {capacity}, and a call takes {cost}: no call could ever be granted; raise the part or \
         the capacity, or lower cost_per_call"
    )]
    NoRoom {
        /// The share.
        name: ShareName,
        /// What it would hold.
        capacity: Amount,
        /// The default cost of a call.
        cost: Cost,
    },
    /// Nothing is left for callers that name no share.
    #[error("{}: lower the parts, so that one call fits", nothing_left(*.left, .cost))]
    NothingLeft {
        /// What would be left; below zero if the shares have more than the whole.
        left: Amount,
        /// The default cost of a call.
        cost: Cost,
    },
    /// More would stay than the share holds, or less than nothing.
    #[error(
        "the floor {floor} of the share {name} is not between 0 and its capacity {capacity}: above it, the share \
         would never lend, and below 0, others would take what is not there"
    )]
    Floor {
        /// The share.
        name: ShareName,
        /// Its floor.
        floor: Amount,
        /// What it holds.
        capacity: Amount,
    },
}

impl Split {
    /// Splits `whole` into `shares` and the common line, which has the rest. Each share has its part of the
    /// capacity and of the refill rate, rounded down; of slots, as many as whole calls take.
    ///
    /// # Errors
    /// [`InvalidSplit`]: a line without room for one call, a name that appears twice, too many shares, or a
    /// floor above the capacity.
    pub fn new(whole: Limit, declared: &[DeclaredShare]) -> Result<Self, InvalidSplit> {
        if declared.len() > MOST_SHARES {
            return Err(InvalidSplit::TooMany(declared.len()));
        }
        let (mut shares, mut capacity, mut rate) = (Vec::new(), whole.capacity(), whole.refill_rate());
        for DeclaredShare { name, part, floor, background } in declared {
            let limit = line_of(&whole, *part).ok_or_else(|| InvalidSplit::NoRoom {
                name: name.clone(),
                capacity: part.of(whole.capacity()),
                cost: whole.cost_per_call(),
            })?;
            if let Some(floor) = floor.filter(|floor| !(Amount::ZERO..=limit.capacity()).contains(floor)) {
                return Err(InvalidSplit::Floor { name: name.clone(), floor, capacity: limit.capacity() });
            }
            (capacity, rate) = (capacity.minus(limit.capacity()), rate.minus(limit.refill_rate()));
            shares.push(ShareLimit { name: name.clone(), limit, floor: *floor, background: *background });
        }
        shares.sort_by(|one, other| one.name.cmp(&other.name));
        if let Some(twice) = shares.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(InvalidSplit::Twice(twice[0].name.clone()));
        }
        let common = whole_call_line(&whole, capacity, rate);
        let common =
            common.ok_or(InvalidSplit::NothingLeft { left: capacity, cost: whole.cost_per_call() })?;
        Ok(Self { whole, common, shares })
    }

    /// The same shares of another limit, each line in proportion: for a bucket that adopts a lower limit of
    /// its vendor.
    ///
    /// # Errors
    /// [`InvalidLimit`] if a line would have no room for a call or nothing that flows back, or if the bucket
    /// changes between rate and concurrency.
    pub fn scaled_to(&self, whole: Limit) -> Result<Self, InvalidLimit> {
        if self.shares.is_empty() {
            return Ok(Self::from(whole));
        }
        if whole.is_concurrent() != self.whole.is_concurrent() {
            return Err(InvalidLimit::KindChange { from: self.whole.limit_type(), to: whole.limit_type() });
        }
        let (from, call) = (&self.whole, whole.cost_per_call().amount());
        let of_line = |share: &ShareLimit| {
            let capacity = share.limit.capacity().scaled(whole.capacity(), from.capacity());
            if whole.is_concurrent() { capacity.in_calls(call) } else { capacity }
        };
        let mut capacities: Vec<Amount> = self.shares.iter().map(|share| of_line(share).max(call)).collect();
        let rest =
            |capacities: &[Amount]| capacities.iter().fold(whole.capacity(), |rest, one| rest.minus(*one));
        // Each line keeps room for a call, and the largest pay for it.
        let mut lacking = call.minus(rest(&capacities)).max(Amount::ZERO);
        for _ in 0..capacities.len() {
            let Some(largest) = capacities.iter_mut().max() else { break };
            let pays = lacking.min(largest.minus(call));
            (*largest, lacking) = (largest.minus(pays), lacking.minus(pays));
        }
        let mut rate = whole.refill_rate();
        let mut shares = Vec::with_capacity(self.shares.len());
        for (share, capacity) in self.shares.iter().zip(&capacities) {
            let own_rate = share.limit.refill_rate().scaled_by(whole.refill_rate(), from.refill_rate());
            rate = rate.minus(own_rate);
            let limit = whole.of_line(*capacity, own_rate)?;
            // A floor that is stated in tokens shrinks with its line.
            let floor = share.floor.map(|floor| floor.scaled(limit.capacity(), share.limit.capacity()));
            shares.push(ShareLimit { limit, floor, ..share.clone() });
        }
        let capacity = rest(&capacities);
        if capacity < call {
            return Err(InvalidLimit::Cost { cost: whole.cost_per_call(), capacity });
        }
        Ok(Self { whole, common: whole.of_line(capacity, rate)?, shares })
    }

    /// The split that a row states.
    pub(crate) const fn read(whole: Limit, common: Limit, shares: Vec<ShareLimit>) -> Self {
        Self { whole, common, shares }
    }

    /// The limit of the whole bucket.
    #[must_use]
    pub const fn whole(&self) -> &Limit {
        &self.whole
    }

    /// The limit of callers that name no share.
    #[must_use]
    pub const fn common(&self) -> &Limit {
        &self.common
    }

    /// The shares, sorted by name.
    #[must_use]
    pub fn shares(&self) -> &[ShareLimit] {
        &self.shares
    }
}

impl From<Limit> for Split {
    /// A limit without shares.
    fn from(limit: Limit) -> Self {
        Self { whole: limit, common: limit, shares: Vec::new() }
    }
}

fn nothing_left(left: Amount, cost: &Cost) -> String {
    let left = match left < Amount::ZERO {
        true => format!("the shares have {} more than the whole limit, and leave nothing", left.abs()),
        false => format!("the shares leave {left}"),
    };
    format!("{left} for callers that name no share, and a call takes {cost}")
}

fn line_of(whole: &Limit, part: Factor) -> Option<Limit> {
    let (numerator, denominator) = part.ratio();
    let capacity = match whole.is_concurrent() {
        true => part.of(whole.capacity()).in_calls(whole.cost_per_call().amount()),
        false => part.of(whole.capacity()),
    };
    whole_call_line(whole, capacity, whole.refill_rate().fraction(numerator, denominator))
}

/// A line with room for a call of the default cost.
fn whole_call_line(whole: &Limit, capacity: Amount, rate: Rate) -> Option<Limit> {
    let line: Result<Limit, InvalidLimit> = whole.of_line(capacity, rate);
    line.ok().filter(|line| line.cost_per_call() == whole.cost_per_call())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::LimitType;
    use core::time::Duration;
    use proptest::prelude::*;
    use std::string::ToString as _;
    use std::vec;

    fn limit(capacity: i32) -> Limit {
        let capacity = Amount::from_tokens(capacity);
        let rate = Rate::per(capacity, Duration::from_secs(60)).unwrap();
        Limit::rate(LimitType::Requests, capacity, rate, Cost::ONE).unwrap()
    }

    fn share(name: &str, part: &str) -> DeclaredShare {
        let (name, part) = (ShareName::new(name).unwrap(), part.parse().unwrap());
        DeclaredShare { name, part, floor: None, background: false }
    }

    #[test]
    fn each_line_has_its_part_and_the_common_line_has_the_rest() {
        let split = Split::new(limit(100), &[share("search", "0.5"), share("checkout", "0.3")]).unwrap();
        let lines: Vec<_> =
            split.shares().iter().map(|s| (s.name.as_str(), s.limit.capacity().to_string())).collect();
        assert_eq!(lines, [("checkout", "30".into()), ("search", "50".into())]);
        assert_eq!(split.common().capacity().to_string(), "20");
    }

    #[test]
    fn what_cannot_be_split_says_what_to_do() {
        let of = |shares: &[DeclaredShare]| Split::new(limit(10), shares).unwrap_err().to_string();
        assert!(of(&[share("a", "0.05")]).contains("the share a holds 0.5, and a call takes 1"));
        assert!(of(&[share("a", "1")]).contains("leave 0 for callers that name no share"));
        assert!(of(&[share("a", "0.2"), share("a", "0.2")]).contains("twice"));
        for floor in [6, -1] {
            let declared = DeclaredShare { floor: Some(Amount::from_tokens(floor)), ..share("a", "0.5") };
            let why = std::format!("the floor {floor} of the share a is not between 0 and its capacity 5");
            assert!(of(&[declared]).contains(&why), "{floor}");
        }
        let many: Vec<_> = (0..17).map(|n| share(&std::format!("s{n}"), "0.01")).collect();
        assert_eq!(Split::new(limit(10_000), &many).unwrap_err(), InvalidSplit::TooMany(17));
    }

    #[test]
    fn slots_are_split_into_whole_calls() {
        let slots = |capacity| Limit::concurrent(Amount::from_tokens(capacity), Cost::ONE).unwrap();
        let split = Split::new(slots(11), &[share("search", "0.5"), share("batch", "0.3")]).unwrap();
        let of = |split: &Split| {
            let shares: Vec<_> =
                split.shares().iter().map(|share| share.limit.capacity().to_string()).collect();
            (shares, split.common().capacity().to_string())
        };
        assert_eq!(of(&split), (vec!["3".into(), "5".into()], "3".into()));
        assert_eq!(of(&split.scaled_to(slots(5)).unwrap()), (vec!["1".into(), "2".into()], "2".into()));
        assert!(split.scaled_to(slots(2)).is_err(), "three lines, and two calls");
    }

    /// A line that is too small for a call would have its calls cheaper than they are.
    #[test]
    fn a_lower_limit_leaves_each_line_room_for_a_call() {
        let split = Split::new(limit(100), &[share("search", "0.5"), share("batch", "0.49")]).unwrap();
        let lower = split.scaled_to(limit(50)).unwrap();
        let capacities: Vec<_> =
            lower.shares().iter().map(|share| share.limit.capacity().to_string()).collect();
        assert_eq!(
            (capacities, lower.common().capacity().to_string()),
            (vec!["24.5".into(), "24.5".into()], "1".into())
        );
        assert!(lower.shares().iter().all(|share| share.limit.cost_per_call() == Cost::ONE));
        let lowest = split.scaled_to(limit(3)).unwrap();
        assert_eq!(lowest.common().capacity().to_string(), "1");
        assert!(split.scaled_to(limit(2)).is_err(), "three lines, and two calls");
    }

    proptest! {
        #[test]
        fn the_lines_add_up_to_the_whole(
            capacity in 10_i32..1_000_000, parts in proptest::collection::vec(1_u32..300_000, 0..6),
        ) {
            let named = |(n, part): (usize, &u32)| share(&std::format!("s{n}"), &std::format!("0.{part:06}"));
            let declared: Vec<_> = parts.iter().enumerate().map(named).collect();
            let Ok(split) = Split::new(limit(capacity), &declared) else { return Ok(()) };
            let sum = split.shares().iter().fold(*split.common(), |sum, share| sum.with(&share.limit));
            prop_assert_eq!(sum.capacity(), split.whole().capacity());
            prop_assert_eq!(sum.refill_rate(), split.whole().refill_rate());
        }
    }
}
