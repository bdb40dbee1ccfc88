//! Server-sent events, as they pass by in chunks: the bytes of their data, and where each event ends.
//!
//! The rules are those of
//! <https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream>: lines end with
//! CR, LF or both, the data of several lines are joined, comments and other fields are ignored, and a byte
//! order mark may stand first. One thing differs: the data of an event are passed on before the event has
//! ended, so that an event at which the connection was dropped is not lost.

use memchr::memchr2;

/// A part of an event.
pub(super) enum Line<'a> {
    /// Bytes of the data.
    Data(&'a [u8]),
    EventEnd {
        /// Whether the data were `[DONE]`, with which OpenAI ends a stream.
        is_done: bool,
    },
}

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
const DONE: &[u8] = b"[DONE]";

/// The longest name of a field that is compared, with a byte order mark before it and one byte more.
const MAX_NAME_LEN: usize = 8;

/// Reads lines. Keeps no more than a few bytes.
pub(super) struct EventLines {
    place: Place,
    is_first_line: bool,
    after_cr: bool,
    has_data: bool,
    /// The first bytes of the event's data: as many as tell whether they are `[DONE]`.
    head: Vec<u8>,
}

/// Where in a line the next byte stands.
#[derive(Clone, Copy)]
enum Place {
    Name {
        bytes: [u8; MAX_NAME_LEN],
        len: usize,
    },
    /// After the colon, where one space is ignored.
    Colon,
    Data,
    Ignored,
}

const LINE_START: Place = Place::Name { bytes: [0; MAX_NAME_LEN], len: 0 };

impl Default for EventLines {
    fn default() -> Self {
        Self { place: LINE_START, is_first_line: true, after_cr: false, has_data: false, head: Vec::new() }
    }
}

impl EventLines {
    /// The memory in use, in bytes.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.head.capacity()
    }

    pub(super) fn feed(&mut self, chunk: &[u8], mut read: impl FnMut(Line<'_>)) {
        let mut rest = chunk;
        if std::mem::take(&mut self.after_cr) {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            self.after_cr = chunk.is_empty();
        }
        while let Some(end) = memchr2(b'\r', b'\n', rest) {
            self.read_part(&rest[..end], &mut read);
            self.end_line(&mut read);
            let is_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            self.after_cr = is_cr && rest.is_empty();
            if is_cr {
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
        }
        self.read_part(rest, &mut read);
    }

    /// Ends the last event, if the body ends without an empty line.
    pub(super) fn finish(&mut self, mut read: impl FnMut(Line<'_>)) {
        self.end_line(&mut read);
        self.end_event(&mut read);
    }

    /// Reads a part of a line without its end.
    fn read_part(&mut self, part: &[u8], read: &mut impl FnMut(Line<'_>)) {
        let mut rest = part;
        while let Some((byte, after)) = rest.split_first() {
            match self.place {
                Place::Name { bytes, len } => self.step_name(*byte, bytes, len, read),
                Place::Colon => {
                    self.place = Place::Data;
                    rest = if *byte == b' ' { after } else { rest };
                    continue;
                }
                Place::Data => return self.read_data(rest, read),
                Place::Ignored => return,
            }
            rest = after;
        }
    }

    fn step_name(
        &mut self,
        byte: u8,
        mut bytes: [u8; MAX_NAME_LEN],
        len: usize,
        read: &mut impl FnMut(Line<'_>),
    ) {
        if byte == b':' {
            self.place = if self.is_data(&bytes[..len]) { Place::Colon } else { Place::Ignored };
            if matches!(self.place, Place::Colon) && std::mem::replace(&mut self.has_data, true) {
                read(Line::Data(b"\n"));
            }
        } else if let Some(place) = bytes.get_mut(len) {
            *place = byte;
            self.place = Place::Name { bytes, len: len + 1 };
        } else {
            self.place = Place::Ignored;
        }
    }

    fn is_data(&self, name: &[u8]) -> bool {
        name == b"data" || (self.is_first_line && name.strip_prefix(BYTE_ORDER_MARK) == Some(b"data"))
    }

    fn read_data(&mut self, data: &[u8], read: &mut impl FnMut(Line<'_>)) {
        let missing = (DONE.len() + 1).saturating_sub(self.head.len());
        self.head.extend_from_slice(&data[..missing.min(data.len())]);
        read(Line::Data(data));
    }

    fn end_line(&mut self, read: &mut impl FnMut(Line<'_>)) {
        let is_empty = matches!(self.place, Place::Name { len: 0, .. });
        self.place = LINE_START;
        self.is_first_line = false;
        if is_empty {
            self.end_event(read);
        }
    }

    fn end_event(&mut self, read: &mut impl FnMut(Line<'_>)) {
        if std::mem::take(&mut self.has_data) {
            read(Line::EventEnd { is_done: self.head == DONE });
        }
        self.head.clear();
    }
}
