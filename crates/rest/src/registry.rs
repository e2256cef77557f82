//! Objects in, objects out: what the verbs do, without HTTP.
//!
//! A [`Call`] says what is asked of which kind; `create`, `update` and `delete` run the kind's rules in the order of the
//! original and hand one transaction to the store, in which the object, its addresses and its ports stand together. When the
//! store says that something changed meanwhile, the whole pipeline runs again on what is there now.

mod admission;
mod create;
mod delete;
mod dynamic;
mod escalation;
mod param_rights;
mod restriction;
mod service_account;
mod signer;
mod update;
mod virtual_addresses;

use std::sync::Arc;

use api::admission::{Notes, Plugins};
use api::kind::{Kind, Subresource};
use api::lifecycle;
use api::object;
use api::status::Status;
use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::Value;
use store::admission::{Admission, Request};
use store::allocation::{Gather, Ranges, Rehearsal};
use store::{CommitError, Compare, Entry, Key, Op, Store, Table, Txn};

use crate::audit::Recorder;
use crate::auth::User;
use crate::authz::{Attributes, Authorizer};
use crate::dynamic_admission::DynamicAdmission;
use crate::view;

pub(crate) use create::{check_name, match_namespace};
pub(crate) use delete::Deletion;
pub(crate) use dynamic::About;
pub(crate) use update::{Change, Patching, Source};

/// How often a pipeline is run again because somebody else was faster.
const ATTEMPTS: usize = 200;

/// The objects of a cluster.
pub(crate) struct Registry {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ranges: Ranges,
    /// Who may do what, for what is decided on the object.
    pub(crate) authorizer: Arc<Authorizer>,
    /// Which admission plugins run.
    pub(crate) plugins: Plugins,
    /// Policies and webhooks.
    pub(crate) dynamic: Arc<DynamicAdmission>,
    /// Whether this cluster gives Nodes their pod CIDRs: nodes may not choose them then.
    pub(crate) allocates_pod_cidrs: bool,
}

/// What is asked, of which kind, where.
pub(crate) struct Call<'a> {
    pub(crate) kind: &'static Kind,
    pub(crate) namespace: &'a str,
    pub(crate) subresource: Option<&'static Subresource>,
    /// Who will own the fields.
    pub(crate) manager: &'a str,
    pub(crate) dry_run: bool,
    pub(crate) now: Timestamp,
    /// Who asks.
    pub(crate) user: &'a User,
    /// Where audit annotations go; none in tests.
    pub(crate) audit: Option<&'a Recorder<'a>>,
}

/// What came of it.
pub(crate) struct Outcome {
    pub(crate) code: u16,
    pub(crate) shown: Shown,
}

/// What the client gets to see.
pub(crate) enum Shown {
    /// An entry as it is stored.
    Entry(Entry),
    /// An object that is not stored in this form.
    Object(Value),
    /// A Status that says what was deleted.
    Status(Value),
}

impl Call<'_> {
    /// Whether this is about the object itself.
    pub(crate) fn is_main(&self) -> bool {
        self.subresource.is_none()
    }

    /// The key of an object.
    pub(crate) fn key(&self, name: &str) -> Key {
        key(self.kind, self.namespace, name)
    }

    /// Now, as objects write it.
    pub(crate) fn now_text(&self) -> String {
        lifecycle::seconds(self.now)
    }

    /// A request about an object of this kind and part, by the same user, with another verb.
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

    /// The same, as admission sees it.
    fn admission<'a>(&'a self, name: &'a str) -> Request<'a> {
        Request {
            kind: self.kind,
            namespace: self.namespace,
            name,
            subresource: self.subresource.map_or("", |sub| sub.name),
            user: &self.user.name,
        }
    }

    /// Passes on what admission says: warnings to the client, annotations to the audit event.
    fn take(&self, notes: Notes, warnings: &mut Vec<String>) {
        create::note(warnings, notes.warnings);
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
    /// One object.
    pub(crate) fn get(&self, call: &Call<'_>, name: &str) -> Result<Arc<Entry>, Status> {
        self.store.get(&call.key(name)).ok_or_else(|| call.not_found(name))
    }

    /// The admission plugins, for a call.
    fn admission(&self, call: &Call<'_>) -> Admission<'_> {
        Admission { store: &*self.store, plugins: &self.plugins, now: call.now }
    }

    /// Checks an object, and what it replaces, with the plugins that look at what is stored.
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
        call.take(notes, warnings);
        checked
    }

    /// What this kind claims runs against the real pools, or against dummies in a dry run.
    fn with_claims<T>(
        &self,
        call: &Call<'_>,
        name: &str,
        work: impl FnOnce(&mut dyn api::claims::Claims) -> Result<T, Status>,
    ) -> Result<(T, Txn), Status> {
        if call.dry_run {
            let mut claims = Rehearsal::new(&*self.store, &self.ranges);
            return Ok((work(&mut claims)?, Txn::default()));
        }
        let now = call.now_text();
        let mut claims = Gather::new(&*self.store, &self.ranges, (call.namespace, name), &now, &new_uid);
        let out = work(&mut claims)?;
        Ok((out, claims.into_txn()))
    }

    /// Stores an object together with what it claims.
    async fn put(
        &self,
        call: &Call<'_>,
        name: &str,
        object: &Value,
        modified: u64,
        mut txn: Txn,
    ) -> Result<Entry, Lost> {
        let key = call.key(name);
        let stored_form;
        let stored = if call.kind.rules.converts() {
            stored_form = call.kind.rules.shown_to_stored(object.clone());
            &stored_form
        } else {
            object
        };
        let value = object::encode(stored);
        let facts = Arc::new(call.kind.facts(stored));
        let ttl = call.kind.ttl.map(std::time::Duration::from_secs);
        txn.compares.insert(0, Compare { key: key.clone(), modified });
        txn.ops.push(Op::Put { key: key.clone(), value: value.clone(), facts: facts.clone(), ttl });
        let revision = if call.dry_run { modified } else { self.store.commit(txn).await.map_err(Lost::from)? };
        let created = self.store.get(&key).map_or(revision, |entry| entry.created);
        Ok(Entry { key, created, modified: revision, value, facts, expires: None })
    }

    /// Removes an object and what it holds; the answer is the revision of its deletion.
    async fn remove(&self, call: &Call<'_>, name: &str, entry: &Entry, old: &Value) -> Result<u64, Lost> {
        let claimed = self.with_claims(call, name, |claims| {
            call.kind.rules.finish_delete(old, claims);
            Ok(())
        });
        let mut txn = claimed.map_err(Lost::Refused)?.1;
        txn.compares.insert(0, Compare { key: entry.key.clone(), modified: entry.modified });
        txn.ops.push(Op::Delete { key: entry.key.clone() });
        if call.dry_run {
            return Ok(entry.modified);
        }
        self.store.commit(txn).await.map_err(Lost::from)
    }
}

/// Why a transaction was not carried out.
enum Lost {
    /// Something is no longer as it was read.
    Race,
    /// The request cannot succeed.
    Refused(Status),
}

impl From<CommitError> for Lost {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Conflict { .. } => Self::Race,
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

/// An object of the store as this kind shows it, read once for a change.
fn old_object(kind: &Kind, entry: &Entry) -> Value {
    view::read(kind, entry)
}

/// The resourceVersion a client sent: `None` when it leaves it to us.
fn sent_revision(object: &Value) -> Result<Option<u64>, Status> {
    match object.text("metadata.resourceVersion") {
        "" | "0" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            Status::raw(format!("strconv.ParseUint: parsing {}: invalid syntax", api::field::quote(text)))
        }),
    }
}
