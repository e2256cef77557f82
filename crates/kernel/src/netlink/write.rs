//! Writes messages and attributes into one buffer.
//!
//! Lengths are patched when a message or nest is closed, so nothing is copied twice. A nest that exceeds its length
//! field invalidates the buffer, which [`Writer::finish`] reports: callers need not check each step.

use rustix::io::Errno;

use super::{HEADER, align};

/// Flag of attributes that contain attributes.
const NESTED: u16 = 0x8000;

/// Messages being written.
#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    too_long: bool,
}

/// An open message or nest.
pub(crate) struct Open(usize);

impl Writer {
    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The messages, unless a length was exceeded.
    pub(crate) fn finish(self) -> Result<Vec<u8>, Errno> {
        if self.too_long { Err(Errno::TOOBIG) } else { Ok(self.bytes) }
    }

    /// Starts a message. The kernel fills in the port ID.
    pub(crate) fn open_message(&mut self, kind: u16, flags: u16, sequence: u32) -> Open {
        let open = Open(self.bytes.len());
        self.bytes.extend_from_slice(&0u32.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.bytes.extend_from_slice(&sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&0u32.to_ne_bytes());
        debug_assert_eq!(self.bytes.len() - open.0, HEADER);
        open
    }

    /// Closes a message.
    pub(crate) fn close_message(&mut self, open: &Open) {
        let length = u32::try_from(self.bytes.len() - open.0).unwrap_or_else(|_| {
            self.too_long = true;
            u32::MAX
        });
        self.bytes[open.0..open.0 + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Writes a message.
    pub(crate) fn message(&mut self, kind: u16, flags: u16, sequence: u32, body: impl FnOnce(&mut Self)) {
        let open = self.open_message(kind, flags, sequence);
        body(self);
        self.close_message(&open);
    }

    /// Adds a flag to a message that is already written.
    pub(crate) fn add_flag(&mut self, message: usize, flag: u16) {
        if let Some([low, high]) = self.bytes.get_mut(message + 6..message + 8) {
            let flags = u16::from_ne_bytes([*low, *high]) | flag;
            [*low, *high] = flags.to_ne_bytes();
        }
    }

    /// Appends bytes that are not an attribute, such as a protocol header.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(align(self.bytes.len()), 0);
    }

    /// Starts a nested attribute.
    pub(crate) fn open_nest(&mut self, attribute: u16) -> Open {
        let open = Open(self.bytes.len());
        self.bytes.extend_from_slice(&0u16.to_ne_bytes());
        self.bytes.extend_from_slice(&(attribute | NESTED).to_ne_bytes());
        open
    }

    /// Closes a nested attribute.
    pub(crate) fn close_nest(&mut self, open: &Open) {
        self.set_length(open);
    }

    /// Writes a nested attribute.
    pub(crate) fn nest(&mut self, attribute: u16, body: impl FnOnce(&mut Self)) {
        let open = self.open_nest(attribute);
        body(self);
        self.close_nest(&open);
    }

    /// Writes an attribute.
    pub(crate) fn bytes(&mut self, attribute: u16, value: &[u8]) {
        let open = Open(self.bytes.len());
        self.bytes.extend_from_slice(&0u16.to_ne_bytes());
        self.bytes.extend_from_slice(&attribute.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.set_length(&open);
        self.bytes.resize(align(self.bytes.len()), 0);
    }

    /// Writes a 32-bit number in network order.
    pub(crate) fn be32(&mut self, attribute: u16, value: u32) {
        self.bytes(attribute, &value.to_be_bytes());
    }

    /// Writes a 64-bit number in network order.
    pub(crate) fn be64(&mut self, attribute: u16, value: u64) {
        self.bytes(attribute, &value.to_be_bytes());
    }

    /// Writes a zero-terminated text.
    pub(crate) fn text(&mut self, attribute: u16, value: &str) {
        let open = Open(self.bytes.len());
        self.bytes.extend_from_slice(&0u16.to_ne_bytes());
        self.bytes.extend_from_slice(&attribute.to_ne_bytes());
        self.bytes.extend_from_slice(value.as_bytes());
        self.bytes.push(0);
        self.set_length(&open);
        self.bytes.resize(align(self.bytes.len()), 0);
    }

    fn set_length(&mut self, open: &Open) {
        let length = u16::try_from(self.bytes.len() - open.0).unwrap_or_else(|_| {
            self.too_long = true;
            u16::MAX
        });
        self.bytes[open.0..open.0 + 2].copy_from_slice(&length.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Attributes, Messages};

    #[test]
    fn messages_round_trip() {
        let mut writer = Writer::default();
        writer.message(7, 1, 42, |w| {
            w.raw(&[9, 9, 9, 9]);
            w.text(1, "name");
            w.nest(2, |w| w.be32(3, 0x0102_0304));
        });
        writer.add_flag(0, 4);
        let bytes = writer.finish().expect("short enough");
        let message = Messages::new(&bytes).next().expect("a message");
        assert_eq!((message.kind, message.flags, message.sequence), (7, 5, 42));
        let attributes: Vec<_> = Attributes::new(&message.body[4..]).collect();
        assert_eq!(attributes[0], (1, &b"name\0"[..]));
        assert_eq!(Attributes::new(attributes[1].1).collect::<Vec<_>>(), [(3, &[1u8, 2, 3, 4][..])]);
    }

    #[test]
    fn a_nest_that_is_too_long_is_refused() {
        let mut writer = Writer::default();
        writer.message(0, 0, 0, |w| {
            w.nest(1, |w| (0..9000).for_each(|number| w.be32(2, number)));
        });
        assert_eq!(writer.finish(), Err(Errno::TOOBIG));
    }
}
