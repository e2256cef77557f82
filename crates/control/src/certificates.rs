//! CertificateSigningRequests: those of nodes are approved, approved ones are signed, old ones are deleted.
//!
//! ```text
//! request ──approve──▶ Approved ──sign──▶ certificate          (or Failed)
//!    └── not automatically: a person does, with `kubectl certificate approve|deny`; an Event shows the subject and the reason
//! ```
//! In: CertificateSigningRequests, Nodes, Services. Out: conditions, certificates, Events. What is approved and what is signed is decided by
//! [`decide`], which has no keys; the keys of the CAs stay behind the [`Signer`] that the server hands over.

pub mod decide;
pub mod reserved;
mod signer;
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

use crate::controller::{Controller, Verdict, View, Wakes, always};
use crate::report::{self, Finding, Reference};
use crate::settings::Settings;
use crate::world::{Change, What};
use crate::write::Write;

use self::reserved::Around;

pub use reserved::ServerNames;
pub use signer::{Order, Signer};

/// How long requests are kept that were granted or refused.
const KEPT_DECIDED: Duration = Duration::from_secs(3600);
/// How long requests are kept that nobody decides.
const KEPT_PENDING: Duration = Duration::from_secs(86_400);

/// Grants.
pub(crate) const APPROVER: Controller =
    Controller { name: "csrapproving", enabled: signs, concerns: waits, reconcile: approve, every: None };

/// Signs.
pub(crate) const ISSUER: Controller =
    Controller { name: "csrsigning", enabled: signs, concerns: changed, reconcile: issue, every: None };

/// Removes.
pub(crate) const CLEANER: Controller =
    Controller { name: "csrcleaner", enabled: always, concerns: changed, reconcile: clean, every: None };

fn signs(settings: &Settings) -> bool {
    settings.signer.is_some()
}

fn changed(_: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    if change.is_of(KIND.table) && !change.deleted {
        wakes.add(change.key());
    }
}

/// A request waits for itself, and one for serving also for the Node that says where it serves.
fn waits(view: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    changed(view, change, wakes);
    if !matches!(change.what, What::Node(_)) || change.deleted {
        return;
    }
    let Ok(found) = view.store.range(Table::named(KIND.table), "", None) else { return };
    for entry in found.entries {
        let request = object::decode_light(&entry.value);
        if decide::asking_node(&request) == Some(change.key()) && is_pending(&request) {
            wakes.add(&entry.key.name);
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

fn part(part: &'static str, object: Value, entry: &Entry) -> Verdict {
    let write = Write::Part { table: KIND.table, part, object: Box::new(object), modified: entry.modified };
    Verdict::write(vec![write])
}

/// Whether a request is for one of the signers that sign here.
fn is_ours(request: &Value) -> bool {
    [NODE_CLIENT, NODE_SERVING, API_CLIENT].contains(&request.text("spec.signerName"))
}

fn approve(view: &View<'_>, name: &str) -> Verdict {
    let wanted = |request: &Value| is_pending(request) && is_ours(request);
    let Some((entry, request)) = current(view, name).filter(|(_, request)| wanted(request)) else {
        return Verdict::settled();
    };
    match decide::decide(&request, view) {
        Ok(why) => {
            tracing::info!(request = name, user = request.text("spec.username"), why, "approve certificate request");
            part(APPROVAL, with_condition(&request, APPROVED, "AutoApproved", why, &view.now_text()), &entry)
        }
        Err(waits) => {
            tracing::debug!(request = name, why = waits.why, "certificate request needs a person's approval");
            let event = (!waits.usual).then(|| needs_approval(view, &request, &waits.why));
            Verdict { events: event.into_iter().collect(), again: waits.again, ..Verdict::default() }
        }
    }
}

/// Shows the subject to whoever decides: tables of requests have no column for it.
fn needs_approval(view: &View<'_>, request: &Value, why: &str) -> Write {
    let asked = Request::of(request).map(|asked| asked.summary()).unwrap_or_default();
    let message = format!("Not approved automatically: {why}. Requested: {asked}");
    let finding = Finding {
        controller: APPROVER.name,
        normal: true,
        reason: "ApprovalRequired",
        message: &message,
        now: &view.now_text(),
    };
    report::about(KIND.kind, "certificates.k8s.io/v1", &Reference::to(request), &finding)
}

fn issue(view: &View<'_>, name: &str) -> Verdict {
    let Some((entry, request)) = current(view, name) else { return Verdict::settled() };
    let done = !request.text("status.certificate").is_empty() || has_condition(&request, FAILED);
    let granted = has_condition(&request, APPROVED) && !has_condition(&request, DENIED);
    let Some(signer) = view.settings.signer.as_ref().filter(|_| is_ours(&request) && granted && !done) else {
        return Verdict::settled();
    };
    let failed = |reason: &str, why: &str| {
        tracing::warn!(request = name, why, "refuse to sign certificate");
        part("status", with_condition(&request, FAILED, reason, why, &view.now_text()), &entry)
    };
    let around = Around { store: view.store, settings: view.settings };
    let asked = match decide::signable(&request, &around) {
        Ok(asked) => asked,
        Err(why) => return failed("SignerValidationFailure", &why),
    };
    match signed(&request, &asked, signer, view) {
        Ok(pem) => {
            let mut issued = request;
            issued.put("status.certificate", STANDARD.encode(pem));
            part("status", issued, &entry)
        }
        Err(why) => failed("SigningFailed", &why),
    }
}

fn signed(object: &Value, request: &Request, signer: &Signer, view: &View<'_>) -> Result<String, String> {
    let longest = view.settings.certificate_lifetime;
    let asked = object.at("spec.expirationSeconds").as_u64().map_or(longest, Duration::from_secs);
    signer.sign(&Order {
        signer: object.text("spec.signerName"),
        request,
        usages: &object.texts("spec.usages"),
        lifetime: asked.min(longest),
        now: view.now,
    })
}

fn clean(view: &View<'_>, name: &str) -> Verdict {
    let Some((entry, request)) = current(view, name) else { return Verdict::settled() };
    let made: Option<Timestamp> = request.text("metadata.creationTimestamp").parse().ok();
    let kept = if is_pending(&request) { KEPT_PENDING } else { KEPT_DECIDED };
    let age = made.and_then(|made| Duration::try_from(view.now.duration_since(made)).ok()).unwrap_or_default();
    match kept.checked_sub(age) {
        Some(rest) if !rest.is_zero() => Verdict { again: Some(rest), ..Verdict::settled() },
        _ => Verdict::write(vec![Write::delete(&entry)]),
    }
}
