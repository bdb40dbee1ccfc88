//! Numbers, times and names, short enough for a column.

/// An amount: at most five characters below a thousand million.
pub(super) fn amount(value: f64) -> String {
    match value.abs() {
        size if size >= 999_950.0 => format!("{}M", decimals(value / 1e6, 1)),
        size if size >= 9_999.5 => format!("{}k", decimals(value / 1e3, 1)),
        size if size >= 99.95 => decimals(value, 0),
        _ => decimals(value, 1),
    }
}

/// Something a second; small ones with one decimal more.
pub(super) fn rate(value: f64) -> String {
    if value.abs() < 0.995 { decimals(value, 2) } else { amount(value) }
}

/// Without zeros at its end, and without a sign where it is rounded to nothing.
pub(super) fn decimals(value: f64, places: usize) -> String {
    let text = format!("{value:.places$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".into() } else { text.to_owned() }
}

/// A length of time: at most four characters below some years.
pub(super) fn span(secs: f64) -> String {
    match secs {
        secs if secs < 9.95 => format!("{}s", decimals(secs, 1)),
        secs if secs < 99.5 => format!("{secs:.0}s"),
        secs if secs < 99.5 * 60.0 => format!("{:.0}m", secs / 60.0),
        secs if secs < 48.0 * 3_600.0 => format!("{:.0}h", secs / 3_600.0),
        secs => format!("{:.0}d", secs / 86_400.0),
    }
}

/// "in 12s", "3m ago".
pub(super) fn relative(at: f64, now: f64) -> String {
    if at > now { format!("in {}", span(at - now)) } else { format!("{} ago", span(now - at)) }
}

/// The time of day, in UTC.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn clock(at: f64) -> String {
    let secs = at as i64;
    let part = |unit: i64, of: i64| secs.div_euclid(unit).rem_euclid(of);
    format!("{:02}:{:02}:{:02} UTC", part(3_600, 24), part(60, 60), part(1, 60))
}

/// `count` of something: "1 row", "2 rows".
pub(super) fn count(count: usize, what: &str) -> String {
    let plural = match what {
        _ if count == 1 => "",
        _ if what == "try" => return format!("{count} tries"),
        _ => "s",
    };
    format!("{count} {what}{plural}")
}

/// A name in at most `width` characters: its beginning, and somewhat less of its end. Both tell names apart.
pub(super) fn cut(name: &str, width: usize) -> String {
    let chars: Vec<char> = name.chars().collect();
    if chars.len() <= width {
        return name.to_owned();
    }
    let end = width.saturating_sub(1) * 2 / 5;
    let begin = width.saturating_sub(1) - end;
    let (begin, end) = (&chars[..begin], &chars[chars.len() - end..]);
    begin.iter().chain(['…'].iter().take(width)).chain(end).collect()
}

/// The end of an id: those of version 7 begin with their time, so that the end tells them apart.
pub(super) fn id(id: &str) -> String {
    let chars: Vec<char> = id.chars().collect();
    chars[chars.len().saturating_sub(8)..].iter().collect()
}
