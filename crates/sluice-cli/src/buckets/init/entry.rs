//! A `[[bucket]]` as text.

use std::fmt;
use std::time::Duration;

use sluice_sdk::core::{Dimension, LimitType};

/// A bucket, line by line, under the page that its figures come from. A line that begins with `#` is a
/// comment.
#[derive(Debug)]
pub(super) struct Entry {
    above: Vec<String>,
    lines: Vec<String>,
}

impl Entry {
    pub(super) fn new(dimension: &Dimension, limit_type: LimitType) -> Self {
        let name = toml::Value::String(dimension.to_string());
        let lines =
            vec!["[[bucket]]".to_owned(), format!("dimension = {name}"), format!("type = \"{limit_type}\"")];
        Self { above: Vec::new(), lines }
    }

    /// Adds a comment above the bucket.
    pub(super) fn noted(mut self, comment: impl fmt::Display) -> Self {
        self.above.push(format!("# {comment}"));
        self
    }

    /// Adds a line.
    pub(super) fn line(mut self, line: impl fmt::Display) -> Self {
        self.lines.push(line.to_string());
        self
    }

    /// The same, commented out.
    pub(super) fn commented_out(mut self) -> Self {
        for line in self.lines.iter_mut().filter(|line| !line.starts_with('#')) {
            line.insert_str(0, "# ");
        }
        self
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        self.above.iter().chain(&self.lines).try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// The name of a bucket, as `sluice-http` looks for it. An error says why no bucket can have it.
pub(super) fn name(vendor: &str, model: Option<&str>, metric: &str) -> Result<Dimension, &'static str> {
    let name =
        model.map_or_else(|| format!("{vendor}#{metric}"), |model| format!("{vendor}#{model}#{metric}"));
    Dimension::new(&name).map_err(|error| error.reason)
}

/// A number with a separator between thousands, as TOML takes it.
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let separated = |(at, digit): (usize, char)| {
        let separator = (at > 0 && (digits.len() - at).is_multiple_of(3)).then_some('_');
        separator.into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(separated).collect()
}

/// A window in the largest unit that states it in a whole number.
pub(super) fn window(window: Duration) -> String {
    let secs = window.as_secs();
    let of = |unit: u64| {
        (window.subsec_nanos() == 0 && secs > 0 && secs.is_multiple_of(unit)).then(|| secs / unit)
    };
    let named =
        [(86_400, 'd'), (3_600, 'h'), (60, 'm')].into_iter().find_map(|(unit, name)| Some((of(unit)?, name)));
    named.map_or_else(
        || humantime::format_duration(window).to_string(),
        |(count, name)| format!("{count}{name}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_windows_are_short_and_exact() {
        assert_eq!(
            [0, 999, 1_000, 30_000, 2_500_000].map(number),
            ["0", "999", "1_000", "30_000", "2_500_000"]
        );
        let windows =
            [1, 60, 600, 3_600, 86_400, 2_592_000, 90].map(|secs| window(Duration::from_secs(secs)));
        assert_eq!(windows, ["1s", "1m", "10m", "1h", "1d", "30d", "1m 30s"].map(str::to_owned));
        assert_eq!(window(Duration::from_millis(500)), "500ms");
    }
}
