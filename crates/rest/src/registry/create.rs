//! Creating an object: defaults, ownership, admission, claims, validation, one transaction.

use api::apply;
use api::field::Errors;
use api::kind::Kind;
use api::status::Status;
use api::value::ValueExt as _;
use api::{kinds, lifecycle, meta, names};
use serde_json::Value;

use super::{ATTEMPTS, Call, Outcome, Registry, Shown, WriteError, new_uid};

/// How many generated names are tried.
const NAME_ATTEMPTS: usize = 8;

impl Registry {
    /// Creates an object from a body that has been decoded and defaulted.
    pub(crate) async fn create(
        &self,
        call: &Call<'_>,
        mut object: Value,
        warnings: &mut Vec<String>,
    ) -> Result<Outcome, Status> {
        match_namespace(call, &mut object)?;
        wipe_system_fields(&mut object);
        track(call, None, &mut object);
        let set = object.drop_path("metadata.resourceVersion").filter(|version| version != "" && version != "0");
        self.create_tracked(call, object, set.is_some(), warnings).await
    }

    /// Creates an object that has its managedFields. A resourceVersion in the request is refused only after all other checks, as in
    /// kube-apiserver.
    pub(super) async fn create_tracked(
        &self,
        call: &Call<'_>,
        mut object: Value,
        version_set: bool,
        warnings: &mut Vec<String>,
    ) -> Result<Outcome, Status> {
        if call.kind.rules.definition().is_some_and(|definition| definition.is_terminating) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(call.kind.resource(), object.text("metadata.name"), why));
        }
        self.await_default_account(call, &object).await;
        wipe_system_fields(&mut object);
        meta::drop_repeated_owners(&mut object, warnings);
        self.mutate_new(call, &mut object, warnings).await?;
        object.put("metadata.uid", new_uid());
        object.put("metadata.creationTimestamp", call.now_text());
        let given = object.text("metadata.name").to_owned();
        let base = object.text("metadata.generateName").to_owned();
        let mut names_tried = 0;
        for _ in 0..ATTEMPTS {
            let mut attempt = object.clone();
            let name = if given.is_empty() && !base.is_empty() {
                lifecycle::generate_name(&base, |count| fastrand::usize(..count))
            } else {
                given.clone()
            };
            if !name.is_empty() {
                attempt.put("metadata.name", name.as_str());
            }
            match self.try_create(call, &name, attempt, version_set, warnings).await {
                Ok(outcome) => return Ok(outcome),
                Err(WriteError::Refused(status)) if status.reason == Some("AlreadyExists") && given.is_empty() => {
                    names_tried += 1;
                    if names_tried >= NAME_ATTEMPTS {
                        return Err(names_exhausted(&status));
                    }
                }
                Err(WriteError::Refused(status)) => return Err(status),
                Err(WriteError::Conflict) => {}
            }
        }
        Err(Status::too_many_requests("too many conflicting writes; please try again"))
    }

    async fn try_create(
        &self,
        call: &Call<'_>,
        name: &str,
        mut object: Value,
        version_set: bool,
        warnings: &mut Vec<String>,
    ) -> Result<Outcome, WriteError> {
        let admitted = self.admit_create(call, name, &mut object).map_err(WriteError::Refused)?;
        let rules = call.kind.rules;
        let (object, mut txn) = self
            .with_claims(call, name, |claims| {
                // Writing the status of a missing object creates it without claims, as in kube-apiserver.
                if call.is_main() {
                    rules.begin_create(&mut object, claims)?;
                }
                rules.prepare_create(&mut object);
                Ok(object)
            })
            .map_err(WriteError::Refused)?;
        let object = finished(call.kind, object).map_err(WriteError::Refused)?;
        self.check_params(call, &object, None).map_err(WriteError::Refused)?;
        let mut noted = Vec::new();
        rules.warnings(&object, None, &mut noted);
        self.warn_of_cluster_ips(call, &object, None, &mut noted);
        self.check_stored(call, name, (&object, None), &mut txn, &mut noted).map_err(WriteError::Refused)?;
        self.validate_object(call, name, &object, &Value::Null, &mut noted).await.map_err(WriteError::Refused)?;
        if version_set {
            return Err(WriteError::Refused(Status::raw("resourceVersion should not be set on objects to be created")));
        }
        if self.store.get(&call.key(name)).is_some() {
            return Err(WriteError::Refused(self.exists(call, name)));
        }
        txn.compares.extend(admitted);
        let mut shown = object;
        let as_answered = (!call.is_main()).then(|| shown.clone());
        rules.on_read(&mut shown);
        let stored = self.stored_form(call, &shown).await?;
        let entry = self.put(call, name, stored, 0, txn).await?;
        add_warnings(warnings, noted);
        let shown = if call.dry_run || as_answered.is_some() {
            let mut object = as_answered.unwrap_or(shown);
            if !call.dry_run {
                object.put("metadata.resourceVersion", entry.modified.to_string());
            }
            Shown::Object(typed(call.kind, object))
        } else {
            Shown::Entry(self.conversion.written(call.kind, entry).await.map_err(WriteError::Refused)?)
        };
        Ok(Outcome { code: 201, shown })
    }

    fn exists(&self, call: &Call<'_>, name: &str) -> Status {
        let mut status = Status::already_exists(call.kind.resource(), name);
        let deleting = self
            .store
            .get(&call.key(name))
            .is_some_and(|entry| super::old_object(call.kind, &entry).has("metadata.deletionTimestamp"));
        if deleting {
            status.message = format!("object is being deleted: {}", status.message);
        }
        status
    }
}

/// Sets `kind` and `apiVersion`.
pub(super) fn typed(kind: &Kind, mut object: Value) -> Value {
    object.put("kind", kind.kind);
    object.put("apiVersion", kind.api_version());
    object
}

/// Adds warnings without duplicates.
pub(super) fn add_warnings(warnings: &mut Vec<String>, noted: Vec<String>) {
    for text in noted {
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    }
}

/// Validates a new object and brings it into the form that is stored.
fn finished(kind: &Kind, mut object: Value) -> Result<Value, Status> {
    if kind.generation {
        object.put("metadata.generation", 1);
    }
    kind.normalize(&mut object);
    let mut errors = Errors::default();
    kind.rules.validate_create(&object, &mut errors);
    if errors.is_empty() {
        meta::validate(&object, kind.namespaced, names::name_is_path_segment, &mut errors);
    }
    if errors.is_empty() {
        return Ok(object);
    }
    Err(invalid_object(kind, &object, object.text("metadata.name"), &errors))
}

/// Field errors of an object. Those of a custom resource name the kind that it claims to be.
pub(super) fn invalid_object(kind: &Kind, object: &Value, name: &str, errors: &Errors) -> Status {
    if kind.is_custom() {
        return Status::invalid_custom(kind.group, object.text("kind"), name, errors);
    }
    invalid(kind, name, errors)
}

/// Field errors of an object. They name the kind it is stored as, which is that of another group for some.
pub(super) fn invalid(kind: &Kind, name: &str, errors: &Errors) -> Status {
    let group = kinds::by_table(kind.table).map_or(kind.group, |stored| stored.group);
    Status::invalid(group, kind.kind, name, errors)
}

/// Records that the caller owns what it changed.
pub(super) fn track(call: &Call<'_>, live: Option<&Value>, object: &mut Value) {
    let api_version = call.kind.api_version();
    call.kind.track_update(live, object, &manager(call, &api_version), &call.now_text());
}

/// The manager of a call.
pub(super) fn manager<'a>(call: &'a Call<'_>, api_version: &'a str) -> apply::Manager<'a> {
    let subresource = call.subresource.map_or("", |sub| sub.name);
    apply::Manager { name: call.manager, api_version, subresource }
}

/// What clients may not choose.
pub(super) fn wipe_system_fields(object: &mut Value) {
    for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        object.drop_path(&format!("metadata.{field}"));
    }
}

/// The namespace of the body must be that of the URL, or be left out.
pub(crate) fn match_namespace(call: &Call<'_>, object: &mut Value) -> Result<(), Status> {
    let sent = object.text("metadata.namespace");
    if !call.kind.namespaced {
        if !sent.is_empty() {
            object.drop_path("metadata.namespace");
        }
        return Ok(());
    }
    if !sent.is_empty() && sent != call.namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    object.put("metadata.namespace", call.namespace);
    Ok(())
}

/// The name of the body must be that of the URL.
pub(crate) fn check_name(object: &Value, name: &str) -> Result<(), Status> {
    match object.text("metadata.name") {
        "" => Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        sent if sent != name => Err(Status::bad_request(format!(
            "the name of the object ({sent}) does not match the name on the URL ({name})"
        ))),
        _ => Ok(()),
    }
}

fn names_exhausted(status: &Status) -> Status {
    let mut status = status.clone().retry_after(1);
    status.message.push_str(", the server was not able to generate a unique name for the object");
    status
}
