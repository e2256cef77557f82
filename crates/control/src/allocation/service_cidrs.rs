//! `ServiceCIDR` objects: finalizer, Ready condition, and deletion when no address needs them.

use std::net::IpAddr;

use api::value::ValueExt as _;
use ipnet::IpNet;
use serde_json::{Value, json};

use super::snapshot::{Setting, Snapshot, StoredCidr};
use crate::event::{self, EventDetails, Reference};
use crate::write::Write;

/// The finalizer that keeps a ServiceCIDR while its addresses are in use.
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// The default ServiceCIDR.
pub(crate) const DEFAULT: &str = "kubernetes";

/// The writes that reconcile all `ServiceCIDR` objects.
#[must_use]
pub fn reconcile(snapshot: &Snapshot, setting: &Setting<'_>) -> Vec<Vec<Write>> {
    let mut out = Vec::new();
    if !snapshot.cidrs.contains_key(DEFAULT) {
        out.push(vec![Write::create("servicecidrs", default_object(setting))]);
    }
    if let Some(seen) = snapshot.cidrs.get(DEFAULT) {
        out.extend(as_flagged(seen, setting));
    }
    for (name, seen) in &snapshot.cidrs {
        if let Some(write) = one(snapshot, setting, name, seen) {
            out.push(vec![write]);
        }
    }
    out
}

/// Syncs the default ServiceCIDR with the flags where that is safe: a second family is added; another CIDR is only reported, because Services have
/// addresses of the old one.
pub(crate) fn as_flagged(seen: &StoredCidr, setting: &Setting<'_>) -> Option<Vec<Write>> {
    let flagged: Vec<String> = setting.ranges.addresses.iter().map(ToString::to_string).collect();
    let have = seen.object.texts("spec.cidrs");
    if have == flagged {
        return None;
    }
    if have.len() == 1 && flagged.len() == 2 && have[0] == flagged[0] {
        let mut object = seen.object.clone();
        object.put("spec.cidrs", flagged);
        return Some(vec![Write::Object { table: "servicecidrs", object: Box::new(object), modified: seen.modified }]);
    }
    let message = format!(
        "The default ServiceCIDR [{}] does not match the flag configurations [{}]",
        have.join(" "),
        flagged.join(" ")
    );
    tracing::warn!("{message}; the ServiceCIDR object stays in use");
    let finding = EventDetails {
        controller: "kubernetes-service-cidr-controller",
        normal: false,
        reason: "KubernetesDefaultServiceCIDRInconsistent",
        message: &message,
        now: setting.now,
    };
    Some(vec![event::new_event("ServiceCIDR", "networking.k8s.io/v1", &Reference::to(&seen.object), &finding)])
}

/// The default ServiceCIDR of the flags.
pub(crate) fn default_object(setting: &Setting<'_>) -> Value {
    let cidrs: Vec<String> = setting.ranges.addresses.iter().map(ToString::to_string).collect();
    json!({
        "metadata": {"name": DEFAULT, "uid": uuid::Uuid::new_v4().to_string(), "creationTimestamp": setting.now,
                     "finalizers": [FINALIZER]},
        "spec": {"cidrs": cidrs},
        "status": {"conditions": [ready("True", "", "Kubernetes default Service CIDR is ready", setting.now)]},
    })
}

fn ready(status: &str, reason: &str, message: &str, now: &str) -> Value {
    json!({"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": now})
}

fn one(snapshot: &Snapshot, setting: &Setting<'_>, name: &str, seen: &StoredCidr) -> Option<Write> {
    let mut object = seen.object.clone();
    if object.has("metadata.deletionTimestamp") {
        if !is_needed(snapshot, name, &object) {
            return Some(release(seen, object));
        }
        let message =
            "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
        set_ready(&mut object, "False", "Terminating", message, setting.now);
    } else {
        let finalizers = object.texts("metadata.finalizers");
        if !finalizers.contains(&FINALIZER) {
            let mut all: Vec<String> = finalizers.into_iter().map(str::to_owned).collect();
            all.push(FINALIZER.to_owned());
            object.put("metadata.finalizers", all);
        }
        if !object.items("status.conditions").iter().any(|condition| condition.text("type") == "Ready") {
            set_ready(&mut object, "True", "", "Kubernetes Service CIDR is ready", setting.now);
        }
    }
    (object != seen.object).then(|| Write::Object {
        table: "servicecidrs",
        object: Box::new(object),
        modified: seen.modified,
    })
}

/// Removes the finalizer of a deleted ServiceCIDR.
fn release(seen: &StoredCidr, mut object: Value) -> Write {
    let left: Vec<String> =
        object.texts("metadata.finalizers").into_iter().filter(|name| *name != FINALIZER).map(str::to_owned).collect();
    object.put("metadata.finalizers", left);
    Write::Object { table: "servicecidrs", object: Box::new(object), modified: seen.modified }
}

fn set_ready(object: &mut Value, status: &str, reason: &str, message: &str, now: &str) {
    let mut conditions: Vec<Value> = object.items("status.conditions").to_vec();
    let wanted = ready(status, reason, message, now);
    match conditions.iter_mut().find(|condition| condition.text("type") == "Ready") {
        Some(have) if have.text("status") == status && have.text("message") == message => return,
        Some(have) => *have = wanted,
        None => conditions.push(wanted),
    }
    object.put("status.conditions", conditions);
}

/// Whether an address is in this ServiceCIDR and in no other.
fn is_needed(snapshot: &Snapshot, name: &str, object: &Value) -> bool {
    let mine = ranges(object);
    let others: Vec<IpNet> = snapshot
        .cidrs
        .iter()
        .filter(|(other, seen)| *other != name && !seen.object.has("metadata.deletionTimestamp"))
        .flat_map(|(_, seen)| ranges(&seen.object))
        .collect();
    snapshot.addresses.keys().filter_map(|text| text.parse::<IpAddr>().ok()).any(|address| {
        mine.iter().any(|range| range.contains(&address)) && !others.iter().any(|range| range.contains(&address))
    })
}

fn ranges(object: &Value) -> Vec<IpNet> {
    object.texts("spec.cidrs").iter().filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use store::allocation::Ranges;

    use super::*;
    use crate::allocation::snapshot::StoredAddress;

    fn snapshot(cidr: &str, deleted: bool, address: &str) -> Snapshot {
        let mut object = json!({"metadata": {"name": "extra", "finalizers": [FINALIZER]}, "spec": {"cidrs": [cidr]},
            "status": {"conditions": [ready("True", "", "Kubernetes Service CIDR is ready", "t")]}});
        if deleted {
            object.put("metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
        }
        Snapshot {
            cidrs: [("extra".to_owned(), StoredCidr { object, modified: 5 })].into(),
            addresses: [(address.to_owned(), StoredAddress::default())].into(),
            ..Snapshot::default()
        }
    }

    fn run(snapshot: &Snapshot) -> Vec<Write> {
        let ranges = Ranges { addresses: vec!["10.96.0.0/16".parse().expect("a range")], ports: 30000..=32767 };
        reconcile(snapshot, &Setting { ranges: &ranges, now: "2026-01-01T00:00:00Z" }).concat()
    }

    #[test]
    fn the_default_service_cidr_is_created_when_missing() {
        let writes = run(&Snapshot::default());
        assert!(
            matches!(&writes[..], [Write::Object { object, modified: 0, .. }] if object.texts("spec.cidrs") == ["10.96.0.0/16"])
        );
    }

    #[test]
    fn a_deleted_service_cidr_is_kept_while_an_address_needs_it() {
        let writes = run(&snapshot("10.97.0.0/24", true, "10.97.0.9"));
        let says_terminating = |write: &Write| {
            matches!(write, Write::Object { object, .. }
            if object.items("status.conditions").iter().any(|c| c.text("reason") == "Terminating"))
        };
        assert!(writes.iter().any(says_terminating));
        let writes = run(&snapshot("10.97.0.0/24", true, "10.98.0.9"));
        let released = |write: &Write| {
            matches!(write, Write::Object { object, modified: 5, .. }
            if object.items("metadata.finalizers").is_empty())
        };
        assert!(writes.iter().any(released));
    }

    #[test]
    fn an_unchanged_service_cidr_is_not_written() {
        let mut done = snapshot("10.97.0.0/24", false, "10.97.0.9");
        let mut default = done.cidrs["extra"].clone();
        default.object.put("spec.cidrs", json!(["10.96.0.0/16"]));
        done.cidrs.insert(DEFAULT.to_owned(), default);
        assert_eq!(run(&done), vec![]);
    }

    #[test]
    fn the_default_service_cidr_follows_the_flags_only_where_that_is_safe() {
        let seen = snapshot("10.96.0.0/16", false, "10.96.0.9").cidrs["extra"].clone();
        let parse = |text: &str| text.parse().expect("a range");
        let both = Ranges { addresses: vec![parse("10.96.0.0/16"), parse("fd00::/112")], ports: 30000..=32767 };
        let writes = as_flagged(&seen, &Setting { ranges: &both, now: "t" }).expect("a change");
        assert!(matches!(&writes[..], [Write::Object { table: "servicecidrs", object, .. }]
            if object.texts("spec.cidrs") == ["10.96.0.0/16", "fd00::/112"]));
        let other = Ranges { addresses: vec![parse("10.97.0.0/16")], ports: 30000..=32767 };
        let writes = as_flagged(&seen, &Setting { ranges: &other, now: "t" }).expect("a report");
        assert!(matches!(&writes[..], [Write::Object { table: "events", .. }]));
    }
}
