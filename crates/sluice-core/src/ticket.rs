//! Tickets: a booked start that travels as text.
//!
//! `3.{id}.{start}.{span}.{dimension}...`, as in `3.AZqz81Rb.gtzgffzoow.znfpc.openai~23tpm.openai~23rpm`. The
//! parts are:
//!
//! - the version: 4 if the row lists a rest that the redeemer takes in addition, otherwise 3. Versions 2 and
//!   1 are those of tickets whose key does not begin with a vendor. A client that does not know a version
//!   rejects the text, so that it does not call without the rest, nor look for the row under another key,
//! - the id of the row,
//! - the start in microseconds since the epoch, in base 36,
//! - the time after the start in which the ticket may be redeemed at the latest, in microseconds, in base 36,
//! - the dimensions, the one with the latest start first.
//!
//! Letters, digits, `-` and `_` stand for themselves; any other byte of a name is `~` and two digits in base
//! 16: nothing has to be escaped in a URL or a queue's attribute. The text says when asking is not
//! worthwhile. Only the row ([`TicketRow`]) says what may be used, and when.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::dimension::Dimension;
use crate::schema::TICKET_PREFIX;
use crate::timestamp::Timestamp;

pub(crate) mod booked;
pub(crate) mod row;

#[cfg(doc)]
use row::TicketRow;

/// Most dimensions of a ticket, the same as of a request.
const MOST_DIMENSIONS: usize = 50;

/// The versions, each with whether the key names the vendor, and whether there is a rest.
const VERSIONS: [(&str, bool, bool); 4] =
    [("1", false, false), ("2", false, true), ("3", true, false), ("4", true, true)];
/// Longest id, in bytes.
const LONGEST_ID: usize = 64;

/// The id of a ticket, which makes its key unique: the last part of `ticket#{vendor}#{id}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketId(String);

impl TicketId {
    /// An id of 1 to 64 letters, digits, `-` and `_`; any other is rejected.
    #[must_use]
    pub fn new(id: String) -> Option<Self> {
        let fits = !id.is_empty() && id.len() <= LONGEST_ID && id.bytes().all(is_plain);
        fits.then_some(Self(id))
    }

    /// The id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The partition key of the row. IAM distinguishes vendors by the beginning of the key
    /// (`dynamodb:LeadingKeys`). A ticket of an older version has no vendor in its key.
    pub(crate) fn key(&self, vendor: Option<&str>) -> String {
        match vendor {
            Some(vendor) => alloc::format!("{TICKET_PREFIX}{vendor}#{}", self.0),
            None => alloc::format!("{TICKET_PREFIX}{}", self.0),
        }
    }
}

/// The vendor in the key of a ticket that books these dimensions: that of the first by name. Who redeems the
/// ticket of several vendors writes the buckets of each, so any of them will do.
pub(crate) fn vendor_of<'a>(dimensions: impl IntoIterator<Item = &'a Dimension>) -> &'a str {
    dimensions.into_iter().min().map_or("", Dimension::vendor)
}

/// A booked start that a message carries and any process redeems. Its text is short, of letters, digits, `.`,
/// `-`, `_` and `~`, and parses back into the same ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    id: TicketId,
    start: Timestamp,
    use_by: Timestamp,
    dimensions: Vec<Dimension>,
    /// Whether the key of the row has the vendor, as all have but those of an older version.
    names_vendor: bool,
    has_rest: bool,
}

/// Why a text is not a ticket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed ticket {text:?}: {reason}")]
pub struct TicketError {
    /// The text as it was given.
    pub text: String,
    /// What is wrong with the text.
    pub reason: &'static str,
}

impl Ticket {
    /// When the ticket may be redeemed and the call may be made.
    #[must_use]
    pub const fn start_at(&self) -> Timestamp {
        self.start
    }

    /// When the ticket may be redeemed at the latest: by then, what it holds would overflow its
    /// bucket. Tokens that others give back may make this earlier.
    #[must_use]
    pub const fn use_by(&self) -> Timestamp {
        self.use_by
    }

    /// The dimensions whose tokens the ticket holds, the one with the latest start first. What was not booked
    /// is not among them: the redeemer takes it.
    #[must_use]
    pub fn dimensions(&self) -> &[Dimension] {
        &self.dimensions
    }

    /// The partition key of the ticket's row.
    #[must_use]
    pub fn key(&self) -> String {
        self.id.key(self.names_vendor.then(|| vendor_of(&self.dimensions)))
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = self.use_by.micros_since(self.start);
        let is_this =
            |(_, vendor, rest): &&(_, bool, bool)| (*vendor, *rest) == (self.names_vendor, self.has_rest);
        let version = VERSIONS.iter().find(is_this).map_or("", |(version, ..)| version);
        write!(f, "{version}.{}.{}.{}", self.id.0, Base36(self.start.micros()), Base36(span))?;
        for dimension in &self.dimensions {
            f.write_str(".")?;
            write_name(f, dimension.as_str())?;
        }
        Ok(())
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        parse(text).map_err(|reason| TicketError { text: text.to_string(), reason })
    }
}

/// As its text.
#[cfg(feature = "serde")]
impl serde::Serialize for Ticket {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Ticket {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

fn parse(text: &str) -> Result<Ticket, &'static str> {
    let mut parts = text.split('.');
    let version = parts.next();
    let Some((_, names_vendor, has_rest)) = VERSIONS.into_iter().find(|(known, ..)| version == Some(*known))
    else {
        return Err("it does not begin with a known version, as in \"3.\"");
    };
    let mut next =
        || parts.next().ok_or("it ends early: it must have an id, a start, a span and a dimension");
    let id = next()?.to_string();
    let id = TicketId::new(id).ok_or("its id is not 1 to 64 letters, digits, - and _")?;
    let start = parse_base36(next()?)
        .ok_or("its start is not a base 36 number within range and without leading zeros")?;
    let span = parse_base36(next()?)
        .ok_or("its span is not a base 36 number within range and without leading zeros")?;
    let use_by = start.checked_add(span).ok_or("its span ends beyond the range of instants")?;
    let mut dimensions = alloc::vec![read_name(next()?)?];
    for part in parts {
        dimensions.push(read_name(part)?);
    }
    if dimensions.len() > MOST_DIMENSIONS {
        return Err("it names more than 50 dimensions");
    }
    if dimensions.iter().collect::<BTreeSet<_>>().len() < dimensions.len() {
        return Err("it names a dimension twice");
    }
    let (start, use_by) = (Timestamp::from_micros(start), Timestamp::from_micros(use_by));
    Ok(Ticket { id, start, use_by, dimensions, names_vendor, has_rest })
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

fn write_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    for byte in name.bytes() {
        match is_plain(byte) {
            true => write!(f, "{}", char::from(byte))?,
            false => write!(f, "~{byte:02X}")?,
        }
    }
    Ok(())
}

/// Reads a name. One name has one text: a byte that needs no escape has none.
fn read_name(text: &str) -> Result<Dimension, &'static str> {
    const ESCAPE: &str =
        "a name in it has something other than letters, digits, -, _, and ~ with two digits in base 16";
    let mut bytes = text.bytes();
    let mut name = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if is_plain(byte) {
            name.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|digit| HEX.iter().position(|hex| *hex == digit));
        let (b'~', Some(high), Some(low)) = (byte, digit(), digit()) else { return Err(ESCAPE) };
        let escaped = u8::try_from(high * 16 + low).map_err(|_| ESCAPE)?;
        if is_plain(escaped) {
            return Err("a name in it escapes a character that needs no escape");
        }
        name.push(escaped);
    }
    let name = String::from_utf8(name).map_err(|_| "a name in it is not UTF-8")?;
    Dimension::new(&name).map_err(|error| error.reason)
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// Digits of the largest instant in base 36.
const MOST_DIGITS: usize = 13;

/// A number in base 36, not below zero.
struct Base36(i64);

impl fmt::Display for Base36 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut rest, mut digits) = (self.0.max(0).unsigned_abs(), [b'0'; MOST_DIGITS]);
        let mut first = MOST_DIGITS - 1;
        for at in (0..MOST_DIGITS).rev() {
            let digit = usize::try_from(rest % 36).unwrap_or(0);
            digits[at] = DIGITS[digit];
            if digit > 0 {
                first = at;
            }
            rest /= 36;
        }
        digits[first..].iter().try_for_each(|digit| write!(f, "{}", char::from(*digit)))
    }
}

/// Reads a number. One number has one text: no leading zeros.
fn parse_base36(text: &str) -> Option<i64> {
    if text.is_empty() || text.len() > MOST_DIGITS || (text.len() > 1 && text.starts_with('0')) {
        return None;
    }
    text.bytes().try_fold(0_i64, |sum, byte| {
        let digit = DIGITS.iter().position(|digit| *digit == byte)?;
        sum.checked_mul(36)?.checked_add(i64::try_from(digit).ok()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ticket(id: &str, start: i64, span: i64, names: &[&str]) -> Ticket {
        Ticket {
            id: TicketId::new(id.into()).unwrap(),
            start: Timestamp::from_micros(start),
            use_by: Timestamp::from_micros(start + span),
            dimensions: names.iter().map(|name| Dimension::new(name).unwrap()).collect(),
            names_vendor: true,
            has_rest: false,
        }
    }

    #[test]
    fn a_ticket_is_short_and_safe_in_a_url() {
        let text = ticket("AZqz81Rb", 1_709_550_002_123_456, 59_880_000, &["openai#gpt-4o#tpm", "é#x.y"])
            .to_string();
        assert_eq!(text, "3.AZqz81Rb.gtzgffzoow.znfpc.openai~23gpt-4o~23tpm.~C3~A9~23x~2Ey");
        assert_eq!(text.parse::<Ticket>().unwrap().key(), "ticket#openai#AZqz81Rb");
        assert!(text.replacen("3.", "4.", 1).parse::<Ticket>().unwrap().has_rest);
    }

    #[test]
    fn a_ticket_of_an_older_version_leads_to_its_row() {
        for (version, has_rest) in [("1", false), ("2", true)] {
            let text = alloc::format!("{version}.AZqz81Rb.gtzgffzoow.znfpc.openai~23tpm");
            let ticket = text.parse::<Ticket>().unwrap();
            assert_eq!((ticket.key().as_str(), ticket.has_rest), ("ticket#AZqz81Rb", has_rest));
            assert_eq!(ticket.to_string(), text);
        }
    }

    /// The order of the text is that of the starts, which the key does not depend on.
    #[test]
    fn the_key_of_a_ticket_of_several_vendors_has_the_first_by_name() {
        for names in [["openai#tpm", "anthropic#tpm"], ["anthropic#tpm", "openai#tpm"]] {
            assert_eq!(ticket("a", 1, 1, &names).key(), "ticket#anthropic#a");
        }
    }

    #[test]
    fn bad_text_is_told_what_is_wrong() {
        for (text, says) in [
            ("", "version"),
            ("5.a.1.1.a~23b", "version"),
            ("0.a.1.1.a~23b", "version"),
            ("1.a.1.1", "ends early"),
            ("1..1.1.a~23b", "id"),
            ("1.a b.1.1.a~23b", "id"),
            ("1.a.01.1.a~23b", "its start"),
            ("1.a.A.1.a~23b", "its start"),
            ("1.a.zzzzzzzzzzzzz.1.a~23b", "its start"),
            ("1.a.1.-1.a~23b", "its span"),
            ("1.a.1y2p0ij32e8e7.1.a~23b", "beyond the range"),
            ("1.a.1.1.a#b", "two digits"),
            ("1.a.1.1.a~2fb", "two digits"),
            ("1.a.1.1.a~2", "two digits"),
            ("1.a.1.1.a~23~61", "needs no escape"),
            ("1.a.1.1.a~23~FF", "UTF-8"),
            ("1.a.1.1.a", "two or three parts"),
            ("1.a.1.1.ticket~23b", "reserved"),
            ("1.a.1.1.a~23b.a~23b", "twice"),
        ] {
            let error = text.parse::<Ticket>().unwrap_err();
            assert!(error.reason.contains(says) && error.to_string().contains(text), "{text:?}: {error}");
        }
        let many: Vec<String> = (0..51).map(|n| alloc::format!("a~23m{n}")).collect();
        assert!(
            alloc::format!("1.a.1.1.{}", many.join(".")).parse::<Ticket>().unwrap_err().reason.contains("50")
        );
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            id in "[A-Za-z0-9_-]{1,64}", start in 0..=i64::MAX, span in 0..=i64::MAX,
            names in prop::collection::btree_set("[^#\\s\\pC]{1,8}#[^#\\s\\pC]{1,8}(#[^#\\s\\pC]{1,8})?", 1..4),
            names_vendor in any::<bool>(), has_rest in any::<bool>(),
        ) {
            let names: Vec<&str> = names.iter().map(String::as_str).filter(|name| Dimension::new(name).is_ok()).collect();
            prop_assume!(!names.is_empty());
            let written = Ticket { names_vendor, has_rest, ..ticket(&id, start, span.min(i64::MAX - start), &names) };
            let text = written.to_string();
            prop_assert!(text.bytes().all(|byte| is_plain(byte) || b".~".contains(&byte)), "{}", text);
            prop_assert_eq!(text.parse(), Ok(written));
        }

        #[test]
        fn no_text_panics_and_one_ticket_has_one_text(
            text in prop_oneof!["\\PC{0,60}", "[1-4]\\.[a-z]{1,3}\\.[0-9a-z]{1,14}\\.[0-9a-z]{1,14}(\\.[a-z~0-9A-F]{1,12}){1,3}"],
        ) {
            if let Ok(ticket) = text.parse::<Ticket>() {
                prop_assert_eq!(ticket.to_string(), text);
            }
        }
    }
}
