//! The Pods of a node by address. Pure.
//!
//! In: Pods as they change. Out: which Pod an address belongs to. An address that is used again belongs to its new Pod: one
//! that has ended has no address, one that is being deleted yields to one that is not, and the last to appear wins.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::ip::parse_lenient;
use api::view::Pod;
use api::view::labels::POD_TEMPLATE_HASH;
use api::view::metadata::controller_of;

use super::Pods;

/// A Pod as the source of requests.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct PodSource {
    pub(crate) namespace: Arc<str>,
    /// `namespace/name`.
    pub(crate) key: Box<str>,
    /// `namespace/name` of what it belongs to: its Deployment, its other controller, or its application by label; its own
    /// name if it belongs to nothing.
    pub(crate) workload: Arc<str>,
}

/// The Pods of a node.
#[derive(Default)]
pub(crate) struct PodTable {
    pods: HashMap<Box<str>, Known>,
    /// Number of Pods that have appeared.
    turn: u64,
}

/// A Pod with addresses of its own.
#[derive(PartialEq, Eq)]
struct Known {
    uid: Box<str>,
    addresses: Vec<IpAddr>,
    is_leaving: bool,
    /// When it appeared with these addresses.
    turn: u64,
    source: Arc<PodSource>,
}

impl PodTable {
    /// Applies a change of a Pod; whether addresses may belong to others now.
    pub(crate) fn apply(&mut self, key: &str, pod: Option<&Pod>) -> bool {
        let addresses = pod.map(own_addresses).unwrap_or_default();
        let Some(pod) = pod.filter(|_| !addresses.is_empty()) else { return self.pods.remove(key).is_some() };
        let (uid, is_leaving, source) = (pod.metadata.uid.clone(), pod.metadata.is_deleting(), Arc::new(source(pod)));
        let before = self.pods.get(key);
        let same = before.filter(|before| before.uid == uid && before.addresses == addresses);
        let turn = same.map_or(self.turn + 1, |before| before.turn);
        let known = Known { uid, addresses, is_leaving, turn, source };
        if before == Some(&known) {
            return false;
        }
        self.turn = self.turn.max(turn);
        self.pods.insert(key.into(), known);
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// The Pod of each address.
    pub(crate) fn by_address(&self) -> Pods {
        let mut all: Vec<&Known> = self.pods.values().collect();
        all.sort_by_key(|known| (Reverse(known.is_leaving), known.turn));
        // Later ones replace earlier ones.
        let pairs = all.into_iter().flat_map(|known| known.addresses.iter().map(|ip| (*ip, Arc::clone(&known.source))));
        pairs.collect()
    }
}

/// The addresses of a Pod that no other has at the same time.
fn own_addresses(pod: &Pod) -> Vec<IpAddr> {
    if pod.spec.host_network || pod.has_ended() || (pod.metadata.is_deleting() && !pod.may_run()) {
        return Vec::new();
    }
    pod.addresses().filter_map(parse_lenient).map(|ip| ip.to_canonical()).collect()
}

fn source(pod: &Pod) -> PodSource {
    let metadata = &pod.metadata;
    PodSource {
        namespace: (&*metadata.namespace).into(),
        key: metadata.key().into(),
        workload: format!("{}/{}", metadata.namespace, workload(pod)).into(),
    }
}

/// The name of what a Pod belongs to. A ReplicaSet is named after its Deployment and the hash of the template.
fn workload(pod: &Pod) -> &str {
    let metadata = &pod.metadata;
    let label = |name: &str| metadata.labels.get(name).filter(|value| !value.is_empty());
    match controller_of(&metadata.owner_references) {
        Some(owner) if &*owner.kind == "ReplicaSet" => {
            let of_deployment =
                label(POD_TEMPLATE_HASH).and_then(|hash| owner.name.strip_suffix(hash)?.strip_suffix('-'));
            of_deployment.unwrap_or(&owner.name)
        }
        Some(owner) => &owner.name,
        None => label("app.kubernetes.io/name").or_else(|| label("app")).unwrap_or(&metadata.name),
    }
}
