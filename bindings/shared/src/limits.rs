//! Limits, as JSON.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use sluice_sdk::core::{Amount, Cost, DeclaredShare, Limit, LimitType, Rate, ShareName, Split};

use crate::arguments::{Ms, Number};
use crate::failure::Failure;
use crate::values::ToJson;
use crate::words::tokens;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LimitAsked {
    r#type: String,
    capacity: Number,
    /// By default a minute.
    per_ms: Option<Ms>,
    /// By default the capacity.
    refill: Option<Number>,
    cost_per_call: Option<Number>,
}

/// A number of tokens or slots.
fn amount(name: &str, number: Number) -> Result<Amount, Failure> {
    let text = number.to_string();
    text.parse().map_err(|error| Failure::argument(format!("{name} = {text}: {error}")))
}

pub(crate) fn level(level: Option<Number>) -> Result<Option<Amount>, Failure> {
    level.map(|level| amount("level", level)).transpose()
}

impl LimitAsked {
    pub(crate) fn limit(self) -> Result<Limit, Failure> {
        let limit_type: LimitType = self.r#type.parse().map_err(|_| {
            Failure::argument(format!("type = {:?}: it must be requests, tokens or concurrent", self.r#type))
        })?;
        let capacity = amount("capacity", self.capacity)?;
        let cost = match self.cost_per_call {
            None => Cost::ONE,
            Some(number) => Cost::new(amount("costPerCall", number)?)
                .map_err(|error| Failure::argument(format!("costPerCall = {number}: {error}")))?,
        };
        if limit_type == LimitType::Concurrent {
            return Limit::concurrent(capacity, cost).map_err(Failure::argument);
        }
        let refill = self.refill.map_or(Ok(capacity), |refill| amount("refill", refill))?;
        let window = self.per_ms.map_or(std::time::Duration::from_secs(60), |Ms(window)| window);
        let rate = Rate::per(refill, window)
            .ok_or_else(|| Failure::argument("the refill in this time is out of range"))?;
        Limit::rate(limit_type, capacity, rate, cost).map_err(Failure::argument)
    }
}

/// A share: its part, or more of it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum ShareAsked {
    Part(Number),
    More(ShareTerms),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShareTerms {
    part: Number,
    floor: Option<Number>,
    #[serde(default)]
    background: bool,
}

/// A limit that is split into these shares.
pub(crate) fn split(whole: Limit, asked: BTreeMap<String, ShareAsked>) -> Result<Split, Failure> {
    let declared = asked.into_iter().map(|(name, asked)| {
        let ShareTerms { part, floor, background } = match asked {
            ShareAsked::Part(part) => ShareTerms { part, floor: None, background: false },
            ShareAsked::More(terms) => terms,
        };
        let name = ShareName::new(&name).map_err(Failure::argument)?;
        let part = part.to_string().parse().map_err(|_| {
            let must = "it must be above 0 and below 1, as in 0.3";
            Failure::argument(format!("share {name}: part = {part}: {must}"))
        })?;
        let floor = floor.map(|floor| amount("floor", floor)).transpose()?;
        Ok(DeclaredShare { name, part, floor, background })
    });
    Split::new(whole, &declared.collect::<Result<Vec<_>, Failure>>()?).map_err(Failure::argument)
}

/// As requests or tokens a minute, or slots.
impl ToJson for Limit {
    fn to_json(&self) -> Value {
        let cost = self.default_cost().map(|cost| tokens(cost.amount()));
        let (kind, capacity) = (self.limit_type().as_str(), tokens(self.capacity()));
        if self.is_concurrent() {
            return json!({ "type": kind, "capacity": capacity, "costPerCall": cost });
        }
        let refill = tokens(self.refill_rate().per_minute());
        json!({ "type": kind, "capacity": capacity, "perMs": 60_000, "refill": refill, "costPerCall": cost })
    }
}
