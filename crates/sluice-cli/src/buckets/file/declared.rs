//! The fields of a `[[bucket]]`, each read by itself, so that one fault does not hide the others.

use std::str::FromStr;
use std::time::Duration;

use sluice_core::{Amount, Cost, Dimension, LimitType, Rate};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::place::{Faulty, Field, Place, Written};

/// A bucket as the file has it. What is wrong with a field by itself is noted.
#[derive(Debug)]
pub(super) struct Declared {
    /// Where the bucket begins.
    at: usize,
    pub(super) dimension: Written<Dimension>,
    pub(super) limit_type: Written<LimitType>,
    pub(super) capacity: Written<Amount>,
    pub(super) limit: Written<Amount>,
    pub(super) window: Written<Duration>,
    pub(super) refill_rate: Written<Rate>,
    pub(super) counts: Written<CountedIn>,
    pub(super) arrival_jitter: Written<Duration>,
    pub(super) cost_per_call: Written<Cost>,
    pub(super) adopt_lower_limit: Written<bool>,
    pub(super) adopt_at_least: Written<Amount>,
    /// Those that make sense.
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

impl Declared {
    /// Reads a bucket that begins at `at`. Every field that cannot be used is noted.
    pub(super) fn read(place: &Place<'_>, table: &DeTable<'_>, at: usize) -> Self {
        let reader = Reader { place, table };
        reader.check_names();
        let dimension = reader.required("dimension", at, name, "dimension = \"openai#rpm\"");
        let limit_type =
            reader.required("type", at, limit_type, "type = \"requests\", \"tokens\" or \"concurrent\"");
        // A field that does not belong into the bucket is told as such, whatever its value.
        let is_concurrent = limit_type.value() == Some(&LimitType::Concurrent);
        let no_window = is_concurrent.then_some(NO_WINDOW);
        let counts = reader.unless(no_window, "counts", counts);
        let is_counted = counts.value() == Some(&CountedIn::AnyWindow);
        let no_jitter = (!is_counted && counts.get().is_ok() && place.is_toml()).then_some(NO_JITTER);
        let no_rate = (is_counted || reader.get("limit").is_some()).then_some(NO_RATE_BESIDE_LIMIT);
        Self {
            at,
            capacity: reader.field("capacity", amount),
            limit: reader.unless(is_concurrent.then_some(NO_LIMIT), "limit", amount),
            window: reader.unless(no_window, "window", |value| {
                time(value).filter(|time| !time.is_zero()).ok_or_else(|| must(WINDOW))
            }),
            refill_rate: reader.unless(is_concurrent.then_some(NO_RATE).or(no_rate), "refill_rate", rate),
            arrival_jitter: reader.unless(no_window.or(no_jitter), "arrival_jitter", |value| {
                time(value).ok_or_else(|| must(JITTER))
            }),
            cost_per_call: reader.field("cost_per_call", |value| number(value).ok_or_else(|| must(AMOUNT))),
            adopt_lower_limit: reader
                .field("adopt_lower_limit", |value| value.as_bool().ok_or_else(|| must("true or false"))),
            adopt_at_least: reader.field("adopt_at_least", floor),
            shares: reader.shares(),
            dimension,
            limit_type,
            counts,
        }
    }

    /// Notes a fault of the whole bucket.
    pub(super) fn fault(&self, place: &Place<'_>, reason: &str) -> Faulty {
        match &self.dimension {
            Written::Sound(dimension) => place.fault(dimension, reason),
            _ => place.note(self.at, format_args!("this bucket: {reason}")),
        }
    }

    /// The window in which the vendor allows the limit.
    pub(super) fn window_of_limit(&self, place: &Place<'_>) -> Result<&Field<Duration>, Faulty> {
        const NEEDED: &str = "needs window = \"1m\", the time in which the vendor allows it";
        self.window.get()?.ok_or_else(|| match &self.limit {
            Written::Sound(limit) => place.fault(limit, format_args!("it {NEEDED}")),
            _ => self.fault(place, &format!("its limit {NEEDED}")),
        })
    }
}

const NO_WINDOW: &str =
    "leave it out: a concurrent limit has no window and no refill_rate, because slots come back by release";
const NO_RATE: &str = "leave it out: a concurrent limit has none, because slots come back by release";
const NO_LIMIT: &str = "write it as capacity: a concurrent limit is its number of slots";
const NO_RATE_BESIDE_LIMIT: &str = "leave it out: limit and window say how much flows back";
const NO_JITTER: &str =
    "it needs counts = \"sliding\" or \"fixed\": a vendor that refills continuously counts no windows";

/// The table of a bucket, whose fields are read one by one.
struct Reader<'a> {
    place: &'a Place<'a>,
    table: &'a DeTable<'a>,
}

impl<'a> Reader<'a> {
    fn get(&self, name: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table.iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value)
    }

    fn check_names(&self) {
        for key in self.table.keys().filter(|key| !FIELDS.contains(&key.get_ref().as_ref())) {
            let known = FIELDS.join(", ");
            self.place.note(
                key.span().start,
                format_args!("{}: a bucket has no such field; it has {known}", key.get_ref()),
            );
        }
    }

    /// The field. `read` says what it must be.
    fn field<T>(&self, name: &str, read: impl Fn(&DeValue<'_>) -> Result<T, String>) -> Written<T> {
        let Some(written) = self.get(name) else { return Written::Missing };
        match read(written.get_ref()) {
            Ok(value) => Written::Sound(Field::new(name, written, value)),
            Err(reason) => {
                self.place.fault_in(name, written.span(), reason);
                Written::Faulty
            }
        }
    }

    /// The field, unless this bucket has none, for a reason.
    fn unless<T>(
        &self,
        misplaced: Option<&str>,
        name: &str,
        read: impl Fn(&DeValue<'_>) -> Result<T, String>,
    ) -> Written<T> {
        match misplaced {
            Some(reason) => self.field(name, |_| Err(reason.to_owned())),
            None => self.field(name, read),
        }
    }

    /// A field that every bucket has.
    fn required<T>(
        &self,
        name: &str,
        at: usize,
        read: impl Fn(&DeValue<'_>) -> Result<T, String>,
        example: &str,
    ) -> Written<T> {
        let field = self.field(name, read);
        if matches!(field, Written::Missing) && self.place.is_toml() {
            self.place.note(at, format_args!("this bucket has no {name}: add {example}"));
        }
        field
    }

    fn shares(&self) -> Vec<(Field<String>, Field<WrittenShare>)> {
        let Some(written) = self.get("shares") else { return Vec::new() };
        let Some(table) = written.get_ref().as_table() else {
            self.place.fault_in(
                "shares",
                written.span(),
                "write [bucket.shares], and below it a line for each share",
            );
            return Vec::new();
        };
        let mut shares = Vec::new();
        for (name, written) in table {
            match share(written.get_ref()) {
                Ok(share) => {
                    let key = Field::at("share", name.span(), name.get_ref().clone().into_owned());
                    shares.push((key, Field::new(name.get_ref(), written, share)));
                }
                Err(reason) => {
                    self.place.fault_in(name.get_ref(), written.span(), reason);
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

fn share(value: &DeValue<'_>) -> Result<WrittenShare, String> {
    let Some(table) = value.as_table() else {
        let part = number(value).ok_or_else(|| must(SHARE))?;
        return Ok(WrittenShare { part, floor: None, background: false });
    };
    let (mut part, mut floor, mut background) = (None, None, false);
    let field_must = |name: &str, be: &str| format!("{name} must be {be}");
    for (key, value) in table {
        match (key.get_ref().as_ref(), value.get_ref()) {
            (name @ "part", value) => {
                part = Some(number(value).ok_or_else(|| field_must(name, "a number above 0 and below 1"))?);
            }
            (name @ "floor", value) => {
                let stated = number(value).filter(|floor| *floor >= Amount::ZERO);
                floor = Some(
                    stated
                        .ok_or_else(|| field_must(name, "a number, 0 or more, in the units of the limit"))?,
                );
            }
            (name @ "background", value) => {
                background =
                    value.as_bool().ok_or_else(|| field_must(name, "true or false, without quotes"))?;
            }
            (name, _) => {
                return Err(format!("{name}: a share has no such field; it has part, floor, background"));
            }
        }
    }
    let part = part.ok_or("it has no part: add part = 0.5, or another number above 0 and below 1")?;
    Ok(WrittenShare { part, floor, background })
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
