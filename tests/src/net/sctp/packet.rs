//! SCTP on the wire (RFC 9260): a header of ports, tag and checksum, followed by chunks.
//!
//! In: bytes. Out: [`Packet`], and back. Wrong checksums are rejected: port translation has to update them.

/// A packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// The port of the sender.
    pub(super) source: u16,
    /// The port of the receiver.
    pub(super) destination: u16,
    /// The number that the receiver chose, which proves that the sender belongs to the association.
    pub(super) tag: u32,
    /// Its chunks.
    pub(super) chunks: Vec<Chunk>,
}

/// A piece of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    /// A line, or a part of one.
    Data { tsn: u32, sequence: u16, payload: Vec<u8> },
    /// Initiates an association.
    Init(Init),
    /// Agrees to one, with a cookie to be brought back.
    InitAck(Init, Vec<u8>),
    /// Acknowledges data.
    Sack { tsn: u32 },
    /// Ends the association, or refuses one.
    Abort,
    /// Brings the cookie back.
    CookieEcho(Vec<u8>),
    /// The association is established.
    CookieAck,
    /// Anything else.
    Other(u8),
}

/// The initial parameters of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Init {
    /// The tag that packets to this side must carry.
    pub(super) tag: u32,
    /// The number of its first piece of data.
    pub(super) tsn: u32,
}

/// How much either side claims it can receive.
const WINDOW: u32 = 65_536;

/// The parameter that carries the cookie.
const COOKIE: u16 = 7;

impl Packet {
    /// The bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        out.extend(self.source.to_be_bytes());
        out.extend(self.destination.to_be_bytes());
        out.extend(self.tag.to_be_bytes());
        out.extend([0; 4]);
        for chunk in &self.chunks {
            chunk.encode(&mut out);
        }
        let sum = checksum(&out);
        out[8..12].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// The packet, when these bytes are one.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut unsummed = bytes.to_vec();
        unsummed.get_mut(8..12)?.fill(0);
        if checksum(&unsummed).to_le_bytes() != bytes[8..12] {
            return None;
        }
        let mut chunks = Vec::new();
        let mut rest = &bytes[12..];
        while rest.len() >= 4 {
            let length = usize::from(u16_at(rest, 2)?);
            let value = rest.get(4..length)?;
            chunks.push(Chunk::decode(rest[0], value)?);
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Some(Self { source: u16_at(bytes, 0)?, destination: u16_at(bytes, 2)?, tag: u32_at(bytes, 4)?, chunks })
    }
}

impl Chunk {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        // The flags of a whole message that is not cut in pieces.
        let (kind, flags) = match self {
            Self::Data { .. } => (0, 3),
            Self::Init(_) => (1, 0),
            Self::InitAck(..) => (2, 0),
            Self::Sack { .. } => (3, 0),
            Self::Abort => (6, 0),
            Self::CookieEcho(_) => (10, 0),
            Self::CookieAck => (11, 0),
            Self::Other(kind) => (*kind, 0),
        };
        out.extend([kind, flags, 0, 0]);
        match self {
            Self::Data { tsn, sequence, payload } => {
                out.extend(tsn.to_be_bytes());
                out.extend([0, 0]);
                out.extend(sequence.to_be_bytes());
                out.extend([0; 4]);
                out.extend(payload);
            }
            Self::Init(init) => init.encode(out),
            Self::InitAck(init, cookie) => {
                init.encode(out);
                out.extend(COOKIE.to_be_bytes());
                out.extend(length_of(cookie.len() + 4).to_be_bytes());
                out.extend(cookie);
            }
            Self::Sack { tsn } => {
                out.extend(tsn.to_be_bytes());
                out.extend(WINDOW.to_be_bytes());
                out.extend([0; 4]);
            }
            Self::CookieEcho(cookie) => out.extend(cookie),
            Self::Abort | Self::CookieAck | Self::Other(_) => {}
        }
        let length = length_of(out.len() - start);
        out[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
        out.resize(out.len().next_multiple_of(4), 0);
    }

    fn decode(kind: u8, value: &[u8]) -> Option<Self> {
        Some(match kind {
            0 => Self::Data { tsn: u32_at(value, 0)?, sequence: u16_at(value, 6)?, payload: value.get(12..)?.to_vec() },
            1 => Self::Init(Init::decode(value)?),
            2 => Self::InitAck(Init::decode(value)?, cookie(value.get(16..)?)?),
            3 => Self::Sack { tsn: u32_at(value, 0)? },
            6 => Self::Abort,
            10 => Self::CookieEcho(value.to_vec()),
            11 => Self::CookieAck,
            other => Self::Other(other),
        })
    }
}

impl Init {
    /// A beginning that no other has.
    pub(super) fn random() -> Self {
        Self { tag: fastrand::u32(1..), tsn: fastrand::u32(..) }
    }

    fn encode(self, out: &mut Vec<u8>) {
        out.extend(self.tag.to_be_bytes());
        out.extend(WINDOW.to_be_bytes());
        // One stream each way.
        out.extend([0, 1, 0, 1]);
        out.extend(self.tsn.to_be_bytes());
    }

    fn decode(value: &[u8]) -> Option<Self> {
        Some(Self { tag: u32_at(value, 0)?, tsn: u32_at(value, 12)? })
    }
}

/// The cookie among the parameters of an agreement.
fn cookie(mut parameters: &[u8]) -> Option<Vec<u8>> {
    loop {
        let (kind, length) = (u16_at(parameters, 0)?, usize::from(u16_at(parameters, 2)?));
        if kind == COOKIE {
            return Some(parameters.get(4..length)?.to_vec());
        }
        parameters = parameters.get(length.max(4).next_multiple_of(4)..)?;
    }
}

/// CRC-32C, bit by bit: packets are short.
fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !crc
}

fn length_of(length: usize) -> u16 {
    u16::try_from(length).expect("a chunk of a line")
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{Chunk, Init, Packet, checksum};

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn packets_come_back_as_they_went_and_damage_is_seen() {
        let init = Init { tag: 7, tsn: 9 };
        let packet = Packet {
            source: 40_000,
            destination: 80,
            tag: 5,
            chunks: vec![
                Chunk::Init(init),
                Chunk::InitAck(init, b"cookie".to_vec()),
                Chunk::CookieEcho(b"cookie".to_vec()),
                Chunk::CookieAck,
                Chunk::Sack { tsn: 3 },
                Chunk::Data { tsn: 4, sequence: 1, payload: b"hello".to_vec() },
                Chunk::Abort,
            ],
        };
        let mut bytes = packet.encode();
        assert_eq!(Packet::decode(&bytes), Some(packet));
        bytes[1] ^= 1;
        assert_eq!(Packet::decode(&bytes), None);
        assert_eq!(Packet::decode(&bytes[..11]), None);
    }
}
