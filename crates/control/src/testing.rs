//! A simulated cluster for tests of controllers, with a store in memory.
//!
//! Changes reach the cache when the test delivers them, table by table, in the order that the test chooses. A test can produce every
//! interleaving that a real feed could produce, and count every write.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::facts::Facts;
use api::kind::Kind;
use api::object;
use api::value::ValueExt as _;
use api::view::Secret;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::allocation::Ranges;
use store::{CommitError, Compacted, Entry, Key, Op, Range, Revision, Store, Table, Txn, Watch};

use crate::cache::{Cache, Change};
use crate::controller::{AffectedKeys, Controller, Outcome, QueuedKey, View};
use crate::settings::{CheckCertificates, Settings};
use crate::write::{Write, WriteError, Writer, object_key};

/// A store in memory without history and watches.
#[derive(Default)]
pub(crate) struct MemoryStore {
    revision: Revision,
    entries: BTreeMap<Key, Arc<Entry>>,
}

impl Store for MemoryStore {
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
        let found =
            self.entries.values().filter(|entry| entry.key.table == table && entry.key.name.starts_with(prefix));
        Ok(Range { entries: found.cloned().collect(), revision: self.revision })
    }

    fn commit(&self, _txn: Txn) -> BoxFuture<'_, Result<Revision, CommitError>> {
        unreachable!("tests write through Cluster::commit")
    }

    fn watch(&self, _table: Table, _prefix: &str, after: Revision) -> Result<Watch, Compacted> {
        Err(Compacted { requested: after, oldest: after })
    }
}

/// A change that is not delivered to the cache yet.
struct Pending {
    entry: Arc<Entry>,
    previous: Option<Arc<Entry>>,
    deleted: bool,
}

/// A simulated cluster.
pub(crate) struct Cluster {
    pub(crate) store: MemoryStore,
    pub(crate) cache: Cache,
    pub(crate) settings: Settings,
    pub(crate) instant: Instant,
    pending: BTreeMap<Table, VecDeque<Pending>>,
    controllers: Vec<&'static Controller>,
    /// Keys to reconcile, with the index of their controller.
    pub(crate) queued: BTreeSet<(usize, String)>,
    /// Keys that their last run wants to be run again later.
    later: BTreeSet<(usize, String)>,
    /// Every write of a controller: table, key, whether it was a deletion.
    pub(crate) written: Vec<(&'static str, String, bool)>,
    /// Reasons and messages of the Events.
    pub(crate) events: Vec<(String, String)>,
}

impl Cluster {
    /// A cluster that has the namespace `default` only, and these controllers.
    pub(crate) fn new(controllers: &[&'static Controller]) -> Self {
        let parse = |text: &str| text.parse().expect("a range");
        let addresses = vec![parse("10.96.0.0/16"), parse("fd00:10:96::/112")];
        let mut cluster = Self {
            store: MemoryStore { revision: 1000, entries: BTreeMap::new() },
            cache: Cache::default(),
            settings: Settings::plain(Ranges { addresses, ports: 30000..=32767 }),
            instant: Instant::now(),
            pending: BTreeMap::new(),
            controllers: controllers.to_vec(),
            queued: BTreeSet::new(),
            later: BTreeSet::new(),
            written: Vec::new(),
            events: Vec::new(),
        };
        cluster.put("namespaces", json!({"metadata": {"name": "default"}, "spec": {"finalizers": ["kubernetes"]}}));
        cluster
    }

    /// Stores an object as a client would, without delivering it. A missing UID is derived from the key.
    pub(crate) fn put(&mut self, table: &'static str, mut object: Value) {
        let key = object_key(table, &object);
        if !object.has("metadata.uid") {
            object.put("metadata.uid", format!("uid of {}", key.name));
        }
        if !object.has("metadata.creationTimestamp") {
            object.put("metadata.creationTimestamp", "2026-01-01T00:00:00Z");
        }
        self.apply(Op::Put {
            facts: Arc::new(self.kind(table).facts(&object)),
            value: object::encode(&object),
            key,
            ttl: None,
        });
    }

    /// Stores bytes that are not an object.
    pub(crate) fn put_raw(&mut self, key: Key, value: bytes::Bytes) {
        self.apply(Op::Put { key, value, facts: Arc::default(), ttl: None });
    }

    /// Commits a transaction of a controller; whether the store accepted it.
    pub(crate) fn try_commit(&mut self, writes: &[Write]) -> bool {
        self.commit(writes).is_ok()
    }

    /// Removes an object immediately.
    pub(crate) fn remove(&mut self, table: &'static str, key: &str) {
        self.apply(Op::Delete { key: Key { table: Table::named(table), name: key.into() } });
    }

    /// A stored object.
    pub(crate) fn get(&self, table: &'static str, key: &str) -> Option<Value> {
        let entry = self.store.get(&Key { table: Table::named(table), name: key.into() })?;
        Some(object::decode(self.kind(table), &entry.value, entry.modified))
    }

    /// All objects of a table.
    pub(crate) fn all(&self, table: &'static str) -> Vec<Value> {
        let entries = self.store.entries.values().filter(|entry| entry.key.table.as_str() == table);
        entries.map(|entry| object::decode(self.kind(table), &entry.value, entry.modified)).collect()
    }

    fn kind(&self, table: &str) -> &'static Kind {
        self.cache.kinds.kinds().by_table(table).expect("a kind")
    }

    fn apply(&mut self, op: Op) {
        self.store.revision += 1;
        let revision = self.store.revision;
        let pending = match op {
            Op::Put { key, value, facts, .. } => {
                let previous = self.store.entries.get(&key).cloned();
                let created = previous.as_ref().map_or(revision, |entry| entry.created);
                let entry = entry(key, value, facts, created, revision);
                self.store.entries.insert(entry.key.clone(), entry.clone());
                Pending { entry, previous, deleted: false }
            }
            Op::Delete { key } => {
                let Some(last) = self.store.entries.remove(&key) else { return };
                let deleted = entry(key, last.value.clone(), last.facts.clone(), last.created, revision);
                Pending { entry: deleted, previous: Some(last), deleted: true }
            }
        };
        self.pending.entry(pending.entry.key.table).or_default().push_back(pending);
    }

    /// Tables that have undelivered changes.
    pub(crate) fn undelivered(&self) -> Vec<Table> {
        self.pending.iter().filter(|(_, queue)| !queue.is_empty()).map(|(table, _)| *table).collect()
    }

    /// Delivers the next change of a table to the cache.
    pub(crate) fn deliver(&mut self, table: Table) {
        let Some(Pending { entry, previous, deleted }) = self.pending.get_mut(&table).and_then(VecDeque::pop_front)
        else {
            return;
        };
        let change = self.cache.apply(&self.store, &entry, previous.as_ref(), deleted, self.instant);
        self.enqueue_affected(&change);
    }

    /// Delivers all changes.
    pub(crate) fn deliver_all(&mut self) {
        while let Some(table) = self.undelivered().first().copied() {
            self.deliver(table);
        }
    }

    fn enqueue_affected(&mut self, change: &Change) {
        for (index, controller) in self.controllers.clone().into_iter().enumerate() {
            let mut affected: Vec<QueuedKey> = Vec::new();
            (controller.affected_keys)(&self.view(None), change, &mut AffectedKeys::new(&mut affected));
            self.queued.extend(affected.into_iter().map(|item| (index, item.key.to_string())));
        }
    }

    /// Simulates a restart: a new cache, and every object is an initial change.
    pub(crate) fn restart(&mut self) {
        self.cache = Cache::new(&self.settings);
        self.pending.clear();
        self.queued.clear();
        self.later.clear();
        let entries: Vec<_> = self.store.entries.values().cloned().collect();
        let apply = |entry: &Arc<Entry>| self.cache.apply(&self.store, entry, None, false, self.instant);
        let mut changes: Vec<Change> = entries.iter().map(apply).collect();
        for change in &mut changes {
            change.initial = true;
            self.enqueue_affected(change);
        }
    }

    /// The view of the controllers.
    pub(crate) fn view<'a>(&'a self, trigger: Option<&'a str>) -> View<'a> {
        View {
            cache: &self.cache,
            store: &self.store,
            settings: &self.settings,
            now: Timestamp::UNIX_EPOCH,
            instant: self.instant,
            trigger,
        }
    }

    /// Advances the clock.
    pub(crate) fn advance(&mut self, time: Duration) {
        self.instant += time;
    }

    /// Advances the clock to when all keys are due that are to be run again later.
    pub(crate) fn wait(&mut self) {
        self.advance(Duration::from_secs(60));
        self.run_later();
    }

    /// Queues all keys that are to be run again later.
    pub(crate) fn run_later(&mut self) {
        self.queued.append(&mut self.later);
    }

    /// The outcome of a controller for a key.
    pub(crate) fn reconcile(&self, controller: &Controller, key: &str) -> Outcome {
        (controller.reconcile)(&self.view(None), key)
    }

    /// Reconciles a queued key and commits its outcome.
    pub(crate) fn run(&mut self, index: usize, key: &str) {
        self.queued.remove(&(index, key.to_owned()));
        let Outcome { transactions, events, requeue_after, certificates: _ } =
            self.reconcile(self.controllers[index], key);
        if requeue_after.is_some() {
            self.later.insert((index, key.to_owned()));
        }
        for writes in transactions {
            match self.commit(&writes) {
                Ok(()) | Err(WriteError::NoNamespace(_)) => {}
                Err(WriteError::Stale(_)) => {
                    self.queued.insert((index, key.to_owned()));
                    return;
                }
                Err(error @ (WriteError::Invalid { .. } | WriteError::Refused(_) | WriteError::UnknownTable(_))) => {
                    panic!("{}: {error}", self.controllers[index].name)
                }
            }
        }
        for event in events {
            if let Write::Object { object, .. } = event {
                let event = (object.text("reason").to_owned(), object.text("message").to_owned());
                if !self.events.contains(&event) {
                    self.events.push(event);
                }
            }
        }
    }

    /// Commits a transaction as the runner and the store would.
    fn commit(&mut self, writes: &[Write]) -> Result<(), WriteError> {
        let kinds = self.cache.kinds.kinds().clone();
        let writer = Writer {
            store: &self.store,
            ranges: &self.settings.ranges,
            now: Timestamp::UNIX_EPOCH,
            checked: true,
            plugins: &self.settings.plugins,
            kinds: &kinds,
        };
        let txn = writer.transaction(writes)?;
        let holds = |key: &Key, modified| self.store.get(key).map_or(0, |entry| entry.modified) == modified;
        if let Some(stale) = txn.compares.iter().find(|compare| !holds(&compare.key, compare.modified)) {
            return Err(WriteError::Stale(stale.key.clone()));
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

    /// Delivers changes and reconciles keys until the queue is empty.
    ///
    /// # Panics
    /// When the controllers do not converge.
    pub(crate) fn converge(&mut self) {
        for _ in 0..10_000 {
            self.deliver_all();
            let Some((index, key)) = self.queued.first().cloned() else { return };
            self.run(index, &key);
        }
        panic!("the controllers do not converge: {:?}", self.queued);
    }

    /// The number of writes of controllers to a table since the last call.
    pub(crate) fn writes_to(&mut self, table: &str) -> usize {
        let count = self.written.iter().filter(|(written, ..)| *written == table).count();
        self.written.retain(|(written, ..)| *written != table);
        count
    }
}

fn entry(key: Key, value: bytes::Bytes, facts: Arc<Facts>, created: Revision, modified: Revision) -> Arc<Entry> {
    Arc::new(Entry { key, created, modified, expires: None, value, facts })
}

/// A certificate is valid when it is `good`.
pub(crate) struct Good;

impl CheckCertificates for Good {
    fn certificate(&self, secret: &Secret) -> Result<(), String> {
        let is_good = secret.data.get("tls.crt") == Some("good");
        is_good.then_some(()).ok_or_else(|| format!("Secret {} has no good certificate", secret.metadata.key()))
    }

    fn authorities(&self, pem: &str) -> Result<(), String> {
        (pem == "good").then_some(()).ok_or_else(|| "it is not good".to_owned())
    }
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
