//! Property tests: buckets read from any file are valid, and a fault is reported with its position.

use proptest::prelude::*;
use sluice_core::{Amount, LimitType};

use super::BucketsFile;

/// A bucket as a user could declare it, or nearly so: lines may be missing, and values may be swapped.
fn declared() -> impl Strategy<Value = String> {
    let line = |name: &'static str, value: BoxedStrategy<String>| {
        let line = value.prop_map(move |value| format!("{name} = {value}\n"));
        prop_oneof![15 => line, 1 => Just(String::new()), 1 => Just(format!("{name} = [1]\n")), 1 => "\\PC{0,12}\n"]
    };
    let name = prop_oneof![8 => "\"[a-c]#(gpt-4o#)?[rt]pm\"", 1 => "\"\\PC{0,10}\"", 1 => Just("\"lease#x\"".to_owned())];
    let kind = prop::sample::select(vec!["\"requests\"", "\"tokens\"", "\"concurrent\"", "\"request\""]);
    let window = prop_oneof![4 => "\"[0-9]{1,3}(ms|s|m|h|d)\"", 1 => "\"\\PC{0,6}\""];
    let counts = prop::sample::select(vec!["\"bucket\"", "\"sliding\"", "\"fixed\"", "\"often\""]);
    let jitter = "\"[0-9]{1,3}(ms|s)\"";
    let optional = |line: BoxedStrategy<String>| prop_oneof![1 => line, 1 => Just(String::new())];
    (
        line("dimension", name.boxed()),
        line("type", kind.prop_map(str::to_owned).boxed()),
        prop_oneof![3 => line("capacity", number().boxed()), 1 => Just(String::new())],
        optional(line("limit", number().boxed()).boxed()),
        optional(line("counts", counts.prop_map(str::to_owned).boxed()).boxed()),
        optional(line("arrival_jitter", jitter.boxed()).boxed()),
        optional(line("window", window.boxed()).boxed()),
        optional(line("refill_rate", number().boxed()).boxed()),
        optional(line("cost_per_call", number().boxed()).boxed()),
    )
        .prop_map(|(name, kind, capacity, limit, counts, jitter, window, rate, cost)| {
            format!("[[bucket]]\n{name}{kind}{capacity}{limit}{counts}{jitter}{window}{rate}{cost}")
        })
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "[1-9][0-9]{0,5}",
        3 => "[0-9]{1,3}\\.[0-9]{1,9}",
        1 => "[1-9]e-?[0-9]{1,3}",
        1 => "-?[0-9_]{1,20}",
        1 => prop::sample::select(vec!["nan", "-inf", "0x10", "true", "\"9\"", "1979-05-27"]).prop_map(str::to_owned),
    ]
}

/// A valid declaration, in numbers that a float represents exactly.
fn sound() -> impl Strategy<Value = (String, i64, i64)> {
    let kinds = prop::sample::select(vec![LimitType::Requests, LimitType::Tokens]);
    (kinds, 1_i64..100_000_000, 1_i64..100_000_000).prop_map(|(kind, capacity, rate)| {
        let capacity = capacity * 1_000;
        let (tokens, a_second) = (Amount::from_micros(capacity), Amount::from_micros(rate));
        let text = format!(
            "[[bucket]]\ndimension = \"a#b\"\ntype = \"{kind}\"\ncapacity = {tokens}\nrefill_rate = {a_second}\ncost_per_call = 0.001\n"
        );
        (text, capacity, rate)
    })
}

/// A vendor that counts in windows: what it allows, in tokens and milliseconds, and the file that says so.
fn counted() -> impl Strategy<Value = (i128, i128, i128, String)> {
    let kinds = prop::sample::select(vec!["sliding", "fixed"]);
    let limits = (2_i128..1_000_000).prop_flat_map(|limit| (Just(limit), 1..limit));
    (kinds, limits, 1_i128..100_000_000, 0_i128..10_000).prop_map(|(counts, (limit, burst), window, jitter)| {
        let text = format!(
            "[[bucket]]\ndimension = \"a#b\"\ntype = \"requests\"\nlimit = {limit}\nwindow = \"{window}ms\"\n\
             counts = \"{counts}\"\narrival_jitter = \"{jitter}ms\"\ncapacity = {burst}\n"
        );
        (limit, burst, window + jitter, text)
    })
}

fn check(text: &str) -> Result<(), TestCaseError> {
    match BucketsFile::parse("limits.toml", text) {
        Ok(file) => {
            prop_assert!(!file.limits.is_empty());
            for (name, split) in &file.limits {
                let limit = split.whole();
                prop_assert!(
                    limit.capacity() > Amount::ZERO && limit.cost_per_call().amount() <= limit.capacity()
                );
                prop_assert_eq!(limit.refill_rate().is_zero(), limit.is_concurrent());
                prop_assert!(!limit.is_concurrent() || limit.capacity().is_whole());
                prop_assert_eq!(file.limits.iter().filter(|(other, _)| other == name).count(), 1, "{}", name);
            }
        }
        Err(failure) => {
            let message = failure.to_string();
            let place = message.strip_prefix("limits.toml:").unwrap_or_default();
            let line: Option<usize> = place.split(':').next().and_then(|line| line.parse().ok());
            let in_file = line.is_some_and(|line| (1..=text.split('\n').count()).contains(&line));
            prop_assert!(in_file || message.contains("declares no bucket"), "{message}");
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_file_of_near_misses_is_sound_or_told_with_its_line(buckets in prop::collection::vec(declared(), 1..4)) {
        check(&buckets.concat())?;
    }

    #[test]
    fn any_text_is_no_file_and_is_told(text in "(?s).{0,80}") {
        check(&text)?;
    }

    /// C + R * (W + j + 2e) <= N, and one unit of R more is too much. In 10^-12 tokens a second and
    /// milliseconds.
    #[test]
    fn no_window_of_a_vendor_that_counts_is_exceeded((limit, burst, span, text) in counted()) {
        const PICO: i128 = 1_000_000_000_000;
        let file = BucketsFile::parse("limits.toml", &text).unwrap();
        let rate = file.limits[0].1.whole().refill_rate().to_string();
        let (whole, decimals) = rate.split_once('.').unwrap_or((&rate, ""));
        let rate = whole.parse::<i128>().unwrap() * PICO + format!("{decimals:0<12}").parse::<i128>().unwrap();
        let most = |rate: i128| burst * PICO * 1_000 + rate * (span + 200);
        let allowed = limit * PICO * 1_000;
        prop_assert!(most(rate) <= allowed && most(rate + 1) > allowed, "{rate}\n{text}");
        prop_assert_eq!(file.limits[0].1.whole().capacity().micros(), i64::try_from(burst).unwrap() * 1_000_000);
    }

    #[test]
    fn what_is_declared_is_what_is_read((text, capacity, rate) in sound()) {
        let file = BucketsFile::parse("limits.toml", &text).unwrap();
        let limit = file.limits[0].1.whole();
        prop_assert_eq!(limit.capacity().micros(), capacity);
        prop_assert_eq!(limit.refill_rate().to_string(), Amount::from_micros(rate).to_string());
        prop_assert_eq!(limit.cost_per_call().to_string(), "0.001");
    }
}
