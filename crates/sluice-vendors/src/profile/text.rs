//! Spans of time as profiles write them: `1s`, `1m`, `1d`, `30d`.

use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error};

use super::Window;

/// A window: a span, or `implied`.
pub(super) fn window<'de, D: Deserializer<'de>>(from: D) -> Result<Window, D::Error> {
    let text = String::deserialize(from)?;
    if text == "implied" { Ok(Window::Implied) } else { parse(&text).map(Window::Documented) }
}

/// A list of spans.
pub(super) fn spans<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Duration>, D::Error> {
    Vec::<String>::deserialize(from)?.iter().map(|text| parse(text)).collect()
}

fn parse<E: Error>(text: &str) -> Result<Duration, E> {
    let span = humantime::parse_duration(text);
    span.map_err(|error| E::custom(format_args!("{text:?} is no span of time such as 1m: {error}")))
}
