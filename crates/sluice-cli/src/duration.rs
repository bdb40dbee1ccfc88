//! Times on the command line: how they are read, and how they are shown to people. Shown as they are typed:
//! `36s`, `1m 44s`, `2h 6m`, `3d`. How long a request or a sweep took is shown in milliseconds below a
//! second: `28 ms`. The dashboard's page has the same rules, in JavaScript.

use std::time::Duration;

/// Parses a time, as the settings do: "5s", "1m 30s", "250ms", or plain seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    sluice_table::duration(text)
        .ok_or_else(|| "it must be a time of at most a year, as in 5s, 250ms, 1m or 5 (seconds)".to_owned())
}

/// A parser of times from `least` to `most`.
#[cfg(feature = "lab")]
pub(crate) fn duration_within(
    least: Duration,
    most: Duration,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| {
        let given = duration(text)?;
        let in_words = |time| humantime::format_duration(time).to_string();
        if (least..=most).contains(&given) {
            Ok(given)
        } else {
            Err(format!("it must be from {} to {}", in_words(least), in_words(most)))
        }
    }
}

/// A length of time in two units, rounded down: "9.9s", "36s", "1m 44s", "2h 6m", "3d".
pub(crate) fn exact(secs: f64) -> String {
    let secs = down(secs);
    let (unit, in_unit, below, in_below) = match secs {
        secs if secs < UNTIL_MINUTES => return span(secs),
        secs if secs < UNTIL_HOURS => ("m", 60.0, "s", 1.0),
        secs if secs < UNTIL_DAYS => ("h", 3_600.0, "m", 60.0),
        _ => return span(secs),
    };
    match (secs % in_unit / in_below).floor() {
        0.0 => format!("{:.0}{unit}", (secs / in_unit).floor()),
        rest => format!("{:.0}{unit} {rest:.0}{below}", (secs / in_unit).floor()),
    }
}

/// The same in one unit, for a column: at most four characters up to some years.
pub(crate) fn span(secs: f64) -> String {
    match down(secs) {
        secs if secs < 10.0 => {
            let text = format!("{:.1}", (secs * 10.0).floor() / 10.0);
            format!("{}s", text.strip_suffix(".0").unwrap_or(&text))
        }
        secs if secs < UNTIL_MINUTES => format!("{:.0}s", secs.floor()),
        secs if secs < UNTIL_HOURS => format!("{:.0}m", (secs / 60.0).floor()),
        secs if secs < UNTIL_DAYS => format!("{:.0}h", (secs / 3_600.0).floor()),
        secs => format!("{:.0}d", (secs / 86_400.0).floor()),
    }
}

const UNTIL_MINUTES: f64 = 100.0;
const UNTIL_HOURS: f64 = 100.0 * 60.0;
const UNTIL_DAYS: f64 = 48.0 * 3_600.0;

/// A millionth compensates for rounding errors of floats.
fn down(secs: f64) -> f64 {
    secs.max(0.0) + 1e-6
}

/// A time to wait, as [`exact`] shows it. Rounded up, so that a caller that comes back after it is not too
/// early.
pub(crate) fn exact_wait(secs: f64) -> String {
    exact(up(secs, [0.1, 1.0, 1.0, 60.0, 86_400.0]))
}

/// The same as [`span`] shows it.
pub(crate) fn wait(secs: f64) -> String {
    span(up(secs, [0.1, 1.0, 60.0, 3_600.0, 86_400.0]))
}

/// How long a request or a sweep took, rounded down: "0.4 ms", "28 ms"; from a second on, as [`exact`].
pub(crate) fn took(secs: f64) -> String {
    let millis = down(secs * 1e3);
    match millis {
        millis if millis < 10.0 => {
            let text = format!("{:.1}", (millis * 10.0).floor() / 10.0);
            format!("{} ms", text.strip_suffix(".0").unwrap_or(&text))
        }
        millis if millis < 1_000.0 => format!("{:.0} ms", millis.floor()),
        _ => exact(secs),
    }
}

/// Rounded up to the unit that is shown: below ten seconds, in seconds, minutes, hours, days.
fn up(secs: f64, units: [f64; 5]) -> f64 {
    let up = |secs: f64| {
        let unit = match secs {
            secs if secs < 10.0 => units[0],
            secs if secs < UNTIL_MINUTES => units[1],
            secs if secs < UNTIL_HOURS => units[2],
            secs if secs < UNTIL_DAYS => units[3],
            _ => units[4],
        };
        ((secs - 1e-6) / unit).ceil().max(0.0) * unit
    };
    // Twice: 99.5 s round to 100 s, which are shown in minutes.
    up(up(secs))
}

/// How far an instant is from now, in seconds: "in 12s", rounded up as a wait; "3m 20s ago", if it is below
/// zero.
pub(crate) fn relative(secs: f64) -> String {
    if secs > 0.0 { format!("in {}", exact_wait(secs)) } else { format!("{} ago", exact(-secs)) }
}

#[cfg(test)]
mod shown {
    use super::*;

    #[test]
    fn a_time_is_rounded_down_and_a_wait_up() {
        let times =
            [0.04, 0.3, 9.99, 36.49, 99.99, 104.0, 120.0, 3_599.849, 5_999.0, 7_199.0, 7_560.0, 200_000.0];
        let exact_ones = [
            "0s", "0.3s", "9.9s", "36s", "99s", "1m 44s", "2m", "59m 59s", "99m 59s", "1h 59m", "2h 6m", "2d",
        ];
        assert_eq!(times.map(exact), exact_ones);
        let spans = ["0s", "0.3s", "9.9s", "36s", "99s", "1m", "2m", "59m", "99m", "1h", "2h", "2d"];
        assert_eq!(times.map(span), spans);
        let waits =
            ["0.1s", "0.3s", "10s", "37s", "1m 40s", "1m 44s", "2m", "60m", "99m 59s", "2h", "2h 6m", "3d"];
        assert_eq!(times.map(exact_wait), waits);
        let waits = [0.0, 4.54, 9.95, 12.0, 12.3, 99.5, 104.0, 119.9, 120.0, 5_999.0].map(wait);
        assert_eq!(waits, ["0s", "4.6s", "10s", "12s", "13s", "2m", "2m", "2m", "2m", "2h"]);
        let instants = [12.0, 12.3, 0.0, -104.9].map(relative);
        assert_eq!(instants, ["in 12s", "in 13s", "0s ago", "1m 44s ago"]);
        let times = [0.0, 0.000_49, 0.004, 0.028_9, 0.999_9, 1.0, 28.6, 104.0].map(took);
        assert_eq!(times, ["0 ms", "0.4 ms", "4 ms", "28 ms", "999 ms", "1s", "28s", "1m 44s"]);
    }
}

#[cfg(all(test, feature = "lab"))]
mod tests {
    use super::*;

    #[test]
    fn a_time_outside_of_the_bounds_names_them() {
        let parse = duration_within(Duration::from_secs(15), Duration::from_secs(600));
        assert_eq!(["15", "1m 30s", "600s"].map(|text| parse(text).unwrap().as_secs()), [15, 90, 600]);
        assert_eq!(parse("14s").unwrap_err(), "it must be from 15s to 10m");
        assert!(parse("soon").unwrap_err().contains("250ms"));
    }
}
