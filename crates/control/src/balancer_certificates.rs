//! Resolves certificate ARNs of load balancers to Secrets, for nodes that may not list Secrets.
//!
//! In: Services of type LoadBalancer that name their certificate by an ARN, and Secrets that claim one. Out: the annotation
//! `waypost.dev/certificate-secret` of the Service, while such a Secret exists. A node may read only the Secrets that load balancers refer to
//! (`rest::authz`), by name.

#[cfg(test)]
mod tests;

use api::balancer_certificate::{FOUND, TYPE, arn, claims};
use api::object;
use api::value::ValueExt as _;
use api::view::annotations::SSL_CERT;
use serde_json::Value;
use store::{Entry, Key, Table};

use crate::cache::{Change, TypedChange};
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::write::Write;

const SERVICES: &str = "services/specs";
const SECRETS: &str = "secrets";

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "balancer-certificates", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    match &change.typed {
        TypedChange::Service(_) if contains(&change.entry, SSL_CERT) || contains(&change.entry, FOUND) => {
            affected.add(change.key());
        }
        TypedChange::Other if change.is_of(SECRETS) => {
            let entries = [Some(&change.entry), change.previous.as_ref()];
            if !entries.into_iter().flatten().any(|entry| contains(entry, TYPE)) {
                return;
            }
            let (namespace, _) = crate::objects::split(change.key());
            let requests = view.cache.load_balancers.requests();
            let asks = requests.filter(|request| request.names().0 == namespace && contains(&request.entry, SSL_CERT));
            asks.for_each(|request| affected.add(request.key()));
        }
        _ => {}
    }
}

/// Whether an object contains a text, without parsing it.
fn contains(entry: &Entry, text: &str) -> bool {
    entry.value.windows(text.len()).any(|window| window == text.as_bytes())
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let Some(entry) = view.store.get(&Key::new(Table::named(SERVICES), key)) else { return Outcome::done() };
    let mut service = object::decode_bare(&entry.value);
    if service.has("metadata.deletionTimestamp") {
        return Outcome::done();
    }
    let found = arn(&service).and_then(|arn| claimant(view, service.text("metadata.namespace"), arn));
    let mut notes = service.map("metadata.annotations").cloned().unwrap_or_default();
    let is_said = match &found {
        Some(name) => notes.insert(FOUND.to_owned(), name.as_str().into()) == Some(Value::from(name.as_str())),
        None => notes.remove(FOUND).is_none(),
    };
    if is_said {
        return Outcome::done();
    }
    if notes.is_empty() {
        service.drop_path("metadata.annotations");
    } else {
        service.put("metadata.annotations", notes);
    }
    // The status subresource does not change the spec.
    let object = Box::new(service);
    Outcome::write(vec![Write::Subresource { table: SERVICES, part: "status", object, modified: entry.modified }])
}

/// The Secret of a namespace with this ARN; the first by name, as in the gateway.
fn claimant(view: &View<'_>, namespace: &str, arn: &str) -> Option<String> {
    let found = view.store.range(Table::named(SECRETS), &format!("{namespace}/"), None).ok()?;
    let secrets =
        found.entries.iter().filter(|entry| contains(entry, TYPE)).map(|entry| object::decode_light(&entry.value));
    secrets.filter(|secret| claims(secret, arn)).map(|secret| secret.text("metadata.name").to_owned()).min()
}
