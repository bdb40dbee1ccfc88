//! The live view: takes readings, keys and signals, and draws a frame after each.

use std::io;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event};
use ratatui::style::Color;
use sluice_sdk::Client;
use tokio::sync::mpsc;

use super::screen::{NextScreen, Screen};
use crate::failure::Failure;
use crate::signals::stop_requested;
use crate::view::{SurveyReader, SurveyReading, View, seconds};

/// Frames are drawn at this interval even without a reading, because they show times that pass.
const TICK: Duration = Duration::from_secs(1);
/// How often the thread that reads keys checks whether it is still needed.
const LOOK: Duration = Duration::from_millis(100);

pub(super) async fn watch(client: &Client, reader: SurveyReader, screen: Screen) -> Result<(), Failure> {
    // At a panic too, the terminal is restored before the message is printed.
    let terminal =
        ratatui::try_init().map_err(|error| Failure::new(format!("the terminal cannot be used: {error}")))?;
    let ended = show(terminal, client, reader, screen).await;
    ratatui::restore();
    ended
}

async fn show(
    mut terminal: DefaultTerminal,
    client: &Client,
    reader: SurveyReader,
    mut screen: Screen,
) -> Result<(), Failure> {
    let mut stop = std::pin::pin!(stop_requested());
    let mut readings = read(reader);
    let mut keys = listen();
    let mut tick = tokio::time::interval(TICK);
    let mut view = View::new(client.table());
    let has_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    loop {
        let now = seconds(client.now());
        terminal.draw(|frame| {
            let area = frame.area();
            screen.draw(frame.buffer_mut(), area, &view, now);
            if !has_colour {
                without_colour(frame.buffer_mut());
            }
        })?;
        tokio::select! {
            reading = readings.recv() => match reading {
                Some(reading) => view.take_in(reading),
                None => return Err(Failure::new("reading the table ended")),
            },
            event = keys.recv() => match event {
                Some(Ok(Event::Key(key))) if screen.press(key, &view, now) == NextScreen::Quit => return Ok(()),
                // A new size of the terminal also needs a new frame.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(Failure::new(format!("the terminal cannot be read: {error}"))),
                None => return Err(Failure::new("the terminal cannot be read")),
            },
            _ = tick.tick() => {}
            () = &mut stop => return Ok(()),
        }
    }
}

/// Reads on a task of its own, so that keys are answered while the table is read.
fn read(mut reader: SurveyReader) -> mpsc::Receiver<SurveyReading> {
    let (send, readings) = mpsc::channel(1);
    tokio::spawn(async move { while send.send(reader.next().await).await.is_ok() {} });
    readings
}

/// Reads keys on a thread, because the wait for a key blocks. The thread ends when nobody receives the keys
/// any more.
fn listen() -> mpsc::UnboundedReceiver<io::Result<Event>> {
    let (send, keys) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        while !send.is_closed() {
            let event = match event::poll(LOOK) {
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(error) => Err(error),
            };
            let failed = event.is_err();
            if send.send(event).is_err() || failed {
                return;
            }
        }
    });
    keys
}

fn without_colour(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        cell.set_fg(Color::Reset).set_bg(Color::Reset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::layout::Rect;
    use ratatui::style::{Modifier, Style};

    #[test]
    fn a_frame_without_colour_keeps_what_is_bold() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 5, 1));
        buffer.set_string(
            0,
            0,
            "level",
            Style::new().fg(Color::Red).bg(Color::Blue).add_modifier(Modifier::BOLD),
        );
        without_colour(&mut buffer);
        let style = buffer.content[0].style();
        assert_eq!((style.fg, style.bg), (Some(Color::Reset), Some(Color::Reset)));
        assert!(style.add_modifier.contains(Modifier::BOLD));
    }
}
