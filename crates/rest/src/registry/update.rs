//! Update, patch and apply.
//!
//! A [`Source`] makes the new object from the current one; then the rules of the kind run and one transaction is tried. On a conflict
//! the source runs again on the current object, which makes patches safe without a resourceVersion.

use std::sync::Arc;

use api::admission::Plugin;
use api::field::{Errors, Path};
use api::kind::SCALE;
use api::kinds::certificatesigningrequest;
use api::lifecycle::{is_released, keep_generation, set_generation};
use api::status::Status;
use api::value::ValueExt as _;
use api::{apply, decode, meta};
use serde_json::Value;
use store::{Entry, Txn};

use super::create::invalid_object;
use super::create::{add_warnings, check_name, manager, match_namespace, track, typed};
use super::{ATTEMPTS, Call, Outcome, Registry, Shown, WriteError, old_object, restriction, sent_revision};

/// A change of one object.
pub(crate) struct Change<'a> {
    pub(crate) name: &'a str,
    pub(crate) source: Source<'a>,
}

/// Makes the new object from the current one, and adds warnings.
pub(crate) type Patching<'a> = dyn Fn(&Value, &mut Vec<String>) -> Result<Value, Status> + Sync + 'a;

/// The source of the new object.
pub(crate) enum Source<'a> {
    /// The body of a PUT, decoded and defaulted.
    Body(&'a Value),
    /// A patch of the current object; the result is decoded and defaulted, with warnings.
    Patch(&'a Patching<'a>),
    /// A server-side apply.
    Apply { config: &'a Value, force: bool },
}

/// A change that passed all checks.
struct Prepared {
    object: Value,
    txn: Txn,
    noted: Vec<String>,
}

impl Registry {
    /// Changes an object, or creates it where an update may.
    pub(crate) async fn update(
        &self,
        call: &Call<'_>,
        change: &Change<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<Outcome, Status> {
        for _ in 0..ATTEMPTS {
            let Some(entry) = self.store.get(&call.key(change.name)) else {
                match self.create_by_change(call, change, warnings).await {
                    Err(status) if status.reason == Some("AlreadyExists") => continue,
                    done => return done,
                }
            };
            match self.try_update(call, change, &entry, warnings).await {
                Ok(outcome) => return Ok(outcome),
                Err(WriteError::Refused(status)) => return Err(status),
                Err(WriteError::Conflict) => {}
            }
        }
        Err(Status::too_many_requests("too many conflicting writes to the object; please try again"))
    }

    async fn create_by_change(
        &self,
        call: &Call<'_>,
        change: &Change<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<Outcome, Status> {
        let mut object = match change.source {
            Source::Body(body) if call.kind.create_on_update => body.clone(),
            // A subresource of a missing object cannot be applied.
            Source::Apply { config, .. } if call.is_main() => {
                let mut object = self.applied(call, None, config, false)?;
                match_namespace(call, &mut object)?;
                object
            }
            Source::Body(_) | Source::Patch(_) | Source::Apply { .. } => return Err(call.not_found(change.name)),
        };
        let uid = object.text("metadata.uid").to_owned();
        match change.source {
            Source::Apply { .. } if !uid.is_empty() => {
                let why =
                    format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
                return Err(Status::conflict(call.kind.resource(), change.name, &why));
            }
            Source::Body(_) if !uid.is_empty() => return Err(uid_precondition(call, change.name, &uid, "")),
            _ => {}
        }
        check_name(&object, change.name)?;
        // An update that creates needs the permission to create.
        self.authorizer.require(&call.attributes("create", change.name))?;
        sent_revision(&object)?;
        object.drop_path("metadata.resourceVersion");
        if matches!(change.source, Source::Body(_)) {
            match_namespace(call, &mut object)?;
            track(call, None, &mut object);
        }
        self.create_tracked(call, object, false, warnings).await
    }

    /// Runs a server-side apply, and checks and defaults the result.
    fn applied(&self, call: &Call<'_>, live: Option<&Value>, config: &Value, force: bool) -> Result<Value, Status> {
        let api_version = call.kind.api_version();
        let manager = manager(call, &api_version);
        let mut merged = call.kind.apply(live, config, &manager, force, &call.now_text())?;
        call.kind.check(&mut merged).map_err(|error| unconvertible(call, config, &error))?;
        call.kind.rules.default(&mut merged);
        Ok(merged)
    }

    async fn try_update(
        &self,
        call: &Call<'_>,
        change: &Change<'_>,
        entry: &Arc<Entry>,
        warnings: &mut Vec<String>,
    ) -> Result<Outcome, WriteError> {
        let shown = self.conversion.entry(call.kind, entry.clone()).await.map_err(WriteError::Refused)?;
        let old = old_object(call.kind, &shown);
        let mut noted = Vec::new();
        let new = self.new_object(call, change, &old, &mut noted);
        add_warnings(warnings, noted);
        let mut new = new.map_err(WriteError::Refused)?;
        self.mutate_change(call, change.name, &mut new, &old, warnings).await.map_err(WriteError::Refused)?;
        check_revision(call, change, &new, &old).map_err(WriteError::Refused)?;
        let prepared = self.prepare(call, change.name, new, &old).map_err(WriteError::Refused)?;
        let Prepared { mut object, txn, noted } = prepared;
        add_warnings(warnings, noted);
        self.validate_object(call, change.name, &object, &old, warnings).await.map_err(WriteError::Refused)?;
        if old.has("metadata.deletionTimestamp") && is_released(call.kind, &object) {
            self.remove(call, change.name, entry, &object).await?;
            // The last finalizer was removed, and the object with it: the response has its previous revision.
            object.put("metadata.resourceVersion", entry.modified.to_string());
            return Ok(Outcome { code: 200, shown: Shown::Object(typed(call.kind, object)) });
        }
        apply::revert_times(&old, &mut object);
        let as_answered = (!call.is_main()).then(|| object.clone());
        call.kind.rules.on_read(&mut object);
        let stored = self.stored_form(call, &object).await?;
        if stored.value == entry.value {
            return Ok(Outcome { code: 200, shown: Shown::Entry(Arc::unwrap_or_clone(shown)) });
        }
        let written = self.put(call, change.name, stored, entry.modified, txn).await?;
        let shown = match as_answered {
            Some(mut object) => {
                object.put("metadata.resourceVersion", written.modified.to_string());
                Shown::Object(typed(call.kind, object))
            }
            None => Shown::Entry(self.conversion.written(call.kind, written).await.map_err(WriteError::Refused)?),
        };
        Ok(Outcome { code: 200, shown })
    }

    fn new_object(
        &self,
        call: &Call<'_>,
        change: &Change<'_>,
        old: &Value,
        noted: &mut Vec<String>,
    ) -> Result<Value, Status> {
        let mut new = match change.source {
            Source::Apply { config, force } => {
                let new = self.applied(call, Some(old), config, force)?;
                check_name(&new, change.name)?;
                return Ok(new);
            }
            Source::Body(body) => body.clone(),
            Source::Patch(patch) => patch(old, noted)?,
        };
        match_namespace(call, &mut new)?;
        track(call, Some(old), &mut new);
        Ok(new)
    }

    /// Runs the rules of the kind on a change.
    fn prepare(&self, call: &Call<'_>, name: &str, mut new: Value, old: &Value) -> Result<Prepared, Status> {
        let rules = call.kind.rules;
        let mut noted = Vec::new();
        self.check_grant(call, name, &new, Some(old))?;
        self.check_signer(call, name, &new, old)?;
        let restricts_nodes = self.plugins.has(Plugin::NodeRestriction);
        if restricts_nodes {
            restriction::before_update(call, name, &new, old)?;
        }
        meta::drop_repeated_owners(&mut new, &mut noted);
        let (mut new, mut txn) = self.with_claims(call, name, |claims| {
            match call.subresource {
                None => {
                    rules.begin_update(&mut new, old, claims)?;
                    rules.prepare_update(&mut new, old);
                }
                Some(part) => rules.prepare_part(part.name, &mut new, old),
            }
            Ok(new)
        })?;
        if call.kind.plural == certificatesigningrequest::KIND.plural && !call.is_main() {
            certificatesigningrequest::stamp_conditions(&mut new, old, &call.now_text());
        }
        keep_system_fields(&mut new, old);
        if restricts_nodes {
            restriction::on_update(call, name, &new, old, self.allocates_pod_cidrs)?;
        }
        call.kind.normalize(&mut new);
        // A status is not a new desired state; a Scale is.
        if call.subresource.is_none_or(|part| part.name == SCALE) {
            set_generation(call.kind, &mut new, old);
        } else {
            keep_generation(&mut new, old);
        }
        let mut errors = Errors::default();
        match call.subresource {
            None => rules.validate_update(&new, old, &mut errors),
            Some(part) => rules.validate_part(part.name, &new, old, &mut errors),
        }
        if !errors.is_empty() {
            return Err(invalid_object(call.kind, &new, name, &errors));
        }
        self.check_params(call, &new, Some(old))?;
        if call.is_main() {
            rules.warnings(&new, Some(old), &mut noted);
            self.warn_of_cluster_ips(call, &new, Some(old), &mut noted);
        } else {
            rules.status_warnings(&new, old, &mut noted);
        }
        self.check_stored(call, name, (&new, Some(old)), &mut txn, &mut noted)?;
        Ok(Prepared { object: new, txn, noted })
    }
}

/// The error for an apply whose result is not an object of the kind.
fn unconvertible(call: &Call<'_>, config: &Value, error: &decode::TypeError) -> Status {
    let (namespace, name) = (config.text("metadata.namespace"), config.text("metadata.name"));
    let group_version =
        if call.kind.group.is_empty() { format!("/{}", call.kind.version) } else { call.kind.api_version() };
    Status::raw(format!(
        "failed to convert new object ({namespace}/{name}; {group_version}, Kind={}) to proper version: {error}",
        call.kind.kind
    ))
}

/// Optimistic concurrency: the client must have read the current version.
fn check_revision(call: &Call<'_>, change: &Change<'_>, new: &Value, old: &Value) -> Result<(), Status> {
    if let Source::Body(body) = change.source {
        let (sent, have) = (body.text("metadata.uid"), old.text("metadata.uid"));
        if !sent.is_empty() && sent != have {
            return Err(uid_precondition(call, change.name, sent, have));
        }
    }
    let have = old.text("metadata.resourceVersion");
    match sent_revision(new)? {
        Some(sent) if sent.to_string() != have => Err(Status::modified(call.kind.resource(), change.name)),
        None if !call.kind.unconditional_update && matches!(change.source, Source::Body(_)) => {
            let mut errors = Errors::default();
            let metadata = Path::Root("metadata");
            errors.invalid(&metadata.child("resourceVersion"), 0, "must be specified for an update");
            Err(Status::invalid(call.kind.group, call.kind.plural, change.name, &errors))
        }
        _ => Ok(()),
    }
}

fn uid_precondition(call: &Call<'_>, name: &str, sent: &str, have: &str) -> Status {
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {sent}, UID in object meta: {have}",
        call.kind.table,
        call.key(name).name,
    );
    Status::conflict(call.kind.resource(), name, &why)
}

/// Fields that an update cannot change and may omit.
fn keep_system_fields(new: &mut Value, old: &Value) {
    if new.text("metadata.uid").is_empty() {
        new.put("metadata.uid", old.at("metadata.uid").clone());
    }
    for field in ["creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp"] {
        let path = format!("metadata.{field}");
        let sent = field == "deletionTimestamp" && new.has(&path);
        if old.has(&path) && !sent {
            new.put(&path, old.at(&path).clone());
        } else if !sent {
            new.drop_path(&path);
        }
    }
    new.put("metadata.resourceVersion", old.at("metadata.resourceVersion").clone());
    new.drop_path("metadata.selfLink");
}
