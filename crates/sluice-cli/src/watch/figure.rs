//! Gauges and sparklines, drawn with block characters.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

use crate::view::BucketView;

const EIGHTHS: [char; 9] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

const GOOD: Color = Color::Green;
pub(super) const SCARCE: Color = Color::Yellow;
pub(super) const BAD: Color = Color::Red;
pub(super) const USE: Color = Color::Cyan;

/// For less important text. Dim, not grey: grey is hard to read either on a dark or on a light background.
pub(super) const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
pub(super) const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);

/// The level as a bar between two edges, `width` columns in all, exact to an eighth of a column.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
pub(super) fn gauge(bucket: &BucketView, width: usize) -> Vec<Span<'static>> {
    let inner = width.saturating_sub(2);
    let share = (bucket.level / bucket.capacity).clamp(0.0, 1.0);
    let eighths = (share * (inner * 8) as f64).floor() as usize;
    let mut bar: String = std::iter::repeat_n(EIGHTHS[8], eighths / 8).collect();
    if eighths / 8 < inner {
        bar.push(EIGHTHS[eighths % 8]);
    }
    let bar = format!("{bar:<inner$}");
    vec![Span::styled("▕", FAINT), Span::styled(bar, level_style(bucket)), Span::styled("▏", FAINT)]
}

/// At half or more, a bucket has plenty; below a fifth, a burst gets refusals.
pub(super) fn level_style(bucket: &BucketView) -> Style {
    let share = bucket.level / bucket.capacity;
    Style::new().fg(match share {
        share if share >= 0.5 => GOOD,
        share if share >= 0.2 => SCARCE,
        _ => BAD,
    })
}

/// One line of columns; the highest fills the line. An unknown value is a gap, and zero is the lowest block.
pub(super) fn sparkline(values: &[Option<f64>]) -> String {
    chart(values, 1).pop().unwrap_or_default()
}

/// `rows` lines of columns, the top line first.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
pub(super) fn chart(values: &[Option<f64>], rows: usize) -> Vec<String> {
    let highest = highest(values);
    let height = |value: f64| {
        let eighths = if highest > 0.0 { (value / highest * (rows * 8) as f64).round() as usize } else { 0 };
        // A value above zero stands out from the base line, however small it is.
        if value > 0.0 { eighths.max(2) } else { 1 }
    };
    let heights: Vec<usize> = values.iter().map(|value| value.map_or(0, height)).collect();
    let row = |n: usize| heights.iter().map(|height| HEIGHTS[height.saturating_sub(n * 8).min(8)]).collect();
    (0..rows).rev().map(row).collect()
}

pub(super) fn highest(values: &[Option<f64>]) -> f64 {
    values.iter().flatten().copied().fold(0.0, f64::max)
}
