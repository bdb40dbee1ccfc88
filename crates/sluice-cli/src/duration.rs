//! Times on the command line.

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
