//! CertificateSigningRequests: approves those of nodes, signs approved ones, deletes old ones.
//!
//! ```text
//! request ──approve──▶ Approved ──sign──▶ certificate          (or Failed)
//!    └── otherwise manual, with `kubectl certificate approve|deny`; an Event shows the subject and the reason
//! ```
//! In: CertificateSigningRequests, Nodes, Services. Out: conditions, certificates, Events. [`decide`] decides about approval and
//! signing; the CA keys are behind the [`Signer`] of the server.

pub mod decide;
pub mod reserved;
#[cfg(test)]
mod tests;

use std::time::Duration;

use api::kinds::certificatesigningrequest::request::Request;
use api::kinds::certificatesigningrequest::{
    API_CLIENT, APPROVAL, APPROVED, DENIED, FAILED, KIND, NODE_CLIENT, NODE_SERVING, has_condition, with_condition,
};
use api::object;
use api::value::ValueExt as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;
use store::{Entry, Key, Table};

use crate::cache::{Change, TypedChange};
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::event::{self, EventDetails, Reference};
use crate::settings::Settings;
use crate::signers::{CertificateRequest, SignError, Signer};
use crate::write::Write;

use self::reserved::CheckContext;

/// How long approved and denied requests are kept.
const KEPT_DECIDED: Duration = Duration::from_secs(3600);
/// How long pending requests are kept.
const KEPT_PENDING: Duration = Duration::from_secs(86_400);

/// Approves requests.
pub(crate) const APPROVER: Controller = Controller {
    name: "csrapproving",
    enabled: signs,
    affected_keys: pending,
    reconcile: approve,
    resync_period: None,
};

/// Signs approved requests.
pub(crate) const ISSUER: Controller =
    Controller { name: "csrsigning", enabled: signs, affected_keys: changed, reconcile: issue, resync_period: None };

/// Deletes old requests.
pub(crate) const CLEANER: Controller =
    Controller { name: "csrcleaner", enabled: always, affected_keys: changed, reconcile: clean, resync_period: None };

fn signs(settings: &Settings) -> bool {
    settings.signer.is_some()
}

fn changed(_: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    if change.is_of(KIND.table) && !change.deleted {
        affected.add(change.key());
    }
}

/// Affected by the request, and for serving certificates also by the Node with its addresses.
fn pending(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    changed(view, change, affected);
    if !matches!(change.typed, TypedChange::Node(_)) || change.deleted {
        return;
    }
    let Ok(found) = view.store.range(Table::named(KIND.table), "", None) else { return };
    for entry in found.entries {
        let request = object::decode_light(&entry.value);
        if decide::requesting_node(&request) == Some(change.key()) && is_pending(&request) {
            affected.add(&entry.key.name);
        }
    }
}

fn is_pending(request: &Value) -> bool {
    !has_condition(request, APPROVED) && !has_condition(request, DENIED)
}

/// A request as it is now.
fn current(view: &View<'_>, name: &str) -> Option<(std::sync::Arc<Entry>, Value)> {
    let entry = view.store.get(&Key::new(Table::named(KIND.table), name))?;
    let request = object::decode_bare(&entry.value);
    Some((entry, request))
}

fn part(part: &'static str, object: Value, entry: &Entry) -> Outcome {
    let write = Write::Subresource { table: KIND.table, part, object: Box::new(object), modified: entry.modified };
    Outcome::write(vec![write])
}

/// Whether this controller implements the signer of a request.
fn is_ours(request: &Value) -> bool {
    [NODE_CLIENT, NODE_SERVING, API_CLIENT].contains(&request.text("spec.signerName"))
}

fn approve(view: &View<'_>, name: &str) -> Outcome {
    let wanted = |request: &Value| is_pending(request) && is_ours(request);
    let Some((entry, request)) = current(view, name).filter(|(_, request)| wanted(request)) else {
        return Outcome::done();
    };
    match decide::decide(&request, view) {
        Ok(why) => {
            tracing::info!(request = name, user = request.text("spec.username"), why, "approve certificate request");
            part(APPROVAL, with_condition(&request, APPROVED, "AutoApproved", why, &view.now_text()), &entry)
        }
        Err(pending) => {
            tracing::debug!(request = name, why = %pending.why, "certificate request needs a person's approval");
            let event = (!pending.usual).then(|| needs_approval(view, &request, &pending.why.to_string()));
            Outcome { events: event.into_iter().collect(), requeue_after: pending.requeue_after, ..Outcome::default() }
        }
    }
}

/// An Event with the subject, for manual approval: `kubectl get csr` does not show it.
fn needs_approval(view: &View<'_>, request: &Value, why: &str) -> Write {
    let asked = Request::of(request).map(|asked| asked.summary()).unwrap_or_default();
    let message = format!("Not approved automatically: {why}. Requested: {asked}");
    let finding = EventDetails {
        controller: APPROVER.name,
        normal: true,
        reason: "ApprovalRequired",
        message: &message,
        now: &view.now_text(),
    };
    event::new_event(KIND.kind, "certificates.k8s.io/v1", &Reference::to(request), &finding)
}

fn issue(view: &View<'_>, name: &str) -> Outcome {
    let Some((entry, request)) = current(view, name) else { return Outcome::done() };
    let done = !request.text("status.certificate").is_empty() || has_condition(&request, FAILED);
    let granted = has_condition(&request, APPROVED) && !has_condition(&request, DENIED);
    let Some(signer) = view.settings.signer.as_ref().filter(|_| is_ours(&request) && granted && !done) else {
        return Outcome::done();
    };
    let failed = |reason: &str, why: &str| {
        tracing::warn!(request = name, why, "refuse to sign certificate");
        part("status", with_condition(&request, FAILED, reason, why, &view.now_text()), &entry)
    };
    let context = CheckContext { store: view.store, settings: view.settings };
    let asked = match decide::signable(&request, &context) {
        Ok(asked) => asked,
        Err(why) => return failed("SignerValidationFailure", &why.to_string()),
    };
    match signed(&request, &asked, signer, view) {
        Ok(pem) => {
            let mut issued = request;
            issued.put("status.certificate", STANDARD.encode(pem));
            part("status", issued, &entry)
        }
        Err(why) => failed("SigningFailed", &why.to_string()),
    }
}

fn signed(object: &Value, request: &Request, signer: &Signer, view: &View<'_>) -> Result<String, SignError> {
    let longest = view.settings.certificate_lifetime;
    let asked = object.at("spec.expirationSeconds").as_u64().map_or(longest, Duration::from_secs);
    signer.sign(&CertificateRequest {
        signer: object.text("spec.signerName"),
        request,
        usages: &object.texts("spec.usages"),
        lifetime: asked.min(longest),
        now: view.now,
    })
}

fn clean(view: &View<'_>, name: &str) -> Outcome {
    let Some((entry, request)) = current(view, name) else { return Outcome::done() };
    let made: Option<Timestamp> = request.text("metadata.creationTimestamp").parse().ok();
    let kept = if is_pending(&request) { KEPT_PENDING } else { KEPT_DECIDED };
    let age = made.and_then(|made| Duration::try_from(view.now.duration_since(made)).ok()).unwrap_or_default();
    match kept.checked_sub(age) {
        Some(rest) if !rest.is_zero() => Outcome { requeue_after: Some(rest), ..Outcome::done() },
        _ => Outcome::write(vec![Write::delete(&entry)]),
    }
}
