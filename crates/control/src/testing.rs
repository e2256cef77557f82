//! A cluster without a store: objects in, what controllers make of them out.
//!
//! The shelf holds entries as a store would; changes reach the world when the test delivers them, table by table in the order
//! the test wants. So a test can show any interleaving that a real feed could show, and count every write.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::facts::Facts;
use api::kind::Kind;
use api::value::ValueExt as _;
use api::{kinds, object};
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::allocation::Ranges;
use store::{CommitError, Compacted, Entry, Key, Op, Range, Revision, Store, Table, Txn, Watch};

use crate::controller::{Controller, Verdict, View, Wake, Wakes};
use crate::settings::Settings;
use crate::world::{Change, World};
use crate::write::{Unfit, Write, Writer, object_key};

/// The entries of a cluster.
#[derive(Default)]
pub(crate) struct Shelf {
    revision: Revision,
    entries: BTreeMap<Key, Arc<Entry>>,
}

impl Store for Shelf {
    fn revision(&self) -> Revision {
        self.revision
    }

    fn compacted(&self) -> Revision {
        0
    }

    fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.entries.get(key).cloned()
    }

    fn range(&self, table: Table, prefix: &str, _at: Option<Revision>) -> Result<Range, Compacted> {
        let here = self.entries.values().filter(|entry| entry.key.table == table && entry.key.name.starts_with(prefix));
        Ok(Range { entries: here.cloned().collect(), revision: self.revision })
    }

    fn commit(&self, _txn: Txn) -> BoxFuture<'_, Result<Revision, CommitError>> {
        unreachable!("tests write through Cluster::commit")
    }

    fn watch(&self, _table: Table, _prefix: &str, after: Revision) -> Result<Watch, Compacted> {
        Err(Compacted { asked: after, oldest: after })
    }
}

/// A change on its way to the world.
struct Pending {
    entry: Arc<Entry>,
    previous: Option<Arc<Entry>>,
    deleted: bool,
}

/// A cluster.
pub(crate) struct Cluster {
    pub(crate) shelf: Shelf,
    pub(crate) world: World,
    pub(crate) settings: Settings,
    pub(crate) instant: Instant,
    pending: BTreeMap<Table, VecDeque<Pending>>,
    controllers: Vec<&'static Controller>,
    /// Keys that controllers want to look at: place of the controller, key.
    pub(crate) woken: BTreeSet<(usize, String)>,
    /// Every write of a controller to a table: table, key, whether it was a deletion.
    pub(crate) written: Vec<(&'static str, String, bool)>,
    /// Reasons and messages of Events.
    pub(crate) events: Vec<(String, String)>,
}

impl Cluster {
    /// A cluster with nothing but the namespace `default`, looked after by some controllers.
    pub(crate) fn new(controllers: &[&'static Controller]) -> Self {
        let parse = |text: &str| text.parse().expect("a range");
        let addresses = vec![parse("10.96.0.0/16"), parse("fd00:10:96::/112")];
        let mut cluster = Self {
            shelf: Shelf { revision: 1000, entries: BTreeMap::new() },
            world: World::default(),
            settings: Settings::plain(Ranges { addresses, ports: 30000..=32767 }),
            instant: Instant::now(),
            pending: BTreeMap::new(),
            controllers: controllers.to_vec(),
            woken: BTreeSet::new(),
            written: Vec::new(),
            events: Vec::new(),
        };
        cluster.put("namespaces", json!({"metadata": {"name": "default"}, "spec": {"finalizers": ["kubernetes"]}}));
        cluster
    }

    /// Stores an object as a client would, and leaves its delivery to the test. Missing uids are the key.
    pub(crate) fn put(&mut self, table: &'static str, mut object: Value) {
        let key = object_key(table, &object);
        if !object.has("metadata.uid") {
            object.put("metadata.uid", format!("uid of {}", key.name));
        }
        if !object.has("metadata.creationTimestamp") {
            object.put("metadata.creationTimestamp", "2026-01-01T00:00:00Z");
        }
        self.apply(Op::Put {
            facts: Arc::new(kind(table).facts(&object)),
            value: object::encode(&object),
            key,
            ttl: None,
        });
    }

    /// Stores bytes that are no object.
    pub(crate) fn put_raw(&mut self, key: Key, value: bytes::Bytes) {
        self.apply(Op::Put { key, value, facts: Arc::default(), ttl: None });
    }

    /// Whether the store takes a transaction that a controller wants.
    pub(crate) fn carry_out(&mut self, writes: &[Write]) -> bool {
        self.commit(writes).is_ok()
    }

    /// Removes an object at once.
    pub(crate) fn remove(&mut self, table: &'static str, key: &str) {
        self.apply(Op::Delete { key: Key { table: Table::named(table), name: key.into() } });
    }

    /// An object as it is stored.
    pub(crate) fn get(&self, table: &'static str, key: &str) -> Option<Value> {
        let entry = self.shelf.get(&Key { table: Table::named(table), name: key.into() })?;
        Some(object::decode(kind(table), &entry.value, entry.modified))
    }

    /// All objects of a table.
    pub(crate) fn all(&self, table: &'static str) -> Vec<Value> {
        let entries = self.shelf.entries.values().filter(|entry| entry.key.table.as_str() == table);
        entries.map(|entry| object::decode(kind(table), &entry.value, entry.modified)).collect()
    }

    fn apply(&mut self, op: Op) {
        self.shelf.revision += 1;
        let revision = self.shelf.revision;
        let pending = match op {
            Op::Put { key, value, facts, .. } => {
                let previous = self.shelf.entries.get(&key).cloned();
                let created = previous.as_ref().map_or(revision, |entry| entry.created);
                let entry = entry(key, value, facts, created, revision);
                self.shelf.entries.insert(entry.key.clone(), entry.clone());
                Pending { entry, previous, deleted: false }
            }
            Op::Delete { key } => {
                let Some(last) = self.shelf.entries.remove(&key) else { return };
                let gone = entry(key, last.value.clone(), last.facts.clone(), last.created, revision);
                Pending { entry: gone, previous: Some(last), deleted: true }
            }
        };
        self.pending.entry(pending.entry.key.table).or_default().push_back(pending);
    }

    /// Tables that have undelivered changes.
    pub(crate) fn undelivered(&self) -> Vec<Table> {
        self.pending.iter().filter(|(_, queue)| !queue.is_empty()).map(|(table, _)| *table).collect()
    }

    /// Delivers the next change of a table to the world.
    pub(crate) fn deliver(&mut self, table: Table) {
        let Some(Pending { entry, previous, deleted }) = self.pending.get_mut(&table).and_then(VecDeque::pop_front)
        else {
            return;
        };
        let change = self.world.apply(&entry, previous.as_ref(), deleted, self.instant);
        self.wake(&change);
    }

    /// Delivers everything.
    pub(crate) fn deliver_all(&mut self) {
        while let Some(table) = self.undelivered().first().copied() {
            self.deliver(table);
        }
    }

    fn wake(&mut self, change: &Change) {
        for (index, controller) in self.controllers.clone().into_iter().enumerate() {
            let mut wakes: Vec<Wake> = Vec::new();
            (controller.concerns)(&self.view(None), change, &mut Wakes::new(&mut wakes));
            self.woken.extend(wakes.into_iter().map(|wake| (index, wake.key.to_string())));
        }
    }

    /// Starts over, as after a restart: a new world, and everything in it is looked at.
    pub(crate) fn restart(&mut self) {
        self.world = World::default();
        self.pending.clear();
        self.woken.clear();
        let entries: Vec<_> = self.shelf.entries.values().cloned().collect();
        let apply = |entry: &Arc<Entry>| self.world.apply(entry, None, false, self.instant);
        let mut changes: Vec<Change> = entries.iter().map(apply).collect();
        for change in &mut changes {
            change.initial = true;
            self.wake(change);
        }
    }

    /// What controllers see.
    pub(crate) fn view<'a>(&'a self, trigger: Option<&'a str>) -> View<'a> {
        View {
            world: &self.world,
            store: &self.shelf,
            settings: &self.settings,
            now: Timestamp::UNIX_EPOCH,
            instant: self.instant,
            trigger,
        }
    }

    /// Time passes.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.instant += time;
    }

    /// What a controller says of a key.
    pub(crate) fn judge(&self, controller: &Controller, key: &str) -> Verdict {
        (controller.reconcile)(&self.view(None), key)
    }

    /// Runs one woken key, and carries out what its controller wants.
    pub(crate) fn run(&mut self, index: usize, key: &str) {
        self.woken.remove(&(index, key.to_owned()));
        let Verdict { transactions, events, .. } = self.judge(self.controllers[index], key);
        for writes in transactions {
            match self.commit(&writes) {
                Ok(()) | Err(Unfit::NoNamespace(_)) => {}
                Err(Unfit::Stale(_)) => {
                    self.woken.insert((index, key.to_owned()));
                    return;
                }
                Err(unfit @ (Unfit::Invalid { .. } | Unfit::Refused(_))) => {
                    panic!("{}: {unfit}", self.controllers[index].name)
                }
            }
        }
        for event in events {
            if let Write::Object { object, .. } = event {
                let said = (object.text("reason").to_owned(), object.text("message").to_owned());
                if !self.events.contains(&said) {
                    self.events.push(said);
                }
            }
        }
    }

    /// Carries out a transaction as the runner and the store would.
    fn commit(&mut self, writes: &[Write]) -> Result<(), Unfit> {
        let writer = Writer {
            store: &self.shelf,
            ranges: &self.settings.ranges,
            now: Timestamp::UNIX_EPOCH,
            checked: true,
            plugins: &self.settings.plugins,
        };
        let txn = writer.transaction(writes)?;
        let holds = |key: &Key, modified| self.shelf.get(key).map_or(0, |entry| entry.modified) == modified;
        if let Some(stale) = txn.compares.iter().find(|compare| !holds(&compare.key, compare.modified)) {
            return Err(Unfit::Stale(stale.key.clone()));
        }
        for op in txn.ops {
            let (key, deleted) = match &op {
                Op::Put { key, .. } => (key, false),
                Op::Delete { key } => (key, true),
            };
            self.written.push((key.table.as_str(), key.name.to_string(), deleted));
            self.apply(op);
        }
        Ok(())
    }

    /// Delivers and runs until nothing is left to do.
    ///
    /// # Panics
    /// When the controllers do not come to rest.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10_000 {
            self.deliver_all();
            let Some((index, key)) = self.woken.first().cloned() else { return };
            self.run(index, &key);
        }
        panic!("the controllers do not come to rest: {:?}", self.woken);
    }

    /// How many objects of a table controllers wrote since the last call.
    pub(crate) fn writes_to(&mut self, table: &str) -> usize {
        let count = self.written.iter().filter(|(written, ..)| *written == table).count();
        self.written.retain(|(written, ..)| *written != table);
        count
    }
}

fn kind(table: &str) -> &'static Kind {
    kinds::by_table(table).expect("a kind")
}

fn entry(key: Key, value: bytes::Bytes, facts: Arc<Facts>, created: Revision, modified: Revision) -> Arc<Entry> {
    Arc::new(Entry { key, created, modified, expires: None, value, facts })
}

/// A Service that selects `app=<app>`.
pub(crate) fn service(name: &str, app: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "type": "ClusterIP", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "ipFamilies": ["IPv4"],
            "selector": {"app": app}, "ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}],
        },
    })
}

/// A Pod on `node` that has `app=<app>` and an address ending in `number`.
pub(crate) fn pod(name: &str, app: &str, number: usize, ready: bool) -> Value {
    let ip = format!("10.244.{}.{}", number / 250, number % 250 + 1);
    json!({
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": {"nodeName": "node", "containers": [{"name": "c", "image": "i"}]},
        "status": {
            "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" },
                            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    })
}

/// A Node.
pub(crate) fn node(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}
