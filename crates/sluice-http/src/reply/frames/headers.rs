//! The headers of a frame.

/// The headers that are texts, in the order of the frame. All that matter here are.
pub(super) struct Headers<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Headers<'a> {
    /// `None` if the headers end too early, or have a value of an unknown type.
    pub(super) fn of(bytes: &'a [u8]) -> Option<Self> {
        let mut texts = Vec::new();
        let mut rest = bytes;
        while let Some((name_len, after)) = rest.split_first() {
            let (name, after) = after.split_at_checked(usize::from(*name_len))?;
            let (kind, after) = after.split_first()?;
            let (value, after) = value(*kind, after)?;
            if let Some(text) = value {
                texts.push((std::str::from_utf8(name).ok()?, text));
            }
            rest = after;
        }
        Some(Self(texts))
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(named, _)| *named == name).map(|(_, value)| *value)
    }
}

/// The value of a header, if it is a text, and what follows it.
fn value(kind: u8, bytes: &[u8]) -> Option<(Option<&str>, &[u8])> {
    const TEXT: u8 = 7;
    let len = match kind {
        // True and false.
        0 | 1 => 0,
        // Numbers of 1, 2, 4 and 8 bytes; an instant; a UUID.
        2 => 1,
        3 => 2,
        4 => 4,
        5 | 8 => 8,
        9 => 16,
        // Bytes and text, with their length before them.
        6 | TEXT => {
            let (len, rest) = bytes.split_first_chunk::<2>()?;
            let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
            let text = if kind == TEXT { Some(std::str::from_utf8(value).ok()?) } else { None };
            return Some((text, rest));
        }
        _ => return None,
    };
    bytes.get(len..).map(|rest| (None, rest))
}
