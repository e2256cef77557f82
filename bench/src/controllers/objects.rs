//! The load: Nodes, Services, and for each Service its Pods, bound to Nodes, with an address and ready.

use std::fmt;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::load::{self, NAMESPACE, SERVICES, Work};

/// Where Nodes are.
const NODES: &str = "/api/v1/nodes";
/// Where Pods are.
const PODS: &str = "/api/v1/namespaces/bench/pods";
/// How many Nodes there are.
const NODE_COUNT: usize = 10;
/// How many zones they are in.
const ZONES: usize = 3;
/// What a legacy Endpoints object holds at most.
const MOST_ADDRESSES: usize = 1000;

/// How many objects there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Services.
    pub services: usize,
    /// Pods of each.
    pub pods: usize,
}

/// A Pod of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The number of its Service.
    pub service: usize,
    /// Its number among the Pods of the Service.
    pub index: usize,
    /// Its number among all Pods.
    number: usize,
}

// === impl Size ===

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.services, self.pods)
    }
}

impl Size {
    /// A Pod.
    #[must_use]
    pub const fn pod(&self, service: usize, index: usize) -> Pod {
        Pod { service, index, number: service * self.pods + index }
    }

    /// All Pods, those of one Service beside each other.
    pub fn all_pods(&self) -> impl Iterator<Item = Pod> {
        let size = *self;
        (0..size.services).flat_map(move |service| (0..size.pods).map(move |index| size.pod(service, index)))
    }

    /// How many addresses the Endpoints object of a Service has.
    #[must_use]
    pub fn addresses(&self) -> usize {
        self.pods.min(MOST_ADDRESSES)
    }

    /// Makes the Services.
    #[must_use]
    pub fn create_services(&self) -> Vec<Work> {
        (0..self.services).map(|number| Work::create(SERVICES, &load::service(&load::service_name(number)))).collect()
    }

    /// Makes the Pods. Without a status they are endpoints of nothing yet.
    #[must_use]
    pub fn create_pods(&self) -> Vec<Work> {
        self.all_pods().map(|pod| Work::create(PODS, &pod.object())).collect()
    }

    /// Gives the Pods their addresses, and makes them ready.
    #[must_use]
    pub fn start_pods(&self, now: Timestamp) -> Vec<Work> {
        self.all_pods().map(|pod| Work::patch_status(PODS, &pod.name(), &pod.running(now))).collect()
    }
}

// === impl Pod ===

impl Pod {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}-{:05}", load::service_name(self.service), self.index)
    }

    /// Its address.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "there are fewer Pods than addresses in half of 10.0.0.0/8")]
    pub fn address(&self) -> String {
        Ipv4Addr::from_bits(u32::from_be_bytes([10, 128, 0, 0]) + 1 + self.number as u32).to_string()
    }

    /// The Node it is on.
    #[must_use]
    pub fn node(&self) -> String {
        node_name(self.number % NODE_COUNT)
    }

    fn object(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": self.name(), "namespace": NAMESPACE,
                "labels": {"app": load::service_name(self.service), "tier": "backend"}},
            "spec": {"nodeName": self.node(), "containers": [
                {"name": "web", "image": "web:1", "ports": [{"name": "http", "containerPort": 8080}]}]},
        })
    }

    fn running(&self, now: Timestamp) -> Value {
        let address = self.address();
        json!({"status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "startTime": second(now),
            "conditions": [condition(true, now)],
        }})
    }

    /// A change of its readiness.
    #[must_use]
    pub fn turn(&self, ready: bool, now: Timestamp) -> Work {
        Work::patch_status(PODS, &self.name(), &json!({"status": {"conditions": [condition(ready, now)]}}))
    }
}

/// Makes the Nodes.
#[must_use]
pub fn create_nodes() -> Vec<Work> {
    let node = |number: usize| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name(number), "labels": {
            "topology.kubernetes.io/zone": format!("zone-{}", number % ZONES)}}})
    };
    (0..NODE_COUNT).map(|number| Work::create(NODES, &node(number))).collect()
}

/// Makes the Nodes ready.
#[must_use]
pub fn start_nodes(now: Timestamp) -> Vec<Work> {
    let status = json!({"status": {"conditions": [condition(true, now)]}});
    (0..NODE_COUNT).map(|number| Work::patch_status(NODES, &node_name(number), &status)).collect()
}

fn node_name(number: usize) -> String {
    format!("node-{number:02}")
}

fn condition(ready: bool, now: Timestamp) -> Value {
    json!({"type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": second(now)})
}

/// Times in Kubernetes objects have no fractions.
fn second(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_pod_has_a_name_and_an_address_of_its_own() {
        let size = Size { services: 300, pods: 10 };
        let names: HashSet<String> = size.all_pods().map(|pod| pod.name()).collect();
        let addresses: HashSet<String> = size.all_pods().map(|pod| pod.address()).collect();
        assert_eq!((names.len(), addresses.len()), (3000, 3000));
        assert_eq!(size.pod(29, 9).address(), "10.128.1.44");
    }

    #[test]
    fn times_have_no_fractions() {
        assert_eq!(second(Timestamp::UNIX_EPOCH + jiff::Span::new().milliseconds(1500)), "1970-01-01T00:00:01Z");
    }
}
