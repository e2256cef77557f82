//! Dynamic admission (policies and webhooks) in the pipeline of the registry.
//!
//! ```text
//! create: plugins ─▶ mutate ─▶ rules of the kind ─▶ plugins ─▶ validate ─▶ commit
//! ```
//! Webhooks are called outside of the transaction. After a conflict, an update runs through all of this again with the current object;
//! of a create only validation runs again, as in kube-apiserver.

use api::admission::Notes;
use api::dynamic_admission::request::{Operation, Request};
use api::kind::{Kind, SCALE, Subresource};
use api::kinds::scale;
use api::meta;
use api::status::Status;
use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::create::{match_namespace, typed, wipe_system_fields};
use super::{Call, Deletion, Registry};
use crate::dynamic_admission::user_info;

const NOTHING: &Value = &Value::Null;

/// An admission request without its objects.
struct Subject<'a> {
    operation: Operation,
    kind: &'static Kind,
    subresource: Option<&'static Subresource>,
    name: &'a str,
    options: Value,
}

/// The URL that a message is posted to.
pub(crate) struct About<'a> {
    pub(crate) operation: Operation,
    pub(crate) kind: &'static Kind,
    pub(crate) subresource: Option<&'static Subresource>,
    pub(crate) name: &'a str,
}

impl Registry {
    /// Runs mutating webhooks on a new object, before it has a uid and a generated name.
    pub(super) async fn mutate_new(
        &self,
        call: &Call<'_>,
        object: &mut Value,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        if !self.dynamic.mutates() || !is_whole(call) {
            return Ok(());
        }
        let name = object.text("metadata.name").to_owned();
        let refill = |object: &mut Value| self.admit_create(call, &name, object).map(drop);
        refill(object)?;
        let subject = subject(call, Operation::Create, &name, "CreateOptions");
        self.mutate_object(call, &subject, object, NOTHING, &refill, warnings).await?;
        match_namespace(call, object)?;
        wipe_system_fields(object);
        meta::drop_repeated_owners(object, warnings);
        Ok(())
    }

    /// Runs mutating webhooks on an update.
    pub(super) async fn mutate_change(
        &self,
        call: &Call<'_>,
        name: &str,
        new: &mut Value,
        old: &Value,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        if !self.dynamic.mutates() || !is_whole(call) {
            return Ok(());
        }
        let subject = subject(call, Operation::Update, name, "UpdateOptions");
        self.mutate_object(call, &subject, new, old, &|_| Ok(()), warnings).await
    }

    async fn mutate_object(
        &self,
        call: &Call<'_>,
        subject: &Subject<'_>,
        object: &mut Value,
        old: &Value,
        refill: &crate::dynamic_admission::Refill<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let (mut shown, old, user) = (shown(call, object), shown(call, old), user_info(call.user));
        let before = shown.clone();
        let request = request(call, subject, NOTHING, &old, &user);
        let mut notes = Notes::default();
        let done = self.dynamic.mutate(&request, call.user, &mut shown, refill, &mut notes).await;
        call.report(notes, warnings);
        done?;
        if shown == before {
            return Ok(());
        }
        if is_scale(call) {
            object.put("spec.replicas", shown.int("spec.replicas"));
        } else {
            *object = shown;
        }
        Ok(())
    }

    /// Runs validating policies and webhooks on an object as it would be stored; `old` is null for a new one.
    pub(super) async fn validate_object(
        &self,
        call: &Call<'_>,
        name: &str,
        new: &Value,
        old: &Value,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let (operation, options) = match old {
            Value::Null => (Operation::Create, "CreateOptions"),
            _ => (Operation::Update, "UpdateOptions"),
        };
        if !self.dynamic.validates() || !is_whole(call) {
            return Ok(());
        }
        let (new, old) = (shown(call, new), shown(call, old));
        self.validate_subject(call, &subject(call, operation, name, options), &new, &old, warnings).await
    }

    async fn validate_subject(
        &self,
        call: &Call<'_>,
        subject: &Subject<'_>,
        new: &Value,
        old: &Value,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let user = user_info(call.user);
        let mut notes = Notes::default();
        let done = self.dynamic.validate(&request(call, subject, new, old, &user), call.user, &mut notes).await;
        call.report(notes, warnings);
        done
    }

    /// Runs policies and webhooks on the deletion of an object.
    pub(super) async fn admit_deletion(
        &self,
        call: &Call<'_>,
        name: &str,
        old: &Value,
        deletion: &Deletion,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        if !(self.dynamic.mutates() || self.dynamic.validates()) || !is_whole(call) {
            return Ok(());
        }
        let subject = Subject { options: deletion.options(call.dry_run), ..subject(call, Operation::Delete, name, "") };
        self.mutate_object(call, &subject, &mut Value::Null, old, &|_| Ok(()), warnings).await?;
        self.validate_subject(call, &subject, NOTHING, &shown(call, old), warnings).await
    }

    /// Runs policies and webhooks on a message that is posted to an object and not stored (`pods/binding`, `pods/eviction`,
    /// `serviceaccounts/token`), or on the options of a connection; webhooks may change both.
    pub(crate) async fn admit_message(
        &self,
        call: &Call<'_>,
        about: About<'_>,
        message: &mut Value,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        if !(self.dynamic.mutates() || self.dynamic.validates()) {
            return Ok(());
        }
        let About { operation, kind, subresource, name } = about;
        let (group, version, kind_name) = kind.exchanged(subresource);
        message.put("kind", kind_name);
        message.put("apiVersion", if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") });
        let mut subject = Subject { kind, subresource, ..subject(call, operation, name, "CreateOptions") };
        if operation == Operation::Connect {
            subject.options = Value::Null;
        }
        let (user, mut notes) = (user_info(call.user), Notes::default());
        let mutating = request(call, &subject, NOTHING, NOTHING, &user);
        let mut done = self.dynamic.mutate(&mutating, call.user, message, &|_| Ok(()), &mut notes).await;
        if done.is_ok() {
            let validating = request(call, &subject, message, NOTHING, &user);
            done = self.dynamic.validate(&validating, call.user, &mut notes).await;
        }
        call.report(notes, warnings);
        done
    }
}

/// Whether a call is for an object or a subresource that is one: messages are admitted before they change an object.
fn is_whole(call: &Call<'_>) -> bool {
    is_scale(call) || call.kind.exchanged(call.subresource).2 == call.kind.kind
}

fn is_scale(call: &Call<'_>) -> bool {
    call.subresource.is_some_and(|part| part.name == SCALE)
}

/// An object as the URL of the call shows it.
fn shown(call: &Call<'_>, object: &Value) -> Value {
    match object {
        Value::Null => Value::Null,
        object if is_scale(call) => typed(&scale::KIND, scale::of(object)),
        object => typed(call.kind, object.clone()),
    }
}

fn subject<'a>(call: &Call<'_>, operation: Operation, name: &'a str, options: &str) -> Subject<'a> {
    let mut options = json!({"kind": options, "apiVersion": "meta.k8s.io/v1", "fieldManager": call.manager});
    if call.dry_run {
        options.put("dryRun", json!(["All"]));
    }
    Subject { operation, kind: call.kind, subresource: call.subresource, name, options }
}

fn request<'a>(
    call: &'a Call<'_>,
    subject: &'a Subject<'_>,
    object: &'a Value,
    old_object: &'a Value,
    user: &'a Value,
) -> Request<'a> {
    let is_namespace = subject.kind.plural == "namespaces" && subject.kind.group.is_empty();
    Request {
        operation: subject.operation,
        kind: subject.kind,
        subresource: subject.subresource,
        namespace: if is_namespace { subject.name } else { call.namespace },
        name: subject.name,
        object,
        old_object,
        options: &subject.options,
        dry_run: call.dry_run,
        user,
    }
}

impl Deletion {
    /// The same as `DeleteOptions`.
    fn options(&self, dry_run: bool) -> Value {
        let mut out = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        if let Some(seconds) = self.grace {
            out.put("gracePeriodSeconds", seconds);
        }
        if let Some(uid) = &self.uid {
            out.put("preconditions.uid", uid.as_str());
        }
        if let Some(revision) = &self.revision {
            out.put("preconditions.resourceVersion", revision.as_str());
        }
        if let Some(propagation) = self.propagation {
            out.put("propagationPolicy", format!("{propagation:?}"));
        }
        if dry_run {
            out.put("dryRun", json!(["All"]));
        }
        out
    }
}

#[cfg(test)]
mod tests;
