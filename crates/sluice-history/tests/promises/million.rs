//! A million events, as a long run leaves them.

use std::time::Instant;

use sluice_history::{
    Checker, Ending, Event, Granted, Header, Kind, Limit, Released, Violation, Writer, check,
};

use crate::story::{MS, PER_SEC, TOKEN};

const EVENTS: usize = 1_000_000;
const SLOTS: usize = 50;

/// A rate bucket that is always short and a concurrency bucket that is always full, told in the order of
/// time.
fn history() -> Vec<Event> {
    let begin = 1_709_550_000_000 * MS;
    let mut events = vec![
        Event::Limit(Limit::new("v#rpm", Kind::Requests, 100 * TOKEN, 1_000 * PER_SEC, begin)),
        Event::Limit(Limit::new(
            "v#slots",
            Kind::Concurrent,
            i64::try_from(SLOTS).unwrap() * TOKEN,
            0,
            begin,
        )),
    ];
    let mut held = std::collections::VecDeque::new();
    for n in 0_i64.. {
        let now = begin + n * MS;
        let process = format!("p{}", n % 8);
        // The 100 of the burst come first; then one a millisecond, asked for 30 to 50 ms ahead.
        let start = now - n.min(99) * MS;
        let mut rate =
            Granted::at(format!("r{n}"), &process, "v#rpm", TOKEN, start - (30 + n / 1_000 % 20) * MS);
        (rate.start_at_micros, rate.booked) = (start, true);
        events.push(Event::Granted(rate));
        if held.len() == SLOTS {
            let id = held.pop_front().unwrap();
            let dimension = "v#slots".to_owned();
            events.push(Event::Released(Released { id, dimension, at_micros: now, how: Ending::Released }));
        }
        let slot = Granted::at(format!("s{n}"), &process, "v#slots", TOKEN, now);
        held.push_back(slot.id.clone());
        events.push(Event::Granted(Granted { ends_at_micros: Some(now + 60_000 * MS), ..slot }));
        if events.len() >= EVENTS {
            events.truncate(EVENTS);
            break;
        }
    }
    events
}

#[test]
fn a_million_events_are_decided_in_seconds_and_one_grant_too_many_is_found_among_them() {
    let mut events = history();
    let began = Instant::now();
    let mut checker = Checker::new();
    events.iter().cloned().for_each(|event| checker.feed(event));
    let verdict = checker.finish();
    println!("{} events from memory: {:.2} s", verdict.events, began.elapsed().as_secs_f64());
    assert!(verdict.holds(), "{}", verdict.violations[0]);
    assert_eq!(verdict.events, EVENTS as u64);
    let busiest = verdict.buckets[0].busiest.as_ref().unwrap();
    assert_eq!(busiest.granted, busiest.allowed, "not a token is left unused");
    assert_eq!(verdict.buckets[1].peak.as_ref().unwrap().granted, 50_000_000);

    let at = if cfg!(debug_assertions) { EVENTS / 20 } else { EVENTS / 2 };
    let Some(now) = events[at].at_micros() else { panic!("a header in the middle") };
    let (id, dimension) = ("one too many".to_owned(), "v#slots".to_owned());
    events.insert(at, Event::Granted(Granted::at(&id, "p9", &dimension, TOKEN, now)));
    events.insert(
        at + 1,
        Event::Released(Released { id, dimension, at_micros: now + 1, how: Ending::Released }),
    );
    // As a file: all of it where the JSON library is optimised too.
    let lines = if cfg!(debug_assertions) { at + EVENTS / 20 } else { events.len() };
    let mut writer = Writer::new(Vec::new(), Header::new(0)).unwrap();
    let began = Instant::now();
    events[..lines].iter().for_each(|event| writer.write(event).unwrap());
    let file = writer.finish().unwrap();
    let written = began.elapsed();
    let began = Instant::now();
    let verdict = check(&file[..]).unwrap();
    let (mib, secs) = (file.len() >> 20, began.elapsed().as_secs_f64());
    println!(
        "{} events as {mib} MiB of NDJSON: written in {:.2} s, decided in {secs:.2} s",
        verdict.events,
        written.as_secs_f64()
    );
    let [Violation::ConcurrencyExceeded { window, .. }] = &verdict.violations[..] else {
        panic!("{} violations, the first: {:?}", verdict.violations.len(), verdict.violations.first())
    };
    assert_eq!((window.from_micros, window.granted), (now, 51_000_000));
}
