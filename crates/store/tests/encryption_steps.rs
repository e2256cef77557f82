//! A crash between any two steps of a rotation: nothing is lost, and the next start completes it.
//!
//! The disk stops working after a number of operations, as if the process had been killed there; the store is opened again with
//! a disk that works. Every number is tried until the rotation is over before the disk stops.

mod common;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use common::{contents, encrypting, encryption, files_with, index, open_with, put};
use store::disk::{Disk, DiskFile, Real};
use store::{Embedded, Options, Store};
use tokio::sync::Notify;

const VALUE: &str = "a-value-that-is-in-no-other-place";

/// A disk that fails after a number of operations.
#[derive(Clone)]
struct Ending(Arc<State>);

struct State {
    left: AtomicI64,
    over: Notify,
}

struct EndingFile(Box<dyn DiskFile>, Ending);

impl Ending {
    fn after(operations: i64) -> Self {
        Self(Arc::new(State { left: operations.into(), over: Notify::new() }))
    }

    fn step(&self) -> io::Result<()> {
        if self.0.left.fetch_sub(1, SeqCst) > 0 {
            return Ok(());
        }
        self.0.over.notify_one();
        Err(io::Error::other("the process has ended"))
    }

    fn is_over(&self) -> bool {
        self.0.left.load(SeqCst) < 0
    }
}

impl Disk for Ending {
    fn open(&self, path: &Path, keep: u64) -> io::Result<Box<dyn DiskFile>> {
        self.step()?;
        Ok(Box::new(EndingFile(Real.open(path, keep)?, self.clone())))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        Real.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        Real.remove(path)
    }
}

impl DiskFile for EndingFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.1.step()?;
        self.0.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.1.step()?;
        self.0.sync()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.1.step()?;
        self.0.truncate(length)
    }
}

/// A store with a snapshot and a log after it; what it holds.
async fn filled(dir: &Path, providers: &[&str]) -> Vec<(String, String)> {
    let store = open_with(dir, Options { compact_after: 2 << 10, ..encrypting(providers) });
    let mut round = 0;
    while store.stats().snapshots == 0 || round % 7 != 0 {
        store.commit(put(&format!("default/{}", round % 5), &format!("{VALUE} {round}"))).await.expect("it commits");
        round += 1;
    }
    contents(&store)
}

/// Rotates with a disk that fails; returns whether the rotation completed.
async fn rotated(dir: &Path, disk: &Ending, at_start: bool, from: &[&str], to: &[&str]) -> bool {
    let options = Options { disk: Arc::new(disk.clone()), ..encrypting(if at_start { to } else { from }) };
    let Ok(store) = Embedded::open(dir, index, options) else { return false };
    if !at_start && store.set_encryption(encryption(to)).await.is_err() {
        return false;
    }
    tokio::select! {
        () = store.reencrypted() => !disk.is_over(),
        () = disk.0.over.notified() => false,
    }
}

async fn every_step(at_start: bool, from: &[&str], to: &[&str], readable: bool) {
    let mut done = false;
    for operations in 0..200 {
        let dir = tempfile::tempdir().expect("a directory");
        let held = filled(dir.path(), from).await;
        done = rotated(dir.path(), &Ending::after(operations), at_start, from, to).await;
        // Read with all keys, rewritten by the new rules.
        let store = open_with(dir.path(), encrypting(to));
        assert_eq!(contents(&store), held, "after {operations} operations");
        store.commit(put("default/later", VALUE)).await.expect("it commits");
        store.reencrypted().await;
        let files: Vec<PathBuf> = files_with(dir.path(), VALUE);
        assert_eq!(files.is_empty(), !readable, "after {operations} operations: {files:?}");
        store.close();
        let again = open_with(dir.path(), encrypting(to));
        assert_eq!(contents(&again).len(), held.len() + 1, "after {operations} operations");
        if done {
            assert!(operations > 8, "there is more than one step: {operations}");
            break;
        }
    }
    assert!(done, "the rotation never ended");
}

#[tokio::test]
async fn a_rewrite_at_start_survives_a_crash_at_any_step() {
    every_step(true, &["identity"], &["one:A", "identity"], false).await;
}

#[tokio::test]
async fn a_rotation_at_run_time_survives_a_crash_at_any_step() {
    every_step(false, &["one:A"], &["two:B", "one:A"], false).await;
}

#[tokio::test]
async fn turning_encryption_off_survives_a_crash_at_any_step() {
    every_step(false, &["one:A"], &["identity", "one:A"], true).await;
}
