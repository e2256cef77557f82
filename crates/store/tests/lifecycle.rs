//! Lifecycle of a store: TTLs, watches, compaction of history, revisions, backups.

mod common;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use common::{check, contents, facts, key, open, open_with, put, restore, table};
use futures_util::FutureExt;
use store::tools::{ToolError, backup};
use store::{CommitError, Compacted, Key, Options, Retention, Store, Table, Txn};

#[tokio::test]
async fn an_entry_with_a_ttl_expires() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let short = Txn::new().put_for(key("short"), "value", facts("value"), Duration::from_millis(5));
    store.commit(short.put(key("long"), "value", facts("value"))).await.expect("it commits");
    let mut watch = store.watch(table(), "", 3).expect("the present is known");
    let events = watch.next().await.expect("it is recent");
    assert!(events[0].deleted && *events[0].entry.key.name == *"short");
    assert_eq!((store.revision(), contents(&store).len()), (4, 1));
}

#[tokio::test]
async fn ttl_deadlines_survive_restarts_and_are_renewed_by_writes() {
    let dir = tempfile::tempdir().expect("a directory");
    let seconds = Arc::new(AtomicU64::new(1_000));
    let options = || {
        let seconds = Arc::clone(&seconds);
        let clock = Arc::new(move || SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.load(Relaxed)));
        Options { clock, compact_after: 1, ..Options::default() }
    };
    let expiring = |name, life| Txn::new().put_for(key(name), "value", facts("value"), Duration::from_secs(life));
    let store = open_with(dir.path(), options());
    for (name, life) in [("hour", 3_600), ("renewed", 3_600), ("renewed", 9_000), ("kept", 3_600)] {
        store.commit(expiring(name, life)).await.expect("it commits");
    }
    store.commit(put("kept", "value")).await.expect("it commits");
    store.close();

    seconds.fetch_add(3_599, Relaxed);
    let store = open_with(dir.path(), options());
    store.commit(Txn::new()).await.expect("nothing to do");
    assert_eq!(contents(&store).len(), 3);
    let mut watch = store.watch(table(), "", store.revision()).expect("the present is known");
    seconds.fetch_add(1, Relaxed);
    // Any transaction makes the writer check the clock.
    store.commit(Txn::new()).await.expect("nothing to do");
    let events = watch.next().await.expect("it is recent");
    assert_eq!((events.len(), &*events[0].entry.key.name), (1, "hour"));
    store.close();

    seconds.fetch_add(9_000, Relaxed);
    let store = open_with(dir.path(), options());
    let mut watch = store.watch(table(), "", store.revision()).expect("the present is known");
    if store.get(&key("renewed")).is_some() {
        watch.next().await.expect("it is recent");
    }
    assert_eq!(contents(&store), [("kept".into(), "value".into())]);
}

#[tokio::test]
async fn the_position_of_a_watch_advances_without_events() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let other = Key::new(Table::named("tests/others"), "a");
    let mut watch = store.watch(table(), "a", 1).expect("the present is known");
    assert_eq!(store.stats().watchers, 1);
    store.commit(Txn::new().put(other, "value", facts("value"))).await.expect("it commits");
    assert_eq!(watch.position(), 2, "another table moves it on");
    store.commit(put("b", "value")).await.expect("it commits");
    assert_eq!(watch.position(), 2, "another prefix does when it is looked at");
    assert!(watch.next().now_or_never().is_none());
    assert_eq!(watch.position(), 3);
    store.commit(put("a", "value")).await.expect("it commits");
    assert_eq!(watch.position(), 3, "an event that was not read holds it");
    let events = watch.next().await.expect("it is recent");
    assert_eq!((events.len(), events[0].revision, watch.position()), (1, 4, 4));
    drop(watch);
    assert_eq!(store.stats().watchers, 0);
}

#[tokio::test]
async fn a_long_backlog_is_delivered_in_chunks() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    for round in 0..5 {
        let name = |count| format!("{round}/{count}");
        let txn = (0..700).fold(Txn::new(), |txn, count| txn.put(key(&name(count)), "value", facts("value")));
        store.commit(txn).await.expect("it commits");
    }
    let mut watch = store.watch(table(), "", 1).expect("all is known");
    let mut sizes = Vec::new();
    while let Some(events) = watch.next().now_or_never() {
        sizes.push(events.expect("it is recent").len());
    }
    assert_eq!(sizes, [1_000, 1_000, 1_000, 500]);
}

#[tokio::test]
async fn compacted_history_is_an_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let retention = Retention { age: Duration::ZERO, min_events: 2, max_events: 3, max_bytes: 1 << 20 };
    let store = open_with(dir.path(), Options { retention, ..Options::default() });
    let mut slow = store.watch(table(), "", 1).expect("the present is known");
    for count in 0..10 {
        store.commit(put("a", &count.to_string())).await.expect("it commits");
    }
    let oldest = store.compacted();
    assert!((2..11).contains(&oldest));
    assert_eq!(slow.next().await.err(), Some(Compacted { requested: 1, oldest }));
    assert!(store.watch(table(), "", oldest - 1).is_err());
    assert!(store.range(table(), "", Some(oldest - 1)).is_err());
    assert!(store.watch(table(), "", oldest).is_ok());
    assert_eq!(store.range(table(), "", Some(oldest)).expect("it is known").entries[0].modified, oldest);
}

#[tokio::test]
async fn a_backup_is_restored_completely() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("backup");
    let store = open(&dir.path().join("store"));
    for count in 0..50 {
        store.commit(put(&format!("a/{count}"), &"x".repeat(50_000))).await.expect("it commits");
    }
    store.commit(Txn::new().delete(key("a/7"))).await.expect("it commits");
    assert_eq!(backup(&store, &file).expect("a backup"), 52);
    let before = contents(&store);
    store.commit(put("later", "value")).await.expect("it commits");
    let newest = dir.path().join("restored");
    assert_eq!(restore(&file, &newest).expect("restored"), 52);
    assert!(matches!(restore(&file, &newest), Err(ToolError::NotEmpty { .. })));
    assert!(matches!(check(&dir.path().join("store")), Err(ToolError::Open(_))), "it is running");
    assert!(matches!(check(dir.path()), Err(ToolError::NoStore { .. })));

    let report = check(&newest).expect("a report");
    assert_eq!((report.revision, report.tables[table().as_str()], report.problems.len()), (52, 49, 0));
    let again = open(&newest);
    assert_eq!((contents(&again), again.revision()), (before, 52));
    assert_eq!(again.get(&key("a/9")).map(|entry| (entry.created, entry.modified)), Some((11, 11)));
    assert_eq!(again.commit(put("new", "value")).await, Ok(53));

    let bytes = fs::read(&file).expect("the backup");
    for (end, flip) in [(bytes.len() - 1, None), (bytes.len(), Some(1_000)), (10, None)] {
        let mut bad = bytes[..end].to_vec();
        flip.into_iter().for_each(|place: usize| bad[place] ^= 1);
        fs::write(&file, bad).expect("written");
        let refused = restore(&file, &dir.path().join("nowhere"));
        assert!(matches!(refused, Err(ToolError::BadBackup { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn a_closed_store_serves_reads_and_refuses_writes() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let asked_before = store.commit(put("a", "value"));
    store.close();
    store.close();
    assert_eq!(asked_before.await, Ok(2));
    assert_eq!(store.commit(put("b", "value")).await, Err(CommitError::Closed));
    assert_eq!(contents(&store).len(), 1);
}

#[tokio::test]
async fn commit_returns_the_last_of_consecutive_revisions() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let mut watch = store.watch(table(), "", 1).expect("the present is known");
    let mut before = store.revision();
    for round in ["1", "2"] {
        let txn = ["a", "b", "c"].iter().fold(Txn::new(), |txn, name| txn.put(key(name), round, facts(round)));
        let answer = store.commit(txn.delete(key("b")).delete(key("nothing"))).await.expect("it commits");
        let events = watch.next().await.expect("it is recent");
        let revisions: Vec<_> = events.iter().map(|event| event.revision).collect();
        assert_eq!(revisions, (before + 1..=answer).collect::<Vec<_>>(), "unique, consecutive, the answer is the last");
        assert_eq!((revisions.len(), store.revision()), (4, answer));
        let at_answer = store.range(table(), "", Some(answer)).expect("it is recent").entries;
        assert_eq!(at_answer.iter().map(|entry| entry.modified).collect::<Vec<_>>(), [before + 1, before + 3]);
        assert!(at_answer.iter().all(|entry| entry.value == round), "a read at the answer sees every change");
        before = answer;
    }
}

#[tokio::test]
async fn a_transaction_may_only_check_or_write_a_key_twice() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    assert_eq!(store.commit(Txn::new().absent(key("a"))).await, Ok(1));
    let twice = Txn::new().put(key("a"), "1", facts("1")).delete(key("a")).put(key("a"), "2", facts("2"));
    assert_eq!(store.commit(twice).await, Ok(4), "each change has a revision of its own");
    assert_eq!(store.commit(Txn::new().unchanged(key("a"), 4)).await, Ok(4));
    assert_eq!(store.commit(Txn::new().absent(key("a"))).await, Err(CommitError::Conflict { key: key("a") }));
    assert_eq!(store.commit(Txn::new().delete(key("nothing"))).await, Ok(4));
    let stats = store.stats();
    assert_eq!((stats.commits, stats.conflicts, stats.batches, stats.fsyncs), (1, 1, 1, 1));
    store.close();
    assert_eq!(contents(&open(dir.path())), [("a".into(), "2".into())]);
}

#[tokio::test]
async fn history_in_the_log_can_be_watched_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    store.commit(put("a", "1")).await.expect("it commits");
    store.commit(put("a", "2")).await.expect("it commits");
    store.close();
    let store = open(dir.path());
    let mut watch = store.watch(table(), "", 2).expect("the log has it");
    let events = watch.next().await.expect("it is known");
    let [event] = &events[..] else { panic!("one event") };
    assert_eq!((event.revision, &event.entry.value[..], event.entry.created), (3, &b"2"[..], 2));
    assert_eq!(event.previous.as_ref().map(|previous| &previous.value[..]), Some(&b"1"[..]));
}
