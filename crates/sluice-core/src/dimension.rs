//! Names of buckets.

use alloc::string::String;
use alloc::sync::Arc;
use core::borrow::Borrow;
use core::fmt;
use core::str::FromStr;

use crate::schema::{LEASE_PREFIX, LOAD_PREFIX, TICKET_PREFIX};

/// The name of a bucket: `{vendor}#{metric}` or `{vendor}#{model}#{metric}`, as in `openai#rpm`. Cheap to
/// clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dimension(Arc<str>);

/// The longest name, in bytes: a lease key adds 39 bytes to it, and DynamoDB's partition keys end at 2,048.
const MAX_BYTES: usize = 1_024;

/// Why a text is not the name of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed dimension {name:?}: {reason}; use the form vendor#metric or vendor#model#metric, as in openai#rpm")]
pub struct DimensionError {
    /// The text as it was given.
    pub name: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl Dimension {
    /// Parses a name.
    ///
    /// # Errors
    /// [`DimensionError`] for a wrong number of parts, an empty part, white space or control characters, a
    /// name that is too long, and the vendors `lease`, `load` and `ticket`, whose keys belong to other rows.
    pub fn new(name: &str) -> Result<Self, DimensionError> {
        match fault(name) {
            None => Ok(Self(Arc::from(name))),
            Some(reason) => Err(DimensionError { name: String::from(name), reason }),
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn fault(name: &str) -> Option<&'static str> {
    if name.len() > MAX_BYTES {
        return Some("it is longer than 1024 bytes");
    }
    if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Some("it has white space or a control character");
    }
    if [LEASE_PREFIX, LOAD_PREFIX, TICKET_PREFIX].iter().any(|reserved| name.starts_with(reserved)) {
        return Some("the vendors \"lease\", \"load\" and \"ticket\" are reserved");
    }
    if !matches!(name.split('#').count(), 2 | 3) {
        return Some("it does not have two or three parts");
    }
    if name.split('#').any(str::is_empty) {
        return Some("a part is empty");
    }
    None
}

/// Allows maps by dimension to be queried by name.
impl Borrow<str> for Dimension {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for Dimension {
    type Err = DimensionError;

    fn from_str(name: &str) -> Result<Self, DimensionError> {
        Self::new(name)
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn two_or_three_parts_and_none_empty() {
        for name in ["openai#rpm", "openai#gpt-4o#tpm", "é#ü"] {
            assert_eq!(Dimension::new(name).unwrap().as_str(), name);
        }
        for name in
            ["", "openai", "#", "openai#", "#rpm", "a##b", "a#b#c#d", "lease#x", "load#x", "ticket#x", "a b#c", "a#b\n"]
        {
            assert!(Dimension::new(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn the_error_says_what_was_wrong_and_what_is_taken() {
        let text = ToString::to_string(&Dimension::new("lease#x").unwrap_err());
        assert!(text.contains("lease#x") && text.contains("reserved") && text.contains("vendor#metric"), "{text}");
    }

    proptest! {
        #[test]
        fn no_name_panics(name in "\\PC{0,60}") {
            let _ = Dimension::new(&name);
        }
    }
}
