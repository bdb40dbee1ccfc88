//! The shares of a bucket: `[bucket.shares]`, with a part or a table for each name.

use serde::Deserialize;
use sluice_core::{DeclaredShare, Factor, Limit, ShareName, Split};
use toml::{Spanned, Value};

use super::{Declared, Place, amount, number};
use crate::failure::Failure;

/// `search = 0.5`, or `search = { part = 0.5, floor = 10, background = true }`.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "it must be a part, as in 0.5, or a table, as in { part = 0.5, floor = 10, background = true }"
)]
pub(super) enum Written {
    Part(Spanned<Value>),
    Table(Table),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    part: Spanned<Value>,
    floor: Option<Spanned<Value>>,
    #[serde(default)]
    background: bool,
}

pub(super) fn split(place: &Place<'_>, declared: &Declared, limit: Limit) -> Result<Split, Failure> {
    let mut shares = Vec::with_capacity(declared.shares.len());
    for (name, written) in &declared.shares {
        let (part, floor, background) = match written {
            Written::Part(part) => (part, None, false),
            Written::Table(table) => (&table.part, table.floor.as_ref(), table.background),
        };
        let of = ShareName::new(name.as_ref()).map_err(|error| place.fault(name, "shares", error))?;
        let part: Factor = number(place, part, "part", "a number above 0 and up to 1, as in 0.5")?;
        let floor = floor.map(|floor| amount(place, floor, "floor")).transpose()?;
        shares.push(DeclaredShare { name: of, part, floor, background });
    }
    Split::new(limit, &shares).map_err(|error| place.fault(&declared.dimension, "dimension", error))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::buckets::file::BucketsFile;

    const BUCKET: &str = "[[bucket]]\ndimension = \"a#b\"\ntype = \"requests\"\ncapacity = 100\nwindow = \"1m\"\n";

    fn parsed(shares: &str) -> Result<BucketsFile, String> {
        let text = format!("{BUCKET}[bucket.shares]\n{shares}\n");
        BucketsFile::parse("limits.toml", &text).map_err(|error| error.to_string())
    }

    #[test]
    fn shares_are_a_part_or_a_table() {
        let file = parsed("search = 0.5\n\"checkout/batch\" = { part = 0.1, floor = 2, background = true }").unwrap();
        let split = &file.limits[0].1;
        let lines: Vec<_> =
            split.shares().iter().map(|share| format!("{} {}", share.name, share.limit.capacity())).collect();
        assert_eq!(lines, ["checkout/batch 10", "search 50"]);
        assert!(split.shares()[0].background && split.shares()[0].floor.is_some() && split.shares()[1].floor.is_none());
        assert_eq!(split.common().capacity().to_string(), "40");
    }

    #[test]
    fn a_fault_names_the_line_and_what_is_taken() {
        for (shares, place, takes) in [
            ("\"two words\" = 0.5", "limits.toml:7", "letters, digits"),
            ("search = \"half\"", "limits.toml:7: part", "as in 0.5"),
            ("search = 1.5", "limits.toml:7: part = 1.5", "up to 1"),
            ("search = { floor = 3 }", "limits.toml:7", "{ part = 0.5, floor = 10, background = true }"),
            ("search = { part = 0.5, flor = 3 }", "limits.toml:7", "{ part = 0.5, floor = 10, background = true }"),
            ("search = 0.001", "limits.toml:2: dimension = a#b", "the share search holds 0.1, and a call takes 1"),
            ("search = 1", "limits.toml:2: dimension = a#b", "leave 0 for callers that name no share"),
        ] {
            let error = parsed(shares).unwrap_err();
            assert!(error.contains(place) && error.contains(takes), "{shares}\n-> {error}");
        }
    }
}
