//! The file format: a header, then frames, each with its length and checksum.
//!
//! In and out: payloads; damage is detected here. Every file has a random salt that its checksums include, so that neither leftovers of
//! another file nor a stored value that looks like a frame are valid frames. A frame of the log is one batch, that is, one write
//! and one fdatasync: only the last can be torn.
//!
//! ```text
//! file    magic 8 │ salt 4 │ revision 8 │ crc 4 │ frames …
//! frame   mark 4 │ length 4 │ crc 4 of salt, length, payload │ payload
//! ```

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crate::Revision;
use crate::encryption::DecryptError;

/// Bytes before the first frame.
pub(crate) const HEADER: usize = 24;
/// Bytes of a frame before its payload.
pub(crate) const PREFIX: usize = 12;
/// The longest payload, in bytes; a larger length is damage.
pub(crate) const MAX_PAYLOAD: usize = 128 << 20;

const MARK: [u8; 4] = *b"\xf5wpf";

/// The type of a file. The last byte of its magic is the version of the encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Log,
    Snapshot,
}

impl Kind {
    const fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Log => b"wpstLOG1",
            Self::Snapshot => b"wpstSNP1",
        }
    }
}

/// The header of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) salt: u32,
    /// Of a log: its first revision. Of a snapshot: its revision.
    pub(crate) revision: Revision,
}

impl Header {
    /// A header with a new salt.
    pub(crate) fn new(kind: Kind, revision: Revision) -> Self {
        let salt = RandomState::new().hash_one(revision) as u32;
        Self { kind, salt, revision }
    }

    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(self.kind.magic());
        bytes[8..12].copy_from_slice(&self.salt.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.revision.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..20]);
        bytes[20..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER], kind: Kind) -> Option<Self> {
        let crc = crc32fast::hash(&bytes[..20]);
        let whole = bytes[..8] == *kind.magic() && bytes[20..] == crc.to_le_bytes();
        let revision = u64::from_le_bytes(bytes[12..20].try_into().ok()?);
        whole.then_some(Self { kind, salt: word(&bytes[8..12]), revision })
    }
}

/// Begins a frame at the end of `buffer`; the caller appends the payload.
pub(crate) fn begin(buffer: &mut Vec<u8>) -> usize {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; PREFIX]);
    start
}

/// Writes the prefix of the frame that begins at `start`. May be repeated with another salt.
pub(crate) fn seal(buffer: &mut [u8], start: usize, salt: u32) {
    let (prefix, payload) = buffer[start..].split_at_mut(PREFIX);
    let length = (payload.len() as u32).to_le_bytes();
    prefix[..4].copy_from_slice(&MARK);
    prefix[4..8].copy_from_slice(&length);
    prefix[8..].copy_from_slice(&checksum(salt, length, payload).to_le_bytes());
}

fn checksum(salt: u32, length: [u8; 4], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(salt);
    hasher.update(&length);
    hasher.update(payload);
    hasher.finalize()
}

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// Why a file cannot be read further.
#[derive(Debug)]
pub(crate) enum FrameError {
    Io(io::Error),
    /// The file is damaged from `offset` on.
    Bad {
        offset: u64,
        why: &'static str,
    },
    /// A value cannot be decrypted.
    Encrypted(DecryptError),
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads a file frame by frame.
pub(crate) struct Frames {
    input: BufReader<File>,
    pub(crate) header: Header,
    offset: u64,
    length: u64,
    payload: Vec<u8>,
}

impl Frames {
    pub(crate) fn open(path: &Path, kind: Kind) -> Result<Self, FrameError> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut input = BufReader::with_capacity(256 << 10, file);
        let mut bytes = [0; HEADER];
        if length < HEADER as u64 {
            return Err(FrameError::Bad { offset: 0, why: "file is shorter than its header" });
        }
        input.read_exact(&mut bytes)?;
        let header = Header::decode(&bytes, kind)
            .ok_or(FrameError::Bad { offset: 0, why: "header is damaged or of another format" })?;
        Ok(Self { input, header, offset: HEADER as u64, length, payload: Vec::new() })
    }

    /// Where the next frame begins.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// How long the file is.
    pub(crate) const fn length(&self) -> u64 {
        self.length
    }

    /// The next payload; `None` at the exact end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let left = self.length - self.offset;
        if left == 0 {
            return Ok(None);
        }
        let bad = |why| FrameError::Bad { offset: self.offset, why };
        if left < PREFIX as u64 {
            return Err(bad("record is truncated"));
        }
        let mut prefix = [0; PREFIX];
        self.input.read_exact(&mut prefix)?;
        let length = word(&prefix[4..8]) as usize;
        if prefix[..4] != MARK || length == 0 || length > MAX_PAYLOAD {
            return Err(bad("no record where one must begin"));
        }
        if left < (PREFIX + length) as u64 {
            return Err(bad("record is truncated"));
        }
        self.payload.resize(length, 0);
        self.input.read_exact(&mut self.payload)?;
        if checksum(self.header.salt, (length as u32).to_le_bytes(), &self.payload) != word(&prefix[8..]) {
            return Err(bad("wrong checksum of a record"));
        }
        self.offset += (PREFIX + length) as u64;
        Ok(Some(&self.payload))
    }

    /// Whether a complete frame begins anywhere after `offset`. If so, the damage at `offset` is not a torn end: the frame was
    /// written after it.
    pub(crate) fn any_after(&mut self, offset: u64) -> io::Result<bool> {
        let mut rest = Vec::new();
        self.input.seek(SeekFrom::Start(offset))?;
        self.input.read_to_end(&mut rest)?;
        Ok((1..rest.len()).any(|start| self.is_frame(&rest[start..])))
    }

    fn is_frame(&self, bytes: &[u8]) -> bool {
        let Some((prefix, rest)) = bytes.split_at_checked(PREFIX) else { return false };
        let length = word(&prefix[4..8]);
        prefix[..4] == MARK
            && length > 0
            && rest
                .get(..length as usize)
                .is_some_and(|payload| checksum(self.header.salt, length.to_le_bytes(), payload) == word(&prefix[8..]))
    }
}
