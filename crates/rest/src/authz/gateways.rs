//! Secrets and ConfigMaps of Gateways: any node may receive packets for a Gateway, so every node may read its
//! certificates and CAs, and the passwords of TrafficPolicies.
//!
//! In: the objects of the Gateway API and TrafficPolicies in the store. Out: whether one of them refers to an object, and may.

use api::view::gateway_api::{BackendTlsPolicy, GROUP, Gateway, GatewayClass, ListenerSet, Material, ReferenceGrant};
use api::view::{self, Secret, TrafficPolicy};
use serde::de::DeserializeOwned;
use store::{Entry, Key, Store, Table};

use super::node::Referenced;
use super::relations::may_say;

const CLASSES: &str = "gateway.networking.k8s.io/gatewayclasses";
const GATEWAYS: &str = "gateway.networking.k8s.io/gateways";
const SETS: &str = "gateway.networking.k8s.io/listenersets";
const POLICIES: &str = "gateway.networking.k8s.io/backendtlspolicies";
const GRANTS: &str = "gateway.networking.k8s.io/referencegrants";
const TRAFFIC_POLICIES: &str = "trafficpolicies";
const SECRETS: &str = "secrets";
/// The only type of Secret with certificates; TrafficPolicies use others.
pub(super) const TLS: &str = "kubernetes.io/tls";

/// Whether a Gateway, a ListenerSet, a BackendTLSPolicy or a TrafficPolicy refers to an object.
pub(super) fn refer_to(store: &dyn Store, what: Referenced, namespace: &str, name: &str) -> bool {
    let key: Box<str> = format!("{namespace}/{name}").into();
    let material = match what {
        Referenced::Secret => match secret(store, &key) {
            Some(secret) if &*secret.kind == TLS => Material::Secret(key),
            Some(secret) if secret.has_passwords() => return have_passwords(store, namespace, name),
            _ => return false,
        },
        Referenced::ConfigMap => Material::ConfigMap(key),
        _ => return false,
    };
    let gateway = |gateway: &Gateway| {
        gateway.materials().contains(&material)
            && is_ours(store, &gateway.spec.gateway_class_name)
            && may(store, ("Gateway", &gateway.metadata.namespace), (what, namespace, name))
    };
    let set = |set: &ListenerSet| {
        set.materials().contains(&material)
            && may(store, ("ListenerSet", &set.metadata.namespace), (what, namespace, name))
    };
    any(store, GATEWAYS, name, gateway)
        || any(store, SETS, name, set)
        || any(store, POLICIES, name, |policy: &BackendTlsPolicy| policy.materials().contains(&material))
}

/// Whether a TrafficPolicy has its passwords in a Secret. Policies of other namespaces cannot.
fn have_passwords(store: &dyn Store, namespace: &str, name: &str) -> bool {
    let material = Material::Secret(format!("{namespace}/{name}").into());
    let Ok(found) = store.range(Table::named(TRAFFIC_POLICIES), &format!("{namespace}/"), None) else { return false };
    let policies = found.entries.iter().filter(|entry| may_say(entry, name));
    policies.filter_map(|entry| read::<TrafficPolicy>(entry)).any(|policy| policy.materials().contains(&material))
}

fn secret(store: &dyn Store, key: &str) -> Option<Secret> {
    store.get(&Key::new(Table::named(SECRETS), key)).and_then(|entry| read(&entry))
}

fn is_ours(store: &dyn Store, class: &str) -> bool {
    let entry = store.get(&Key::new(Table::named(CLASSES), class));
    entry.and_then(|entry| read::<GatewayClass>(&entry)).is_some_and(|class| class.is_ours())
}

/// Whether an object may refer to one of another namespace.
fn may(store: &dyn Store, (kind, from): (&str, &str), (what, namespace, name): (Referenced, &str, &str)) -> bool {
    let to = if what == Referenced::Secret { "Secret" } else { "ConfigMap" };
    let permits = |grant: &ReferenceGrant| {
        *grant.metadata.namespace == *namespace && grant.permits((GROUP, kind, from), ("", to, name))
    };
    from == namespace || any(store, GRANTS, from, permits)
}

/// Whether any object of a table that may contain a text is like this.
fn any<T: DeserializeOwned>(store: &dyn Store, table: &str, text: &str, holds: impl Fn(&T) -> bool) -> bool {
    let Ok(found) = store.range(Table::named(table), "", None) else { return false };
    found
        .entries
        .iter()
        .filter(|entry| may_say(entry, text))
        .filter_map(|entry| read(entry))
        .any(|object| holds(&object))
}

pub(super) fn read<T: DeserializeOwned>(entry: &Entry) -> Option<T> {
    view::parse(&entry.value).ok()
}

#[cfg(test)]
mod tests;
