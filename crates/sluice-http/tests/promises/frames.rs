//! Frames of Bedrock, and damage to them.

use proptest::prelude::*;

use crate::said::{FRAMES, counts, replied};

const PATH: &str = "/model/m/converse-stream";

pub(crate) fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut written = Vec::new();
    for (name, value) in headers {
        written.push(u8::try_from(name.len()).expect("a short name"));
        written.extend_from_slice(name.as_bytes());
        written.push(7);
        written.extend_from_slice(&u16::try_from(value.len()).expect("a short value").to_be_bytes());
        written.extend_from_slice(value.as_bytes());
    }
    assembled(&written, payload)
}

fn assembled(headers: &[u8], payload: &[u8]) -> Vec<u8> {
    let len = |len: usize| u32::try_from(len).expect("a short frame").to_be_bytes();
    let mut bytes = [len(16 + headers.len() + payload.len()), len(headers.len())].concat();
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
    bytes.extend_from_slice(headers);
    bytes.extend_from_slice(payload);
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
    bytes
}

pub(crate) fn event(kind: &str, payload: &str) -> Vec<u8> {
    let headers = [(":event-type", kind), (":content-type", "application/json"), (":message-type", "event")];
    frame(&headers, payload.as_bytes())
}

fn usage() -> Vec<u8> {
    event("metadata", r#"{"usage":{"inputTokens":5,"outputTokens":6,"totalTokens":11}}"#)
}

/// A frame in the tests of botocore (`tests/unit/test_eventstream.py`), with one header that is a text.
#[test]
fn frames_are_written_here_as_amazon_writes_them() {
    let amazons = b"\x00\x00\x00=\x00\x00\x00 \x07\xfd\x83\x96\x0ccontent-type\x07\x00\x10application/json{'foo':'bar'}\x8d\x9c\x08\xb1";
    assert_eq!(frame(&[("content-type", "application/json")], b"{'foo':'bar'}"), amazons);
}

/// Frames of the same tests, without headers and with a number: neither is an event of Bedrock, and what
/// follows is read.
#[test]
fn frames_of_other_kinds_are_passed_over() {
    let empty = b"\x00\x00\x00\x10\x00\x00\x00\x00\x05\xc2H\xeb}\x98\xc8\xff";
    let number =
        b"\x00\x00\x00+\x00\x00\x00\x0e4\x8b\xec{\x08event-id\x04\x00\x00\xa0\x0c{'foo':'bar'}\xd3\x89\x02\x85";
    let replied = replied(PATH, FRAMES, &[&empty[..], &number[..], &usage()].concat());
    assert_eq!((counts(replied.used).0, replied.complete), (Some(5), true));
}

#[test]
fn headers_of_every_type_are_passed_over() {
    let mut headers = b"\x0d:message-type\x07\x00\x05event".to_vec();
    for (kind, len) in [(0, 0), (1, 0), (2, 1), (3, 2), (4, 4), (5, 8), (8, 8), (9, 16)] {
        headers.extend_from_slice(&[1, b'h', kind]);
        headers.extend_from_slice(&vec![7; len]);
    }
    headers.extend_from_slice(b"\x01b\x06\x00\x03\x00\xff\x00");
    let read = |headers: &[u8]| replied(PATH, FRAMES, &assembled(headers, br#"{"usage":{"inputTokens":5}}"#));
    assert!(read(&headers).complete);
    assert!(!read(&[&headers[..], b"\x01u\x0a"].concat()).complete);
}

#[test]
fn a_damaged_frame_is_not_believed_and_the_next_is_read() {
    let mut damaged = event("metadata", r#"{"usage":{"inputTokens":5000,"outputTokens":6}}"#);
    let place = damaged.len() - 20;
    damaged[place] ^= 1;
    let alone = replied(PATH, FRAMES, &damaged);
    assert_eq!((alone.used, alone.complete), (None, false));
    let replied = replied(PATH, FRAMES, &[damaged, usage()].concat());
    assert_eq!((counts(replied.used).0, replied.complete), (Some(5), true));
}

#[test]
fn after_a_damaged_prelude_nothing_is_believed() {
    let mut damaged = event("messageStart", "{}");
    damaged[2] ^= 1;
    let replied = replied(PATH, FRAMES, &[damaged, usage()].concat());
    assert_eq!((replied.used, replied.complete), (None, false));
}

#[test]
fn a_frame_over_a_mebibyte_is_skipped() {
    let long = event(
        "contentBlockDelta",
        &format!(r#"{{"usage":{{"inputTokens":9}},"text":"{}"}}"#, "x".repeat(1 << 20)),
    );
    let replied = replied(PATH, FRAMES, &[long.clone(), long, usage()].concat());
    assert_eq!((counts(replied.used).0, replied.complete), (Some(5), true));
}

proptest! {
    #[test]
    fn a_flipped_bit_never_changes_the_usage(bit in 0_usize..8, place in any::<prop::sample::Index>()) {
        let mut frame = usage();
        let place = place.index(frame.len());
        frame[place] ^= 1 << bit;
        let replied = replied(PATH, FRAMES, &frame);
        prop_assert_eq!((replied.used, replied.error, replied.complete), (None, None, false));
    }
}
