//! A wait in the message for people.
//!
//! Google writes "Please retry in 34.074824224s."
//! (<https://github.com/google-gemini/gemini-cli/issues/2305>), OpenAI "Please try again in 7m12s."
//! (<https://help.openai.com/en/articles/6897202-ratelimiterror>), Moonshot "please try again after 1
//! seconds" (<https://platform.moonshot.ai/docs/api/chat#error-codes>).

use std::time::Duration;

use crate::time;

const BEFORE: &[&str] = &["retry in ", "try again in ", "retry after ", "try again after "];

/// The wait that the message names.
pub(super) fn wait(message: &str) -> Option<Duration> {
    let message = message.to_ascii_lowercase();
    let rest = BEFORE.iter().find_map(|words| Some(message.split_once(words)?.1))?;
    let mut words = rest.split_whitespace();
    let first = words.next()?.trim_end_matches(['.', ',', ')', '!']);
    time::span(first).or_else(|| of_unit(first, words.next()?))
}

fn of_unit(number: &str, unit: &str) -> Option<Duration> {
    let one = match unit.trim_end_matches(['.', ',', ')', '!']) {
        "ms" | "millisecond" | "milliseconds" => return time::milliseconds(number),
        "s" | "sec" | "second" | "seconds" => 1,
        "m" | "min" | "minute" | "minutes" => 60,
        "h" | "hour" | "hours" => 3_600,
        "d" | "day" | "days" => 86_400,
        _ => return None,
    };
    time::seconds(number)?.checked_mul(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_read_as_vendors_write_them() {
        let cases = [
            ("You exceeded your current quota. Please retry in 34.074824224s.", 34_074),
            ("Rate limit reached. Limit 3 / min. Please try again in 20s. Contact us", 20_000),
            ("Limit 30000, Used 29000. Please try again in 6ms. Visit", 6),
            ("Please try again in 7m12s.", 432_000),
            ("max RPM: 3, please try again after 1 seconds", 1_000),
            ("Try again in 2 minutes.", 120_000),
            ("Try again in 2 days.", 172_800_000),
        ];
        for (message, millis) in cases {
            assert_eq!(wait(message).map(|wait| wait.as_millis()), Some(millis), "{message}");
        }
    }

    #[test]
    fn a_message_that_names_no_wait_names_none() {
        for message in [
            "",
            "Please try again later.",
            "retry in ",
            "try again in a while",
            "try again in 5 apples",
            "retry in \u{e9}",
        ] {
            assert_eq!(wait(message), None, "{message}");
        }
    }
}
