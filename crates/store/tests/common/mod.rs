//! Helpers for tests of the store.
#![allow(dead_code, reason = "every test file uses another part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::facts::Facts;
use store::tools::{Report, ToolError};
use store::{Embedded, Encryption, Entry, Key, Options, Revision, Store, Table, Txn};

/// The table of Secrets, so that tests with an encryption configuration encrypt it.
pub(crate) fn table() -> Table {
    Table::named("secrets")
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(table(), name)
}

/// The facts of a value are its text, so that tests can check them after recovery.
pub(crate) fn index(_table: &str, value: &[u8]) -> Facts {
    Facts { labels: Box::default(), fields: [String::from_utf8_lossy(value).into()].into() }
}

pub(crate) fn facts(value: &str) -> Arc<Facts> {
    Arc::new(index("", value.as_bytes()))
}

pub(crate) fn put(name: &str, value: &str) -> Txn {
    Txn::new().put(key(name), value.to_owned(), facts(value))
}

pub(crate) fn open(dir: &Path) -> Embedded {
    open_with(dir, Options::default())
}

pub(crate) fn open_with(dir: &Path, options: Options) -> Embedded {
    Embedded::open(dir, index, options).expect("the store opens")
}

/// A configuration for Secrets: `identity`, or keys as `NAME:SEED`, in the order of providers.
pub(crate) fn encryption(providers: &[&str]) -> Encryption {
    let provider = |provider: &&str| match provider.split_once(':') {
        None => r#"{"identity":{}}"#.to_owned(),
        Some((name, seed)) => {
            // Base64 of 32 bytes.
            let secret = format!("{}A=", seed.repeat(42).split_at(42).0);
            format!(r#"{{"aesgcm":{{"keys":[{{"name":"{name}","secret":"{secret}"}}]}}}}"#)
        }
    };
    let providers: Vec<_> = providers.iter().map(provider).collect();
    let text = format!(
        r#"{{"apiVersion":"apiserver.config.k8s.io/v1","kind":"EncryptionConfiguration",
            "resources":[{{"resources":["secrets"],"providers":[{}]}}]}}"#,
        providers.join(",")
    );
    Encryption::parse(text.as_bytes()).expect("a good configuration")
}

/// Usual options with such a configuration.
pub(crate) fn encrypting(providers: &[&str]) -> Options {
    Options { encryption: Arc::new(encryption(providers)), ..Options::default() }
}

/// Checks a store without keys.
pub(crate) fn check(dir: &Path) -> Result<Report, ToolError> {
    store::tools::check(dir, &Encryption::default())
}

/// Restores a backup without keys.
pub(crate) fn restore(backup: &Path, dir: &Path) -> Result<Revision, ToolError> {
    store::tools::restore(backup, dir, &Encryption::default())
}

/// The files of a directory that contain these bytes.
pub(crate) fn files_with(dir: &Path, bytes: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(dir).expect("the directory is there").map(|item| item.expect("it can be listed").path());
    let holds = |path: &PathBuf| {
        fs::read(path).is_ok_and(|found| found.windows(bytes.len()).any(|window| window == bytes.as_bytes()))
    };
    all.filter(holds).collect()
}

/// Names and values of the table, in order.
pub(crate) fn contents(store: &Embedded) -> Vec<(String, String)> {
    let pair = |entry: &Arc<Entry>| {
        let value = String::from_utf8_lossy(&entry.value).into_owned();
        assert_eq!(*entry.facts, index("", &entry.value), "facts belong to the value");
        (entry.key.name.to_string(), value)
    };
    store.range(table(), "", None).expect("the present is known").entries.iter().map(pair).collect()
}

/// The files of a directory with this ending, in order.
pub(crate) fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .expect("the directory is there")
        .map(|item| item.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|have| have == ending))
        .collect();
    files.sort();
    files
}
