//! Frames of `application/vnd.amazon.eventstream`, as they pass by in chunks
//! (<https://smithy.io/2.0/aws/amazon-eventstream.html>).
//!
//! The crate `aws-smithy-eventstream` reads them too. It is not used here: it depends on the types of the AWS
//! SDK, which CI keeps out of this crate, and it has no bound on the frame that it waits for.

mod headers;

use headers::Headers;

/// The longest frame that is read, in bytes. Bedrock's have a few hundred, with a guardrail's trace some
/// thousand.
const MAX_FRAME_LEN: usize = 1_024 * 1_024;

/// Lengths of the whole frame and of its headers, and their checksum.
const PRELUDE_LEN: usize = 12;
const CHECKSUM_LEN: usize = 4;

/// One frame, whose checksums are right.
pub(super) struct Frame<'a> {
    pub(super) kind: Kind<'a>,
    pub(super) payload: &'a [u8],
}

/// The meaning of a frame
/// (<https://smithy.io/2.0/aws/amazon-eventstream.html>, "Messages").
#[derive(Clone, Copy)]
pub(super) enum Kind<'a> {
    Event,
    /// An error that the API documents, by its name, as in `throttlingException`.
    Exception(&'a str),
    /// Any other error.
    Error {
        code: &'a str,
        message: &'a str,
    },
}

/// Reads frames. Keeps at most one.
#[derive(Default)]
pub(super) struct Frames {
    /// The frame that is read now, from its start.
    bytes: Vec<u8>,
    /// How many bytes of a frame that is too long are still to come.
    to_skip: usize,
    /// Whether a prelude was damaged: where the next frame begins is not known then.
    is_lost: bool,
}

impl Frames {
    /// The memory in use, in bytes.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn feed(&mut self, chunk: &[u8], mut read: impl FnMut(Frame<'_>)) {
        let mut rest = chunk;
        while !rest.is_empty() && !self.is_lost {
            rest = self.skip(rest);
            rest = self.fill(rest, PRELUDE_LEN);
            let Some(len) = self.frame_len() else { continue };
            if len > MAX_FRAME_LEN {
                self.to_skip = len - self.bytes.len();
                self.bytes.clear();
                continue;
            }
            self.bytes.reserve_exact(len - self.bytes.len());
            rest = self.fill(rest, len);
            if self.bytes.len() == len {
                frame(&self.bytes).map(&mut read);
                self.bytes.clear();
            }
        }
    }

    fn skip<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let skipped = self.to_skip.min(bytes.len());
        self.to_skip -= skipped;
        &bytes[skipped..]
    }

    /// Takes bytes until the frame has `len` of them. Returns the rest.
    fn fill<'a>(&mut self, bytes: &'a [u8], len: usize) -> &'a [u8] {
        let missing = len.saturating_sub(self.bytes.len());
        let (taken, rest) = bytes.split_at(missing.min(bytes.len()));
        self.bytes.extend_from_slice(taken);
        rest
    }

    /// The length of the frame, once its prelude is there.
    fn frame_len(&mut self) -> Option<usize> {
        let prelude = self.bytes.get(..PRELUDE_LEN)?;
        let (len, headers_len) = (number(prelude, 0)?, number(prelude, 4)?);
        let is_sound = number(prelude, 8)? == usize::try_from(crc32fast::hash(&prelude[..8])).ok()?
            && headers_len.checked_add(PRELUDE_LEN + CHECKSUM_LEN).is_some_and(|least| least <= len);
        self.is_lost = !is_sound;
        is_sound.then_some(len)
    }
}

/// Takes a frame apart. `None` if its checksum is wrong, or its headers cannot be read.
fn frame(bytes: &[u8]) -> Option<Frame<'_>> {
    let (content, checksum) = bytes.split_last_chunk::<CHECKSUM_LEN>()?;
    if crc32fast::hash(content) != u32::from_be_bytes(*checksum) {
        return None;
    }
    let (headers, payload) = content.get(PRELUDE_LEN..)?.split_at_checked(number(bytes, 4)?)?;
    let headers = Headers::of(headers)?;
    let kind = match headers.get(":message-type")? {
        "exception" => Kind::Exception(headers.get(":exception-type").unwrap_or_default()),
        "error" => Kind::Error {
            code: headers.get(":error-code").unwrap_or_default(),
            message: headers.get(":error-message").unwrap_or_default(),
        },
        _ => Kind::Event,
    };
    Some(Frame { kind, payload })
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk::<4>()?;
    usize::try_from(u32::from_be_bytes(*bytes)).ok()
}
