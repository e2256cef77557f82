//! Compaction under load: nothing is lost, and the files stay small.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{check, contents, files, open_with, put, table};
use store::{Options, Store};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_under_load_loses_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = || Options { compact_after: 64 << 10, ..Options::default() };
    let store = Arc::new(open_with(dir.path(), options()));
    let mut watch = store.watch(table(), "", 1).expect("the present is known");
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for round in 0..250 {
                    let name = format!("{writer}/{}", round % 20);
                    let filler = "x".repeat(500);
                    store.commit(put(&name, &format!("{round} {filler}"))).await.expect("it commits");
                }
            })
        })
        .collect();
    let mut seen = BTreeMap::new();
    let mut revision = 1;
    while revision < 1 + 8 * 250 {
        for event in watch.next().await.expect("it keeps up") {
            revision += 1;
            assert_eq!(event.revision, revision, "each exactly once and in order");
            let value = String::from_utf8_lossy(&event.entry.value).into_owned();
            seen.insert(event.entry.key.name.to_string(), value);
        }
    }
    for writer in writers {
        writer.await.expect("it ends well");
    }
    let expected: Vec<_> = seen.into_iter().collect();
    assert_eq!(contents(&store), expected);
    assert!(store.stats().snapshots > 1, "{:?}", store.stats());
    store.close();

    let report = check(dir.path()).expect("a report");
    assert_eq!((report.revision, report.tables[table().as_str()]), (revision, 160));
    assert_eq!((report.problems.len(), report.notes.len(), report.snapshots.len()), (0, 0, 1));
    let bytes: u64 = report.segments.iter().map(|(_, bytes)| bytes).sum();
    assert!(bytes < 1 << 20, "the log was cut down: {bytes} bytes");

    let again = open_with(dir.path(), options());
    assert_eq!((contents(&again), again.revision()), (expected, revision));
    assert!(again.watch(table(), "", 1).is_err(), "what was before the snapshot is forgotten");
    assert_eq!(files(dir.path(), "snap").len(), 1);
}
