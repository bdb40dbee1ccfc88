//! `--once`: one frame as text, or its figures as JSON.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use ratatui::buffer::{Buffer, Cell};
use ratatui::crossterm::terminal;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

use super::screen::Screen;
use super::sort::shown;
use crate::failure::Failure;
use crate::output;
use crate::view::{SurveyReader, View};

/// The longest wait for the second survey, which shows what is used a second. If the pace of reading needs a
/// longer wait, the frame goes without it.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// The width if no terminal states one.
const WIDTH: u16 = 80;
/// A narrower frame shows nothing, and a wider one shows nothing more.
const WIDTHS: std::ops::RangeInclusive<u16> = 40..=500;

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Frame,
    Json,
}

pub(super) async fn print(
    table: &str,
    mut reader: SurveyReader,
    screen: Screen,
    form: Form,
) -> Result<(), Failure> {
    let mut view = View::new(table);
    let first = reader.next().await;
    let pause = first.every;
    view.take_in(first);
    if view.trouble.is_none() && pause <= LONGEST_WAIT {
        view.take_in(reader.next().await);
    }
    if let Some(trouble) = view.trouble {
        return Err(Failure::new(trouble.error));
    }
    match form {
        Form::Frame => anstream::print!("{}", frame(&view, screen, width())),
        Form::Json => output::json(&figures(view, &screen))?,
    }
    Ok(())
}

/// The view, with only the buckets that a frame would show, in the same order.
pub(super) fn figures(mut view: View, screen: &Screen) -> View {
    if let Some(picture) = &mut view.picture {
        picture.buckets =
            shown(&picture.buckets, &screen.filter, screen.sort, picture.at).into_iter().cloned().collect();
    }
    view
}

/// The width of the terminal, else that in `COLUMNS`, else 80.
fn width() -> u16 {
    let of_terminal = || terminal::size().ok().map(|(columns, _)| columns).filter(|columns| *columns > 0);
    let stated = || std::env::var("COLUMNS").ok()?.parse().ok();
    let width = if std::io::stdout().is_terminal() { of_terminal() } else { None };
    width.or_else(stated).unwrap_or(WIDTH).clamp(*WIDTHS.start(), *WIDTHS.end())
}

/// A frame as high as it needs to be, with colour codes.
pub(super) fn frame(view: &View, screen: Screen, width: u16) -> String {
    let Some(picture) = &view.picture else { return String::new() };
    let screen = screen.into_text();
    let height = u16::try_from(screen.rows(picture)).unwrap_or(u16::MAX);
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    screen.draw(&mut buffer, area, view, picture.at);
    text(&buffer)
}

fn text(buffer: &Buffer) -> String {
    let mut text = String::new();
    for row in buffer.content().chunks(usize::from(buffer.area().width)) {
        let end = row.iter().rposition(|cell| cell.symbol() != " ").map_or(0, |last| last + 1);
        for run in row[..end].chunk_by(|a, b| a.style() == b.style()) {
            let style = style(&run[0]);
            let _ = write!(text, "{}", style.render());
            run.iter().for_each(|cell| text.push_str(cell.symbol()));
            let _ = write!(text, "{}", style.render_reset());
        }
        text.push('\n');
    }
    text
}

/// The style of a cell; a frame has few.
fn style(cell: &Cell) -> Style {
    let colour = match cell.fg {
        Color::Red => Some(AnsiColor::Red),
        Color::Green => Some(AnsiColor::Green),
        Color::Yellow => Some(AnsiColor::Yellow),
        Color::Cyan => Some(AnsiColor::Cyan),
        _ => None,
    };
    let mut style = Style::new().fg_color(colour.map(Into::into));
    if cell.modifier.contains(Modifier::BOLD) {
        style = style.bold();
    }
    if cell.modifier.contains(Modifier::DIM) {
        style = style.dimmed();
    }
    style
}
