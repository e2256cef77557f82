//! Renders states as statuses: merges into the stored status, and says when there is nothing to write.
//!
//! In: the stored `status`, the state, the time. Out: the new `status`, or `None` when it would be equal. Conditions,
//! parents and ancestors of other controllers stay where they are; entries of ours that no longer apply are removed.

mod conditions;
mod parents;

#[cfg(test)]
mod tests;

use api::value::ValueExt as _;
use api::view::gateway_api::{GROUP, ParentRef};
use serde_json::{Map, Value, json};

use crate::classes::FEATURES;
use crate::cluster::objects::{name_of, namespace_of};
use crate::cluster::{
    Ancestor, ClassState, GatewayState, ListenerSetState, ListenerState, ParentState, PolicyState, RouteState,
    TrafficPolicyState, Verdict,
};

/// The most entries that the schemas allow.
const MOST_PARENTS: usize = 32;
const MOST_ANCESTORS: usize = 16;
const MOST_ADDRESSES: usize = 16;

/// The status of a GatewayClass.
#[must_use]
pub fn class(stored: &Value, state: &ClassState, now: &str) -> Option<Value> {
    let found = [("Accepted", Some(&state.accepted)), ("SupportedVersion", Some(&state.supported_version))];
    let mut status = object(stored);
    status
        .insert("conditions".to_owned(), conditions::merge(stored.items("conditions"), &found, state.generation, now));
    let features: Vec<_> = FEATURES.iter().map(|name| json!({ "name": name })).collect();
    status.insert("supportedFeatures".to_owned(), features.into());
    changed(stored, status)
}

/// The status of a Gateway.
#[must_use]
pub fn gateway(stored: &Value, state: &GatewayState, now: &str) -> Option<Value> {
    let found = [
        ("Accepted", Some(&state.accepted)),
        ("Programmed", Some(&state.programmed)),
        ("ResolvedRefs", Some(&state.resolved_refs)),
        ("AddressesAssigned", Some(&state.addresses_assigned)),
        ("InsecureFrontendValidationMode", state.insecure_frontend.as_ref()),
    ];
    let mut status = object(stored);
    status
        .insert("conditions".to_owned(), conditions::merge(stored.items("conditions"), &found, state.generation, now));
    let listeners = listeners(stored, &state.listeners, state.generation, now);
    status.insert("listeners".to_owned(), listeners);
    let addresses = state.addresses.iter().take(MOST_ADDRESSES);
    let addresses: Vec<_> = addresses.map(|address| json!({ "type": address.kind, "value": address.value })).collect();
    status.insert("addresses".to_owned(), addresses.into());
    status.insert("attachedListenerSets".to_owned(), state.attached_sets.into());
    changed(stored, status)
}

/// The status of a ListenerSet.
#[must_use]
pub fn listener_set(stored: &Value, state: &ListenerSetState, now: &str) -> Option<Value> {
    let found = [("Accepted", Some(&state.accepted)), ("Programmed", Some(&state.programmed))];
    let mut status = object(stored);
    status
        .insert("conditions".to_owned(), conditions::merge(stored.items("conditions"), &found, state.generation, now));
    let listeners = listeners(stored, &state.listeners, state.generation, now);
    status.insert("listeners".to_owned(), listeners);
    changed(stored, status)
}

/// The status of a route.
#[must_use]
pub fn route(stored: &Value, state: &RouteState, now: &str) -> Option<Value> {
    let own = state.parents.iter().map(|parent| {
        let ParentState { accepted, resolved_refs, partially_invalid, .. } = parent;
        let found = [
            ("Accepted", Some(accepted)),
            ("ResolvedRefs", Some(resolved_refs)),
            ("PartiallyInvalid", partially_invalid.as_ref()),
        ];
        (reference(&parent.parent_ref), found.to_vec())
    });
    let list = parents::PARENTS.merge(stored.items("parents"), own.collect(), state.generation, now);
    with_list(stored, "parents", list, MOST_PARENTS)
}

/// The status of a BackendTLSPolicy.
#[must_use]
pub fn policy(stored: &Value, state: &PolicyState, now: &str) -> Option<Value> {
    let found = [("Accepted", Some(&state.accepted)), ("ResolvedRefs", Some(&state.resolved_refs))];
    with_ancestors(stored, &state.ancestors, &found, state.generation, now)
}

/// The status of a TrafficPolicy.
#[must_use]
pub fn traffic_policy(stored: &Value, state: &TrafficPolicyState, now: &str) -> Option<Value> {
    let found = [("Accepted", Some(&state.accepted)), ("ResolvedRefs", Some(&state.resolved_refs))];
    with_ancestors(stored, &state.ancestors, &found, state.generation, now)
}

/// Conditions by type; none removes a condition.
type Found<'a> = [(&'static str, Option<&'a Verdict>)];

/// The status of a policy, with the same conditions for each of its ancestors.
fn with_ancestors(
    stored: &Value,
    ancestors: &[Ancestor],
    found: &Found<'_>,
    generation: i64,
    now: &str,
) -> Option<Value> {
    let own = ancestors.iter().map(|Ancestor { group, kind, key }| {
        let (namespace, name) = (namespace_of(key), name_of(key));
        let reference = json!({ "group": group, "kind": kind, "namespace": namespace, "name": name });
        (reference, found.to_vec())
    });
    let list = parents::ANCESTORS.merge(stored.items("ancestors"), own.collect(), generation, now);
    with_list(stored, "ancestors", list, MOST_ANCESTORS)
}

/// A status is an object, also before the first one is written.
fn object(stored: &Value) -> Map<String, Value> {
    stored.as_object().cloned().unwrap_or_default()
}

fn changed(stored: &Value, status: Map<String, Value>) -> Option<Value> {
    let status = Value::Object(status);
    (status != *stored).then_some(status)
}

/// A status with a list of entries of several controllers. An empty list is not written where there was none.
fn with_list(stored: &Value, key: &str, mut list: Vec<Value>, most: usize) -> Option<Value> {
    if list.is_empty() && stored.items(key).is_empty() {
        return None;
    }
    list.truncate(most);
    let mut status = object(stored);
    status.insert(key.to_owned(), list.into());
    changed(stored, status)
}

/// One entry for each listener of the spec, in its order.
fn listeners(stored: &Value, states: &[ListenerState], generation: i64, now: &str) -> Value {
    let stored = stored.items("listeners");
    let entry = |state: &ListenerState| {
        let old = stored.iter().find(|entry| entry.text("name") == &*state.id.name).unwrap_or(&Value::Null);
        let found = [
            ("Accepted", Some(&state.accepted)),
            ("Programmed", Some(&state.programmed)),
            ("ResolvedRefs", Some(&state.resolved_refs)),
            ("Conflicted", Some(&state.conflicted)),
            ("OverlappingTLSConfig", state.overlapping_tls.as_ref()),
        ];
        let kinds: Vec<_> =
            state.supported_kinds.iter().map(|kind| json!({ "group": GROUP, "kind": kind.name() })).collect();
        json!({
            "name": &*state.id.name,
            "attachedRoutes": state.attached_routes,
            "supportedKinds": kinds,
            "conditions": conditions::merge(old.items("conditions"), &found, generation, now),
        })
    };
    states.iter().map(entry).collect::<Vec<_>>().into()
}

/// A reference to a parent as in the spec of a route.
fn reference(parent: &ParentRef) -> Value {
    let mut reference = json!({ "name": parent.name });
    let texts = [
        ("group", &parent.group),
        ("kind", &parent.kind),
        ("namespace", &parent.namespace),
        ("sectionName", &parent.section_name),
    ];
    for (key, text) in texts {
        if let Some(text) = text {
            reference[key] = (&**text).into();
        }
    }
    if let Some(port) = parent.port {
        reference["port"] = port.into();
    }
    reference
}
