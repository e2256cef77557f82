//! Which Secret an ARN means: written down at the Service that asks for it, for nodes that may not look through all Secrets.
//!
//! In: Services of type LoadBalancer that name their certificate by an ARN, and Secrets that claim one. Out: the annotation
//! `waypost.dev/certificate-secret` of the Service, as long as there is such a Secret. A node may read exactly the Secrets that load
//! balancers ask for (`rest::authz`), by name; this is how it learns the name.

#[cfg(test)]
mod tests;

use api::balancer_certificate::{FOUND, TYPE, arn, claims};
use api::object;
use api::value::ValueExt as _;
use api::view::annotations::SSL_CERT;
use serde_json::Value;
use store::{Entry, Key, Table};

use crate::controller::{Controller, Verdict, View, Wakes, always};
use crate::world::{Change, What};
use crate::write::Write;

const SERVICES: &str = "services/specs";
const SECRETS: &str = "secrets";

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "balancer-certificates", enabled: always, concerns, reconcile, every: None };

fn concerns(view: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    match &change.what {
        What::Service(_) if says(&change.entry, SSL_CERT) || says(&change.entry, FOUND) => wakes.add(change.key()),
        What::Other if change.is_of(SECRETS) => {
            let entries = [Some(&change.entry), change.previous.as_ref()];
            if !entries.into_iter().flatten().any(|entry| says(entry, TYPE)) {
                return;
            }
            let (namespace, _) = crate::objects::split(change.key());
            let requests = view.world.load_balancers.requests();
            let asks = requests.filter(|request| request.names().0 == namespace && says(&request.entry, SSL_CERT));
            asks.for_each(|request| wakes.add(request.key()));
        }
        _ => {}
    }
}

/// Whether a text stands in an object, without reading it.
fn says(entry: &Entry, text: &str) -> bool {
    entry.value.windows(text.len()).any(|window| window == text.as_bytes())
}

fn reconcile(view: &View<'_>, key: &str) -> Verdict {
    let Some(entry) = view.store.get(&Key::new(Table::named(SERVICES), key)) else { return Verdict::settled() };
    let mut service = object::decode_bare(&entry.value);
    if service.has("metadata.deletionTimestamp") {
        return Verdict::settled();
    }
    let found = arn(&service).and_then(|arn| claimant(view, service.text("metadata.namespace"), arn));
    let mut notes = service.map("metadata.annotations").cloned().unwrap_or_default();
    let is_said = match &found {
        Some(name) => notes.insert(FOUND.to_owned(), name.as_str().into()) == Some(Value::from(name.as_str())),
        None => notes.remove(FOUND).is_none(),
    };
    if is_said {
        return Verdict::settled();
    }
    if notes.is_empty() {
        service.drop_path("metadata.annotations");
    } else {
        service.put("metadata.annotations", notes);
    }
    // As with the finalizer of a load balancer: nothing of the spec is touched.
    let object = Box::new(service);
    Verdict::write(vec![Write::Part { table: SERVICES, part: "status", object, modified: entry.modified }])
}

/// The Secret of a namespace that claims an ARN; of several the first by name, as the gateway chooses.
fn claimant(view: &View<'_>, namespace: &str, arn: &str) -> Option<String> {
    let found = view.store.range(Table::named(SECRETS), &format!("{namespace}/"), None).ok()?;
    let secrets =
        found.entries.iter().filter(|entry| says(entry, TYPE)).map(|entry| object::decode_light(&entry.value));
    secrets.filter(|secret| claims(secret, arn)).map(|secret| secret.text("metadata.name").to_owned()).min()
}
