//! A chart of used against allowed calls over time, in characters.

use std::time::Duration;

use crate::output::{DIM, GREEN};

const HEIGHT: usize = 5;
const MOST_COLUMNS: usize = 60;
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The number of parts of `length` to show: half seconds, or longer ones.
pub(crate) fn columns(length: Duration) -> usize {
    let half_seconds = usize::try_from(length.as_secs() * 2).unwrap_or(MOST_COLUMNS);
    half_seconds.clamp(1, MOST_COLUMNS)
}

/// Prints `title` and the calls a second in each part; the line marks `allowed`.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn print(title: &str, counts: &[usize], length: Duration, allowed: f64) {
    let part_secs = length.as_secs_f64() / counts.len() as f64;
    let rates: Vec<f64> = counts.iter().map(|count| *count as f64 / part_secs).collect();
    let top = rates.iter().copied().fold(allowed, f64::max) * 1.1;
    let width = if counts.len() <= MOST_COLUMNS / 2 { 2 } else { 1 };
    println!();
    println!("{title}");
    let per_row = top / HEIGHT as f64;
    for row in (0..HEIGHT).rev() {
        let base = row as f64 * per_row;
        let marks = allowed >= base && allowed < base + per_row;
        let label = if marks { format!("{allowed:>5.0} ┤") } else { "      │".into() };
        let bars: String = rates
            .iter()
            .flat_map(|rate| {
                let eighths = ((rate - base) / per_row * 8.0).round().clamp(0.0, 8.0) as usize;
                std::iter::repeat_n(if eighths == 0 && marks { '─' } else { EIGHTHS[eighths] }, width)
            })
            .collect();
        anstream::println!(
            "{}{label}{}{}{bars}{}",
            DIM.render(),
            DIM.render_reset(),
            GREEN.render(),
            GREEN.render_reset()
        );
    }
    let axis = "─".repeat(counts.len() * width);
    let end = format!("{:.0} s", length.as_secs_f64());
    anstream::println!("{}    0 └{axis}{}", DIM.render(), DIM.render_reset());
    println!("       0{end:>width$} ─ allowed", width = counts.len() * width - 1);
}
