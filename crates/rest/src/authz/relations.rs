//! Relations between Pods, nodes and objects, read from the store.
//!
//! In: the Pods of a namespace. Out: whether one of them runs on a node and refers to an object. Evaluated for each request of a node, so most
//! Pods are excluded by their bytes, without parsing.

use api::value::ValueExt as _;
use api::view::annotations::{LEADER_LEASE, SSL_CERT};
use api::{adopted, balancer_certificate, object, selector};
use serde_json::Value;
use store::{Entry, Key, Store, Table};

use super::gateways;
use super::ingresses::ServedIngresses;
use super::node::{Referenced, Relations};

const PODS: &str = "pods";
const BGP_PEERS: &str = "bgppeers";
const NODES: &str = "minions";
const SERVICES: &str = "services/specs";
const SECRETS: &str = "secrets";

/// The objects of a store.
pub struct Stored<'a> {
    /// The store.
    pub store: &'a dyn Store,
    /// Which Ingresses the nodes serve.
    pub ingresses: &'a ServedIngresses,
}

impl Relations for Stored<'_> {
    fn node_of(&self, namespace: &str, pod: &str) -> Option<String> {
        let entry = self.store.get(&Key::new(Table::named(PODS), format!("{namespace}/{pod}")))?;
        Some(object::decode_light(&entry.value).text("spec.nodeName").to_owned())
    }

    fn uses(&self, node: &str, namespace: &str, what: Referenced, name: &str) -> bool {
        if what == Referenced::Lease {
            return self.is_lease_of_a_leader(namespace, name);
        }
        if what == Referenced::Secret
            && (self.is_password_of_a_peer(node, namespace, name) || self.is_certificate_of_a_balancer(namespace, name))
        {
            return true;
        }
        if gateways::refer_to(self.store, what, namespace, name)
            || what == Referenced::Secret && self.ingresses.refer_to(self.store, namespace, name)
        {
            return true;
        }
        let Ok(found) = self.store.range(Table::named(PODS), &format!("{namespace}/"), None) else { return false };
        found.entries.iter().filter(|entry| may_say(entry, node) && may_use(entry, what, name)).any(|entry| {
            let pod = object::decode_light(&entry.value);
            // Adopted Pods refer to nothing, and nodes create them themselves.
            let is_run = adopted::how(&pod).is_none() && pod.text("spec.nodeName") == node;
            is_run && names(&pod, what).contains(&name)
        })
    }
}

impl Stored<'_> {
    /// A node may read the password of a BGPPeer that selects it: no other node opens that session.
    fn is_password_of_a_peer(&self, node: &str, namespace: &str, name: &str) -> bool {
        let Ok(found) = self.store.range(Table::named(BGP_PEERS), "", None) else { return false };
        found.entries.iter().filter(|entry| may_say(entry, name)).any(|entry| {
            let peer = object::decode_light(&entry.value);
            let secret = peer.at("spec.password.secretRef");
            let is_its = secret.text("namespace") == namespace && secret.text("name") == name;
            is_its && self.is_selected(node, peer.at("spec.nodeSelector"))
        })
    }

    /// Whether a node selector, absent for all Nodes, selects a Node by its labels.
    fn is_selected(&self, node: &str, selector: &Value) -> bool {
        if selector.is_null() {
            return true;
        }
        let Some(entry) = self.store.get(&Key::new(Table::named(NODES), node)) else { return false };
        selector::from_object(selector).is_some_and(|selector| selector.matches(&entry.facts, "", node))
    }

    /// Whether a Service of the namespace names a Lease whose holder gets its connections, on any node.
    fn is_lease_of_a_leader(&self, namespace: &str, name: &str) -> bool {
        let Ok(found) = self.store.range(Table::named(SERVICES), &format!("{namespace}/"), None) else { return false };
        found.entries.iter().filter(|entry| may_say(entry, LEADER_LEASE)).any(|entry| {
            let service = object::decode_light(&entry.value);
            service.at("metadata.annotations").get(LEADER_LEASE).and_then(Value::as_str).map(str::trim) == Some(name)
        })
    }

    /// Any node may receive packets for a load balancer, so every node may read the certificate of its Service.
    fn is_certificate_of_a_balancer(&self, namespace: &str, name: &str) -> bool {
        let secret = self.store.get(&Key::new(Table::named(SECRETS), format!("{namespace}/{name}")));
        let (Some(secret), Ok(found)) = (secret, self.store.range(Table::named(SERVICES), "", None)) else {
            return false;
        };
        let secret = object::decode_light(&secret.value);
        let mut asking = found.entries.iter().filter(|entry| may_say(entry, SSL_CERT));
        asking.any(|entry| balancer_certificate::may_serve(&object::decode_light(&entry.value), &secret))
    }
}

/// Whether an object may contain a text as a whole string.
pub(super) fn may_say(entry: &Entry, text: &str) -> bool {
    let quoted = format!("\"{text}\"");
    entry.value.windows(quoted.len()).any(|window| window == quoted.as_bytes())
}

fn may_use(entry: &Entry, what: Referenced, name: &str) -> bool {
    // The default account is not in the Pod.
    what == Referenced::ServiceAccount || may_say(entry, name)
}

/// The names of the objects that a Pod refers to.
fn names(pod: &Value, what: Referenced) -> Vec<&str> {
    let mut out: Vec<&str> = Vec::new();
    match what {
        Referenced::ServiceAccount => {
            let name = pod.text("spec.serviceAccountName");
            out.push(if name.is_empty() { "default" } else { name });
        }
        Referenced::ConfigMap => variables(pod, "configMapKeyRef", "configMapRef", &mut out),
        Referenced::Claim | Referenced::Lease => {}
        Referenced::Secret => {
            variables(pod, "secretKeyRef", "secretRef", &mut out);
            out.extend(pod.items("spec.imagePullSecrets").iter().map(|secret| secret.text("name")));
        }
    }
    let (own, projected) = match what {
        Referenced::Secret => ("secret.secretName", "secret.name"),
        Referenced::ConfigMap => ("configMap.name", "configMap.name"),
        Referenced::Claim => ("persistentVolumeClaim.claimName", ""),
        Referenced::ServiceAccount | Referenced::Lease => return out,
    };
    for volume in pod.items("spec.volumes") {
        out.push(volume.text(own));
        if !projected.is_empty() {
            out.extend(volume.items("projected.sources").iter().map(|source| source.text(projected)));
        }
        if what == Referenced::Secret {
            out.push(volume.text("csi.nodePublishSecretRef.name"));
        }
    }
    out.retain(|name| !name.is_empty());
    out
}

fn variables<'a>(pod: &'a Value, one: &str, all: &str, out: &mut Vec<&'a str>) {
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in pod.items(&format!("spec.{list}")) {
            out.extend(container.items("env").iter().map(|variable| variable.at("valueFrom").at(one).text("name")));
            out.extend(container.items("envFrom").iter().map(|source| source.at(all).text("name")));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_of_a_pod_are_found() {
        let pod = json!({"spec": {
            "imagePullSecrets": [{"name": "pull"}],
            "containers": [{
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}}, {"name": "B", "value": "x"}],
                "envFrom": [{"configMapRef": {"name": "all"}}],
            }],
            "initContainers": [{"envFrom": [{"secretRef": {"name": "first"}}]}],
            "volumes": [
                {"name": "v", "secret": {"secretName": "files"}}, {"name": "w", "configMap": {"name": "map"}},
                {"name": "c", "persistentVolumeClaim": {"claimName": "disk"}},
                {"name": "p", "projected": {"sources": [{"secret": {"name": "part"}}, {"configMap": {"name": "root"}}]}},
            ],
        }});
        assert_eq!(names(&pod, Referenced::Secret), ["one", "first", "pull", "files", "part"]);
        assert_eq!(names(&pod, Referenced::ConfigMap), ["all", "map", "root"]);
        assert_eq!(names(&pod, Referenced::Claim), ["disk"]);
        assert_eq!(names(&pod, Referenced::ServiceAccount), ["default"]);
    }
}
