//! Create, update and delete, without HTTP.
//!
//! In: a [`Call`] and an object. The rules of the kind run in the order of kube-apiserver. Out: one transaction with the object, its
//! addresses and its ports. On a conflict the whole pipeline runs again with the current object.

mod admission;
mod create;
mod delete;
mod dynamic;
mod escalation;
mod evict;
mod param_rights;
mod restriction;
mod service_account;
mod signer;
mod update;
mod virtual_addresses;

use std::sync::Arc;

use api::admission::{Notes, Plugins};
use api::custom::Kinds;
use api::facts::Facts;
use api::kind::{Kind, Subresource};
use api::lifecycle;
use api::status::Status;
use api::value::ValueExt as _;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use store::admission::{Admission, Request};
use store::allocation::{DryRunClaims, Ranges, TxnClaims};
use store::{CommitError, Compare, Entry, Key, KindCatalog, Op, Store, Table, Txn};

use crate::audit::Recorder;
use crate::auth::User;
use crate::authz::{Attributes, Authorizer};
use crate::conversion::Converter;
use crate::dynamic_admission::DynamicAdmission;
use crate::view;

pub(crate) use admission::why_required;
pub(crate) use create::{check_name, match_namespace};
pub(crate) use delete::Deletion;
pub(crate) use dynamic::About;
pub(crate) use update::{Change, Patching, Source};

/// How often a pipeline is retried after conflicts.
const ATTEMPTS: usize = 200;

/// The objects of a cluster.
pub(crate) struct Registry {
    pub(crate) store: Arc<dyn Store>,
    /// The kinds, those of CustomResourceDefinitions included.
    pub(crate) catalog: KindCatalog,
    pub(crate) ranges: Ranges,
    /// The authorizer, for checks that depend on the object.
    pub(crate) authorizer: Arc<Authorizer>,
    /// Which admission plugins run.
    pub(crate) plugins: Plugins,
    /// Policies and webhooks.
    pub(crate) dynamic: Arc<DynamicAdmission>,
    /// Conversion of custom resources by webhooks.
    pub(crate) conversion: Arc<Converter>,
    /// Whether this cluster allocates pod CIDRs of Nodes; nodes then may not set them.
    pub(crate) allocates_pod_cidrs: bool,
}

/// The context of an operation: kind, namespace, subresource, user.
pub(crate) struct Call<'a> {
    pub(crate) kind: &'static Kind,
    pub(crate) namespace: &'a str,
    pub(crate) subresource: Option<&'static Subresource>,
    /// The field manager.
    pub(crate) manager: &'a str,
    pub(crate) dry_run: bool,
    pub(crate) now: Timestamp,
    /// The authenticated user.
    pub(crate) user: &'a User,
    /// Where audit annotations go; none in tests.
    pub(crate) audit: Option<&'a Recorder<'a>>,
}

/// The result of an operation.
pub(crate) struct Outcome {
    pub(crate) code: u16,
    pub(crate) shown: Shown,
}

/// The body of the response.
pub(crate) enum Shown {
    /// A stored entry.
    Entry(Entry),
    /// An object that is not stored in this form.
    Object(Value),
    /// A Status with the deleted object in its details.
    Status(Value),
}

impl Call<'_> {
    /// Whether this is the object itself and no subresource.
    pub(crate) fn is_main(&self) -> bool {
        self.subresource.is_none()
    }

    /// The key of an object.
    pub(crate) fn key(&self, name: &str) -> Key {
        key(self.kind, self.namespace, name)
    }

    /// The time of the request, as in timestamps of objects.
    pub(crate) fn now_text(&self) -> String {
        lifecycle::seconds(self.now)
    }

    /// The authorization attributes for another verb on an object of this kind and subresource, by the same user.
    pub(crate) fn attributes<'a>(&'a self, verb: &'a str, name: &'a str) -> Attributes<'a> {
        Attributes {
            user: self.user,
            verb,
            group: self.kind.group,
            resource: self.kind.plural,
            subresource: self.subresource.map_or("", |sub| sub.name),
            name,
            namespace: self.namespace,
            fields: &[],
            path: None,
        }
    }

    /// The admission request for an object.
    fn admission<'a>(&'a self, name: &'a str) -> Request<'a> {
        Request {
            kind: self.kind,
            namespace: self.namespace,
            name,
            subresource: self.subresource.map_or("", |sub| sub.name),
            user: &self.user.name,
        }
    }

    /// Passes on warnings of admission to the client, and annotations to the audit event.
    fn report(&self, notes: Notes, warnings: &mut Vec<String>) {
        create::add_warnings(warnings, notes.warnings);
        for (key, value) in notes.annotations {
            if let Some(audit) = self.audit {
                audit.annotate(key, value);
            }
        }
    }

    fn not_found(&self, name: &str) -> Status {
        Status::not_found(self.kind.resource(), name)
    }
}

/// The key of an object.
pub(crate) fn key(kind: &Kind, namespace: &str, name: &str) -> Key {
    let name = if kind.namespaced { format!("{namespace}/{name}") } else { name.to_owned() };
    Key { table: Table::named(kind.table), name: name.into() }
}

/// A new uid.
pub(crate) fn new_uid() -> String {
    uuid::Uuid::new_v4().to_string()
}

impl Registry {
    /// The kinds at this moment.
    pub(crate) fn kinds(&self) -> Arc<Kinds> {
        self.catalog.read(&*self.store)
    }

    /// One object, in the version of the call.
    pub(crate) async fn read(&self, call: &Call<'_>, name: &str) -> Result<Arc<Entry>, Status> {
        self.conversion.entry(call.kind, self.get(call, name)?).await
    }

    /// One object, as it is stored.
    pub(crate) fn get(&self, call: &Call<'_>, name: &str) -> Result<Arc<Entry>, Status> {
        self.store.get(&call.key(name)).ok_or_else(|| call.not_found(name))
    }

    /// The admission plugins for a call.
    fn admission(&self, call: &Call<'_>) -> Admission<'_> {
        Admission { store: &*self.store, plugins: &self.plugins, now: call.now }
    }

    /// Runs the plugins that read the store on an object and the one it replaces.
    fn check_stored(
        &self,
        call: &Call<'_>,
        name: &str,
        (new, old): (&Value, Option<&Value>),
        txn: &mut Txn,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let mut notes = Notes::default();
        let checked = self.admission(call).check(&call.admission(name), new, old, txn, &mut notes);
        call.report(notes, warnings);
        checked
    }

    /// Runs claims against the real allocators, or against placeholders in a dry run.
    fn with_claims<T>(
        &self,
        call: &Call<'_>,
        name: &str,
        work: impl FnOnce(&mut dyn api::claims::Claims) -> Result<T, Status>,
    ) -> Result<(T, Txn), Status> {
        if call.dry_run {
            let mut claims = DryRunClaims::new(&*self.store, &self.ranges, call.namespace);
            return Ok((work(&mut claims)?, Txn::default()));
        }
        let now = call.now_text();
        let mut claims = TxnClaims::new(&*self.store, &self.ranges, (call.namespace, name), &now, &new_uid);
        let out = work(&mut claims)?;
        Ok((out, claims.into_txn()))
    }

    /// The stored form of an object of the call's version.
    async fn stored_form(&self, call: &Call<'_>, object: &Value) -> Result<StoredForm, WriteError> {
        let kind = call.kind;
        let converted = if kind.is_custom() {
            Some(self.conversion.to_storage(kind, object).await.map_err(WriteError::Refused)?)
        } else {
            kind.rules.converts(u64::MAX).then(|| kind.rules.shown_to_stored(object.clone()))
        };
        let stored = converted.as_ref().unwrap_or(object);
        Ok(StoredForm { value: kind.encode(stored), facts: Arc::new(kind.facts(stored)) })
    }

    /// Stores an object together with its claims.
    async fn put(
        &self,
        call: &Call<'_>,
        name: &str,
        stored: StoredForm,
        modified: u64,
        mut txn: Txn,
    ) -> Result<Entry, WriteError> {
        let key = call.key(name);
        let StoredForm { value, facts } = stored;
        let ttl = call.kind.ttl.map(std::time::Duration::from_secs);
        txn.compares.insert(0, Compare { key: key.clone(), modified });
        txn.ops.push(Op::Put { key: key.clone(), value: value.clone(), facts: facts.clone(), ttl });
        let revision = if call.dry_run { modified } else { self.store.commit(txn).await.map_err(WriteError::from)? };
        let created = self.store.get(&key).map_or(revision, |entry| entry.created);
        Ok(Entry { key, created, modified: revision, value, facts, expires: None })
    }

    /// Removes an object and its claims; returns the revision of the deletion.
    async fn remove(&self, call: &Call<'_>, name: &str, entry: &Entry, old: &Value) -> Result<u64, WriteError> {
        let claimed = self.with_claims(call, name, |claims| {
            call.kind.rules.finish_delete(old, claims);
            Ok(())
        });
        let mut txn = claimed.map_err(WriteError::Refused)?.1;
        txn.compares.insert(0, Compare { key: entry.key.clone(), modified: entry.modified });
        txn.ops.push(Op::Delete { key: entry.key.clone() });
        if call.dry_run {
            return Ok(entry.modified);
        }
        self.store.commit(txn).await.map_err(WriteError::from)
    }
}

/// An object as it is stored.
struct StoredForm {
    value: Bytes,
    facts: Arc<Facts>,
}

/// Why a write failed.
enum WriteError {
    /// Another write came first: retry.
    Conflict,
    /// The request is refused.
    Refused(Status),
}

impl From<CommitError> for WriteError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Conflict { .. } => Self::Conflict,
            error if error.is_full() => Self::Refused(
                Status::unavailable(format!(
                    "the store cannot write: {error}; nothing was changed; make room on the disk of --data-dir and try again"
                ))
                .retry_after(1),
            ),
            error => Self::Refused(Status::internal(error)),
        }
    }
}

/// The current object, as this kind shows it; of what a webhook converts, only the metadata unless it was converted.
fn old_object(kind: &Kind, entry: &Entry) -> Value {
    view::read(kind, entry)
}

/// The resourceVersion that the client sent; `None` for an unconditional write.
fn sent_revision(object: &Value) -> Result<Option<u64>, Status> {
    match object.text("metadata.resourceVersion") {
        "" | "0" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            Status::raw(format!("strconv.ParseUint: parsing {}: invalid syntax", api::field::quote(text)))
        }),
    }
}
