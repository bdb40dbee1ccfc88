//! Finds single values in JSON that passes by in chunks, without keeping the rest.
//!
//! Only the values that are wanted are copied, so the memory does not grow with the body. The scanner is made
//! for JSON that a vendor writes: it does not check it, and for bytes that are not JSON it finds nothing, or
//! anything.

use memchr::memchr2;

mod paths;

pub(crate) use paths::{Want, Wants};

/// The longest value that is kept, in bytes. Usage and errors have a few hundred.
const MAX_VALUE_LEN: usize = 64 * 1_024;

/// The longest name of a field that is compared, in bytes.
const MAX_NAME_LEN: usize = 64;

/// A value that was wanted.
pub(crate) struct Found<'a, F> {
    pub(crate) field: F,
    /// The value as it is written.
    pub(crate) json: &'a [u8],
    /// Where the value ends, in bytes since the scanner was made or [reset](JsonScan::reset).
    pub(crate) end: usize,
}

/// Reads JSON in chunks that may be split anywhere.
pub(crate) struct JsonScan<F: 'static> {
    wants: Wants<F>,
    levels: Vec<Level>,
    /// Containers that are open below the levels. Nothing in them is wanted by itself.
    deeper: usize,
    token: Token,
    name: Vec<u8>,
    captured: Option<Captured<F>>,
    position: usize,
    whole: bool,
}

/// A container that has wanted values in it.
#[derive(Clone, Copy)]
struct Level {
    is_object: bool,
    expects_name: bool,
    here: paths::Reached,
    next: paths::Reached,
}

#[derive(Clone, Copy, PartialEq)]
enum Token {
    None,
    Name { escaped: bool },
    Text { escaped: bool },
    Scalar,
}

struct Captured<F> {
    field: F,
    json: Vec<u8>,
    is_too_long: bool,
}

impl<F: Copy> JsonScan<F> {
    pub(crate) const fn new(wants: &'static [Want<F>]) -> Self {
        Self {
            wants: Wants::new(wants),
            levels: Vec::new(),
            deeper: 0,
            token: Token::None,
            name: Vec::new(),
            captured: None,
            position: 0,
            whole: false,
        }
    }

    /// Whether an object or a list has been read to its end.
    pub(crate) const fn is_whole(&self) -> bool {
        self.whole
    }

    /// The memory in use, in bytes.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        let captured = self.captured.as_ref().map_or(0, |captured| captured.json.capacity());
        captured + self.name.capacity() + self.levels.capacity() * size_of::<Level>()
    }

    /// Begins a new document.
    pub(crate) fn reset(&mut self) {
        self.levels.clear();
        (self.deeper, self.token, self.captured) = (0, Token::None, None);
        (self.position, self.whole) = (0, false);
    }

    /// Reads a chunk, and calls `found` for each wanted value that ends in it.
    pub(crate) fn feed(&mut self, chunk: &[u8], mut found: impl FnMut(Found<'_, F>)) {
        let mut rest = chunk;
        loop {
            let (plain, after) = rest.split_at(self.plain(rest));
            self.pass(plain);
            let Some((byte, after)) = after.split_first() else { return };
            self.step(*byte, &mut found);
            self.position += 1;
            rest = after;
        }
    }

    /// How many of the bytes have no meaning for the scanner where it is now. This is what makes it fast.
    fn plain(&self, bytes: &[u8]) -> usize {
        let end = match self.token {
            Token::Text { escaped: false } | Token::Name { escaped: false } => memchr2(b'"', b'\\', bytes),
            Token::None if self.deeper > 0 && self.captured.is_none() => {
                bytes.iter().position(|byte| is_mark(*byte))
            }
            _ => return 0,
        };
        end.unwrap_or(bytes.len())
    }

    fn pass(&mut self, plain: &[u8]) {
        self.position += plain.len();
        match self.token {
            Token::Name { .. } => self.keep_name(plain),
            _ => self.keep(plain),
        }
    }

    fn step(&mut self, byte: u8, found: &mut impl FnMut(Found<'_, F>)) {
        match self.token {
            Token::Name { escaped } => self.step_name(byte, escaped),
            Token::Text { escaped } => self.step_text(byte, escaped, found),
            Token::Scalar if matches!(byte, b',' | b']' | b'}') || byte.is_ascii_whitespace() => {
                self.token = Token::None;
                self.end_value(found);
                self.step_between(byte, found);
            }
            Token::Scalar => self.keep(&[byte]),
            Token::None => self.step_between(byte, found),
        }
    }

    /// A name that is written with escapes is not recognised: no vendor does that.
    fn step_name(&mut self, byte: u8, escaped: bool) {
        match byte {
            b'"' if !escaped => {
                self.token = Token::None;
                if let Some(level) = self.levels.last_mut() {
                    level.next = self.wants.field(level.here, &self.name);
                }
            }
            _ => {
                self.token = Token::Name { escaped: byte == b'\\' && !escaped };
                self.keep_name(&[byte]);
            }
        }
    }

    fn step_text(&mut self, byte: u8, escaped: bool, found: &mut impl FnMut(Found<'_, F>)) {
        self.keep(&[byte]);
        if byte == b'"' && !escaped {
            self.token = Token::None;
            self.end_value(found);
        } else {
            self.token = Token::Text { escaped: byte == b'\\' && !escaped };
        }
    }

    fn step_between(&mut self, byte: u8, found: &mut impl FnMut(Found<'_, F>)) {
        match byte {
            b'"' if self.expects_name() => {
                self.name.clear();
                self.token = Token::Name { escaped: false };
            }
            b'"' => self.begin_value(byte, Token::Text { escaped: false }),
            b'{' | b'[' => {
                self.begin_value(byte, Token::None);
                self.open(byte == b'{');
            }
            b'}' | b']' => self.close(byte, found),
            b':' | b',' => self.separate(byte),
            _ if byte.is_ascii_whitespace() => self.keep(&[byte]),
            _ => self.begin_value(byte, Token::Scalar),
        }
    }

    fn expects_name(&self) -> bool {
        self.deeper == 0 && self.levels.last().is_some_and(|level| level.expects_name)
    }

    /// The paths that lead to the value that comes next.
    fn next(&self) -> paths::Reached {
        self.levels.last().map_or_else(|| self.wants.root(), |level| level.next)
    }

    fn begin_value(&mut self, first: u8, token: Token) {
        self.token = token;
        if self.deeper == 0 && self.captured.is_none() {
            let wanted = self.wants.reached(self.next());
            self.captured = wanted.map(|field| Captured { field, json: Vec::new(), is_too_long: false });
        }
        self.keep(&[first]);
    }

    fn open(&mut self, is_object: bool) {
        let here = self.next();
        if self.deeper > 0 || self.captured.is_some() || here.is_empty() {
            self.deeper += 1;
            return;
        }
        let next = match (is_object, self.levels.is_empty()) {
            (true, _) => paths::Reached::NOTHING,
            // A list at the top stands for its elements: Google streams one.
            (false, true) => here,
            (false, false) => self.wants.element(here),
        };
        self.levels.push(Level { is_object, expects_name: is_object, here, next });
    }

    fn close(&mut self, byte: u8, found: &mut impl FnMut(Found<'_, F>)) {
        self.keep(&[byte]);
        match self.deeper.checked_sub(1) {
            Some(deeper) => self.deeper = deeper,
            None => drop(self.levels.pop()),
        }
        self.whole |= self.deeper == 0 && self.levels.is_empty();
        self.end_value(found);
    }

    fn separate(&mut self, byte: u8) {
        self.keep(&[byte]);
        if let Some(level) = self.levels.last_mut().filter(|level| self.deeper == 0 && level.is_object) {
            level.expects_name = byte == b',';
        }
    }

    fn end_value(&mut self, found: &mut impl FnMut(Found<'_, F>)) {
        if self.deeper > 0 {
            return;
        }
        let Some(captured) = self.captured.take().filter(|captured| !captured.is_too_long) else { return };
        // A scalar ends before the byte that is read now, everything else with that byte.
        let is_scalar = !matches!(captured.json.first(), Some(b'"' | b'{' | b'['));
        let end = self.position + usize::from(!is_scalar);
        found(Found { field: captured.field, json: &captured.json, end });
    }

    /// One byte more than is compared, so that a longer name is known to be longer.
    fn keep_name(&mut self, bytes: &[u8]) {
        let room = (MAX_NAME_LEN + 1).saturating_sub(self.name.len());
        self.name.extend_from_slice(&bytes[..room.min(bytes.len())]);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let Some(captured) = &mut self.captured else { return };
        if captured.json.len() + bytes.len() > MAX_VALUE_LEN {
            (captured.is_too_long, captured.json) = (true, Vec::new());
        }
        if !captured.is_too_long {
            captured.json.extend_from_slice(bytes);
        }
    }
}

/// Whether a byte between values opens or closes something.
const fn is_mark(byte: u8) -> bool {
    matches!(byte, b'"' | b'{' | b'}' | b'[' | b']')
}
