//! Recovery of files that a crash, a bad disk or another program left.

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use common::{check, contents, files, key, open, put};
use store::disk::fake::Faulty;
use store::tools::backup;
use store::{Embedded, OpenError, Options, Store, Txn};

/// A store with three batches: returns the length of the log after each.
async fn three_batches(dir: &Path) -> Vec<u64> {
    let store = open(dir);
    let mut lengths = Vec::new();
    for name in ["a", "b", "c"] {
        store.commit(put(name, "value")).await.expect("it commits");
        lengths.push(fs::metadata(&files(dir, "wal")[0]).expect("the log is there").len());
    }
    lengths
}

fn names(store: &Embedded) -> Vec<String> {
    contents(store).into_iter().map(|(name, _)| name).collect()
}

fn refusal(dir: &Path) -> OpenError {
    Embedded::open(dir, common::index, Options::default()).err().expect("the store is refused")
}

#[tokio::test]
async fn a_truncated_last_record_is_dropped() {
    let origin = tempfile::tempdir().expect("a directory");
    let lengths = three_batches(origin.path()).await;
    let whole = fs::read(&files(origin.path(), "wal")[0]).expect("the log");
    for end in lengths[1]..lengths[2] {
        let log = &files(origin.path(), "wal")[0];
        fs::write(log, &whole[..end as usize]).expect("cut");
        let report = check(origin.path()).expect("a report");
        assert_eq!((report.revision, report.problems.len()), (3, 0), "cut at {end}");
        assert_eq!(report.notes.len(), usize::from(end > lengths[1]), "cut at {end}");
        let store = open(origin.path());
        assert_eq!((names(&store), store.revision()), (vec!["a".into(), "b".into()], 3), "cut at {end}");
        assert_eq!(store.commit(put("d", "value")).await, Ok(4), "cut at {end}");
        store.close();
        assert_eq!(names(&open(origin.path())), ["a", "b", "d"], "cut at {end}");
    }
}

#[tokio::test]
async fn damage_before_the_last_record_is_refused_and_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let lengths = three_batches(dir.path()).await;
    let log = &files(dir.path(), "wal")[0];
    let whole = fs::read(log).expect("the log");
    for place in 0..lengths[1] {
        let mut bytes = whole.clone();
        bytes[place as usize] ^= 0x20;
        fs::write(log, &bytes).expect("damage");
        let refusal = refusal(dir.path());
        let OpenError::Damaged { file, offset, .. } = &refusal else { panic!("{place}: {refusal}") };
        assert_eq!(file, log);
        assert!(*offset <= place, "{place}: {refusal}");
        assert!(refusal.to_string().contains("waypost store restore"));
        assert_eq!(check(dir.path()).expect("a report").problems.len(), 1);
    }
    fs::write(log, &whole).expect("mended");
    assert_eq!(names(&open(dir.path())), ["a", "b", "c"]);
}

#[tokio::test]
async fn garbage_after_the_last_record_is_truncated() {
    for garbage in [vec![0; 5_000], vec![0xff; 100], b"\xf5wpf\xff\xff\xff\x7f".to_vec()] {
        let dir = tempfile::tempdir().expect("a directory");
        let length = three_batches(dir.path()).await[2];
        let log = &files(dir.path(), "wal")[0];
        let mut bytes = fs::read(log).expect("the log");
        bytes.extend(&garbage);
        fs::write(log, &bytes).expect("garbage");
        assert_eq!(names(&open(dir.path())), ["a", "b", "c"]);
        assert_eq!(fs::metadata(log).expect("the log").len(), length);
    }
}

#[tokio::test]
async fn a_stored_value_that_looks_like_a_record_does_not_matter() {
    let origin = tempfile::tempdir().expect("a directory");
    three_batches(origin.path()).await;
    let records = fs::read(&files(origin.path(), "wal")[0]).expect("the log")[24..].to_vec();

    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    store.commit(Txn::new().put(key("copy"), records, Arc::default())).await.expect("it commits");
    store.close();
    let log = &files(dir.path(), "wal")[0];
    let bytes = fs::read(log).expect("the log");
    fs::write(log, &bytes[..bytes.len() - 1]).expect("torn");
    assert_eq!(open(dir.path()).revision(), 1, "the copies inside the torn value are not taken for later records");
}

#[tokio::test]
async fn a_missing_segment_is_an_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Faulty::default();
    let store = common::open_with(dir.path(), Options { disk: Arc::new(disk.clone()), ..Options::default() });
    for name in ["a", "b", "c"] {
        store.commit(put(name, "value")).await.expect("it commits");
        // A failed sync makes the store begin a new segment.
        disk.fail_syncs(1);
        assert!(store.commit(put("refused", "value")).await.is_err());
    }
    store.commit(put("d", "value")).await.expect("it commits");
    store.close();
    let segments = files(dir.path(), "wal");
    assert_eq!(segments.len(), 4);
    assert_eq!(names(&open(dir.path())), ["a", "b", "c", "d"]);
    fs::remove_file(&segments[1]).expect("removed");
    let OpenError::Damaged { why, .. } = refusal(dir.path()) else { panic!("it is damage") };
    assert_eq!(why, "revisions 3 to 3 are missing");
}

#[tokio::test]
async fn a_crash_between_snapshot_and_cleanup_is_recovered() {
    let dir = tempfile::tempdir().expect("a directory");
    three_batches(dir.path()).await;
    let store = open(dir.path());
    let snapshot = dir.path().join("snapshot-00000000000000000004.snap");
    assert_eq!(backup(&store, &snapshot).expect("a backup"), 4);
    store.close();
    fs::write(dir.path().join("snapshot-00000000000000000009.snap.tmp"), b"unfinished").expect("a leftover");
    let store = open(dir.path());
    assert_eq!((names(&store), store.revision()), (vec!["a".into(), "b".into(), "c".into()], 4));
    assert_eq!(store.commit(put("d", "value")).await, Ok(5));
    assert!(files(dir.path(), "tmp").is_empty());
    store.close();

    // The snapshot is damaged, but the log is complete.
    let mut bytes = fs::read(&snapshot).expect("the snapshot");
    bytes[40] ^= 1;
    fs::write(&snapshot, bytes).expect("damage");
    assert_eq!(names(&open(dir.path())), ["a", "b", "c", "d"]);

    // Without that log recovery fails.
    fs::remove_file(&files(dir.path(), "wal")[0]).expect("removed");
    let OpenError::Damaged { file, .. } = refusal(dir.path()) else { panic!("it is damage") };
    assert_eq!(file, snapshot);
}

#[test]
fn a_store_is_locked_for_one_process() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let second = refusal(dir.path());
    assert!(matches!(&second, OpenError::Locked { dir: named } if named == dir.path()));
    assert!(second.to_string().contains(&dir.path().display().to_string()));
    store.close();
    open(dir.path());
}

#[test]
fn a_newer_format_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    drop(open(dir.path()));
    fs::write(dir.path().join("FORMAT"), "waypost-store 3\n").expect("written");
    assert!(matches!(refusal(dir.path()), OpenError::Format { found: 3, known: 2, .. }));
    fs::write(dir.path().join("FORMAT"), "something else").expect("written");
    assert!(matches!(refusal(dir.path()), OpenError::Damaged { .. }));
}
