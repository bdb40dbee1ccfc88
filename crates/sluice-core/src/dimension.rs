//! Names of buckets.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::sync::Arc;
use core::borrow::Borrow;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Deref;
use core::str::FromStr;

use crate::schema::{LEASE_PREFIX, LOAD_PREFIX, TICKET_PREFIX};
use crate::share::ShareName;

/// The name of a bucket: `{vendor}#{metric}` or `{vendor}#{model}#{metric}`, as in `openai#rpm`. Cheap to
/// clone. A name that the program states is best a constant: the compiler then refuses a malformed one.
///
/// ```
/// use sluice_core::Dimension;
///
/// const RPM: Dimension = Dimension::constant("openai#rpm");
/// assert_eq!(RPM, Dimension::new("openai#rpm")?);
/// # Ok::<(), sluice_core::DimensionError>(())
/// ```
///
/// ```compile_fail
/// const RPM: sluice_core::Dimension = sluice_core::Dimension::constant("openai-rpm");
/// # assert_eq!(RPM.as_str(), "");
/// ```
#[derive(Clone)]
pub struct Dimension(Name);

#[derive(Clone)]
enum Name {
    Constant(&'static str),
    Shared(Arc<str>),
}

/// The longest name, in bytes: a lease key adds 39 bytes to it, and DynamoDB's partition keys end at 2,048.
const MAX_BYTES: usize = 1_024;

/// Why a text is not the name of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "malformed dimension {name:?}: {reason}; use the form vendor#metric or vendor#model#metric, as in openai#rpm"
)]
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
        let is_blank = |c: char| !c.is_ascii() && (c.is_whitespace() || c.is_control());
        match fault(name).or_else(|| name.contains(is_blank).then_some(BLANK)) {
            None => Ok(Self(Name::Shared(Arc::from(name)))),
            Some(reason) => Err(DimensionError { name: String::from(name), reason }),
        }
    }

    /// The name of a bucket that the program states, in ASCII.
    ///
    /// # Panics
    /// As [`new`](Self::new) fails, and for a name that is not ASCII. In a constant, this is an error of the
    /// compiler.
    #[must_use]
    pub const fn constant(name: &'static str) -> Self {
        assert!(
            name.is_ascii(),
            "malformed dimension: a constant is ASCII; use Dimension::new for any other name"
        );
        assert!(
            fault(name).is_none(),
            "malformed dimension; use the form vendor#metric or vendor#model#metric, as in openai#rpm"
        );
        Self(Name::Constant(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Name::Constant(name) => name,
            Name::Shared(name) => name,
        }
    }

    /// The vendor: the part before the first `#`.
    #[must_use]
    pub fn vendor(&self) -> &str {
        self.as_str().split_once('#').map_or(self.as_str(), |(vendor, _)| vendor)
    }

    /// The row of a share of this concurrency bucket, as in `elevenlabs#concurrent@search`; `None` if the
    /// name would be too long.
    #[must_use]
    pub fn of_share(&self, share: &ShareName) -> Option<Self> {
        Self::new(&[self.as_str(), AT, share.as_str()].concat()).ok()
    }

    /// The bucket and the share, if this may be the name of a share's row. Only the row of the bucket tells
    /// whether it is: a metric may have an `@` of its own.
    #[must_use]
    pub fn whole_and_share(&self) -> Option<(Self, ShareName)> {
        let (whole, share) = self.as_str().rsplit_once(AT)?;
        Some((Self::new(whole).ok()?, ShareName::new(share).ok()?))
    }
}

/// Stands between the name of a concurrency bucket and that of its share.
const AT: &str = "@";

const BLANK: &str = "it has white space or a control character";

/// What is wrong with a name, but for white space and control characters beyond ASCII.
const fn fault(name: &str) -> Option<&'static str> {
    let bytes = name.as_bytes();
    if bytes.len() > MAX_BYTES {
        return Some("it is longer than 1024 bytes");
    }
    let (mut parts, mut length, mut has_empty, mut rest) = (1, 0, false, bytes);
    while let [byte, after @ ..] = rest {
        if byte.is_ascii_whitespace() || byte.is_ascii_control() {
            return Some(BLANK);
        }
        if *byte == b'#' {
            has_empty |= length == 0;
            parts += 1;
            length = 0;
        } else {
            length += 1;
        }
        rest = after;
    }
    if is_reserved(bytes) {
        return Some("the vendors \"lease\", \"load\" and \"ticket\" are reserved");
    }
    if parts != 2 && parts != 3 {
        return Some("it does not have two or three parts");
    }
    if has_empty || length == 0 {
        return Some("a part is empty");
    }
    None
}

const fn is_reserved(name: &[u8]) -> bool {
    starts_with(name, LEASE_PREFIX.as_bytes())
        || starts_with(name, LOAD_PREFIX.as_bytes())
        || starts_with(name, TICKET_PREFIX.as_bytes())
}

const fn starts_with(name: &[u8], prefix: &[u8]) -> bool {
    match (name, prefix) {
        (_, []) => true,
        ([first, name @ ..], [wanted, prefix @ ..]) => *first == *wanted && starts_with(name, prefix),
        ([], _) => false,
    }
}

impl PartialEq for Dimension {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Dimension {}

impl PartialOrd for Dimension {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Dimension {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

/// The hash of the name, so that maps by dimension can be queried by name.
impl Hash for Dimension {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

/// Allows maps by dimension to be queried by name.
impl Borrow<str> for Dimension {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

/// `&dimension` is taken wherever a `&str` is.
impl Deref for Dimension {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Dimension {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl From<Dimension> for String {
    fn from(dimension: Dimension) -> Self {
        Self::from(dimension.as_str())
    }
}

impl From<&Dimension> for String {
    fn from(dimension: &Dimension) -> Self {
        Self::from(dimension.as_str())
    }
}

impl From<Dimension> for Cow<'_, str> {
    fn from(dimension: Dimension) -> Self {
        match dimension.0 {
            Name::Constant(name) => Self::Borrowed(name),
            Name::Shared(name) => Self::Owned(String::from(&*name)),
        }
    }
}

impl<'a> From<&'a Dimension> for Cow<'a, str> {
    fn from(dimension: &'a Dimension) -> Self {
        Self::Borrowed(dimension.as_str())
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
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn two_or_three_parts_and_none_empty() {
        for name in ["openai#rpm", "openai#gpt-4o#tpm", "é#ü"] {
            assert_eq!(Dimension::new(name).unwrap().as_str(), name);
        }
        for name in [
            "", "openai", "#", "openai#", "#rpm", "a##b", "a#b#c#d", "lease#x", "load#x", "ticket#x",
            "a b#c", "a#b\n",
        ] {
            assert!(Dimension::new(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_constant_is_the_name_that_is_parsed() {
        const TPM: Dimension = Dimension::constant("openai#gpt-4o#tpm");
        let parsed = Dimension::new("openai#gpt-4o#tpm").unwrap();
        assert_eq!(TPM, parsed);
        let hash = |dimension: &Dimension| BuildHasherDefault::<DefaultHasher>::default().hash_one(dimension);
        assert_eq!(hash(&TPM), hash(&parsed));
        for name in ["", "openai", "openai#", "#rpm", "a#b#c#d", "ticket#x", "a b#c", "a#b\n", "\u{e9}#x"] {
            assert!(std::panic::catch_unwind(|| Dimension::constant(name)).is_err(), "{name:?}");
        }
        assert!(Dimension::new("a\u{2003}b#c").is_err() && Dimension::new("a\u{85}b#c").is_err());
    }

    #[test]
    fn the_error_says_what_was_wrong_and_what_is_taken() {
        let text = ToString::to_string(&Dimension::new("lease#x").unwrap_err());
        assert!(
            text.contains("lease#x") && text.contains("reserved") && text.contains("vendor#metric"),
            "{text}"
        );
    }

    #[test]
    fn a_share_of_slots_has_a_name_of_its_own() {
        let whole = Dimension::constant("elevenlabs#concurrent");
        let share = ShareName::new("checkout/batch").unwrap();
        let row = whole.of_share(&share).unwrap();
        assert_eq!(row.as_str(), "elevenlabs#concurrent@checkout/batch");
        assert_eq!(row.whole_and_share(), Some((whole.clone(), share.clone())));
        assert_eq!(whole.whole_and_share(), None);
        // The `@` of a model is in no metric.
        assert_eq!(Dimension::constant("google#claude@20240620#rpm").whole_and_share(), None);
        assert!(Dimension::new(&["a#", &"b".repeat(1_020)].concat()).unwrap().of_share(&share).is_none());
    }

    proptest! {
        #[test]
        fn no_name_panics(name in "\\PC{0,60}") {
            let _ = Dimension::new(&name);
        }
    }
}
