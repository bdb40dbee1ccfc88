//! Figures of a report: percentiles, ratios, and rounding.

/// The percentile of sorted microseconds, in milliseconds: the least value that `percent` of `sorted` do not
/// exceed.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn percentile_ms(sorted: &[u64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    rounded(sorted.get(at).map_or(0.0, |micros| *micros as f64 / 1_000.0))
}

/// The ratio; zero if `whole` is zero.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Rounded to four decimals, which are enough for a report.
pub(crate) fn rounded(number: f64) -> f64 {
    (number * 10_000.0).round() / 10_000.0
}
