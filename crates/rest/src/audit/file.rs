//! The log file: lines in, a file that is rotated at a size out.
//!
//! Rotation is that of kube-apiserver (lumberjack): before a line that would exceed the size the file is renamed to `NAME-TIME.EXT` and a new one is
//! begun, so no line is split between files. Files are created with mode 0600. What becomes of old files is the business of
//! [`super::backups`].

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, SyncSender};

use jiff::Timestamp;

use super::backups::Backups;
use super::writer::Output;

/// How much is gathered into one write, in bytes.
const CHUNK: usize = 256 * 1024;
/// How many bytes are written before a rotation that failed is tried again.
const ROTATION_RETRY: u64 = 1 << 20;

/// Settings of a log file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogOptions {
    /// The file; `None` is standard output.
    pub path: Option<PathBuf>,
    /// The size at which a file is rotated, in MiB; 0: never.
    pub max_size: u64,
    /// How many rotated files are kept; 0: all.
    pub max_backups: usize,
    /// How many days rotated files are kept; 0: no limit.
    pub max_age_days: u32,
    /// Whether rotated files are compressed with gzip.
    pub compress: bool,
}

/// A log file.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    /// The size at which to rotate, in bytes.
    max_size: u64,
    /// The size at which to rotate next.
    limit: u64,
    file: Option<File>,
    /// With what is pending.
    size: u64,
    pending: Pending,
    backups: Option<(Backups, SyncSender<()>)>,
}

/// Lines that were accepted and are not yet written.
#[derive(Debug, Default)]
struct Pending {
    bytes: Vec<u8>,
    written: usize,
}

impl LogFile {
    /// Opens a log, and creates what is missing of its path.
    pub(super) fn open(options: &LogOptions) -> io::Result<Self> {
        let Some(path) = &options.path else { return Self::stdout() };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let max_size = if options.max_size > 0 { options.max_size.saturating_mul(1 << 20) } else { u64::MAX };
        let mut log = Self::new(path, max_size);
        log.file()?;
        if options.max_size > 0 {
            let backups = Backups::new(path, options);
            let maintain = maintenance(backups.clone())?;
            let _ = maintain.try_send(());
            log.backups = Some((backups, maintain));
        }
        Ok(log)
    }

    /// Standard output, without the buffer that the standard library has in front of it.
    fn stdout() -> io::Result<Self> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Self { file: Some(file), ..Self::new(Path::new("/dev/stdout"), u64::MAX) })
    }

    fn new(path: &Path, max_size: u64) -> Self {
        Self {
            path: path.to_owned(),
            max_size,
            limit: max_size,
            file: None,
            size: 0,
            pending: Pending::default(),
            backups: None,
        }
    }

    /// The open file; nothing may be pending when it has to be opened.
    fn file(&mut self) -> io::Result<&mut File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
                let metadata = file.metadata()?;
                self.size = metadata.len();
                if !metadata.is_file() {
                    // A device or a pipe is never renamed.
                    self.limit = u64::MAX;
                }
                file
            }
        };
        Ok(self.file.insert(file))
    }

    /// Renames the file and begins a new one.
    fn rotate(&mut self) -> io::Result<()> {
        let Some((backups, maintain)) = &self.backups else { return Ok(()) };
        let to = backups.free_name(Timestamp::now());
        self.file = None;
        match std::fs::rename(&self.path, &to) {
            Ok(()) => self.limit = self.max_size,
            // Events in a file that is too large are better than none.
            Err(error) => {
                tracing::error!(%error, to = %to.display(), "failed to rotate audit log");
                self.limit = self.size.saturating_add(ROTATION_RETRY);
            }
        }
        let _ = maintain.try_send(());
        self.file().map(drop)
    }
}

impl Output for LogFile {
    fn has_room(&self, bytes: usize) -> bool {
        self.size + bytes as u64 <= self.limit
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.file()?;
        let exceeds = self.size > 0 && self.size + line.len() as u64 > self.limit;
        if exceeds || self.pending.bytes.len() >= CHUNK {
            self.flush()?;
        }
        if exceeds {
            self.rotate()?;
        }
        self.pending.bytes.extend_from_slice(line);
        self.size += line.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file()?;
        self.file.as_mut().map_or(Ok(()), |file| self.pending.write_to(file))
    }
}

impl Pending {
    /// Writes all of it; when that fails, the next call continues.
    fn write_to(&mut self, out: &mut impl io::Write) -> io::Result<()> {
        while let Some(rest @ [_, ..]) = self.bytes.get(self.written..) {
            match out.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.written = 0;
        Ok(())
    }
}

/// A thread that removes and compresses old files after each signal; it ends when all senders are dropped.
fn maintenance(backups: Backups) -> io::Result<SyncSender<()>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::Builder::new().name("audit-backups".to_owned()).spawn(move || {
        while receiver.recv().is_ok() {
            if let Err(error) = backups.maintain(Timestamp::now()) {
                tracing::warn!(%error, "failed to remove or compress old audit logs");
            }
        }
    })?;
    Ok(sender)
}

#[cfg(test)]
mod tests;
