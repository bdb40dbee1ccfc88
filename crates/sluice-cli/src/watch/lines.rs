//! Lines of text on the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Draws one line at the top of `area`, and marks where it is cut off.
pub(super) fn line(buffer: &mut Buffer, area: Rect, line: &Line<'_>) {
    if area.is_empty() {
        return;
    }
    buffer.set_line(area.x, area.y, line, area.width);
    if line.width() > usize::from(area.width)
        && let Some(last) = buffer.cell_mut((area.right() - 1, area.y))
    {
        last.set_symbol("…");
    }
}

/// Draws as many lines as fit.
pub(super) fn lines<'a>(buffer: &mut Buffer, area: Rect, lines: impl IntoIterator<Item = Line<'a>>) {
    for (row, one) in (area.y..area.bottom()).zip(lines) {
        buffer.set_line(area.x, row, &one, area.width);
    }
}
