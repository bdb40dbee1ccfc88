//! Numbers and names in short forms that fit a column.

use std::collections::BTreeSet;

/// An amount, with at most five characters below a thousand million.
pub(super) fn amount(value: f64) -> String {
    match value.abs() {
        size if size >= 999_950.0 => format!("{}M", decimals(value / 1e6, 1)),
        size if size >= 9_999.5 => format!("{}k", decimals(value / 1e3, 1)),
        size if size >= 99.95 => decimals(value, 0),
        _ => decimals(value, 1),
    }
}

/// A rate per second; small rates get one more decimal.
pub(super) fn rate(value: f64) -> String {
    if value.abs() < 0.995 { decimals(value, 2) } else { amount(value) }
}

/// A number without trailing zeros, and without a sign if it rounds to zero.
pub(super) fn decimals(value: f64, places: usize) -> String {
    let text = format!("{value:.places$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".into() } else { text.to_owned() }
}

/// The time of day, in UTC.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn clock(at: f64) -> String {
    let secs = at as i64;
    let part = |unit: i64, of: i64| secs.div_euclid(unit).rem_euclid(of);
    format!("{:02}:{:02}:{:02} UTC", part(3_600, 24), part(60, 60), part(1, 60))
}

/// `count` and a noun: "1 row", "2 rows".
pub(super) fn count(count: usize, what: &str) -> String {
    let plural = match what {
        _ if count == 1 => "",
        _ if what == "try" => return format!("{count} tries"),
        _ if what == "process" => return format!("{count} processes"),
        _ => "s",
    };
    format!("{count} {what}{plural}")
}

/// A name in at most `width` characters: its beginning, and a little less of its end, because both
/// distinguish names.
pub(super) fn cut(name: &str, width: usize) -> String {
    Truncated::USUAL.of(name, width)
}

/// How much of a shortened name is its end, in tenths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Truncated(usize);

impl Truncated {
    const USUAL: Self = Self(4);

    /// The first of several ways to cut that keeps the most names different.
    pub(super) fn apart<'a>(names: impl Iterator<Item = &'a str> + Clone, width: usize) -> Self {
        let count = |way: Self| names.clone().map(|name| way.of(name, width)).collect::<BTreeSet<_>>().len();
        let all = names.clone().count();
        let mut best = (count(Self::USUAL), Self::USUAL);
        for way in [6, 8, 10, 2, 0].map(Self) {
            if best.0 == all {
                break;
            }
            let found = count(way);
            if found > best.0 {
                best = (found, way);
            }
        }
        best.1
    }

    pub(super) fn of(self, name: &str, width: usize) -> String {
        let chars: Vec<char> = name.chars().collect();
        if chars.len() <= width {
            return name.to_owned();
        }
        let end = width.saturating_sub(1) * self.0 / 10;
        let begin = width.saturating_sub(1) - end;
        let (begin, end) = (&chars[..begin], &chars[chars.len() - end..]);
        begin.iter().chain(['…'].iter().take(width)).chain(end).collect()
    }
}

/// The end of an id: a version 7 id begins with its time, so its end distinguishes it from others.
pub(super) fn id(id: &str) -> String {
    let chars: Vec<char> = id.chars().collect();
    chars[chars.len().saturating_sub(8)..].iter().collect()
}
