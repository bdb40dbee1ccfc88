//! The name of a share: one product's part of a bucket.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::borrow::Borrow;
use core::fmt;
use core::str::FromStr;

use crate::amount::Amount;

/// The name of a share: letters, digits, `-`, `_`, `.` and `/`, as in `search` or `checkout/batch`. Cheap to
/// clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShareName(Arc<str>);

/// Why a text is not the name of a share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "malformed share {name:?}: {reason}; use letters, digits, \"-\", \"_\", \".\" and \"/\", as in checkout/batch"
)]
pub struct ShareNameError {
    /// The text as it was given.
    pub name: String,
    /// What is wrong with it.
    pub reason: Cow<'static, str>,
}

/// The longest name, in bytes: DynamoDB charges by the size of the row.
const MAX_BYTES: usize = 64;

/// What operators call the part of a bucket that no share has.
pub const COMMON: &str = "common";

impl ShareName {
    /// Parses a name.
    ///
    /// # Errors
    /// [`ShareNameError`] for an empty name, one above 64 bytes, other characters than the above, and
    /// `common`, which is the part that no share has.
    pub fn new(name: &str) -> Result<Self, ShareNameError> {
        match Self::fault(name) {
            None => Ok(Self(Arc::from(name))),
            Some(reason) => Err(ShareNameError { name: String::from(name), reason }),
        }
    }

    /// Whether this text is a name.
    #[must_use]
    pub fn is_valid(name: &str) -> bool {
        Self::fault(name).is_none()
    }

    fn fault(name: &str) -> Option<Cow<'static, str>> {
        let is_allowed = |letter: &char| letter.is_ascii_alphanumeric() || "-_./".contains(*letter);
        match name {
            "" => Some("it is empty".into()),
            COMMON => Some("\"common\" is the part of a bucket that no share has".into()),
            _ if name.len() > MAX_BYTES => Some("it is longer than 64 bytes".into()),
            _ => {
                let other = name.chars().find(|letter| !is_allowed(letter))?;
                Some(format!("it has the character {other:?}").into())
            }
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How a caller takes slots of a line that is not its own: of another share, or of the part that no share
/// has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Borrowing {
    /// The caller's share; `None` if it has none. Its lease names it.
    pub by: Option<ShareName>,
    /// The slots that stay free in that line after the take.
    pub leaves: Amount,
}

impl Borrowing {
    /// The name of the borrower, as its lease states it.
    #[must_use]
    pub fn by_name(&self) -> &str {
        self.by.as_ref().map_or(COMMON, ShareName::as_str)
    }
}

impl fmt::Display for ShareName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ShareName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Allows maps by share to be queried by name.
impl Borrow<str> for ShareName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for ShareName {
    type Err = ShareNameError;

    fn from_str(name: &str) -> Result<Self, ShareNameError> {
        Self::new(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString as _;

    #[test]
    fn a_name_is_taken_as_written_and_a_fault_says_what_is_taken() {
        for name in ["search", "checkout/batch", "team-7_a.b", "A1"] {
            assert_eq!(ShareName::new(name).unwrap().as_str(), name);
        }
        let long = "x".repeat(65);
        for name in ["", "common", "two words", "a#b", "\u{e9}", long.as_str()] {
            let text = ShareName::new(name).unwrap_err().to_string();
            assert!(text.contains("letters") && text.contains("checkout/batch"), "{text}");
        }
    }
}
