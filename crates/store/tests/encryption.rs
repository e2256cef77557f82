//! Encryption at rest: no plain value in any file, key rotation under load, errors that name key and object.

mod common;

use std::path::PathBuf;
use std::sync::Arc;

use common::{contents, encrypting, encryption, facts, files, files_with, index, key, open, open_with, put, table};
use store::disk::fake::Faulty;
use store::encryption::DecryptError;
use store::tools::{ToolError, backup, check, restore};
use store::{Embedded, Encryption, Key, OpenError, Options, RotationError, Store, Table, Txn};

/// A unique value.
const VALUE: &str = "a-value-that-is-in-no-other-place";

const NOWHERE: Vec<PathBuf> = Vec::new();

/// How the Secrets are stored: plain values, and encrypted ones by the name of the key.
fn stored(dir: &std::path::Path, encryption: &Encryption) -> (u64, Vec<(String, u64)>) {
    let report = check(dir, encryption).expect("a report");
    assert_eq!(report.problems, Vec::<String>::new());
    let values = report.values.get(table().as_str()).cloned().unwrap_or_default();
    let mut encrypted: Vec<_> = values.encrypted.into_values().collect();
    encrypted.sort();
    (values.plain, encrypted)
}

#[tokio::test]
async fn b05_no_encrypted_value_is_found_in_any_file_or_backup() {
    let dir = tempfile::tempdir().expect("a directory");
    let home = dir.path().join("store");
    let options = || Options { compact_after: 4 << 10, ..encrypting(&["one:A"]) };
    let store = open_with(&home, options());
    let plain = Key::new(Table::named("configmaps"), "default/plain");
    store.commit(Txn::new().put(plain, "this one is not encrypted", facts(""))).await.expect("it commits");
    for round in 0..200 {
        let name = format!("default/{}", round % 5);
        store.commit(put(&name, &format!("{VALUE} {round}"))).await.expect("it commits");
        assert_eq!(files_with(&home, VALUE), NOWHERE, "round {round}");
    }
    while store.stats().snapshots == 0 {
        store.commit(put("default/more", VALUE)).await.expect("it commits");
    }
    let file = dir.path().join("backup");
    backup(&store, &file).expect("a backup");
    assert_eq!((files_with(&home, VALUE), files_with(dir.path(), VALUE)), (NOWHERE, NOWHERE));
    assert_eq!(files_with(dir.path(), "this one is not encrypted"), std::slice::from_ref(&file));
    assert!(!files_with(&home, "default/1").is_empty(), "names are not encrypted");
    let held = contents(&store);
    store.close();
    assert_eq!(contents(&open_with(&home, options())), held);

    let restored = dir.path().join("restored");
    let keys = encryption(&["one:A"]);
    let refused = restore(&file, &restored, &Encryption::default());
    assert!(matches!(refused, Err(ToolError::Encryption { .. })), "{refused:?}");
    restore(&file, &restored, &keys).expect("restored");
    assert_eq!(contents(&open_with(&restored, options())), held);
    assert_eq!(files_with(&restored, VALUE), NOWHERE);
}

#[tokio::test]
async fn b05_a_store_that_was_plain_holds_no_plain_value_once_it_is_rewritten() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    for name in ["a", "b", "b"] {
        store.commit(put(name, VALUE)).await.expect("it commits");
    }
    store.commit(Txn::new().delete(key("a"))).await.expect("it commits");
    store.close();
    assert_eq!(files_with(dir.path(), VALUE).len(), 1);
    assert_eq!(stored(dir.path(), &Encryption::default()), (3, vec![]));

    let strict = encrypting(&["one:A"]);
    let refused = Embedded::open(dir.path(), index, strict.clone()).err().expect("identity is not listed");
    assert!(
        matches!(&refused, OpenError::Encryption { why: DecryptError::Plain { object }, .. } if *object == key("a")),
        "{refused}"
    );
    let store = open_with(dir.path(), encrypting(&["one:A", "identity"]));
    store.reencrypted().await;
    assert_eq!(files_with(dir.path(), VALUE), NOWHERE);
    assert_eq!((store.stats().reencryptions, store.stats().reencrypting), (1, 0));
    store.close();
    assert_eq!(stored(dir.path(), &encryption(&["one:A"])), (0, vec![("one".into(), 1)]));

    // No further rewrite, also without `identity`.
    let store = open_with(dir.path(), strict);
    store.reencrypted().await;
    assert_eq!((store.stats().reencryptions, contents(&store)), (0, vec![("b".into(), VALUE.into())]));
    assert_eq!(store.revision(), 5);
}

#[tokio::test]
async fn encryption_is_turned_on_and_off_while_the_store_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    store.commit(put("a", VALUE)).await.expect("it commits");
    let format = || std::fs::read_to_string(dir.path().join("FORMAT")).expect("a format");
    assert_eq!(format(), "waypost-store 1\n");
    let plain = store.set_encryption(encryption(&["one:A"])).await;
    assert_eq!(plain, Err(RotationError::PlainInUse { table: table() }));
    assert_eq!(*store.encryption(), Encryption::default());
    let on = encryption(&["one:A", "identity"]);
    assert_eq!(store.set_encryption(on.clone()).await, Ok(()));
    store.reencrypted().await;
    assert_eq!((files_with(dir.path(), VALUE), format()), (NOWHERE, "waypost-store 2\n".into()));
    assert_eq!(store.set_encryption(on).await, Ok(()));
    assert_eq!(store.stats().reencryptions, 1, "the same again changes nothing");

    assert!(matches!(store.set_encryption(Encryption::default()).await, Err(RotationError::KeyInUse { .. })));
    assert_eq!(store.set_encryption(encryption(&["identity", "one:A"])).await, Ok(()));
    store.reencrypted().await;
    assert_eq!(files_with(dir.path(), VALUE).len(), 1);
    assert_eq!(store.set_encryption(Encryption::default()).await, Ok(()));
    store.close();
    assert_eq!(store.set_encryption(Encryption::default()).await, Err(RotationError::Closed));
    assert_eq!(contents(&open(dir.path())), [("a".into(), VALUE.into())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b05_keys_are_rotated_under_load_and_old_ones_go() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options { compact_after: 64 << 10, ..encrypting(&["k0:A"]) };
    let store = Arc::new(open_with(dir.path(), options));
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for round in 0..400 {
                    let name = format!("{writer}/{}", round % 20);
                    store.commit(put(&name, &format!("{VALUE} {round}"))).await.expect("it commits");
                }
            })
        })
        .collect();
    let keys = ["k0:A", "k1:B", "k2:C", "k3:D"];
    for pair in keys.windows(2) {
        let (old, new) = (pair[0], pair[1]);
        assert_eq!(store.set_encryption(encryption(&[new, old])).await, Ok(()));
        store.reencrypted().await;
        assert_eq!(store.set_encryption(encryption(&[new])).await, Ok(()), "{old} is not needed any more");
    }
    for writer in writers {
        writer.await.expect("no commit failed");
    }
    let (held, revision) = (contents(&store), store.revision());
    assert_eq!((held.len(), revision, store.stats().failures), (160, 1 + 8 * 400, 0));
    store.close();
    assert_eq!(files_with(dir.path(), VALUE), NOWHERE);
    let (plain, encrypted) = stored(dir.path(), &encryption(&["k3:D"]));
    assert_eq!((plain, encrypted.len(), &*encrypted[0].0), (0, 1, "k3"));
    let again = open_with(dir.path(), encrypting(&["k3:D"]));
    assert_eq!((contents(&again), again.revision()), (held, revision));
}

#[tokio::test]
async fn a_key_stays_in_use_while_files_cannot_be_rewritten() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Faulty::default();
    let options = Options { disk: Arc::new(disk.clone()), ..encrypting(&["one:A"]) };
    let store = open_with(dir.path(), options);
    store.commit(put("a", VALUE)).await.expect("it commits");
    disk.set_room(Some(0));
    assert_eq!(store.set_encryption(encryption(&["two:B", "one:A"])).await, Ok(()));
    let without = store.set_encryption(encryption(&["two:B"])).await;
    assert!(matches!(&without, Err(RotationError::KeyInUse { name, .. }) if name == "one"), "{without:?}");
    assert_eq!(store.stats().reencrypting, 1);
    assert_eq!(*store.encryption(), encryption(&["two:B", "one:A"]), "what was accepted before stays");
    disk.set_room(None);
    store.reencrypted().await;
    assert_eq!(store.set_encryption(encryption(&["two:B"])).await, Ok(()));
    store.close();
    assert_eq!(stored(dir.path(), &encryption(&["two:B"])), (0, vec![("two".into(), 1)]));
}

#[tokio::test]
async fn b05_a_missing_or_wrong_key_is_named_with_the_first_object() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open_with(dir.path(), encrypting(&["one:A"]));
    for name in ["default/a", "default/b"] {
        store.commit(put(name, VALUE)).await.expect("it commits");
    }
    store.close();
    let refusal = |providers: &[&str]| {
        Embedded::open(dir.path(), index, encrypting(providers)).err().expect("the key is not there").to_string()
    };
    for (providers, words) in [
        (&["identity"][..], "not in the encryption configuration"),
        (&["two:B", "identity"], "not in the encryption"),
        (&["one:B"], "another secret"),
    ] {
        let refusal = refusal(providers);
        for part in ["secrets/default/a", "key \"one\"", "--encryption-provider-config", words] {
            assert!(refusal.contains(part), "{part}: {refusal}");
        }
    }
    let report = check(dir.path(), &Encryption::default()).expect("a report");
    assert_eq!((report.tables[table().as_str()], report.problems.len(), report.unreadable), (2, 1, 2));
    assert!(report.problems[0].contains("key \"one\"") && report.problems[0].ends_with("(2 values)"), "{report:?}");
    assert_eq!(report.values[table().as_str()].plain, 0);
    assert_eq!(contents(&open_with(dir.path(), encrypting(&["two:B", "one:A"]))).len(), 2);
}

#[tokio::test]
async fn a_record_that_was_exchanged_for_another_is_not_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open_with(dir.path(), encrypting(&["one:A"]));
    store.commit(put("a", VALUE)).await.expect("it commits");
    store.commit(put("b", VALUE)).await.expect("it commits");
    let file = dir.path().join("snapshot-00000000000000000003.snap");
    backup(&store, &file).expect("a backup");
    store.close();
    for log in files(dir.path(), "wal") {
        std::fs::remove_file(log).expect("removed");
    }
    let mut bytes = std::fs::read(&file).expect("the snapshot");
    assert_eq!(contents(&open_with(dir.path(), encrypting(&["one:A"]))).len(), 2);
    // The names of both entries, exchanged; an attacker who can write the file can also fix the checksum.
    let places: Vec<usize> = ["\x01a", "\x01b"]
        .iter()
        .map(|name| {
            let entry = format!("\x07secrets{name}");
            bytes.windows(entry.len()).position(|window| window == entry.as_bytes()).expect("it is there") + 9
        })
        .collect();
    bytes.swap(places[0], places[1]);
    let salt = u32::from_le_bytes(bytes[8..12].try_into().expect("a salt"));
    let mut checksum = crc32fast::Hasher::new_with_initial(salt);
    checksum.update(&bytes[28..32]);
    checksum.update(&bytes[36..]);
    bytes[32..36].copy_from_slice(&checksum.finalize().to_le_bytes());
    std::fs::write(&file, bytes).expect("written");
    files(dir.path(), "wal").iter().for_each(|log| std::fs::remove_file(log).expect("removed"));
    let refused = Embedded::open(dir.path(), index, encrypting(&["one:A"])).err().expect("it is refused");
    assert!(matches!(&refused, OpenError::Encryption { why: DecryptError::Altered { .. }, .. }), "{refused}");
}
