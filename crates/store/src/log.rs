//! The write-ahead log: segments of frames, the newest of which is written to.
//!
//! Batches flow in, each becomes one frame, one write and one fdatasync. What matters is what happens when these fail:
//! the end of the segment is then unknown, so it is cut back to the last good frame, or, when even that fails or a
//! sync failed, given up for a fresh segment. The name of a segment is its first revision, and a reader believes no
//! frame from that revision on in the segments before it; so what is left in a segment that was given up is harmless.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::time::Instant;

use crate::Revision;
use crate::disk::{self, Disk, DiskFile};
use crate::figures::Counters;
use crate::frame::{self, HEADER, Header, Kind};
use crate::home::segment_path;

/// A segment that is there.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) first: Revision,
    pub(crate) path: PathBuf,
    /// Its good bytes.
    pub(crate) bytes: u64,
}

struct Tail {
    file: Box<dyn DiskFile>,
    salt: u32,
}

/// See the module.
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    counters: Arc<Counters>,
    /// All segments that may still be needed, oldest first.
    segments: Vec<Segment>,
    /// The last segment, open; `None` when the next batch must begin a fresh one.
    tail: Option<Tail>,
}

impl Log {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path, counters: Arc<Counters>) -> Self {
        Self { disk, dir: dir.to_owned(), counters, segments: Vec::new(), tail: None }
    }

    /// Takes over what recovery found, to write on after the last good byte.
    ///
    /// The end of the last segment is synced: it was read, so it will be seen, but the crash may have come before it
    /// was durable.
    pub(crate) fn resume(&mut self, segments: Vec<Segment>, salt: Option<u32>) -> io::Result<()> {
        if let (Some(last), Some(salt)) = (segments.last(), salt) {
            let mut file = self.disk.open(&last.path, last.bytes)?;
            file.sync()?;
            self.tail = Some(Tail { file, salt });
        }
        self.segments = segments;
        self.count_bytes();
        Ok(())
    }

    /// Appends a frame that begins at the start of `frame` and holds revisions from `first` on. When this is `Ok`,
    /// it is durable; otherwise it is as if it had never been asked for.
    pub(crate) fn append(&mut self, first: Revision, frame: &mut [u8]) -> io::Result<()> {
        if self.tail.is_none() {
            self.begin_segment(first)?;
        }
        let (Some(tail), Some(segment)) = (&mut self.tail, self.segments.last_mut()) else {
            return Err(io::Error::other("the log has no segment"));
        };
        frame::seal(frame, 0, tail.salt);
        if let Err(error) = tail.file.append(frame) {
            if let Err(also) = tail.file.truncate(segment.bytes) {
                tracing::warn!(file = %segment.path.display(), error = %also, "cannot cut a failed write off the log");
                self.tail = None;
            }
            return Err(error);
        }
        let began = Instant::now();
        let synced = tail.file.sync();
        self.counters.synced(began.elapsed());
        if let Err(error) = synced {
            // Nobody knows which of the pages are on disk, and asking again does not tell. Cutting is only tidy: it
            // keeps a write that was refused from coming back if the process ends before it writes anything else.
            if let Err(also) = tail.file.truncate(segment.bytes) {
                tracing::warn!(file = %segment.path.display(), error = %also, "cannot cut a failed write off the log");
            }
            self.tail = None;
            return Err(error);
        }
        segment.bytes += frame.len() as u64;
        self.counters.wrote(frame.len());
        self.count_bytes();
        Ok(())
    }

    /// Goes on in a fresh segment whose first revision will be `first`.
    pub(crate) fn begin_segment(&mut self, first: Revision) -> io::Result<()> {
        let header = Header::new(Kind::Log, first);
        let path = segment_path(&self.dir, first);
        // From here on the new name may exist, which takes the old segment's right to hold `first`.
        self.tail = None;
        let file = disk::create(&*self.disk, &path, |file| file.append(&header.encode()))?;
        self.segments.retain(|segment| segment.first < first);
        self.segments.push(Segment { first, path, bytes: HEADER as u64 });
        self.tail = Some(Tail { file, salt: header.salt });
        self.count_bytes();
        Ok(())
    }

    /// The segments that hold nothing from revision `first` on.
    pub(crate) fn before(&self, first: Revision) -> Vec<PathBuf> {
        self.segments.iter().take_while(|segment| segment.first < first).map(|segment| segment.path.clone()).collect()
    }

    /// Takes note that those segments are gone.
    pub(crate) fn forget_before(&mut self, first: Revision) {
        self.segments.retain(|segment| segment.first >= first);
        self.count_bytes();
    }

    /// How long the log is.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    fn count_bytes(&self) {
        self.counters.log_is(self.bytes());
    }
}
