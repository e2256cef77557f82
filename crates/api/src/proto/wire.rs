//! The bytes of protobuf: tags, varints, lengths.
//!
//! Reading never copies and never trusts a length; writing puts the length of a nested message in front of it after
//! the message is known, which moves bytes only when it is long.

/// Decoding errors; the messages are those of kube-apiserver.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProtoError {
    /// No bytes at all.
    #[error("empty data")]
    EmptyData,
    /// The envelope is missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    /// Nothing follows the prefix.
    #[error("empty body")]
    EmptyBody,
    /// The bytes end too early.
    #[error("unexpected EOF")]
    Truncated,
    /// A varint does not end.
    #[error("proto: integer overflow")]
    Overflow,
    /// A length is beyond every size.
    #[error("proto: negative length found during unmarshaling")]
    Length,
    /// A group ends that never began.
    #[error("proto: {0}: wiretype end group for non-group")]
    EndGroup(&'static str),
    /// A field number that cannot be.
    #[error("proto: {0}: illegal tag {1} (wire type {2})")]
    Tag(&'static str, i32, u64),
    /// A wire type that does not exist.
    #[error("proto: illegal wireType {0}")]
    WireType(u8),
    /// A field has a type that does not match its number.
    #[error("proto: wrong wireType = {0} for field {1}")]
    Mismatch(u8, String),
    /// Messages nest too deeply.
    #[error("proto: exceeded max depth")]
    Depth,
    /// A value does not parse.
    #[error("{0}")]
    Value(String),
}

/// What a field carries.
#[derive(Clone, Copy, Debug)]
pub(super) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
    /// A group, which is deprecated; its content is skipped.
    Group,
}

impl<'a> Payload<'a> {
    fn wire_type(self) -> u8 {
        match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Group => 3,
            Self::Fixed32 => 5,
        }
    }

    /// The complaint about a field of the wrong type.
    pub(super) fn mismatch(self, field: &str) -> ProtoError {
        let mut name = field.to_owned();
        if let Some(first) = name.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        ProtoError::Mismatch(self.wire_type(), name)
    }

    pub(super) fn bytes(self, field: &str) -> Result<&'a [u8], ProtoError> {
        if let Self::Bytes(bytes) = self { Ok(bytes) } else { Err(self.mismatch(field)) }
    }

    pub(super) fn varint(self, field: &str) -> Result<u64, ProtoError> {
        if let Self::Varint(value) = self { Ok(value) } else { Err(self.mismatch(field)) }
    }
}

/// A string; bytes that are no UTF-8 become replacement characters.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Reads a message field by field.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next field, or none at the end.
    pub(super) fn field(&mut self, message: &'static str) -> Result<Option<(u32, Payload<'a>)>, ProtoError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let wire_type = (tag & 7) as u8;
        if wire_type == 4 {
            return Err(ProtoError::EndGroup(message));
        }
        let number = ((tag >> 3) as u32).cast_signed();
        if number <= 0 {
            return Err(ProtoError::Tag(message, number, tag));
        }
        let payload = self.payload(wire_type)?;
        if matches!(payload, Payload::Group) {
            self.skip_group()?;
        }
        Ok(Some((number.unsigned_abs(), payload)))
    }

    fn payload(&mut self, wire_type: u8) -> Result<Payload<'a>, ProtoError> {
        Ok(match wire_type {
            0 => Payload::Varint(self.varint()?),
            1 => Payload::Fixed64(self.fixed64()?),
            2 => {
                let length = i64::try_from(self.varint()?).map_err(|_| ProtoError::Length)?;
                Payload::Bytes(self.take(usize::try_from(length).map_err(|_| ProtoError::Length)?)?)
            }
            3 => Payload::Group,
            5 => {
                self.take(4)?;
                Payload::Fixed32
            }
            other => return Err(ProtoError::WireType(other)),
        })
    }

    fn skip_group(&mut self) -> Result<(), ProtoError> {
        let mut open = 1_usize;
        while open > 0 {
            match (self.varint()? & 7) as u8 {
                4 => open -= 1,
                wire_type => {
                    if matches!(self.payload(wire_type)?, Payload::Group) {
                        open += 1;
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn varint(&mut self) -> Result<u64, ProtoError> {
        let mut value = 0;
        for (index, byte) in self.rest.iter().enumerate() {
            if index == 10 {
                return Err(ProtoError::Overflow);
            }
            // Bits beyond 64 fall off, as they do in kube-apiserver.
            value |= u64::from(byte & 0x7f) << (7 * index);
            if *byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() >= 10 { ProtoError::Overflow } else { ProtoError::Truncated })
    }

    pub(super) fn fixed64(&mut self) -> Result<u64, ProtoError> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.take(8)?);
        Ok(u64::from_le_bytes(bytes))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtoError> {
        let (head, tail) = self.rest.split_at_checked(length).ok_or(ProtoError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }
}

/// Writes a message.
#[derive(Default)]
pub(super) struct Writer {
    out: Vec<u8>,
}

impl Writer {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self { out: Vec::with_capacity(bytes) }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// Bytes as they are.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    fn put(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    /// A number; negative ones take ten bytes.
    pub(super) fn int(&mut self, number: u32, value: i64) {
        self.put(u64::from(number) << 3);
        self.put(value.cast_unsigned());
    }

    pub(super) fn float(&mut self, number: u32, value: f64) {
        self.put(u64::from(number) << 3 | 1);
        self.raw(&value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.put(u64::from(number) << 3 | 2);
        self.put(bytes.len() as u64);
        self.raw(bytes);
    }

    /// A message in a field.
    pub(super) fn nested(&mut self, number: u32, write: impl FnOnce(&mut Self)) {
        self.put(u64::from(number) << 3 | 2);
        let at = self.out.len();
        self.out.push(0);
        write(self);
        let length = self.out.len() - at - 1;
        if length < 0x80 {
            self.out[at] = length as u8;
            return;
        }
        let mut prefix = Self::default();
        prefix.put(length as u64);
        self.out.splice(at..=at, prefix.out);
    }
}
