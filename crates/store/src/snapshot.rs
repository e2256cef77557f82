//! Snapshots: all entries at one revision in one file. Compaction writes them; a backup is one.
//!
//! Entries are stored in frames of about a mebibyte. The last frame has their number, so that a truncated file is detected.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{self, Disk, DiskFile};
use crate::embedded::Index;
use crate::encryption::{Decryptor, Encryptor, Unreadable};
use crate::frame::{self, FrameError, Frames, Header, Kind};
use crate::record::{self, Decoder, INVALID_RECORD, SnapshotRecord};
use crate::{Entry, Revision};

/// The approximate length of a frame, in bytes.
const FRAME: usize = 1 << 20;
/// The number of frames between syncs: one large sync at the end would delay the syncs of the log.
const FRAMES_PER_SYNC: usize = 8;

/// Writes a snapshot atomically.
pub(crate) fn write(
    disk: &dyn Disk,
    path: &Path,
    revision: Revision,
    entries: &[Arc<Entry>],
    encryptor: &mut Encryptor,
) -> io::Result<()> {
    let header = Header::new(Kind::Snapshot, revision);
    disk::create(disk, path, |file| {
        file.append(&header.encode())?;
        fill(file, header.salt, entries, encryptor)
    })
    .map(drop)
}

fn fill(file: &mut dyn DiskFile, salt: u32, entries: &[Arc<Entry>], encryptor: &mut Encryptor) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(FRAME + FRAME / 4);
    let mut frames = 0;
    let mut flush = |buffer: &mut Vec<u8>| {
        frame::seal(buffer, 0, salt);
        file.append(buffer)?;
        frames += 1;
        if frames % FRAMES_PER_SYNC == 0 { file.sync() } else { Ok(()) }
    };
    frame::begin(&mut buffer);
    for entry in entries {
        record::encode_entry(&mut buffer, entry, encryptor)?;
        if buffer.len() >= FRAME {
            flush(&mut buffer)?;
            buffer.clear();
            frame::begin(&mut buffer);
        }
    }
    record::encode_end(&mut buffer, entries.len() as u64);
    flush(&mut buffer)
}

/// Reads a snapshot.
pub(crate) fn read(
    path: &Path,
    index: Index,
    decryptor: &mut Decryptor,
) -> Result<(Revision, Vec<Arc<Entry>>), FrameError> {
    let mut frames = Frames::open(path, Kind::Snapshot)?;
    let revision = frames.header.revision;
    let mut entries = Vec::new();
    let mut ended = false;
    loop {
        let offset = frames.offset();
        let bad = |why| Err(FrameError::Bad { offset, why });
        let Some(payload) = frames.next()? else { break };
        let mut decoder = Decoder::new(payload, index, decryptor);
        while !decoder.is_done() {
            match decoder.snapshot_record() {
                Ok(SnapshotRecord::Entry(entry)) if !ended => entries.push(Arc::new(entry)),
                Ok(SnapshotRecord::End(count)) if !ended && count == entries.len() as u64 => ended = true,
                Err(Unreadable::Encrypted(error)) => return Err(FrameError::Encrypted(error)),
                _ => return bad(INVALID_RECORD),
            }
        }
    }
    if ended {
        Ok((revision, entries))
    } else {
        Err(FrameError::Bad { offset: frames.offset(), why: "file is truncated" })
    }
}
