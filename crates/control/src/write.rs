//! Writes of controllers, and their transactions.
//!
//! Controllers specify desired objects; here they get common metadata (UID, timestamps, generation, managed fields), are validated and are deleted by
//! the rules of their kind. So controllers cannot write what clients could not.

use std::sync::Arc;
use std::time::Duration;

use api::admission::{Notes, Plugins};
use api::apply::Manager;
use api::custom::{Kinds, facts_of, resource_of_table};
use api::field::Errors;
use api::kind::Kind;
use api::options::Propagation;
use api::status::Status;
use api::value::ValueExt as _;
use api::{kinds, lifecycle, meta, object};
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use store::admission::{Admission, Request};
use store::allocation::{Ranges, TxnClaims};
use store::{Compare, Entry, Key, Op, Store, Table, Txn};

/// The field manager of controllers.
pub(crate) const MANAGER: &str = "kube-controller-manager";
/// The user of controllers in admission.
pub(crate) const USER: &str = "system:kube-controller-manager";

/// One write. Each has the revision that the controller has seen, for optimistic concurrency.
#[derive(Clone, PartialEq, Debug)]
pub enum Write {
    /// Creates (`modified` 0) or replaces an object.
    Object {
        /// The store's table of the kind.
        table: &'static str,
        /// The object.
        object: Box<Value>,
        /// The revision that it replaces.
        modified: u64,
    },
    /// Updates a subresource (`status`, `binding`).
    Subresource {
        /// The store's table of the kind.
        table: &'static str,
        /// The subresource.
        part: &'static str,
        /// The object.
        object: Box<Value>,
        /// The revision that it replaces.
        modified: u64,
    },
    /// Stores raw bytes.
    Raw {
        /// The key.
        key: Key,
        /// The value.
        value: Bytes,
        /// The revision that it replaces.
        modified: u64,
    },
    /// Deletes an object by the rules of its kind, or removes a raw entry.
    Delete {
        /// The key.
        key: Key,
        /// The revision that was seen.
        modified: u64,
        /// The deletion propagation policy.
        propagation: Option<Propagation>,
    },
    /// Deletes an object with grace period 0.
    DeleteNow {
        /// The key.
        key: Key,
        /// The revision that was seen.
        modified: u64,
    },
    /// Deletes an object and removes one of its finalizers.
    DeleteReleased {
        /// The key.
        key: Key,
        /// The revision that was seen.
        modified: u64,
        /// The finalizer.
        finalizer: &'static str,
    },
}

/// Why writes cannot be committed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The object has changed.
    #[error("{0} has changed")]
    Stale(Key),
    /// The namespace does not exist or is being deleted.
    #[error("namespace {0} is being deleted")]
    NoNamespace(Box<str>),
    /// No kind is stored in the table.
    #[error("no kind is stored in {0}")]
    UnknownTable(String),
    /// Validation failed.
    #[error("{key}: {why}")]
    Invalid {
        /// The object.
        key: Key,
        /// The error.
        why: String,
    },
    /// Admission denied it.
    #[error("{}", .0.why)]
    Refused(Box<Refusal>),
}

/// A new object that admission denied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its owner reference, if it has one.
    pub(crate) owner: Value,
    /// The message.
    pub(crate) why: String,
}

impl Refusal {
    /// The first owner of an object; null when it has none.
    pub(crate) fn owner(object: &Value) -> Value {
        object.items("metadata.ownerReferences").first().cloned().unwrap_or_default()
    }
}

impl Write {
    /// A new object.
    #[must_use]
    pub fn create(table: &'static str, object: Value) -> Self {
        Self::Object { table, object: Box::new(object), modified: 0 }
    }

    /// Deletes an object.
    #[must_use]
    pub fn delete(entry: &Entry) -> Self {
        Self::Delete { key: entry.key.clone(), modified: entry.modified, propagation: None }
    }
}

/// Builds transactions from writes.
pub(crate) struct Writer<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) ranges: &'a Ranges,
    pub(crate) now: Timestamp,
    /// Whether objects are validated, and claim the addresses and ports that they need. The Service of the API server comes
    /// with its claims, and the address in its endpoints may be loopback.
    pub(crate) checked: bool,
    /// Admission plugins for new objects.
    pub(crate) plugins: &'a Plugins,
    /// The kinds, those of CustomResourceDefinitions included.
    pub(crate) kinds: &'a Kinds,
}

impl Writer<'_> {
    /// One transaction of all the writes.
    pub(crate) fn transaction(&self, writes: &[Write]) -> Result<Txn, WriteError> {
        let mut txn = Txn::default();
        for write in writes {
            match write {
                Write::Object { table, object, modified: 0 } => self.create(table, (**object).clone(), &mut txn)?,
                Write::Object { table, object, modified } => self.update(table, None, object, *modified, &mut txn)?,
                Write::Subresource { table, part, object, modified } => {
                    self.update(table, Some(part), object, *modified, &mut txn)?;
                }
                Write::Delete { key, modified, propagation } => {
                    self.delete(key, *modified, None, *propagation, None, &mut txn)?;
                }
                Write::DeleteNow { key, modified } => self.delete(key, *modified, Some(0), None, None, &mut txn)?,
                Write::DeleteReleased { key, modified, finalizer } => {
                    self.delete(key, *modified, None, None, Some(*finalizer), &mut txn)?;
                }
                Write::Raw { key, value, modified } => {
                    txn.compares.push(Compare { key: key.clone(), modified: *modified });
                    let facts = facts_of(key.table.as_str(), value);
                    let (key, value) = (key.clone(), value.clone());
                    txn.ops.push(Op::Put { key, value, facts: Arc::new(facts), ttl: None });
                }
            }
        }
        Ok(txn)
    }

    fn create(&self, table: &'static str, mut object: Value, txn: &mut Txn) -> Result<(), WriteError> {
        let kind = self.kind_of(table)?;
        if kind.namespaced {
            txn.compares.push(self.open_namespace(object.text("metadata.namespace"))?);
        }
        let base = object.text("metadata.generateName");
        if object.text("metadata.name").is_empty() && !base.is_empty() {
            let name = lifecycle::generate_name(base, |below| fastrand::usize(..below));
            object.put("metadata.name", name);
        }
        let name = object.text("metadata.name").to_owned();
        let namespace = object.text("metadata.namespace").to_owned();
        let admission = Admission { store: self.store, plugins: self.plugins, now: self.now };
        let request = Request { kind, namespace: &namespace, name: &name, subresource: "", user: USER };
        let owner = Refusal::owner(&object);
        let refused = |status: Status| {
            let owner = owner.clone();
            WriteError::Refused(Box::new(Refusal { namespace: namespace.clone(), owner, why: status.message }))
        };
        let filled = admission.fill(&request, &mut object);
        match filled {
            Ok(compares) => txn.compares.extend(compares),
            Err(status) => return Err(refused(status)),
        }
        if self.checked && kind.table == kinds::service::KIND.table {
            let claim = |claims: &mut TxnClaims<'_>| kind.rules.begin_create(&mut object, claims).map_err(refused);
            self.with_claims((&namespace, &name), txn, claim)?;
            kind.rules.prepare_create(&mut object);
        }
        if kind.plural == kinds::pod::KIND.plural {
            // Defaults from LimitRanges determine the QoS class.
            kind.rules.prepare_create(&mut object);
        }
        let now = lifecycle::seconds(self.now);
        if !object.has("metadata.uid") {
            object.put("metadata.uid", new_uid());
        }
        if !object.has("metadata.creationTimestamp") {
            object.put("metadata.creationTimestamp", now.as_str());
        }
        if kind.generation {
            object.put("metadata.generation", 1);
        }
        if !object.has("metadata.managedFields") {
            let api_version = kind.api_version();
            let manager = Manager { name: MANAGER, api_version: &api_version, subresource: "" };
            kind.track_update(None, &mut object, &manager, &now);
        }
        kind.normalize(&mut object);
        let mut errors = Errors::default();
        kind.rules.validate_create(&object, &mut errors);
        let key = object_key(table, &object);
        self.check_errors(&key, &errors)?;
        admission.check(&request, &object, None, txn, &mut Notes::default()).map_err(refused)?;
        put(kind, key, &object, 0, txn);
        Ok(())
    }

    fn update(
        &self,
        table: &'static str,
        part: Option<&'static str>,
        new: &Value,
        modified: u64,
        txn: &mut Txn,
    ) -> Result<(), WriteError> {
        let kind = self.kind_of(table)?;
        let key = object_key(table, new);
        let entry = self.current(&key, modified)?;
        let old = object::decode(kind, &entry.value, entry.modified);
        let mut new = new.clone();
        new.put("metadata.resourceVersion", old.at("metadata.resourceVersion").clone());
        let (subresource, api_version) = (part.unwrap_or_else(|| changed_part(&new, &old)), kind.api_version());
        if subresource.is_empty() && kind.table == kinds::service::KIND.table && new.at("spec") != old.at("spec") {
            let owner = (old.text("metadata.namespace"), old.text("metadata.name"));
            let why = |status: Status| WriteError::Invalid { key: key.clone(), why: status.message };
            let claim = |claims: &mut TxnClaims<'_>| kind.rules.begin_update(&mut new, &old, claims).map_err(why);
            self.with_claims(owner, txn, claim)?;
            kind.rules.prepare_update(&mut new, &old);
        }
        if part.is_none() && !kind.is_custom() {
            lifecycle::set_generation(kind, &mut new, &old);
        } else {
            lifecycle::keep_generation(&mut new, &old);
        }
        let manager = Manager { name: MANAGER, api_version: &api_version, subresource };
        kind.track_update(Some(&old), &mut new, &manager, &lifecycle::seconds(self.now));
        kind.normalize(&mut new);
        let mut errors = Errors::default();
        match subresource {
            // Controllers change only the metadata of custom resources, which may be stored in any version of their definition.
            "" if kind.is_custom() => meta::validate_generic_update(&new, &old, &mut errors),
            "" => kind.rules.validate_update(&new, &old, &mut errors),
            part => kind.rules.validate_part(part, &new, &old, &mut errors),
        }
        self.check_errors(&key, &errors)?;
        if old.has("metadata.deletionTimestamp") && lifecycle::is_released(kind, &new) {
            self.remove(kind, &entry, &new, txn);
        } else {
            put(kind, key, &new, modified, txn);
        }
        Ok(())
    }

    fn delete(
        &self,
        key: &Key,
        modified: u64,
        grace: Option<i64>,
        propagation: Option<Propagation>,
        finalizer: Option<&str>,
        txn: &mut Txn,
    ) -> Result<(), WriteError> {
        let entry = self.current(key, modified)?;
        let Some(kind) = self.kinds.by_table(key.table.as_str()) else {
            if resource_of_table(key.table.as_str()).is_some() {
                // Finalizers hold also objects of a kind that is not served at the moment.
                return Err(WriteError::UnknownTable(key.table.to_string()));
            }
            txn.compares.push(Compare { key: key.clone(), modified });
            txn.ops.push(Op::Delete { key: key.clone() });
            return Ok(());
        };
        let old = object::decode(kind, &entry.value, entry.modified);
        let mut new = old.clone();
        if let Some(finalizer) = finalizer {
            drop_finalizer(&mut new, finalizer);
        }
        lifecycle::mark_deleted(kind, &mut new, grace, propagation, self.now);
        if lifecycle::is_released(kind, &new) {
            self.remove(kind, &entry, &old, txn);
        } else if new != old {
            put(kind, key.clone(), &new, modified, txn);
        }
        Ok(())
    }

    /// Removes an object together with its claims.
    fn remove(&self, kind: &Kind, entry: &Entry, object: &Value, txn: &mut Txn) {
        txn.compares.push(Compare { key: entry.key.clone(), modified: entry.modified });
        let owner = (object.text("metadata.namespace"), object.text("metadata.name"));
        let release = |claims: &mut TxnClaims<'_>| {
            kind.rules.finish_delete(object, claims);
            Ok::<_, std::convert::Infallible>(())
        };
        let Ok(()) = self.with_claims(owner, txn, release);
        txn.ops.push(Op::Delete { key: entry.key.clone() });
    }

    /// Adds the claims of a Service to a transaction.
    fn with_claims<E>(
        &self,
        owner: (&str, &str),
        txn: &mut Txn,
        work: impl FnOnce(&mut TxnClaims<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let now = lifecycle::seconds(self.now);
        let mut claims = TxnClaims::new(self.store, self.ranges, owner, &now, &new_uid);
        work(&mut claims)?;
        let Txn { compares, ops } = claims.into_txn();
        txn.compares.extend(compares);
        txn.ops.extend(ops);
        Ok(())
    }

    /// The kind that is stored in a table. That of a definition may have been deleted since the write was decided on.
    fn kind_of(&self, table: &str) -> Result<&'static Kind, WriteError> {
        self.kinds.by_table(table).ok_or_else(|| WriteError::UnknownTable(table.to_owned()))
    }

    fn check_errors(&self, key: &Key, errors: &Errors) -> Result<(), WriteError> {
        match errors.0.first().filter(|_| self.checked) {
            None => Ok(()),
            Some(first) => {
                Err(WriteError::Invalid { key: key.clone(), why: format!("{}: {}", first.field, first.body) })
            }
        }
    }

    fn current(&self, key: &Key, modified: u64) -> Result<Arc<Entry>, WriteError> {
        let current = self.store.get(key).filter(|entry| entry.modified == modified);
        current.ok_or_else(|| WriteError::Stale(key.clone()))
    }

    /// A compare that the namespace exists and is not being deleted, also at commit time.
    fn open_namespace(&self, name: &str) -> Result<Compare, WriteError> {
        let key = Key { table: Table::named("namespaces"), name: name.into() };
        let entry = self.store.get(&key).ok_or_else(|| WriteError::NoNamespace(name.into()))?;
        if object::decode_light(&entry.value).has("metadata.deletionTimestamp") {
            return Err(WriteError::NoNamespace(name.into()));
        }
        Ok(Compare { key, modified: entry.modified })
    }
}

/// `status` when only the status changed, because it has its own managed fields.
fn changed_part(new: &Value, old: &Value) -> &'static str {
    let is_same = |(part, value): (&String, &Value)| {
        matches!(part.as_str(), "status" | "kind" | "apiVersion") || old.at(part) == value
    };
    let all_else_same = new.as_object().into_iter().flatten().all(is_same);
    if all_else_same && new.at("status") != old.at("status") { "status" } else { "" }
}

/// Removes a finalizer; true when the object had it.
pub(crate) fn drop_finalizer(object: &mut Value, finalizer: &str) -> bool {
    let before = object.items("metadata.finalizers");
    let left: Vec<Value> = before.iter().filter(|have| have.as_str() != Some(finalizer)).cloned().collect();
    if left.len() == before.len() {
        return false;
    }
    if left.is_empty() {
        object.drop_path("metadata.finalizers");
    } else {
        object.put("metadata.finalizers", left);
    }
    true
}

fn put(kind: &Kind, key: Key, object: &Value, modified: u64, txn: &mut Txn) {
    txn.compares.push(Compare { key: key.clone(), modified });
    let ttl = kind.ttl.map(Duration::from_secs);
    txn.ops.push(Op::Put { key, value: kind.encode(object), facts: Arc::new(kind.facts(object)), ttl });
}

fn new_uid() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// The key of an object.
pub(crate) fn object_key(table: &str, object: &Value) -> Key {
    let (namespace, name) = (object.text("metadata.namespace"), object.text("metadata.name"));
    let name = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    Key { table: Table::named(table), name: name.into() }
}
