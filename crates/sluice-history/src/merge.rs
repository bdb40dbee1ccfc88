//! Joins the histories of several processes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, BufRead, Write};

use crate::event::Event;
use crate::write::Writer;

/// Appends the events of `parts` to `out` in the order of time, and returns their number. It keeps one event
/// of each part in memory. The order within a part does not change, so that a release comes after its grant.
/// The headers and ends of the parts are left out: `out` has its own.
///
/// # Errors
/// Errors of reading and writing, a line that is not an event, and a part without its end.
pub fn merge<R: BufRead, W: Write>(parts: Vec<R>, out: &mut Writer<W>) -> io::Result<u64> {
    let mut parts: Vec<_> = parts.into_iter().map(R::lines).collect();
    let mut heads = BinaryHeap::new();
    let mut waiting: Vec<Option<Event>> = Vec::new();
    for (n, part) in parts.iter_mut().enumerate() {
        let first = next(part)?;
        heads.extend(first.as_ref().map(|event| Reverse((event.at_micros(), n))));
        waiting.push(first);
    }
    let mut events = 0;
    while let Some(Reverse((_, n))) = heads.pop() {
        let Some(event) = std::mem::replace(&mut waiting[n], next(&mut parts[n])?) else { continue };
        out.write(&event)?;
        events += 1;
        heads.extend(waiting[n].as_ref().map(|event| Reverse((event.at_micros(), n))));
    }
    Ok(events)
}

/// The next event that is neither header nor end. A part ends with its end.
fn next(lines: &mut io::Lines<impl BufRead>) -> io::Result<Option<Event>> {
    for line in lines {
        match serde_json::from_str(&line?)? {
            Event::History(_) => {}
            Event::End(_) => return Ok(None),
            event => return Ok(Some(event)),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "a part of the history has no end record: its process died",
    ))
}
