//! The log of a container in CRI format, `TIME stdout F text`, in a few files of bounded size.
//!
//! An incomplete line is buffered; a very long one is written in parts with the tag `P`.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

/// The size at which a file is rotated, in bytes.
pub const LIMIT: u64 = 10 << 20;
/// The most files of a log.
pub const NUMBER: usize = 5;
/// The longest line that is written in one part, in bytes.
const LONGEST: usize = 16 * 1024;

/// An output stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// stdout
    Out,
    /// stderr
    Err,
}

impl Stream {
    const fn name(self) -> &'static str {
        match self {
            Self::Out => "stdout",
            Self::Err => "stderr",
        }
    }
}

/// An open log.
pub(super) struct Log {
    path: PathBuf,
    file: File,
    size: u64,
    limit: u64,
    pending: [Vec<u8>; 2],
}

impl Log {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::with_limit(path, LIMIT)
    }

    pub(super) fn with_limit(path: &Path, limit: u64) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, size, limit, pending: Default::default() })
    }

    /// Writes output of a stream.
    pub(super) fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let mut pending = std::mem::take(&mut self.pending[stream as usize]);
        let mut text = Vec::with_capacity(bytes.len() + 64);
        let now = Timestamp::now();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            pending.extend_from_slice(piece);
            if pending.last() == Some(&b'\n') {
                pending.pop();
                for_pieces(&pending, |part, last| line(&mut text, now, stream, part, last));
                pending.clear();
            } else if pending.len() >= LONGEST {
                line(&mut text, now, stream, &pending, false);
                pending.clear();
            }
        }
        self.pending[stream as usize] = pending;
        self.put(&text);
    }

    /// Writes incomplete lines.
    pub(super) fn flush(&mut self) {
        for stream in [Stream::Out, Stream::Err] {
            let pending = std::mem::take(&mut self.pending[stream as usize]);
            if !pending.is_empty() {
                let mut text = Vec::new();
                line(&mut text, Timestamp::now(), stream, &pending, true);
                self.put(&text);
            }
        }
    }

    /// Write errors lose lines: a full disk must not stop the container.
    fn put(&mut self, text: &[u8]) {
        if self.size > 0 && self.size + text.len() as u64 > self.limit {
            self.rotate();
        }
        if self.file.write_all(text).is_ok() {
            self.size += text.len() as u64;
        }
    }

    fn rotate(&mut self) {
        for number in (1..NUMBER).rev() {
            let older = rotated(&self.path, number);
            let newer = if number == 1 { self.path.clone() } else { rotated(&self.path, number - 1) };
            let _ = fs::rename(newer, older);
        }
        if let Ok(file) = File::options().create(true).append(true).open(&self.path) {
            self.file = file;
            self.size = 0;
        }
    }
}

/// The path of a rotated file; 1 is the newest.
#[must_use]
pub fn rotated(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

fn for_pieces(bytes: &[u8], mut each: impl FnMut(&[u8], bool)) {
    let mut chunks = bytes.chunks(LONGEST).peekable();
    if chunks.peek().is_none() {
        return each(&[], true);
    }
    while let Some(chunk) = chunks.next() {
        each(chunk, chunks.peek().is_none());
    }
}

fn line(out: &mut Vec<u8>, now: Timestamp, stream: Stream, text: &[u8], last: bool) {
    let time = now.strftime("%Y-%m-%dT%H:%M:%S%.9fZ");
    // Writing to memory does not fail.
    let _ = write!(out, "{time} {} {} ", stream.name(), if last { 'F' } else { 'P' });
    out.extend_from_slice(text);
    out.push(b'\n');
}
