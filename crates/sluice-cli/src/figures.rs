//! Figures of a run, rounded for a report.

/// The least value that `percent` of `sorted` do not pass, in milliseconds, of microseconds.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn percentile_ms(sorted: &[u64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    rounded(sorted.get(at).map_or(0.0, |micros| *micros as f64 / 1_000.0))
}

/// Zero where there is no whole.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Four decimals are enough for a report.
pub(crate) fn rounded(number: f64) -> f64 {
    (number * 10_000.0).round() / 10_000.0
}
