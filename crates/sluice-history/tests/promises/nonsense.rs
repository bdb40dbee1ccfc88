//! Faults of the history itself.

use sluice_history::{Ending, Event, FaultKind, Header, Kind, Limit, Violation};

use crate::story::{MS, Story};

fn bucket() -> Story {
    Story::default().rate("v#rpm", 9, 1, 0).grant("a", "v#rpm", 10_000)
}

#[test]
fn a_release_without_a_grant_is_a_fault_with_its_line() {
    let release = |id, name| bucket().released(id, name, 11_000, Ending::Released).told();
    assert_eq!(
        release("x", "v#rpm"),
        "the history makes no sense: line 3: x is released in v#rpm and was not granted there"
    );
    assert!(release("a", "v#tpm").contains("a is released in v#tpm"), "granted elsewhere");
}

#[test]
fn an_id_is_granted_once_and_released_once_in_a_bucket() {
    assert!(
        bucket().grant("a", "v#rpm", 11_000).told().contains("line 3: a is granted in v#rpm a second time")
    );
    let released = bucket().released("a", "v#rpm", 11_000, Ending::Died);
    let twice = released.released("a", "v#rpm", 12_000, Ending::Released).told();
    assert!(twice.contains("line 4: a is released in v#rpm a second time"), "{twice}");
}

#[test]
fn an_interval_ends_after_it_begins() {
    let early =
        |change: fn(&mut sluice_history::Granted)| bucket().granted("b", "v#rpm", 11_000, change).told();
    assert!(
        early(|b| b.granted_at_micros -= 1)
            .contains("b: granted_at_micros (10999999) is before asked_at_micros")
    );
    assert!(
        early(|b| b.start_at_micros -= 1).contains("b: start_at_micros (10999999) is before asked_at_micros")
    );
    assert!(early(|b| b.judged_from_micros = Some(12_000 * MS)).contains("is before judged_from_micros"));
    assert!(
        bucket()
            .released("a", "v#rpm", 9_999, Ending::Released)
            .told()
            .contains("at_micros (9999000) is before")
    );
    assert!(bucket().left("p", &["v#rpm"], 2, 1).told().contains("p: at_micros (1000) is before"));
    let mut limit = Story::default();
    limit.0.push(Event::Limit(Limit::new("v#rpm", Kind::Tokens, 1, 1, 10).by(9)));
    assert!(limit.told().contains("v#rpm: by_micros (9) is before from_micros (10)"));
}

#[test]
fn grants_without_a_limit_are_a_fault_once_a_bucket() {
    let story = Story::default().grant("a", "v#rpm", 1).grant("b", "v#rpm", 2).grant("c", "v#tpm", 2);
    let faults: Vec<_> = story.check().violations.iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 2);
    assert!(faults[0].ends_with("line 1: v#rpm has grants and no limit"), "{}", faults[0]);
    assert!(faults[1].ends_with("line 3: v#tpm has grants and no limit"), "{}", faults[1]);
}

#[test]
fn amounts_kinds_and_versions_that_cannot_be_are_faults() {
    let kind = |event| {
        let mut story = Story::default();
        story.0.push(event);
        match story.check().violations.as_slice() {
            [Violation::History(fault)] => fault.kind.clone(),
            other => panic!("{other:?}"),
        }
    };
    let amount = |of: &str, field, value| FaultKind::Amount { of: of.into(), field, value };
    let limit = |kind, capacity, rate| Event::Limit(Limit::new("v#x", kind, capacity, rate, 0));
    assert_eq!(kind(limit(Kind::Tokens, 0, 1)), amount("v#x", "capacity_micros", 0));
    assert_eq!(kind(limit(Kind::Tokens, 1, 0)), amount("v#x", "refill_pico_per_sec", 0));
    assert_eq!(kind(limit(Kind::Concurrent, 1, 1)), amount("v#x", "refill_pico_per_sec", 1));
    assert_eq!(kind(limit(Kind::Concurrent, 1, -1)), amount("v#x", "refill_pico_per_sec", -1));
    let header = Header { version: 1, ..Header::new(0) };
    assert_eq!(kind(Event::History(header)), FaultKind::Version { version: 1 });
    assert!(
        bucket()
            .granted("b", "v#rpm", 1, |b| b.cost_micros = 0)
            .told()
            .contains("b: cost_micros = 0 makes no")
    );
    assert!(bucket().slots("v#rpm", 1, 1).told().contains("v#rpm changes from"));
}

#[test]
fn a_history_whose_end_counts_other_events_than_are_there_is_a_fault() {
    let ended = |events| bucket().end(events);
    ended(2).holds();
    assert!(ended(3).told().contains("line 3: the end record counts 3 events before it, and there are 2"));
    assert!(ended(1).told().contains("counts 1 events"));
    let after = ended(2).grant("b", "v#rpm", 11_000).grant("c", "v#rpm", 12_000);
    assert!(after.told().contains("line 4: an event after the end record"), "once");
}
