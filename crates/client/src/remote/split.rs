//! Splits the stream of a server into objects as it arrives: lines of a watch, items of a list.
//!
//! In: chunks of a body, of any size. Out: complete JSON texts. A list is never buffered as a whole, however long: its items are
//! returned one by one, and what remains is the list without them.

use bytes::{Buf as _, Bytes, BytesMut};

/// Maximum size of an object; far above what servers store.
const LARGEST: usize = 32 << 20;

/// The data is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum SplitError {
    #[error("an object of more than {LARGEST} bytes")]
    TooLarge,
    #[error("a list with items that are no objects")]
    NotObjects,
}

/// Lines.
#[derive(Default)]
pub(super) struct Lines {
    buffer: BytesMut,
    /// No line ends before this offset.
    looked: usize,
}

impl Lines {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete line, without its end; empty ones are skipped.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, SplitError> {
        while let Some(found) = self.buffer[self.looked..].iter().position(|byte| *byte == b'\n') {
            let line = self.buffer.split_to(self.looked + found);
            self.buffer.advance(1);
            self.looked = 0;
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line.freeze()));
            }
        }
        self.looked = self.buffer.len();
        if self.looked > LARGEST { Err(SplitError::TooLarge) } else { Ok(None) }
    }

    /// Whether there is an incomplete line.
    pub(super) fn is_within(&self) -> bool {
        !self.buffer.trim_ascii().is_empty()
    }
}

/// Items of a list.
#[derive(Default)]
pub(super) struct Items {
    /// The list without its items.
    rest: Vec<u8>,
    item: Vec<u8>,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Where in `rest` the newest string of the list's own level begins: its key, when a value follows.
    key: usize,
    /// Between the brackets of `items`.
    in_items: bool,
}

impl Items {
    /// Adds a chunk, and returns the items that it completes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, SplitError> {
        let mut done = Vec::new();
        for byte in bytes {
            if let Some(item) = self.take(*byte)? {
                done.push(item);
            }
        }
        Ok(done)
    }

    /// What remains at the end of the body.
    pub(super) fn rest(self) -> Vec<u8> {
        self.rest
    }

    fn take(&mut self, byte: u8) -> Result<Option<Vec<u8>>, SplitError> {
        // The list is level 1, its `items` are level 2, an item begins level 3.
        let between = self.in_items && self.depth == 2 && !self.in_string;
        if between && !matches!(byte, b'{' | b']') {
            let harmless = byte == b',' || byte.is_ascii_whitespace();
            return if harmless { Ok(None) } else { Err(SplitError::NotObjects) };
        }
        let enters = byte == b'[' && self.depth == 1 && !self.in_string && self.is_items_key();
        self.follow(byte);
        if self.in_items && !(between && byte == b']') {
            self.item.push(byte);
            if self.item.len() > LARGEST {
                return Err(SplitError::TooLarge);
            }
            let complete = self.depth == 2 && !self.in_string;
            return Ok(complete.then(|| std::mem::take(&mut self.item)));
        }
        if self.rest.len() > LARGEST {
            return Err(SplitError::TooLarge);
        }
        self.rest.push(byte);
        self.in_items = enters;
        Ok(None)
    }

    /// Tracks strings and brackets.
    fn follow(&mut self, byte: u8) {
        if self.in_string {
            let ends = byte == b'"' && !self.escaped;
            self.escaped = byte == b'\\' && !self.escaped;
            self.in_string = !ends;
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                if self.depth == 1 {
                    self.key = self.rest.len();
                }
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    fn is_items_key(&self) -> bool {
        let text = self.rest.get(self.key..).unwrap_or_default().trim_ascii();
        text.strip_suffix(b":").is_some_and(|text| text.trim_ascii_end() == b"\"items\"")
    }
}
