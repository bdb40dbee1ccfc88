//! The shares of a bucket: `[bucket.shares]`, with a part or a table for each name.

use sluice_core::{Amount, DeclaredShare, Limit, LimitType, ShareName, Split};

use super::declared::{Declared, WrittenShare};
use super::place::{Faulty, Place};

/// Splits the limit: `search = 0.5`, or `search = { part = 0.5, floor = 10, background = true }`.
pub(super) fn split(
    place: &Place<'_>,
    declared: &Declared,
    limit: Result<Limit, Faulty>,
) -> Result<Split, Faulty> {
    let mut shares = Vec::with_capacity(declared.shares.len());
    let mut faulty = Ok(());
    for (name, written) in &declared.shares {
        let WrittenShare { part, floor, background } = written.value;
        match ShareName::new(&name.value) {
            Ok(name) => {
                let share = DeclaredShare { name, part, floor, background };
                // One share by itself, so that each is told what is wrong with it.
                let alone = limit.map(|limit| Split::new(limit, std::slice::from_ref(&share)));
                if let Ok(Err(error)) = alone {
                    faulty = Err(place.fault(written, error));
                }
                shares.push(share);
            }
            Err(error) => faulty = Err(place.fault(name, error)),
        }
    }
    let is_concurrent = declared.limit_type.value() == Some(&LimitType::Concurrent);
    if is_concurrent && !shares.is_empty() && declared.adopt_lower_limit.value() == Some(&true) {
        faulty = Err(declared.fault(
            place,
            "it has shares of slots and adopt_lower_limit, and only this file says how many slots each share has: leave \
             adopt_lower_limit out (a lower limit that the vendor reports is shown all the same)",
        ));
    }
    faulty?;
    let one = Amount::from_tokens(1);
    let sum = shares.iter().fold(Amount::ZERO, |sum, share| sum.plus(share.part.of(one)));
    if sum > one {
        return Err(declared.fault(
            place,
            &format!(
                "the parts of its shares add up to {sum}: lower them below 1, for callers that name no share"
            ),
        ));
    }
    Split::new(limit?, &shares).map_err(|error| declared.fault(place, &error.to_string()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::buckets::file::BucketsFile;

    const BUCKET: &str =
        "[[bucket]]\ndimension = \"a#b\"\ntype = \"requests\"\ncapacity = 100\nwindow = \"1m\"\n";

    fn parsed(shares: &str) -> Result<BucketsFile, String> {
        let text = format!("{BUCKET}[bucket.shares]\n{shares}\n");
        BucketsFile::parse("limits.toml", &text).map_err(|error| error.to_string())
    }

    #[test]
    fn shares_are_a_part_or_a_table() {
        let file = parsed("search = 0.5\n\"checkout/batch\" = { part = 0.1, floor = 2, background = true }")
            .unwrap();
        let split = &file.limits[0].1;
        let lines: Vec<_> =
            split.shares().iter().map(|share| format!("{} {}", share.name, share.limit.capacity())).collect();
        assert_eq!(lines, ["checkout/batch 10", "search 50"]);
        assert!(
            split.shares()[0].background
                && split.shares()[0].floor.is_some()
                && split.shares()[1].floor.is_none()
        );
        assert_eq!(split.common().capacity().to_string(), "40");
    }

    #[test]
    fn slots_are_shared_in_whole_calls_and_adopt_no_lower_limit() {
        let slots = "[[bucket]]\ndimension = \"a#b\"\ntype = \"concurrent\"\ncapacity = 5\n";
        let parse = |text: &str| {
            BucketsFile::parse("limits.toml", &format!("{slots}{text}[bucket.shares]\nsearch = 0.5\n"))
        };
        let split = &parse("").unwrap().limits[0].1;
        assert_eq!(
            (split.shares()[0].limit.capacity().to_string(), split.common().capacity().to_string()),
            ("2".into(), "3".into())
        );
        let error = parse("adopt_lower_limit = true\n").unwrap_err().to_string();
        assert!(error.contains("limits.toml:2") && error.contains("leave adopt_lower_limit out"), "{error}");
    }

    #[test]
    fn a_fault_names_the_line_and_what_is_taken() {
        for (shares, place, takes) in [
            ("\"two words\" = 0.5", "limits.toml:7", "letters, digits"),
            ("search = \"half\"", "limits.toml:7: search = \"half\"", "as in 0.5"),
            ("search = 1.5", "limits.toml:7: search = 1.5", "below 1"),
            ("search = { floor = 3 }", "limits.toml:7", "it has no part: add part = 0.5"),
            (
                "search = { part = 0.5 }\nsearch = { part = 0.2 }",
                "limits.toml:8: search",
                "it is stated twice: remove one of the two, or rename it",
            ),
            ("search = []", "limits.toml:7", "{ part = 0.5, floor = 10, background = true }"),
            (
                "checkout = { part = 0.5, part = 0.2 }",
                "limits.toml:7: checkout",
                "a name in it is stated twice",
            ),
            (
                "search = { part = 0.5, flor = 3 }",
                "limits.toml:7: search = { part = 0.5, flor = 3 }",
                "flor: a share has no such field; it has part, floor, background",
            ),
            (
                "search = { part = 0.5, floor = -1 }",
                "limits.toml:7: search = { part = 0.5, floor = -1 }",
                "floor must be a number, 0 or more",
            ),
            (
                "search = { part = 0.5, background = \"yes\" }",
                "limits.toml:7",
                "background must be true or false, without quotes",
            ),
            ("search = 0.5\nsearch = 0.2", "limits.toml:8: search", "it is stated twice"),
            (
                "checkout/batch = 0.5",
                "limits.toml:7: checkout/batch",
                "write this name in quotes: \"checkout/batch\"",
            ),
            ("\"a b\" = 0.5", "limits.toml:7", "it has the character ' '"),
            (
                "search = 0.001",
                "limits.toml:7: search = 0.001",
                "the share search holds 0.1, and a call takes 1",
            ),
            ("search = 1", "limits.toml:7: search = 1", "leave 0 for callers that name no share"),
            ("search = 0.6\nchat = 0.6", "limits.toml:2: dimension = \"a#b\"", "add up to 1.2"),
            (
                "search = 0.5\nchat = 0.5",
                "limits.toml:2: dimension = \"a#b\"",
                "leave 0 for callers that name no share",
            ),
        ] {
            let error = parsed(shares).unwrap_err();
            assert!(error.contains(place) && error.contains(takes), "{shares}\n-> {error}");
        }
    }
}
