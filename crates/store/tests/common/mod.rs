//! What the tests of the store share: a place, a clock that does not matter, short ways to write.
#![allow(dead_code, reason = "every test file uses another part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::facts::Facts;
use store::{Embedded, Entry, Key, Options, Store, Table, Txn};

pub(crate) fn table() -> Table {
    Table::named("tests/things")
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(table(), name)
}

/// The facts of a value are its text, so that tests can tell whether they were found again.
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
