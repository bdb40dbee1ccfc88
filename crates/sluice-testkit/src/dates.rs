//! Times in the headers of requests and replies.

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format as DateTimeFormat;
use sluice_sdk::core::Timestamp;

use crate::clock::TestClock;

/// The time as DynamoDB states it in each reply: cut to whole seconds.
pub(crate) fn date(clock: &TestClock) -> Option<String> {
    let secs = clock.now().micros().div_euclid(1_000_000);
    DateTime::from_secs(secs).fmt(DateTimeFormat::HttpDate).ok()
}

/// When a request was signed: `20240304T110002Z`.
pub(crate) fn signed_at(text: &str) -> Option<Timestamp> {
    let part = |range: std::ops::Range<usize>| text.get(range);
    let (year, month, day) = (part(0..4)?, part(4..6)?, part(6..8)?);
    let (hour, minute, second) = (part(9..11)?, part(11..13)?, part(13..15)?);
    let text = format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z");
    let at = DateTime::from_str(&text, DateTimeFormat::DateTime).ok()?;
    Some(Timestamp::from_micros(at.secs().checked_mul(1_000_000)?))
}
