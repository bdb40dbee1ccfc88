//! What `buckets apply` says of each bucket: what changed, or would.

use serde::Serialize;
use sluice_ops::Applied;
use sluice_sdk::core::{Dimension, Limit, OnLowerLimit, ShareLimit, Split};

use crate::output::{self, Decimal, GREEN, YELLOW, short};

#[derive(Debug, Serialize)]
pub(super) struct ChangeLine {
    dimension: String,
    pub(super) change: &'static str,
    from: Option<LimitLine>,
    to: LimitLine,
    /// The shares before, if they change.
    #[serde(skip_serializing_if = "Option::is_none")]
    shares_from: Option<Vec<ShareLine>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shares: Vec<ShareLine>,
    /// The new value, if it or the floor changes.
    adopt_lower_limit: Option<bool>,
    /// The new floor, if it changes: a minute, or at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    adopt_at_least: Option<Decimal>,
    /// A warning about the limit, or that its shares do not have all of their slots yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) warning: Option<String>,
}

impl ChangeLine {
    /// `then`: what the bucket does about a lower limit from now on, if that changes.
    pub(super) fn new(
        dimension: &Dimension,
        split: &Split,
        applied: &Applied,
        then: Option<OnLowerLimit>,
    ) -> Self {
        let limit = split.whole();
        let (change, from) = match applied {
            Applied::Created => ("created", None),
            Applied::Repaired => ("repaired", None),
            Applied::Changed { from } => ("changed", Some(LimitLine::new(from.whole()))),
            _ if then.is_some() => ("changed", Some(LimitLine::new(limit))),
            _ => ("unchanged", None),
        };
        let adopt_lower_limit = then.map(|then| then != OnLowerLimit::Report);
        let adopt_at_least = match then {
            Some(OnLowerLimit::Adopt { at_least }) => Some(Decimal::of(at_least)),
            _ => None,
        };
        let warning = limit.warning().map(|warning| warning.to_string());
        let (dimension, to, shares) = (dimension.to_string(), LimitLine::new(limit), ShareLine::all(split));
        let shares_from = match applied {
            Applied::Changed { from } => Some(ShareLine::all(from)).filter(|before| *before != shares),
            _ => None,
        };
        Self { dimension, change, from, to, shares_from, shares, adopt_lower_limit, adopt_at_least, warning }
    }

    /// With a message that begins with the bucket's name, as errors do.
    pub(super) fn with_warning(self, message: &str) -> Self {
        let warning = message.trim_start_matches(&format!("{}: ", self.dimension)).to_owned();
        Self { warning: Some(warning), ..self }
    }
}

/// A share, or the part that no share has.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct ShareLine {
    share: String,
    capacity: Decimal,
    refill_rate: Decimal,
    #[serde(skip_serializing_if = "Option::is_none")]
    floor: Option<Decimal>,
    background: bool,
}

impl ShareLine {
    fn new(ShareLimit { name, limit, floor, background }: &ShareLimit) -> Self {
        let (share, floor) = (name.to_string(), floor.map(Decimal::of));
        Self { floor, background: *background, ..Self::of(share, limit) }
    }

    fn of(share: String, limit: &Limit) -> Self {
        let (capacity, refill_rate) = (Decimal::of(limit.capacity()), Decimal::of(limit.refill_rate()));
        Self { share, capacity, refill_rate, floor: None, background: false }
    }

    /// All lines of a bucket with shares; none of a bucket without.
    fn all(split: &Split) -> Vec<Self> {
        if split.shares().is_empty() {
            return Vec::new();
        }
        let common = Self::of(sluice_sdk::core::COMMON.to_owned(), split.common());
        split.shares().iter().map(Self::new).chain([common]).collect()
    }

    fn describe(&self) -> String {
        let Self { share, capacity, refill_rate, floor, background } = self;
        let floor = floor.as_ref().map(|floor| format!(", floor {}", short(floor))).unwrap_or_default();
        let background = if *background { ", background" } else { "" };
        // Slots come back by release.
        let rate = if **refill_rate == *"0" {
            " at once".to_owned()
        } else {
            format!(", {} a second", short(refill_rate))
        };
        format!("{share}: {}{rate}{floor}{background}", short(capacity))
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct LimitLine {
    #[serde(rename = "type")]
    pub(super) limit_type: &'static str,
    pub(super) capacity: Decimal,
    pub(super) refill_rate: Decimal,
    pub(super) cost_per_call: Decimal,
    /// Whether a call that names no cost takes `cost_per_call`.
    #[serde(skip)]
    pub(super) has_default_cost: bool,
}

impl LimitLine {
    pub(super) fn new(limit: &Limit) -> Self {
        Self {
            limit_type: limit.limit_type().as_str(),
            capacity: Decimal::of(limit.capacity()),
            refill_rate: Decimal::of(limit.refill_rate()),
            cost_per_call: Decimal::of(limit.cost_per_call()),
            has_default_cost: limit.default_cost().is_some(),
        }
    }

    /// The least limit that the bucket adopts.
    pub(super) fn floor(&self, at_least: &str) -> String {
        let per = if self.limit_type == "concurrent" { "at once" } else { "a minute" };
        format!("{} {per}", short(at_least))
    }

    pub(super) fn describe(&self) -> String {
        let Self { limit_type, capacity, refill_rate, cost_per_call, has_default_cost } = self;
        match *limit_type {
            "concurrent" => format!("{capacity} at once, {cost_per_call} a call"),
            _ if !has_default_cost => {
                format!(
                    "a burst of {capacity} {limit_type}, {} a second, a call names its cost",
                    short(refill_rate)
                )
            }
            _ => format!(
                "a burst of {capacity} {limit_type}, {} a second, {cost_per_call} a call",
                short(refill_rate)
            ),
        }
    }
}

pub(super) fn print_changes(changes: &[ChangeLine]) {
    for line in changes {
        let ChangeLine { dimension, change, from, to, shares_from, shares, .. } = line;
        let ChangeLine { adopt_lower_limit, adopt_at_least, warning, .. } = line;
        let (sign, style) = match *change {
            "created" => ("+", GREEN),
            "changed" | "repaired" => ("~", YELLOW),
            _ => ("=", output::DIM),
        };
        let (on, off) = (style.render(), style.render_reset());
        match from {
            None => anstream::println!("{on}{sign} {dimension:<28}{off} {}", to.describe()),
            Some(from) => {
                anstream::println!("{on}{sign} {dimension:<28}{off} {}", from.describe());
                // Its shares change, or what it does about a lower limit.
                if from.describe() != to.describe() {
                    anstream::println!("  {:<28} -> {}", "", to.describe());
                } else if *change == "changed" && shares_from.is_none() && adopt_lower_limit.is_none() {
                    anstream::println!("  {:<28} goes on with the change of its shares", "");
                }
            }
        }
        if let Some(before) = shares_from {
            before.iter().for_each(|share| anstream::println!("  {:<28} was {}", "", share.describe()));
        }
        if shares_from.is_some() || *change == "created" {
            shares.iter().for_each(|share| anstream::println!("  {:<28} {}", "", share.describe()));
        }
        match adopt_lower_limit {
            Some(true) => {
                let down_to = to.floor(adopt_at_least.as_deref().unwrap_or_default());
                anstream::println!(
                    "  {:<28} adopts a lower limit that the vendor reports, down to {down_to}",
                    ""
                );
            }
            Some(false) => anstream::println!("  {:<28} keeps its limit, whatever the vendor reports", ""),
            None => {}
        }
        if *change == "repaired" {
            anstream::println!("  {:<28} its anchor was in the future, and was moved back", "");
        }
        if let Some(warning) = warning {
            anstream::eprintln!(
                "{}warning:{} {dimension}: {warning}",
                YELLOW.render(),
                YELLOW.render_reset()
            );
        }
    }
}
