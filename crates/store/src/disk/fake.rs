//! The file system with injected faults: full disk, failing or hanging syncs, a power cut that loses what was not synced.
//!
//! Files are real: a test reopens what a crash would have left.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Condvar, Mutex};

use super::{Disk, DiskFile, Real};

/// A disk with injected faults. Clones share them.
#[derive(Clone, Default)]
pub struct Faulty {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    faults: Mutex<Faults>,
    changed: Condvar,
}

#[derive(Default)]
struct Faults {
    /// Free bytes; `None` for unlimited.
    room: Option<u64>,
    failing_syncs: u32,
    failing_truncates: bool,
    failing_renames: u32,
    syncs_held: bool,
    syncs_waiting: u32,
    files: HashMap<PathBuf, Arc<Lengths>>,
}

/// How much of a file was written, and how much of that was synced.
#[derive(Default)]
struct Lengths {
    written: AtomicU64,
    synced: AtomicU64,
}

struct FaultyFile {
    file: Box<dyn DiskFile>,
    lengths: Arc<Lengths>,
    shared: Arc<Shared>,
}

// === impl Faulty ===

impl Faulty {
    /// Limits the bytes that can be written from now on; the write that exceeds the limit is torn. `None` removes the limit.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.shared.faults.lock().room = bytes;
    }

    /// The next `count` syncs fail.
    pub fn fail_syncs(&self, count: u32) {
        self.shared.faults.lock().failing_syncs = count;
    }

    /// Whether truncating a file fails.
    pub fn fail_truncates(&self, fail: bool) {
        self.shared.faults.lock().failing_truncates = fail;
    }

    /// The next `count` renames succeed but return an error, as when the directory cannot be synced.
    pub fn fail_renames(&self, count: u32) {
        self.shared.faults.lock().failing_renames = count;
    }

    /// Makes every sync hang until [`Faulty::release_syncs`].
    pub fn hold_syncs(&self) {
        self.shared.faults.lock().syncs_held = true;
    }

    /// Waits until a sync hangs.
    pub fn wait_for_held_sync(&self) {
        let mut faults = self.shared.faults.lock();
        self.shared.changed.wait_while(&mut faults, |faults| faults.syncs_waiting == 0);
    }

    /// Ends [`Faulty::hold_syncs`].
    pub fn release_syncs(&self) {
        self.shared.faults.lock().syncs_held = false;
        self.shared.changed.notify_all();
    }

    /// Simulates a power cut, once all files are closed: of what was written after the last sync of each file, at most `keep` bytes
    /// remain.
    ///
    /// # Errors
    ///
    /// When a file cannot be truncated.
    pub fn cut_power(&self, keep: u64) -> io::Result<()> {
        for (path, lengths) in &self.shared.faults.lock().files {
            let left = lengths.written.load(Relaxed).min(lengths.synced.load(Relaxed) + keep);
            OpenOptions::new().write(true).open(path)?.set_len(left)?;
        }
        Ok(())
    }
}

impl Disk for Faulty {
    fn open(&self, path: &Path, keep: u64) -> io::Result<Box<dyn DiskFile>> {
        let file = Real.open(path, keep)?;
        let lengths = Arc::new(Lengths { written: keep.into(), synced: keep.into() });
        self.shared.faults.lock().files.insert(path.to_owned(), Arc::clone(&lengths));
        Ok(Box::new(FaultyFile { file, lengths, shared: Arc::clone(&self.shared) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Real.rename(from, to)?;
        let mut faults = self.shared.faults.lock();
        if let Some(lengths) = faults.files.remove(from) {
            faults.files.insert(to.to_owned(), lengths);
        }
        if faults.failing_renames > 0 {
            faults.failing_renames -= 1;
            return Err(io::Error::other("a rename failed (injected fault)"));
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.shared.faults.lock().files.remove(path);
        Real.remove(path)
    }
}

// === impl FaultyFile ===

impl DiskFile for FaultyFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut faults = self.shared.faults.lock();
        let room = faults.room.unwrap_or(u64::MAX).min(bytes.len() as u64);
        faults.room = faults.room.map(|left| left - room);
        self.file.append(&bytes[..room as usize])?;
        self.lengths.written.fetch_add(room, Relaxed);
        if room < bytes.len() as u64 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut faults = self.shared.faults.lock();
        faults.syncs_waiting += 1;
        self.shared.changed.notify_all();
        self.shared.changed.wait_while(&mut faults, |faults| faults.syncs_held);
        faults.syncs_waiting -= 1;
        if faults.failing_syncs > 0 {
            faults.failing_syncs -= 1;
            return Err(io::Error::other("a sync failed (injected fault)"));
        }
        self.lengths.synced.store(self.lengths.written.load(Relaxed), Relaxed);
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        if self.shared.faults.lock().failing_truncates {
            return Err(io::Error::other("a truncate failed (injected fault)"));
        }
        self.lengths.written.store(length, Relaxed);
        self.lengths.synced.fetch_min(length, Relaxed);
        self.file.truncate(length)
    }
}
