//! Delete: preconditions, finalizers, grace period, and one transaction that releases the claims of the object.

use std::sync::Arc;

use api::admission::Plugin;
use api::kinds::customresourcedefinition;
use api::lifecycle::{default_propagation, is_released, mark_deleted};
use api::options::Propagation;
use api::status::Status;
use api::value::ValueExt as _;
use serde_json::{Value, json};
use store::{Entry, Txn};

use super::create::typed;
use super::{ATTEMPTS, Call, Outcome, Registry, Shown, WriteError, old_object, restriction};

/// The options of a DELETE.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Deletion {
    pub(crate) grace: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) revision: Option<String>,
    /// What happens to dependents.
    pub(crate) propagation: Option<Propagation>,
}

impl Registry {
    /// Deletes an object, or marks it as deleted while it has finalizers or a grace period.
    pub(crate) async fn delete(
        &self,
        call: &Call<'_>,
        name: &str,
        options: &Deletion,
        warnings: &mut Vec<String>,
    ) -> Result<Outcome, Status> {
        self.admit_delete(call, name)?;
        for _ in 0..ATTEMPTS {
            let entry = self.get(call, name)?;
            match self.try_delete(call, name, options, &entry, warnings).await {
                Ok(outcome) => return Ok(outcome),
                Err(WriteError::Refused(status)) => return Err(status),
                Err(WriteError::Conflict) => {}
            }
        }
        Err(Status::too_many_requests("too many conflicting writes to the object; please try again"))
    }

    async fn try_delete(
        &self,
        call: &Call<'_>,
        name: &str,
        options: &Deletion,
        entry: &Arc<Entry>,
        warnings: &mut Vec<String>,
    ) -> Result<Outcome, WriteError> {
        let shown = self.conversion.entry(call.kind, entry.clone()).await.map_err(WriteError::Refused)?;
        let old = old_object(call.kind, &shown);
        if self.plugins.has(Plugin::NodeRestriction) {
            restriction::on_delete(call, name, &old).map_err(WriteError::Refused)?;
        }
        check_preconditions(call, name, options, &old).map_err(WriteError::Refused)?;
        self.admit_deletion(call, name, &old, options, warnings).await.map_err(WriteError::Refused)?;
        let mut new = old.clone();
        let propagation = options.propagation.or_else(|| default_propagation(call.kind, &old));
        mark_deleted(call.kind, &mut new, options.grace, propagation, call.now);
        if is_released(call.kind, &new) {
            let revision = self.remove(call, name, entry, &old).await?;
            return Ok(removed(call, name, entry, revision, new));
        }
        if new == old {
            return Ok(Outcome { code: 200, shown: Shown::Object(old) });
        }
        let stored = self.stored_form(call, &new).await?;
        let written = self.put(call, name, stored, entry.modified, Txn::default()).await?;
        new.put("metadata.resourceVersion", written.modified.to_string());
        Ok(Outcome { code: 200, shown: Shown::Object(typed(call.kind, new)) })
    }
}

/// The response to a delete that removed the object.
fn removed(call: &Call<'_>, name: &str, entry: &Entry, revision: u64, mut object: Value) -> Outcome {
    if call.kind.delete_returns_object {
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
            let path = format!("metadata.{field}");
            if !call.kind.rules.is_graceful() && !old_object(call.kind, entry).has(&path) {
                object.drop_path(&path);
            }
        }
        object.put("metadata.resourceVersion", revision.to_string());
        return Outcome { code: 200, shown: Shown::Object(object) };
    }
    let mut details = json!({"name": name, "kind": call.kind.plural, "uid": object.at("metadata.uid")});
    if !call.kind.group.is_empty() {
        details.put("group", call.kind.group);
    }
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
    Outcome { code: 200, shown: Shown::Status(status) }
}

pub(super) fn check_preconditions(call: &Call<'_>, name: &str, options: &Deletion, old: &Value) -> Result<(), Status> {
    // kube-apiserver names the kind here, where every other conflict names the resource.
    let kind = call.kind.resource();
    let refuse = |why: String| {
        let mut status = Status::conflict(kind, name, &why);
        status.message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.kind_group());
        if let Some(details) = &mut status.details {
            details.put("kind", kind.kind);
        }
        Err(status)
    };
    let (uid, revision) = (old.text("metadata.uid"), old.text("metadata.resourceVersion"));
    if call.kind.plural == customresourcedefinition::KIND.plural {
        // Definitions are compared before they are marked for deletion, with other messages.
        let differs = |wanted: &Option<String>, have: &str| wanted.clone().filter(|wanted| wanted != have);
        let why = match (differs(&options.uid, uid), differs(&options.revision, revision)) {
            (Some(wanted), _) => format!("UID in precondition: {wanted}, UID in object meta: {uid}"),
            (None, Some(wanted)) => {
                format!("ResourceVersion in precondition: {wanted}, ResourceVersion in object meta: {revision}")
            }
            (None, None) => return Ok(()),
        };
        return Err(Status::conflict(kind, name, &format!("precondition failed: {why}")));
    }
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        return refuse(format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have \
             been deleted and then recreated"
        ));
    }
    if let Some(wanted) = options.revision.as_deref().filter(|wanted| *wanted != revision) {
        return refuse(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({revision}). The object might have been modified"
        ));
    }
    Ok(())
}
