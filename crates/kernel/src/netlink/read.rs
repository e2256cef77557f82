//! Parses messages and attributes of the kernel. Parsing ends at anything that exceeds its bounds, without panics.

use rustix::io::Errno;

use super::{DONE, ERROR, HEADER, align};

/// One message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    /// Message type.
    pub kind: u16,
    /// Its flags.
    pub flags: u16,
    /// Sequence number of the request.
    pub sequence: u32,
    /// Port ID of the requesting socket.
    pub port: u32,
    /// Payload.
    pub body: &'a [u8],
}

/// Meaning of a message for its request.
pub(crate) enum Meaning {
    /// Data.
    Content,
    /// End of the reply.
    End,
    /// Error.
    Failure(Errno),
}

impl<'a> Message<'a> {
    /// Its meaning.
    pub(crate) fn meaning(&self) -> Meaning {
        match self.kind {
            ERROR | DONE => match number32(self.body).map_or(0, u32::cast_signed) {
                // Only these are valid error numbers for `Errno`.
                code @ -4095..0 => Meaning::Failure(Errno::from_raw_os_error(-code)),
                ..-4095 => Meaning::Failure(Errno::BADMSG),
                0.. => Meaning::End,
            },
            _ => Meaning::Content,
        }
    }

    /// The attributes after a protocol header.
    pub(crate) fn attributes(&self, header: usize) -> Attributes<'a> {
        Attributes::new(self.body.get(align(header)..).unwrap_or_default())
    }
}

/// Messages of one datagram.
pub(crate) struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// Messages in these bytes.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let (header, _) = self.0.split_at_checked(HEADER)?;
        let length = usize::try_from(number32(header)?).ok()?;
        let body = self.0.get(HEADER..length)?;
        let message = Message {
            kind: number16(&header[4..])?,
            flags: number16(&header[6..])?,
            sequence: number32(&header[8..])?,
            port: number32(&header[12..])?,
            body,
        };
        self.0 = self.0.get(align(length)..).unwrap_or_default();
        Some(message)
    }
}

/// Attributes of a message or nest, without flag bits in their types.
#[derive(Clone)]
pub(crate) struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// Attributes in these bytes.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The first attribute of this type.
    pub(crate) fn find(&self, attribute: u16) -> Option<&'a [u8]> {
        self.clone().find_map(|(number, value)| (number == attribute).then_some(value))
    }

    /// The attributes in the first attribute of this type.
    pub(crate) fn nest(&self, attribute: u16) -> Option<Self> {
        self.find(attribute).map(Self::new)
    }

    /// The text of the first attribute of this type.
    pub(crate) fn text(&self, attribute: u16) -> Option<&'a str> {
        let bytes = self.find(attribute)?;
        std::str::from_utf8(bytes.split(|byte| *byte == 0).next()?).ok()
    }

    /// A 16-bit number in network order.
    pub(crate) fn be16(&self, attribute: u16) -> Option<u16> {
        self.find(attribute)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
    }

    /// A 32-bit number in network order.
    pub(crate) fn be32(&self, attribute: u16) -> Option<u32> {
        self.find(attribute)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
    }

    /// A 16-bit number in host order.
    pub(crate) fn ne16(&self, attribute: u16) -> Option<u16> {
        number16(self.find(attribute)?)
    }

    /// A 32-bit number in host order.
    pub(crate) fn ne32(&self, attribute: u16) -> Option<u32> {
        number32(self.find(attribute)?)
    }

    /// A 64-bit number in network order.
    pub(crate) fn be64(&self, attribute: u16) -> Option<u64> {
        self.find(attribute)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let length = usize::from(number16(self.0)?);
        let number = number16(self.0.get(2..)?)? & 0x3fff;
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(align(length)..).unwrap_or_default();
        Some((number, value))
    }
}

fn number16(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

fn number32(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_lengths_end_the_parsing() {
        for length in [0u32, 3, 15, 17, u32::MAX] {
            let mut bytes = [0u8; HEADER];
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(Messages::new(&bytes).count(), 0, "{length}");
        }
        for length in [0u16, 1, 3, 9, u16::MAX] {
            let mut bytes = [0u8; 8];
            bytes[..2].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(Attributes::new(&bytes).count(), 0, "{length}");
        }
    }

    #[test]
    fn errors_have_their_errno() {
        let told = |code: i32| {
            let body = code.to_ne_bytes();
            match (Message { kind: ERROR, flags: 0, sequence: 0, port: 0, body: &body }).meaning() {
                Meaning::Failure(errno) => Some(errno),
                _ => None,
            }
        };
        assert_eq!(told(0), None);
        assert_eq!(told(-1), Some(Errno::PERM));
        assert_eq!(told(i32::MIN), Some(Errno::BADMSG));
        assert_eq!(told(-4096), Some(Errno::BADMSG));
    }
}
