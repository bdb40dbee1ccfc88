//! Writes histories.

use std::io::{self, BufWriter, Write};

use crate::event::{Event, Header};

/// Writes events, one JSON object a line, buffered.
///
/// When dropped, the writer writes out what is buffered and ignores errors; [`finish`](Self::finish) returns
/// them.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: BufWriter<W>,
}

impl<W: Write> Writer<W> {
    /// Begins a history with its header.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: W, header: Header) -> io::Result<Self> {
        let mut writer = Self { out: BufWriter::new(out) };
        writer.write(&Event::History(header))?;
        Ok(writer)
    }

    /// Writes one event.
    ///
    /// # Errors
    /// Those of the file.
    pub fn write(&mut self, event: &Event) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, event)?;
        self.out.write_all(b"\n")
    }

    /// Writes out what is buffered. More events may follow.
    ///
    /// # Errors
    /// Those of the file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Writes out what is buffered, and returns the file.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(self) -> io::Result<W> {
        self.out.into_inner().map_err(io::IntoInnerError::into_error)
    }
}
