//! The file of limits: each limit that comes out of it makes sense, and each fault is told with its place.
#![no_main]

use std::collections::BTreeSet;
use std::fmt::Write as _;

use libfuzzer_sys::fuzz_target;
use sluice_core::{Amount, Dimension, Limit, Split};

// The command's own files, by themselves: the command as a whole takes minutes to build with a fuzzer's
// flags. They are formatted where they belong.
#[rustfmt::skip]
#[path = "../../crates/sluice-cli/src/failure.rs"]
#[allow(dead_code)]
mod failure;
#[rustfmt::skip]
#[path = "../../crates/sluice-cli/src/buckets/file.rs"]
#[allow(dead_code)]
mod file;

use file::BucketsFile;

/// More digits than a float keeps: TOML has no other number with a fraction.
const EXACT_DIGITS: usize = 15;

fn check(file: &BucketsFile) {
    assert!(!file.limits.is_empty());
    let names: BTreeSet<&Dimension> = file.limits.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), file.limits.len(), "a bucket is declared once");
    for (name, split) in &file.limits {
        let limit = split.whole();
        assert!(
            split.shares().iter().all(|share| share.limit.capacity() >= limit.cost_per_call().amount()),
            "{name}"
        );
        assert!(
            limit.capacity() > Amount::ZERO && limit.cost_per_call().amount() <= limit.capacity(),
            "{name}"
        );
        assert_eq!(limit.refill_rate().is_zero(), limit.is_concurrent(), "{name}");
        assert!(!limit.is_concurrent() || limit.capacity().is_whole(), "{name}");
    }
}

/// The limits as a file again.
fn written(limits: &[(Dimension, Split)]) -> String {
    let mut text = String::new();
    for (name, split) in limits {
        let limit = split.whole();
        let name = toml::Value::String(name.to_string());
        let (kind, capacity, cost) = (limit.limit_type(), limit.capacity(), limit.cost_per_call());
        writeln!(text, "[[bucket]]\ndimension = {name}\ntype = \"{kind}\"\ncapacity = {capacity}").unwrap();
        writeln!(text, "cost_per_call = {cost}").unwrap();
        if !limit.is_concurrent() {
            writeln!(text, "refill_rate = {}", limit.refill_rate()).unwrap();
        }
    }
    text
}

fn is_exact(limit: &Limit) -> bool {
    let digits = |number: String| number.trim_start_matches(['0', '.']).len() <= EXACT_DIGITS;
    digits(limit.capacity().to_string())
        && digits(limit.refill_rate().to_string())
        && digits(limit.cost_per_call().to_string())
}

fuzz_target!(|text: &str| {
    match BucketsFile::parse("limits.toml", text) {
        Ok(file) => {
            check(&file);
            let again = BucketsFile::parse("written.toml", &written(&file.limits)).unwrap();
            check(&again);
            for ((name, split), (again_name, again)) in file.limits.iter().zip(&again.limits) {
                let (limit, again) = (split.whole(), again.whole());
                assert_eq!(name, again_name);
                assert!(!is_exact(limit) || limit == again, "{name}: {limit:?} became {again:?}");
            }
        }
        Err(failure) => {
            let message = failure.to_string();
            let place =
                message.strip_prefix("limits.toml:").unwrap_or_else(|| panic!("{message:?} names no file"));
            if place != " it declares no bucket; a bucket begins with [[bucket]]" {
                let line: usize = place.split(':').next().and_then(|line| line.parse().ok()).unwrap();
                assert!(
                    (1..=text.split('\n').count()).contains(&line),
                    "{message:?} names no line of the file"
                );
            }
        }
    }
});
