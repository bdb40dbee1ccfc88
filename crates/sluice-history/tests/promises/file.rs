//! Histories in files.

use std::path::PathBuf;

use sluice_history::{End, Ending, Event, Header, ReadError, Writer, check, check_files, merge};

use crate::story::Story;

fn two_in_a_second() -> Story {
    Story::default().rate("v#rpm", 1, 1, 0).grant("a", "v#rpm", 10_000).grant("b", "v#rpm", 10_500)
}

fn written(story: &Story) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Header::new(0)).unwrap();
    story.0.iter().for_each(|event| writer.write(event).unwrap());
    writer.finish().unwrap()
}

fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).unwrap();
    path
}

#[test]
fn what_is_written_is_read_again_line_by_line() {
    let story =
        two_in_a_second().released("a", "v#rpm", 11_000, Ending::GivenBackUnused).left("p", &["v#rpm"], 1, 2);
    let text = String::from_utf8(written(&story)).unwrap();
    let lines: Vec<Event> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], Event::History(Header::new(0)));
    assert_eq!(lines[1..=story.0.len()], story.0[..]);
    assert_eq!(lines[story.0.len() + 1..], [Event::End(End { events: 6 })]);
    assert_eq!(
        text.lines().nth(4).unwrap(),
        r#"{"event":"released","id":"a","dimension":"v#rpm","at_micros":11000000,"how":"given_back_unused"}"#
    );
    assert!(check(text.as_bytes()).unwrap().holds());
}

#[test]
fn a_file_is_judged_as_events_are() {
    let verdict = check(&written(&two_in_a_second())[..]).unwrap();
    assert_eq!((verdict.events, verdict.grants), (5, 2));
    assert_eq!(verdict.violations, two_in_a_second().check().violations);
    assert_eq!(verdict.violations.len(), 1);
}

fn error(text: &str) -> String {
    check(text.as_bytes()).unwrap_err().to_string()
}

const HEADER: &str = r#"{"event":"history","version":2}"#;
const LIMIT: &str = r#"{"event":"limit","dimension":"v#rpm","kind":"tokens","capacity_micros":1,"refill_pico_per_sec":1,"from_micros":0}"#;

#[test]
fn what_is_no_history_is_told_in_words_with_its_line_and_what_one_looks_like() {
    let like = format!(
        "A history is NDJSON that begins with {HEADER}, as `sluice stress DIM --history FILE` writes it"
    );
    let told = error("\n# Sluice\n\nSeveral products\n");
    assert_eq!(told, format!("the history is not a history: its line 2 is `# Sluice`. {like}"));
    assert_eq!(error(""), format!("the history is not a history: it is empty. {like}"));
    let told = error(LIMIT);
    assert!(told.contains(r#"its line 1 is `{"event":"limit","dimension":"v#rpm","ki...`."#), "{told}");
    assert!(error("\u{1b}[31m\u{0}").contains("is `\u{fffd}[31m\u{fffd}`"), "no commands for a terminal");
    assert!(serde_json::from_str::<Event>(HEADER).is_ok_and(|event| event == Event::History(Header::new(0))));
}

#[test]
fn a_line_that_is_no_event_is_told_with_its_number() {
    let told = error(&format!("{HEADER}\n\n{{\"event\":\"lent\"}}\n"));
    assert!(
        told.starts_with("the history, line 3 is not an event of a history: unknown variant `lent`"),
        "{told}"
    );
    assert!(!told.contains("column"), "{told}");
    let told = error(&format!("{HEADER}\nwhat is this\n{LIMIT}\n"));
    assert!(told.contains("line 2 is not an event of a history: `what is this` is not JSON"), "{told}");
}

#[test]
fn a_history_that_was_cut_off_anywhere_is_not_called_whole() {
    let whole = written(&two_in_a_second().released("a", "v#rpm", 11_000, Ending::GivenBackUnused));
    assert!(check(&whole[..]).unwrap().holds());
    for length in 1..whole.len() - 1 {
        match check(&whole[..length]) {
            Ok(verdict) => assert!(
                verdict
                    .violations
                    .iter()
                    .any(|violation| violation.to_string().contains("has no end record")),
                "{length} bytes of {}: {verdict:?}",
                whole.len()
            ),
            Err(ReadError::CutOff { .. } | ReadError::NotAHistory { .. }) => {}
            Err(other) => panic!("{length} bytes: {other}"),
        }
    }
    let told = error(&format!("{HEADER}\n{LIMIT}\n{{\"event\":\"gran"));
    assert_eq!(told, "the history was cut off: its last line, line 3, breaks off in the middle");
    let text = String::from_utf8(whole).unwrap();
    let lost: String =
        text.lines().enumerate().filter(|(n, _)| *n != 3).map(|(_, line)| format!("{line}\n")).collect();
    let verdict = check(lost.as_bytes()).unwrap();
    assert!(
        verdict.violations[0].to_string().contains("counts 5 events before it, and there are 4"),
        "{verdict:?}"
    );
}

#[test]
fn an_empty_line_is_no_event() {
    assert!(
        check(format!("{HEADER}\n\n{LIMIT}\n{{\"event\":\"end\",\"events\":2}}\n\n").as_bytes())
            .unwrap()
            .holds()
    );
}

#[test]
fn several_files_are_one_history_and_each_counts_its_own_lines() {
    let parts = [
        Story::default().rate("v#rpm", 1, 1, 0).grant("a", "v#rpm", 10_000),
        Story::default().rate("v#rpm", 1, 1, 0).grant("b", "v#rpm", 10_500),
        Story::default().released("x", "v#rpm", 1, Ending::Died),
    ];
    let name = |n: usize| format!("part-{n}.ndjson");
    let files: Vec<_> = parts.iter().enumerate().map(|(n, part)| file(&name(n), &written(part))).collect();
    let verdict = check_files(&files[..2], 0).unwrap();
    assert!(verdict.violations[0].to_string().contains("2 granted in 10.000000 to 10.500000"));
    assert!(check_files(&files[..2], 250_000).unwrap().holds(), "clocks of two machines");
    let verdict = check_files(&files, 250_000).unwrap();
    assert!(
        verdict.violations[0].to_string().contains("part-2.ndjson, line 2: x is released"),
        "{verdict:?}"
    );
    let missing = check_files(&["/no/such/history"], 0).unwrap_err();
    assert!(missing.to_string().starts_with("/no/such/history cannot be read"));
}

#[test]
fn parts_are_merged_by_time_and_each_keeps_its_own_order() {
    let release = |story: Story, id, ms| story.released(id, "v#rpm", ms, Ending::GivenBackUnused);
    let limit = Story::default().rate("v#rpm", 9, 1, 0);
    // A release is told after its answer: here as of a time before the grant in front of it.
    let one = release(Story::default().grant("a", "v#rpm", 10).grant("c", "v#rpm", 30), "a", 15);
    let two = Story::default().grant("b", "v#rpm", 20).grant("d", "v#rpm", 40);
    let mut out = Writer::new(Vec::new(), Header::new(7)).unwrap();
    out.write(&limit.0[0]).unwrap();
    let (one, two) = (written(&one), written(&two));
    assert_eq!(merge(vec![&one[..], &two[..], &written(&Story::default())[..]], &mut out).unwrap(), 5);
    let text = String::from_utf8(out.finish().unwrap()).unwrap();
    let events: Vec<Event> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let times: Vec<_> = events.iter().map(|event| event.at_micros().map(|at| at / 1_000)).collect();
    assert_eq!(times, [None, Some(0), Some(10), Some(20), Some(30), Some(15), Some(40), None]);
    assert!(check(text.as_bytes()).unwrap().holds());
    let last = one.iter().rposition(|byte| *byte == b'{').unwrap();
    for cut in [&one[..one.len() - 20], &one[..last], &b""[..]] {
        assert!(
            merge(vec![cut], &mut Writer::new(Vec::new(), Header::new(0)).unwrap()).is_err(),
            "a part is cut off"
        );
    }
}
