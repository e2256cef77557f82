//! A disk that is full, fails, hangs or loses power: no acknowledged write is lost, no refused one reappears, reads continue,
//! and the store recovers.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use common::{check, contents, facts, key, open, open_with, put, table};
use futures_util::FutureExt;
use futures_util::future::join_all;
use store::disk::fake::Faulty;
use store::{CommitError, Embedded, OpenError, Options, Store, Txn};

fn faulty(dir: &Path) -> (Faulty, Embedded) {
    let disk = Faulty::default();
    let store = open_with(dir, Options { disk: Arc::new(disk.clone()), ..Options::default() });
    (disk, store)
}

fn names(store: &Embedded) -> Vec<String> {
    contents(store).into_iter().map(|(name, _)| name).collect()
}

#[tokio::test]
async fn a_full_disk_refuses_and_recovers() {
    for room in [0, 1, 11, 12, 30] {
        for truncates_fail in [false, true] {
            let dir = tempfile::tempdir().expect("a directory");
            let (disk, store) = faulty(dir.path());
            store.commit(put("a", "value")).await.expect("it commits");
            disk.set_room(Some(room));
            disk.fail_truncates(truncates_fail);
            for _ in 0..3 {
                let error = store.commit(put("refused", "value")).await.expect_err("there is no room");
                assert!(error.is_full() && !error.is_conflict(), "{error}");
                assert_eq!((names(&store), store.revision()), (vec!["a".into()], 2));
            }
            disk.set_room(None);
            assert_eq!(store.commit(put("b", "value")).await, Ok(3));
            assert_eq!(store.stats().failures, 3);
            store.close();
            assert_eq!(check(dir.path()).expect("a report").problems, Vec::<String>::new());
            assert_eq!(names(&open(dir.path())), ["a", "b"], "room {room}");
        }
    }
}

#[tokio::test]
async fn writes_of_a_failed_sync_are_not_recovered() {
    for truncates_fail in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let (disk, store) = faulty(dir.path());
        store.commit(put("a", "value")).await.expect("it commits");
        disk.fail_truncates(truncates_fail);
        for _ in 0..2 {
            // The second failure hits the header of the new segment.
            disk.fail_syncs(1);
            let error = store.commit(put("refused", "value")).await.expect_err("the sync fails");
            assert!(matches!(error, CommitError::Io(_)), "{error}");
        }
        assert_eq!(names(&store), ["a"]);
        assert_eq!(store.commit(put("b", "value")).await, Ok(3));
        store.close();
        let again = open(dir.path());
        assert_eq!((names(&again), again.revision()), (vec!["a".into(), "b".into()], 3));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_do_not_wait_for_a_hanging_sync_and_see_nothing_of_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let (disk, store) = faulty(dir.path());
    store.commit(put("a", "value")).await.expect("it commits");
    let mut watch = store.watch(table(), "", 2).expect("the present is known");
    disk.hold_syncs();
    let hanging = store.commit(put("b", "value"));
    disk.wait_for_held_sync();

    assert_eq!((names(&store), store.revision()), (vec!["a".into()], 2));
    assert!(store.get(&key("b")).is_none());
    assert!(watch.next().now_or_never().is_none());
    assert_eq!(watch.position(), 2);
    assert_eq!(store.stats().entries, 1);

    disk.release_syncs();
    assert_eq!(hanging.await, Ok(3));
    assert!(store.get(&key("b")).is_some());
    assert_eq!(watch.next().await.expect("it is recent").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_with_a_failed_write_is_reported_as_failure() {
    let dir = tempfile::tempdir().expect("a directory");
    let (disk, store) = faulty(dir.path());
    store.commit(put("there", "value")).await.expect("it commits");
    disk.hold_syncs();
    let first = store.commit(put("first", "value"));
    disk.wait_for_held_sync();
    // These three share the next batch, whose sync fails.
    let winner = store.commit(put("new", "value").absent(key("new")));
    let loser = store.commit(put("new", "value").absent(key("new")));
    let hopeless = store.commit(put("there", "value").absent(key("there")));
    disk.set_room(Some(0));
    disk.release_syncs();
    assert_eq!(first.await, Ok(3));
    let answers = join_all([winner, loser, hopeless]).await;
    assert!(answers[0].as_ref().is_err_and(CommitError::is_full), "{answers:?}");
    assert!(answers[1].as_ref().is_err_and(CommitError::is_full), "{answers:?}");
    assert_eq!(answers[2], Err(CommitError::Conflict { key: key("there") }));
    assert!(store.get(&key("new")).is_none());
}

#[tokio::test]
async fn acknowledged_writes_survive_a_power_cut() {
    for keep in [0, 1, 20, 1_000] {
        let dir = tempfile::tempdir().expect("a directory");
        let (disk, store) = faulty(dir.path());
        let acknowledged = store.commit(put("a", "value")).await;
        assert_eq!(acknowledged, Ok(2));
        disk.hold_syncs();
        let hanging = store.commit(put("b", "value"));
        disk.wait_for_held_sync();
        disk.fail_truncates(true);
        disk.fail_syncs(1);
        disk.release_syncs();
        assert!(hanging.await.is_err());
        store.close();
        disk.cut_power(keep).expect("the files are there");
        let again = open(dir.path());
        assert_eq!(contents(&again)[0], ("a".into(), "value".into()), "keep {keep}");
        assert_eq!(again.commit(put("c", "value")).await, Ok(again.revision()), "keep {keep}");
    }
}

#[tokio::test]
async fn a_compaction_on_a_full_disk_is_retried() {
    // No room for a new segment; then room for that, but not for the snapshot.
    for spare in [0, 24] {
        let dir = tempfile::tempdir().expect("a directory");
        let disk = Faulty::default();
        let options = || Options { disk: Arc::new(disk.clone()), compact_after: 1 << 10, ..Options::default() };
        let store = open_with(dir.path(), options());
        let large = "x".repeat(300 << 10);
        store.commit(put("a", &large)).await.expect("it commits");
        disk.set_room(Some(store.stats().bytes_written + spare));
        // This makes the log more than twice as large as the entries.
        store.commit(put("a", &large)).await.expect("there is room for this");
        assert!(store.commit(put("b", "value")).await.is_err_and(|error| error.is_full()));
        assert_eq!((names(&store), store.stats().snapshots), (vec!["a".into()], 0));
        disk.set_room(None);
        while store.stats().snapshots == 0 {
            store.commit(put("a", &large)).await.expect("it commits");
        }
        let revision = store.revision();
        store.close();
        let again = open_with(dir.path(), options());
        assert_eq!((names(&again), again.revision()), (vec!["a".into()], revision));
    }
}

#[tokio::test]
async fn a_segment_that_may_exist_is_not_skipped() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Faulty::default();
    let options = Options { disk: Arc::new(disk.clone()), compact_after: 1 << 10, ..Options::default() };
    let store = open_with(dir.path(), options);
    let large = "x".repeat(4 << 10);
    store.commit(put("a", &large)).await.expect("it commits");
    // The compaction after this commit creates a new segment, gets an error, and stops.
    disk.fail_renames(1);
    store.commit(put("a", &large)).await.expect("it commits");
    assert_eq!(store.commit(put("b", "value")).await, Ok(4));
    store.close();
    let again = open(dir.path());
    assert_eq!((names(&again), again.revision()), (vec!["a".into(), "b".into()], 4));
}

#[tokio::test]
async fn entries_that_expire_on_a_full_disk_are_deleted_later() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Faulty::default();
    let seconds = Arc::new(AtomicU64::new(1_000));
    let now = Arc::clone(&seconds);
    let clock = Arc::new(move || SystemTime::UNIX_EPOCH + Duration::from_secs(now.load(Relaxed)));
    let store = open_with(dir.path(), Options { disk: Arc::new(disk.clone()), clock, ..Options::default() });
    let short = Txn::new().put_for(key("short"), "value", facts("value"), Duration::from_secs(60));
    store.commit(short).await.expect("it commits");
    let mut watch = store.watch(table(), "", 2).expect("the present is known");
    disk.set_room(Some(0));
    seconds.fetch_add(60, Relaxed);
    // Any transaction makes the writer check the clock; this has nothing to write but shares the batch of the delete.
    assert!(store.commit(Txn::new()).await.is_err_and(|error| error.is_full()));
    assert_eq!(names(&store), ["short"]);
    disk.set_room(None);
    seconds.fetch_add(60, Relaxed);
    store.commit(Txn::new()).await.expect("there is room");
    assert!(watch.next().await.expect("it is recent")[0].deleted);
    assert_eq!(contents(&store), []);
}

#[tokio::test]
async fn recovered_writes_are_synced_before_they_are_visible() {
    let dir = tempfile::tempdir().expect("a directory");
    open(dir.path()).commit(put("a", "value")).await.expect("it commits");
    let disk = Faulty::default();
    disk.fail_syncs(1);
    let open =
        || Embedded::open(dir.path(), common::index, Options { disk: Arc::new(disk.clone()), ..Options::default() });
    assert!(matches!(open().err(), Some(OpenError::Io { .. })));
    assert_eq!(names(&open().expect("the disk is well again")), ["a"]);
}
