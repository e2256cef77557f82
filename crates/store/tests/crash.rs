//! A process that is killed at any moment: acknowledged writes survive.
//!
//! The test runs itself as a child that writes as fast as it can and prints acknowledged writes; the parent kills it after a random
//! number of them, opens the same store and compares, many times on one directory.

mod common;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::{contents, encrypting, encryption, files_with, key, open_with, put};
use store::{Options, Store, Txn};
use tempfile::TempDir;

const DIR: &str = "WAYPOST_TEST_STORE_DIR";
const ENCRYPT: &str = "WAYPOST_TEST_STORE_ENCRYPT";
const ROUNDS: u64 = 40;

/// Compacts often, so that kills fall into compactions too.
fn options(encrypts: bool) -> Options {
    let usual = if encrypts { encrypting(KEYS[0]) } else { Options::default() };
    Options { compact_after: 32 << 10, ..usual }
}

/// Configurations that follow each other while a child that encrypts is writing.
const KEYS: [&[&str]; 3] =
    [&["one:A", "two:B", "identity"], &["two:B", "one:A", "identity"], &["identity", "one:A", "two:B"]];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs as a child process of the test below, which kills it"]
async fn child() {
    let dir = std::env::var(DIR).expect("the parent names the directory");
    let encrypts = std::env::var_os(ENCRYPT).is_some();
    let store = Arc::new(open_with(Path::new(&dir), options(encrypts)));
    let rotating = Arc::clone(&store);
    tokio::spawn(async move {
        for keys in KEYS.iter().cycle().skip(1).take_while(|_| encrypts) {
            rotating.set_encryption(encryption(keys)).await.expect("it can read everything");
            rotating.reencrypted().await;
        }
    });
    say(&format!("open {}", store.revision()));
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for count in 0_u64.. {
                    let name = format!("{writer}/{}", count % 10);
                    let txn = if count % 7 == 3 { Txn::new().delete(key(&name)) } else { put(&name, &filled(count)) };
                    let value = if count % 7 == 3 { String::new() } else { filled(count) };
                    say(&format!("try {name} {value}"));
                    let revision = store.commit(txn).await.expect("it commits");
                    say(&format!("done {revision} {name} {value}"));
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("writers do not end");
    }
}

fn filled(count: u64) -> String {
    format!("{count}{}", "x".repeat(200))
}

fn say(line: &str) {
    // One write, so that lines of different writers do not mix and a line is complete or absent.
    let _ = std::io::stdout().lock().write_all(format!("\n@{line}\n").as_bytes());
}

/// What the store may hold: for each name the acknowledged value, and what was tried since.
#[derive(Default)]
struct Known {
    revision: u64,
    values: BTreeMap<String, (String, Option<String>)>,
}

impl Known {
    fn acknowledge(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["@open", revision] => assert!(revision.parse::<u64>().expect("a number") >= self.revision),
            ["@try", name, value] => self.values.entry(name.into()).or_default().1 = Some(value.into()),
            ["@done", revision, name, value] => {
                self.revision = self.revision.max(revision.parse().expect("a number"));
                self.values.insert(name.into(), (value.into(), None));
            }
            _ => {}
        }
    }

    /// Compares, and takes the stored values as acknowledged.
    fn compare(&mut self, found: &BTreeMap<String, String>) {
        for (name, (acknowledged, tried)) in &mut self.values {
            let value = found.get(name).cloned().unwrap_or_default();
            assert!(
                value == *acknowledged || Some(&value) == tried.as_ref(),
                "{name}: {value:?} is not {acknowledged:?}"
            );
            (*acknowledged, *tried) = (value, None);
        }
        assert!(found.keys().all(|name| self.values.contains_key(name)));
    }
}

#[test]
fn every_acknowledged_write_survives_a_kill() {
    kill_and_compare(false);
}

#[tokio::test]
async fn every_acknowledged_write_survives_a_kill_during_key_rotation() {
    let dir = kill_and_compare(true);
    let store = open_with(dir.path(), options(true));
    let (name, value) = contents(&store).into_iter().next().expect("it wrote something");
    store.reencrypted().await;
    assert_eq!(files_with(dir.path(), &value), Vec::<PathBuf>::new(), "{name} is encrypted again");
}

#[allow(clippy::disallowed_methods, reason = "only another process can be killed")]
fn kill_and_compare(encrypts: bool) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let mut known = Known::default();
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"])
            .env(DIR, dir.path())
            .envs(encrypts.then_some((ENCRYPT, "true")))
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let answers = RandomState::new().hash_one(round) as usize % 400;
        let mut heard = 0;
        while heard < answers {
            let line = lines.next().expect("the child goes on until it is killed").expect("text");
            heard += usize::from(line.starts_with("@done"));
            known.acknowledge(&line);
        }
        child.kill().expect("it is killed");
        child.wait().expect("it ends");
        // Every complete line counts.
        let rest: Vec<_> = lines.map_while(Result::ok).collect();
        rest.iter().for_each(|line| known.acknowledge(line));

        let store = open_with(dir.path(), options(encrypts));
        assert!(store.revision() >= known.revision, "round {round}");
        known.compare(&contents(&store).into_iter().collect());
        known.revision = store.revision();
    }
    dir
}
