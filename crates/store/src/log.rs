//! The write-ahead log: segments of frames, the newest of which is written to.
//!
//! In: batches. Each becomes one frame, one write and one fdatasync. After a failed write the end of the segment is unknown, so it
//! is truncated to the last good frame; if that fails too, or a sync failed, the segment is abandoned for a new one. The name
//! of a segment is its first revision, and recovery ignores frames from that revision on in earlier segments; so what is left in
//! an abandoned segment is harmless.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::time::Instant;

use crate::Revision;
use crate::data_dir::segment_path;
use crate::disk::{self, Disk, DiskFile};
use crate::frame::{self, HEADER, Header, Kind};
use crate::stats::Counters;

/// A segment on disk.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) first: Revision,
    pub(crate) path: PathBuf,
    /// The length of its valid frames, in bytes.
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
    /// The last segment, open; `None` when the next batch must begin a new one.
    tail: Option<Tail>,
}

impl Log {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path, counters: Arc<Counters>) -> Self {
        Self { disk, dir: dir.to_owned(), counters, segments: Vec::new(), tail: None }
    }

    /// Continues the segments that recovery found, after the last good byte.
    ///
    /// Syncs the last segment: recovery has read it, but the crash may have come before its fdatasync.
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

    /// Appends a frame that holds revisions from `first` on. `Ok` means durable; after an error the frame is not in the log.
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
                tracing::warn!(file = %segment.path.display(), error = %also, "cannot truncate failed write of the log");
                self.tail = None;
            }
            return Err(error);
        }
        let started = Instant::now();
        let synced = tail.file.sync();
        self.counters.synced(started.elapsed());
        if let Err(error) = synced {
            // It is unknown which pages are on disk, and another fdatasync may succeed wrongly. Truncating keeps a write that
            // was refused from reappearing if the process ends before it writes anything else.
            if let Err(also) = tail.file.truncate(segment.bytes) {
                tracing::warn!(file = %segment.path.display(), error = %also, "cannot truncate failed write of the log");
            }
            self.tail = None;
            return Err(error);
        }
        segment.bytes += frame.len() as u64;
        self.counters.wrote(frame.len());
        self.count_bytes();
        Ok(())
    }

    /// Begins a new segment whose first revision will be `first`.
    pub(crate) fn begin_segment(&mut self, first: Revision) -> io::Result<()> {
        let header = Header::new(Kind::Log, first);
        let path = segment_path(&self.dir, first);
        // From here on the new file may exist, and recovery ignores `first` in the old segment.
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

    /// Removes those segments from the list.
    pub(crate) fn forget_before(&mut self, first: Revision) {
        self.segments.retain(|segment| segment.first >= first);
        self.count_bytes();
    }

    /// The length of the log, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    fn count_bytes(&self) {
        self.counters.set_log_bytes(self.bytes());
    }
}
