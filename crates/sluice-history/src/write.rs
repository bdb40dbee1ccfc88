//! Writes histories.

use std::io::{self, BufWriter, Write};

use crate::event::{End, Event, Header};

/// Writes events, one JSON object a line, buffered.
///
/// A history is whole only after [`finish`](Self::finish). When dropped, the writer writes out what is
/// buffered, without an end.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: BufWriter<W>,
    events: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a history with its header.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: W, header: Header) -> io::Result<Self> {
        let mut writer = Self { out: BufWriter::new(out), events: 0 };
        writer.write(&Event::History(header))?;
        Ok(writer)
    }

    /// Writes one event.
    ///
    /// # Errors
    /// Those of the file.
    pub fn write(&mut self, event: &Event) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, event)?;
        self.events += 1;
        self.out.write_all(b"\n")
    }

    /// Writes out what is buffered. More events may follow.
    ///
    /// # Errors
    /// Those of the file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Writes the end of the history and what is buffered, and returns the file.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(mut self) -> io::Result<W> {
        self.write(&Event::End(End { events: self.events }))?;
        self.out.into_inner().map_err(io::IntoInnerError::into_error)
    }
}
