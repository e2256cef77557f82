//! The store against a simple model: a map for every revision, and the list of all changes.
//!
//! Random transactions, several at a time so that they share batches; ranges at any revision; watches from any revision; restarts and
//! changes of the encryption configuration in between. Twice: with all history retained, and with little history and many
//! compactions.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::{encryption, facts, index, open_with};
use futures_util::future::{FutureExt, join_all};
use proptest::prelude::*;
use store::{
    CommitError, Compacted, Embedded, Event, Key, Options, Retention, Revision, Store, Table, TableSize, Txn, Watch,
};

/// What a random transaction expects of a key.
#[derive(Clone, Copy, Debug)]
enum Expect {
    Absent,
    Current,
    Outdated,
}

#[derive(Clone, Debug)]
struct RandomTxn {
    compares: Vec<(Key, Expect)>,
    /// A put, or a delete.
    ops: Vec<(Key, Option<u8>)>,
}

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<RandomTxn>),
    Watch(Table, &'static str),
    Read(Table, &'static str, prop::sample::Index),
    Restart,
    Encrypt(usize),
}

/// Encryption configurations; any of them can follow any other.
const CONFIGURATIONS: [&[&str]; 4] = [
    &["identity", "one:A", "two:B"],
    &["one:A", "two:B", "identity"],
    &["two:B", "one:A", "identity"],
    &["two:B", "identity", "one:A"],
];

/// created, modified, value
type Version = (Revision, Revision, String);

/// revision, deleted, name, value before, value after or last
type Change = (Revision, bool, Key, Option<String>, String);

struct Model {
    /// The state at every revision; the index is the revision.
    states: Vec<BTreeMap<Key, Version>>,
    changes: Vec<Change>,
}

impl Model {
    fn new() -> Self {
        Self { states: vec![BTreeMap::new(); 2], changes: Vec::new() }
    }

    fn revision(&self) -> Revision {
        self.states.len() as Revision - 1
    }

    fn now(&self) -> &BTreeMap<Key, Version> {
        &self.states[self.states.len() - 1]
    }

    /// The transaction to send, and the answer it must get.
    fn apply(&mut self, random: &RandomTxn) -> (Txn, Result<Revision, CommitError>) {
        let mut txn = Txn::new();
        let mut conflict = None;
        for (key, expect) in &random.compares {
            let current = self.now().get(key).map_or(0, |version| version.1);
            let wanted = match expect {
                Expect::Absent => 0,
                Expect::Current => current,
                Expect::Outdated => current.saturating_sub(1),
            };
            if wanted != current && conflict.is_none() {
                conflict = Some(CommitError::Conflict { key: key.clone() });
            }
            txn = txn.unchanged(key.clone(), wanted);
        }
        let mut state = self.now().clone();
        let mut states = Vec::new();
        let mut changes = Vec::new();
        for (key, op) in &random.ops {
            let revision = self.revision() + 1 + states.len() as Revision;
            let before = state.get(key).cloned();
            let old_value = before.as_ref().map(|version| version.2.clone());
            if let Some(value) = op {
                let value = format!("value {value}");
                txn = txn.put(key.clone(), value.clone(), facts(&value));
                state.insert(key.clone(), (before.map_or(revision, |version| version.0), revision, value.clone()));
                changes.push((revision, false, key.clone(), old_value, value));
            } else {
                txn = txn.delete(key.clone());
                state.remove(key);
                changes.extend(old_value.map(|value| (revision, true, key.clone(), Some(value.clone()), value)));
            }
            if changes.len() > states.len() {
                states.push(state.clone());
            }
        }
        let answer = match conflict {
            Some(conflict) => Err(conflict),
            None => {
                self.states.extend(states);
                self.changes.extend(changes);
                Ok(self.revision())
            }
        };
        (txn, answer)
    }

    fn range(&self, table: Table, prefix: &str, at: Revision) -> Vec<(Key, Version)> {
        let state = self.states[at as usize].iter();
        let inside = |(key, _): &(&Key, &Version)| key.table == table && key.name.starts_with(prefix);
        state.filter(inside).map(|(key, version)| (key.clone(), version.clone())).collect()
    }
}

/// A watch under test: its range, and its position.
struct Watcher {
    table: Table,
    prefix: &'static str,
    position: Revision,
    watch: Watch,
}

impl Watcher {
    fn start(store: &Embedded, table: Table, prefix: &'static str, position: Revision) -> Result<Self, Compacted> {
        store.watch(table, prefix, position).map(|watch| Self { table, prefix, position, watch })
    }

    /// Reads all events, and compares. `false` when the watch was compacted.
    fn drain(&mut self, model: &Model, store: &Embedded) -> bool {
        let inside = |change: &&Change| {
            change.0 > self.position && change.2.table == self.table && change.2.name.starts_with(self.prefix)
        };
        let expected: Vec<Change> = model.changes.iter().filter(inside).cloned().collect();
        let mut seen = Vec::new();
        while let Some(next) = self.watch.next().now_or_never() {
            let Ok(events) = next else {
                assert!(self.watch.position() < store.compacted());
                return false;
            };
            assert!(!events.is_empty());
            seen.extend(events.iter().map(|event| described(event)));
        }
        assert_eq!(seen, expected, "{:?}", self.watch);
        assert_eq!(self.watch.position(), model.revision());
        self.position = model.revision();
        true
    }
}

fn described(event: &Event) -> Change {
    let text = |entry: &store::Entry| String::from_utf8_lossy(&entry.value).into_owned();
    assert_eq!(event.entry.modified, event.revision);
    let previous = event.previous.as_deref().map(text);
    (event.revision, event.deleted, event.entry.key.clone(), previous, text(&event.entry))
}

fn options(tight: bool, configuration: usize) -> Options {
    let encryption = Arc::new(encryption(CONFIGURATIONS[configuration]));
    if !tight {
        return Options { encryption, ..Options::default() };
    }
    let retention = Retention { age: Duration::ZERO, min_events: 4, max_events: 10, max_bytes: 100 };
    Options { retention, compact_after: 400, encryption, ..Options::default() }
}

async fn run(steps: &[Step], tight: bool) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut configuration = 0;
    // Rewriting the files is a compaction: history is gone after a restart.
    let mut forgets = tight;
    let mut store = open_with(dir.path(), options(tight, configuration));
    let mut model = Model::new();
    let mut watchers: Vec<Watcher> = Vec::new();
    for step in steps {
        match step {
            Step::Commit(txns) => {
                let (txns, expected): (Vec<_>, Vec<_>) = txns.iter().map(|txn| model.apply(txn)).unzip();
                let answers = join_all(txns.into_iter().map(|txn| store.commit(txn))).await;
                assert_eq!(answers, expected);
            }
            Step::Watch(table, prefix) => {
                watchers.extend(Watcher::start(&store, *table, prefix, model.revision()));
            }
            Step::Read(table, prefix, at) => {
                read(&store, &model, *table, prefix, at.index(model.states.len()), forgets);
            }
            Step::Restart => {
                watchers.retain_mut(|watcher| watcher.drain(&model, &store));
                store.close();
                store = Embedded::open(dir.path(), index, options(tight, configuration)).expect("it opens again");
                let again = |old: Watcher| Watcher::start(&store, old.table, old.prefix, old.position).ok();
                watchers = watchers.into_iter().filter_map(again).collect();
            }
            Step::Encrypt(next) => {
                configuration = *next;
                forgets = true;
                let answer = store.set_encryption(encryption(CONFIGURATIONS[configuration])).await;
                assert_eq!(answer, Ok(()));
            }
        }
        assert_eq!(store.revision(), model.revision());
    }
    for watcher in &mut watchers {
        assert!(watcher.drain(&model, &store) || forgets);
    }
}

fn read(store: &Embedded, model: &Model, table: Table, prefix: &str, at: usize, forgets: bool) {
    let at = at as Revision;
    match store.range(table, prefix, Some(at)) {
        Ok(range) => {
            let text = |entry: &store::Entry| String::from_utf8_lossy(&entry.value).into_owned();
            let entries = range.entries.iter();
            let found: Vec<_> =
                entries.map(|entry| (entry.key.clone(), (entry.created, entry.modified, text(entry)))).collect();
            assert_eq!(found, model.range(table, prefix, at));
            assert_eq!(range.revision, model.revision());
        }
        Err(Compacted { requested, oldest }) => {
            assert!(forgets && requested == at && requested < oldest && oldest <= store.compacted());
        }
    }
    let present = model.range(table, "", model.revision());
    let bytes = present.iter().map(|(_, version)| version.2.len()).sum();
    assert_eq!(store.size(table), TableSize { entries: present.len(), bytes });
    for (key, version) in model.now() {
        assert_eq!(store.get(key).map(|entry| entry.modified), Some(version.1));
    }
}

fn any_table() -> impl Strategy<Value = Table> {
    prop::sample::select(vec![Table::named("tests/one"), Table::named("secrets")])
}

fn any_key() -> impl Strategy<Value = Key> {
    let names = prop::sample::select(vec!["a/x", "a/y", "ab/x", "b/x", "b/y"]);
    (any_table(), names).prop_map(|(table, name)| Key::new(table, name))
}

fn any_prefix() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "a", "a/", "b/y"])
}

fn any_txn() -> impl Strategy<Value = RandomTxn> {
    let expect = prop::sample::select(vec![Expect::Absent, Expect::Current, Expect::Current, Expect::Outdated]);
    let compares = prop::collection::vec((any_key(), expect), 0..3);
    let ops = prop::collection::vec((any_key(), prop::option::weighted(0.7, any::<u8>())), 0..4);
    (compares, ops).prop_map(|(compares, ops)| RandomTxn { compares, ops })
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => prop::collection::vec(any_txn(), 1..6).prop_map(Step::Commit),
        3 => (any_table(), any_prefix()).prop_map(|(table, prefix)| Step::Watch(table, prefix)),
        3 => (any_table(), any_prefix(), any::<prop::sample::Index>())
            .prop_map(|(table, prefix, at)| Step::Read(table, prefix, at)),
        1 => Just(Step::Restart),
        1 => (0..CONFIGURATIONS.len()).prop_map(Step::Encrypt),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_the_model_does(steps in prop::collection::vec(any_step(), 1..40), tight: bool) {
        tokio::runtime::Runtime::new().expect("a runtime").block_on(run(&steps, tight));
    }
}
