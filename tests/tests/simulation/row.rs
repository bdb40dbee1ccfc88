//! Rows as the engine's JSON has them, read without core's arithmetic: what is checked must not be what
//! checks.

use std::collections::BTreeMap;

use serde_json::Value;

/// A millionth of a token, or a microsecond.
pub(crate) type Micros = i128;

/// What the checks need of a bucket.
#[derive(Clone, Debug, Default)]
pub(crate) struct BucketRow {
    pub(crate) capacity: Micros,
    pub(crate) tokens: Micros,
    /// Picotokens a second.
    pub(crate) rate: i128,
    pub(crate) anchor: Micros,
    /// When an anchor of the future was moved back last.
    pub(crate) repaired_at: Option<Micros>,
    pub(crate) version: i128,
    pub(crate) concurrent: bool,
    /// Until when nothing may be granted.
    pub(crate) blocked_until: Option<Micros>,
    /// Until when callers wait for slots.
    pub(crate) waited_until: Option<Micros>,
    /// What replies of the vendor lowered so far, and after which write its last one counted.
    pub(crate) observed: Micros,
    pub(crate) observed_version: Micros,
    /// Slots granted so far.
    pub(crate) admitted: Micros,
    /// The leases in it, by their ids.
    pub(crate) inline: BTreeMap<String, InlineRow>,
}

/// A lease in the row of its bucket.
#[derive(Clone, Debug)]
pub(crate) struct InlineRow {
    pub(crate) cost: Micros,
    /// In microseconds.
    pub(crate) ends: Micros,
    /// The process, by the ids that it draws.
    pub(crate) caller: String,
}

/// What the checks need of a lease.
#[derive(Clone, Debug)]
pub(crate) struct LeaseRow {
    pub(crate) dimension: String,
    pub(crate) cost: Micros,
    /// In microseconds.
    pub(crate) ends: Micros,
    pub(crate) caller: String,
    pub(crate) purge_at: Option<Micros>,
}

/// What the checks need of a load row; zero is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadRow {
    pub(crate) pending: Micros,
    pub(crate) taken: Micros,
    pub(crate) admitted: Micros,
    pub(crate) uncounted: Micros,
    /// Picotokens a second.
    pub(crate) rate: i128,
    pub(crate) at: Micros,
    pub(crate) sequence: Micros,
    pub(crate) pending_since: Micros,
    pub(crate) refused: Micros,
    /// The number of the period, and the processes of it and of the one before.
    pub(crate) crowd: [Micros; 3],
}

/// What the checks need of the table's mark; zero is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MarkRow {
    pub(crate) healed_at: Micros,
    pub(crate) heal_after: Micros,
}

impl MarkRow {
    pub(crate) fn read(row: &Value) -> Self {
        let read = |attribute| number(row, attribute, 6).unwrap_or_default();
        Self { healed_at: read("healed_at"), heal_after: read("heal_after") }
    }
}

impl LoadRow {
    pub(crate) fn read(row: &Value) -> Self {
        let read = |attribute, decimals| number(row, attribute, decimals).unwrap_or_default();
        Self {
            pending: read("pending", 6),
            taken: read("taken", 6),
            admitted: read("admitted", 6),
            uncounted: read("uncounted", 0),
            rate: read("drain_rate", 12),
            at: read("measured_at", 6),
            sequence: read("sequence", 0),
            pending_since: read("pending_since", 6),
            refused: read("refused", 0),
            crowd: ["crowd_period", "crowd", "crowd_before"].map(|name| read(name, 0)),
        }
    }
}

impl BucketRow {
    pub(crate) fn read(row: &Value) -> Option<Self> {
        Some(Self {
            capacity: number(row, "capacity", 6)?,
            tokens: number(row, "tokens", 6)?,
            rate: number(row, "refill_rate", 12)?,
            anchor: number(row, "last_refill_at", 6)?,
            repaired_at: number(row, "repaired_at", 6),
            version: number(row, "version", 0)?,
            concurrent: row["limit_type"]["S"].as_str()? == "concurrent",
            blocked_until: number(row, "blocked_until", 6),
            waited_until: number(row, "waited_until", 6),
            observed: number(row, "observed", 6).unwrap_or(0),
            observed_version: number(row, "observed_version", 0).unwrap_or(0),
            admitted: number(row, "admitted", 6).unwrap_or(0),
            inline: row["leases"]["M"]
                .as_object()
                .into_iter()
                .flatten()
                .filter_map(InlineRow::read)
                .collect(),
        })
    }

    /// The line at `at`, flat before its anchor, not capped, rounded down.
    pub(crate) fn line(&self, at: Micros) -> Micros {
        self.tokens + (self.rate * (at - self.anchor).max(0)).div_euclid(1_000_000_000_000)
    }

    /// What flows back in `micros`.
    pub(crate) const fn flows_back_in(&self, micros: Micros) -> Micros {
        self.rate * micros / 1_000_000_000_000
    }

    /// When the line is at zero, rounded up.
    pub(crate) const fn reaches_zero(&self) -> Micros {
        self.anchor - (self.tokens * 1_000_000_000_000).div_euclid(self.rate)
    }
}

impl InlineRow {
    fn read((id, lease): (&String, &Value)) -> Option<(String, Self)> {
        let (cost, ends) = (number(&lease["M"], "c", 6)?, number(&lease["M"], "t", 6)?);
        let caller = id.rsplit_once('-').map_or("", |(process, _)| process).to_owned();
        Some((id.clone(), Self { cost, ends, caller }))
    }
}

impl LeaseRow {
    pub(crate) fn read(row: &Value) -> Option<Self> {
        Some(Self {
            dimension: row["dimension"]["S"].as_str()?.to_owned(),
            cost: number(row, "cost", 6)?,
            ends: number(row, "ttl", 6)?,
            caller: row["caller"]["S"].as_str().unwrap_or_default().to_owned(),
            purge_at: number(row, "purge_at", 6),
        })
    }
}

/// A number attribute, scaled by so many decimals and rounded down.
pub(crate) fn number(row: &Value, attribute: &str, decimals: usize) -> Option<i128> {
    let text = row[attribute]["N"].as_str()?;
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let kept: String = fraction.chars().chain(std::iter::repeat('0')).take(decimals).collect();
    let scaled: i128 = format!("{whole}{kept}").parse().ok()?;
    let lost = fraction.len() > decimals && fraction[decimals..].chars().any(|digit| digit != '0');
    Some(if sign < 0 { -scaled - i128::from(lost) } else { scaled })
}

#[test]
fn numbers_are_read_exactly_and_rounded_down() {
    let row = serde_json::json!({ "a": { "N": "-0.0000015" }, "b": { "N": "46.5" }, "c": { "N": "1709550002.123456" } });
    assert_eq!(number(&row, "a", 6), Some(-2));
    assert_eq!(number(&row, "b", 6), Some(46_500_000));
    assert_eq!(number(&row, "c", 6), Some(1_709_550_002_123_456));
}
