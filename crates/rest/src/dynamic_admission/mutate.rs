//! Mutating webhooks: sequential, with reinvocation.
//!
//! Each sees the result of the one before. When one changed the object, plugins run again, and webhooks that were called before the change and
//! have `reinvocationPolicy: IfNeeded` are called once more.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::decode::{self, TypeError};
use api::dynamic_admission::request::{Form, Request};
use api::field::quote;
use api::options::FieldValidation;
use api::patch::{Patch, PatchKind};
use api::schema::{self, TypeId};
use api::status::Status;
use api::value::ValueExt as _;
use api::{kinds, patch};
use serde_json::Value;

use super::exchange::{Failure, ask, settle};
use super::review::Answer;
use super::rights::Rights;
use super::webhook::Webhook;
use super::{DynamicAdmission, Notes, Refill};
use crate::auth::User;

impl DynamicAdmission {
    /// Runs mutating webhooks on the object of a request; null where there is none (DELETE). `request.object` is ignored.
    ///
    /// # Errors
    /// The refusal of a webhook, or a failed call.
    pub(crate) async fn mutate(
        &self,
        request: &Request<'_>,
        user: &User,
        object: &mut Value,
        refill: &Refill<'_>,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        let configuration = self.configuration();
        let webhooks: Vec<&Arc<Webhook>> = configuration.mutating.values().flatten().collect();
        if webhooks.is_empty() || !self.asks_mutating || request.is_exempt() {
            return Ok(());
        }
        let mut invocations = Invocations::default();
        let run = Run { admission: self, request, user, webhooks: &webhooks };
        run.round(0, object, &mut invocations, notes).await?;
        if !invocations.changed {
            return Ok(());
        }
        let left = object.clone();
        refill(object)?;
        if *object != left {
            invocations.require_again();
        }
        invocations.second_round = true;
        run.round(1, object, &mut invocations, notes).await
    }
}

/// Tracks which webhooks are called again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Invocations {
    second_round: bool,
    /// A webhook changed the object.
    changed: bool,
    /// Called since the last change, with `IfNeeded`.
    seen: BTreeSet<String>,
    /// Called again in the second round.
    again: BTreeSet<String>,
}

impl Invocations {
    /// The object changed: earlier webhooks must see it again.
    fn require_again(&mut self) {
        self.again.append(&mut self.seen);
    }

    fn wants(&self, webhook: &Webhook) -> bool {
        !self.second_round || self.again.contains(&webhook.id)
    }

    fn invoked(&mut self, webhook: &Webhook, changed: bool) {
        if changed {
            self.changed = true;
            self.require_again();
        }
        if webhook.reinvoked {
            self.seen.insert(webhook.id.clone());
        }
    }
}

/// A request in progress.
struct Run<'a> {
    admission: &'a DynamicAdmission,
    request: &'a Request<'a>,
    user: &'a User,
    webhooks: &'a [&'a Arc<Webhook>],
}

impl Run<'_> {
    async fn round(
        &self,
        round: usize,
        object: &mut Value,
        invocations: &mut Invocations,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        for (index, webhook) in self.webhooks.iter().enumerate() {
            if !invocations.wants(webhook) {
                continue;
            }
            let current = object.clone();
            let request = Request { object: &current, ..*self.request };
            let Some(form) = self.applies(webhook, &request)? else { continue };
            let key = format!("mutation.webhook.admission.k8s.io/round_{round}_index_{index}");
            let answered = ask(&*self.admission.caller, webhook, &request, &form, true, notes).await;
            let patched = answered.and_then(|answer| patched(webhook, &request, &form, &answer));
            let changed = matches!(&patched, Ok(Some(new)) if *new != current);
            notes.annotations.push((key.clone(), mutation(webhook, changed)));
            invocations.invoked(webhook, changed);
            let done = settle(webhook, &request, patched, &format!("failed-open.{key}"), notes)?;
            if let Some(Some(new)) = done {
                *object = new;
            }
        }
        Ok(())
    }

    fn applies(&self, webhook: &Webhook, request: &Request<'_>) -> Result<Option<Form>, Status> {
        let rights = Rights::new(&self.admission.authorizer, self.user, request);
        webhook.applies(request, &|name| self.admission.namespace_labels(name), &rights)
    }
}

/// The audit annotation whether a webhook changed the object. The patch itself is not recorded: it may hold secrets.
fn mutation(webhook: &Webhook, changed: bool) -> String {
    let text = |text: &str| Value::from(text).to_string();
    let (configuration, name) = (text(&webhook.configuration), text(&webhook.name));
    format!("{{\"configuration\":{configuration},\"webhook\":{name},\"mutated\":{changed}}}")
}

/// The object after the patch of a response; `None` without a patch.
fn patched(webhook: &Webhook, request: &Request<'_>, form: &Form, answer: &Answer) -> Result<Option<Value>, Failure> {
    let internal = |why: String| Failure::Refused(Box::new(Status::internal(why)));
    if answer.patch.is_empty() {
        return Ok(None);
    }
    let undecodable = |why: &dyn std::fmt::Display| {
        Failure::Calling(format!("received undecodable patch in webhook response: {why}"))
    };
    let (operations, _) = decode::parse_json(&answer.patch).map_err(|error| undecodable(&error))?;
    if !operations.is_array() && !operations.is_null() {
        return Err(undecodable(&"json: cannot unmarshal object into Go value of type jsonpatch.Patch"));
    }
    if operations.as_array().is_none_or(Vec::is_empty) {
        return Ok(None);
    }
    if !request.object.is_object() {
        let name = quote(&webhook.name);
        let why = "attempted to modify the object, which is not supported for this operation";
        return Err(internal(format!("admission webhook {name} {why}")));
    }
    if answer.patch_type != "JSONPatch" {
        return Err(Failure::Calling(format!("unsupported patch type {}", quote(&answer.patch_type))));
    }
    let (object, _) = request.objects(form);
    let parsed = Patch::parse(PatchKind::Json, &answer.patch, FieldValidation::Ignore);
    let applied = parsed.and_then(|patch| request.kind.patch(&patch, &object));
    let mut new = applied.map_err(|error: patch::PatchError| internal(error.to_string()))?;
    // A webhook cannot change the kind of an object.
    for field in ["kind", "apiVersion"] {
        new.put(field, object.at(field).clone());
    }
    complete(request, form, &mut new).map_err(|error| internal(error.to_string()))?;
    Ok(Some(new))
}

/// Checks a patched object against its type, sets defaults, and converts it back into the form of the request.
fn complete(request: &Request<'_>, form: &Form, object: &mut Value) -> Result<(), TypeError> {
    let (kind, api_version) = (object.at("kind").clone(), object.at("apiVersion").clone());
    let shown_as = kinds::find(form.group, form.version, form.resource).unwrap_or(request.kind);
    let checked = match exchanged_type(request) {
        _ if request.subresource.is_none() => shown_as.check(object),
        Some(ty) => decode::check(ty, object),
        None => Ok(Vec::new()),
    };
    checked?;
    object.put("kind", kind);
    object.put("apiVersion", api_version);
    let is_whole = request.kind.exchanged(request.subresource).2 == request.kind.kind;
    if is_whole {
        shown_as.rules.default(object);
    }
    if !std::ptr::eq(shown_as, request.kind) && request.subresource.is_none() {
        let stored = shown_as.rules.shown_to_stored(object.take());
        *object = request.kind.rules.stored_to_shown(stored);
        object.put("kind", request.kind.kind);
        object.put("apiVersion", request.kind.api_version());
    }
    Ok(())
}

/// The type of the body at the URL of a request; options of connections have none.
fn exchanged_type(request: &Request<'_>) -> Option<TypeId> {
    let (group, _, name) = request.kind.exchanged(request.subresource);
    let table = match group {
        "" => "core",
        group => group.split('.').next().unwrap_or_default(),
    };
    schema::find(&format!("{table}.{name}"))
}

#[cfg(test)]
mod tests;
