//! The fields of a `[[bucket]]`, each read by itself, so that one fault does not hide the others.

use std::str::FromStr;
use std::time::Duration;

use sluice_core::{Amount, Cost, Dimension, LimitType, Rate};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::place::{Faulty, Field, Place};

/// A bucket whose fields make sense, each by itself.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) dimension: Field<Dimension>,
    pub(super) limit_type: Field<LimitType>,
    pub(super) capacity: Option<Field<Amount>>,
    pub(super) limit: Option<Field<Amount>>,
    pub(super) window: Option<Field<Duration>>,
    pub(super) refill_rate: Option<Field<Rate>>,
    pub(super) counts: Option<Field<CountedIn>>,
    pub(super) arrival_jitter: Option<Field<Duration>>,
    pub(super) cost_per_call: Option<Field<Cost>>,
    pub(super) adopt_lower_limit: bool,
    pub(super) adopt_at_least: Option<Field<Amount>>,
    pub(super) shares: Vec<(Field<String>, Field<WrittenShare>)>,
}

/// How the vendor counts. One that starts anew in each window is the same as a sliding one: a bucket does not
/// know when the vendor's window begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountedIn {
    Bucket,
    AnyWindow,
}

/// A share as it is written: `0.5`, or `{ part = 0.5, floor = 10, background = true }`.
#[derive(Debug)]
pub(super) struct WrittenShare {
    pub(super) part: sluice_core::Factor,
    pub(super) floor: Option<Amount>,
    pub(super) background: bool,
}

const FIELDS: [&str; 12] = [
    "dimension",
    "type",
    "capacity",
    "limit",
    "window",
    "refill_rate",
    "counts",
    "arrival_jitter",
    "cost_per_call",
    "adopt_lower_limit",
    "adopt_at_least",
    "shares",
];

const AMOUNT: &str = "a number above 0";
const RATE: &str = "a number of tokens a second, above 0";
pub(super) const WINDOW: &str =
    "a time above 0, as in \"60s\", \"1m\" (a minute) or \"24h\", and at most \"365d\"";
const JITTER: &str = "a time, as in \"170ms\" or \"1s\"";
const SHARE: &str =
    "a part above 0 and below 1, as in 0.5, or a table, as in { part = 0.5, floor = 10, background = true }";

/// The table of a bucket, whose fields are read one by one.
struct Reader<'a> {
    place: &'a Place<'a>,
    table: &'a DeTable<'a>,
    is_faulty: bool,
}

impl Declared {
    /// Reads a bucket that begins at `at`. Every field that cannot be used is noted.
    pub(super) fn read(place: &Place<'_>, table: &DeTable<'_>, at: usize) -> Result<Self, Faulty> {
        let mut reader = Reader { place, table, is_faulty: false };
        reader.check_names();
        let dimension = reader.field("dimension", name);
        let limit_type = reader.field("type", limit_type);
        let capacity = reader.field("capacity", amount);
        let limit = reader.field("limit", amount);
        let window =
            reader.field("window", |value| time(value).filter(|t| !t.is_zero()).ok_or_else(|| must(WINDOW)));
        let refill_rate = reader.field("refill_rate", rate);
        let counts = reader.field("counts", counts);
        let arrival_jitter = reader.field("arrival_jitter", |value| time(value).ok_or_else(|| must(JITTER)));
        let cost_per_call = reader.field("cost_per_call", |value| number(value).ok_or_else(|| must(AMOUNT)));
        let adopt =
            reader.field("adopt_lower_limit", |value| value.as_bool().ok_or_else(|| must("true or false")));
        let adopt_at_least = reader.field("adopt_at_least", floor);
        let shares = reader.shares();
        let dimension = reader.required(dimension, at, "dimension = \"openai#rpm\"");
        let limit_type = reader.required(limit_type, at, "type = \"requests\", \"tokens\" or \"concurrent\"");
        match (dimension, limit_type) {
            (Some(dimension), Some(limit_type)) if !reader.is_faulty => Ok(Self {
                dimension,
                limit_type,
                capacity,
                limit,
                window,
                refill_rate,
                counts,
                arrival_jitter,
                cost_per_call,
                adopt_lower_limit: adopt.is_some_and(|adopt| adopt.value),
                adopt_at_least,
                shares,
            }),
            _ => Err(Faulty),
        }
    }
}

impl<'a> Reader<'a> {
    fn get(&self, name: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table.iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value)
    }

    fn check_names(&mut self) {
        for key in self.table.keys().filter(|key| !FIELDS.contains(&key.get_ref().as_ref())) {
            let known = FIELDS.join(", ");
            self.place.note(
                key.span().start,
                format_args!("{}: a bucket has no such field; it has {known}", key.get_ref()),
            );
            self.is_faulty = true;
        }
    }

    /// The field, if it is there and makes sense. `read` says what it must be.
    fn field<T>(&mut self, name: &str, read: impl Fn(&DeValue<'_>) -> Result<T, String>) -> Option<Field<T>> {
        let written = self.get(name)?;
        match read(written.get_ref()) {
            Ok(value) => Some(Field::new(name, written, value)),
            Err(reason) => {
                self.place.fault_in(name, written.span(), reason);
                self.is_faulty = true;
                None
            }
        }
    }

    /// A field that every bucket has. One that is there and makes no sense is noted already.
    fn required<T>(&mut self, field: Option<Field<T>>, at: usize, example: &str) -> Option<Field<T>> {
        let name = example.split(' ').next().unwrap_or_default();
        if field.is_none() && self.get(name).is_none() && self.place.is_toml() {
            self.place.note(at, format_args!("this bucket has no {name}: add {example}"));
        }
        field
    }

    fn shares(&mut self) -> Vec<(Field<String>, Field<WrittenShare>)> {
        let Some(written) = self.get("shares") else { return Vec::new() };
        let Some(table) = written.get_ref().as_table() else {
            self.place.fault_in(
                "shares",
                written.span(),
                "write [bucket.shares], and below it a line for each share",
            );
            self.is_faulty = true;
            return Vec::new();
        };
        let mut shares = Vec::new();
        for (name, written) in table {
            match share(written.get_ref()) {
                Some(share) => {
                    let key = Field::at("share", name.span(), name.get_ref().clone().into_owned());
                    shares.push((key, Field::new(name.get_ref(), written, share)));
                }
                None => {
                    self.place.fault_in(name.get_ref(), written.span(), must(SHARE));
                    self.is_faulty = true;
                }
            }
        }
        shares
    }
}

fn must(be: &str) -> String {
    format!("it must be {be}")
}

fn name(value: &DeValue<'_>) -> Result<Dimension, String> {
    const FORM: &str = "the form vendor#metric or vendor#model#metric";
    let text = value.as_str().ok_or_else(|| format!("it must be a name in quotes, of {FORM}"))?;
    Dimension::new(text).map_err(|error| format!("{}; use {FORM}", error.reason))
}

fn limit_type(value: &DeValue<'_>) -> Result<LimitType, String> {
    let read = value.as_str().and_then(|text| text.parse().ok());
    read.ok_or_else(|| must("\"requests\", \"tokens\" or \"concurrent\""))
}

fn counts(value: &DeValue<'_>) -> Result<CountedIn, String> {
    match value.as_str() {
        Some("bucket") => Ok(CountedIn::Bucket),
        Some("sliding" | "fixed") => Ok(CountedIn::AnyWindow),
        _ => Err(must("\"bucket\", \"sliding\" or \"fixed\"")),
    }
}

fn amount(value: &DeValue<'_>) -> Result<Amount, String> {
    number(value).filter(|amount| *amount > Amount::ZERO).ok_or_else(|| must(AMOUNT))
}

fn floor(value: &DeValue<'_>) -> Result<Amount, String> {
    amount(value).map_err(|why| format!("{why}, in the units of the limit"))
}

fn rate(value: &DeValue<'_>) -> Result<Rate, String> {
    number(value).filter(|rate: &Rate| !rate.is_zero()).ok_or_else(|| must(RATE))
}

fn share(value: &DeValue<'_>) -> Option<WrittenShare> {
    let Some(table) = value.as_table() else {
        return Some(WrittenShare { part: number(value)?, floor: None, background: false });
    };
    let (mut part, mut floor, mut background) = (None, None, false);
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "part" => part = Some(number(value.get_ref())?),
            "floor" => floor = Some(number(value.get_ref()).filter(|floor| *floor >= Amount::ZERO)?),
            "background" => background = value.get_ref().as_bool()?,
            _ => return None,
        }
    }
    Some(WrittenShare { part: part?, floor, background })
}

/// Reads an integer or a float from its text, so that no digit is lost.
fn number<T: FromStr>(value: &DeValue<'_>) -> Option<T> {
    let text = match value {
        DeValue::Integer(written) => i64::from_str_radix(written.as_str(), written.radix()).ok()?.to_string(),
        DeValue::Float(written) => written.as_str().parse::<f64>().ok()?.to_string(),
        _ => return None,
    };
    text.parse().ok()
}

/// Reads a time, by the same rule as every setting and option: with a unit, or in seconds.
pub(super) fn time(value: &DeValue<'_>) -> Option<Duration> {
    /// A year: a longer time is a wrong unit.
    const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    let seconds = |secs: f64| Duration::try_from_secs_f64(secs).ok();
    let read = match value.as_str() {
        // To humantime `M` is a month; somebody who writes `1M` means a minute, so it is not accepted.
        Some(text) => text
            .parse()
            .ok()
            .and_then(seconds)
            .or_else(|| humantime::parse_duration(text).ok().filter(|_| !text.contains('M'))),
        None => number::<f64>(value).and_then(seconds),
    };
    read.filter(|time| *time <= LONGEST)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The file of limits is read without the crate that reads settings.
    #[test]
    fn a_time_is_read_by_the_same_rule_as_a_setting() {
        for text in
            ["60s", "60", "0.5", "1m 30s", "250ms", "24h", "15M", "-5", "NaN", "soon", "", "400d", "365d"]
        {
            assert_eq!(time(&DeValue::String(text.into())), crate::duration::duration(text).ok(), "{text}");
        }
        let written = |text| DeTable::parse(text).map(|table| time(table.get_ref()["time"].get_ref()));
        assert_eq!(written("time = 60"), Ok(Some(Duration::from_secs(60))));
        assert_eq!(written("time = 1.5"), Ok(Some(Duration::from_millis(1_500))));
    }
}
