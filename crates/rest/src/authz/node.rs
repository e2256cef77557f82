//! The Node authorizer: a node may use its own Node, its own Pods and what they refer to, and what every kubelet needs.
//!
//! In: a request of a user `system:node:NAME` in the group `system:nodes`, and [`Relations`] between Pods, nodes and objects. Out: allowed, or
//! denied with a reason. A compromised node can then affect only what it runs. NodeRestriction (`registry::restriction`) checks the objects as
//! well: names and labels of new objects are not known here.

use api::acme;
use api::bootstrap_token::CLUSTER_INFO;
use api::rbac::defaults::NODE_RULES;

use super::Attributes;
use crate::auth::User;

/// The group of nodes.
pub const NODES: &str = "system:nodes";
/// The prefix of user names of nodes.
pub(crate) const USER_PREFIX: &str = "system:node:";
/// The namespace of node heartbeats.
const LEASES: &str = "kube-node-lease";
/// The namespace and name prefixes of the Leases by which nodes elect who announces which address.
const ANNOUNCERS: &str = "kube-system";
const ANNOUNCER_PREFIXES: [&str; 2] = ["waypost-announcer-", "waypost-address-"];

/// Why a node may not use the CSINode of another.
pub(crate) const OTHER_CSI_NODE: &str = "can only access CSINode with the same name as the requesting node";

/// Whether a Lease is one of the announcers.
#[must_use]
pub fn is_of_announcers(namespace: &str, name: &str) -> bool {
    namespace == ANNOUNCERS && ANNOUNCER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Kinds that Pods refer to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Referenced {
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
    /// A PersistentVolumeClaim.
    Claim,
    /// A ServiceAccount.
    ServiceAccount,
    /// A Lease, by the leader of a Service.
    Lease,
}

/// Which Pods run where, and what they refer to.
pub trait Relations {
    /// The node of a Pod; `None` when the Pod does not exist.
    fn node_of(&self, namespace: &str, pod: &str) -> Option<String>;
    /// Whether a Pod of a node, or another object that a node serves, refers to an object.
    fn uses(&self, node: &str, namespace: &str, what: Referenced, name: &str) -> bool;
}

/// No Pods.
pub struct Nothing;

impl Relations for Nothing {
    fn node_of(&self, _: &str, _: &str) -> Option<String> {
        None
    }

    fn uses(&self, _: &str, _: &str, _: Referenced, _: &str) -> bool {
        false
    }
}

const READ: &[&str] = &["get", "list", "watch"];

/// Whether a user is a node.
#[must_use]
pub fn is_node(user: &User) -> bool {
    user.name.starts_with(USER_PREFIX) && user.is_in(NODES)
}

/// The name of the node of a user.
#[must_use]
pub fn name_of(user: &User) -> Option<&str> {
    user.name.strip_prefix(USER_PREFIX).filter(|name| !name.is_empty() && is_node(user))
}

/// Decides a request for a resource; `None` when the user is not a node.
pub(super) fn decide(attributes: &Attributes<'_>, relations: &dyn Relations) -> Option<Result<(), String>> {
    if !is_node(attributes.user) || attributes.path.is_some() {
        return None;
    }
    let Some(node) = name_of(attributes.user) else {
        return Some(Err(format!("unknown node for user {:?}", attributes.user.name)));
    };
    let request = NodeRequest { node, attributes, relations };
    Some(match (attributes.group, attributes.resource) {
        ("", "secrets") => request.read(Referenced::Secret),
        // The CAs to trust, which everyone may read: nodes follow their rotation.
        ("", "configmaps") if attributes.verb == "get" && (attributes.namespace, attributes.name) == CLUSTER_INFO => {
            Ok(())
        }
        // Any node may receive the validation of a host; what an answer has is shown to whoever asks for its token.
        ("", "configmaps")
            if READ.contains(&attributes.verb) && (attributes.namespace, attributes.name) == acme::ANSWERS =>
        {
            Ok(())
        }
        ("", "configmaps") => request.read(Referenced::ConfigMap),
        ("", "persistentvolumeclaims") => request.get(|request| request.used(Referenced::Claim)),
        // Volumes are neither bound nor attached here, so that no node has one.
        ("", "persistentvolumes") | ("storage.k8s.io", "volumeattachments") => request.get(NodeRequest::unrelated),
        ("storage.k8s.io", "csinodes") => request.csi_node(),
        ("", "serviceaccounts") => request.account(),
        ("", "pods") => request.pod(),
        ("", "nodes") => request.node(),
        ("coordination.k8s.io", "leases") => request.lease(),
        _ if NODE_RULES.iter().any(|rule| rule.allows(&attributes.request())) => Ok(()),
        _ => Err(String::new()),
    })
}

struct NodeRequest<'a> {
    node: &'a str,
    attributes: &'a Attributes<'a>,
    relations: &'a dyn Relations,
}

impl NodeRequest<'_> {
    fn unrelated(&self) -> Result<(), String> {
        Err(format!("no relationship found between node '{}' and this object", self.node))
    }

    fn used(&self, what: Referenced) -> Result<(), String> {
        let Attributes { namespace, name, .. } = *self.attributes;
        if self.relations.uses(self.node, namespace, what, name) { Ok(()) } else { self.unrelated() }
    }

    /// One object by its name; also a list or watch of one name.
    fn read(&self, what: Referenced) -> Result<(), String> {
        let attributes = self.attributes;
        let why = if !READ.contains(&attributes.verb) {
            "can only read resources of this type"
        } else if !attributes.subresource.is_empty() {
            "cannot read subresource"
        } else if attributes.namespace.is_empty() {
            "can only read namespaced object of this type"
        } else if attributes.name.is_empty() {
            "No Object name found"
        } else {
            return self.used(what);
        };
        Err(why.to_owned())
    }

    /// One object by its name, without its subresources.
    fn get(&self, is_related: impl FnOnce(&Self) -> Result<(), String>) -> Result<(), String> {
        match (self.attributes.verb, self.attributes.subresource) {
            ("get", "") => is_related(self),
            ("get", _) => Err("cannot get subresource".to_owned()),
            _ => Err("can only get individual resources of this type".to_owned()),
        }
    }

    /// Its own CSINode; NodeRestriction checks the name of a new one.
    fn csi_node(&self) -> Result<(), String> {
        let attributes = self.attributes;
        match attributes.verb {
            "create" | "get" | "update" | "patch" | "delete" if !attributes.subresource.is_empty() => {
                Err("cannot authorize CSINode subresources".to_owned())
            }
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" if attributes.name == self.node => Ok(()),
            "get" | "update" | "patch" | "delete" => Err(OTHER_CSI_NODE.to_owned()),
            _ => Err("can only get, create, update, patch, or delete a CSINode".to_owned()),
        }
    }

    /// Accounts of its Pods: read, and create tokens.
    fn account(&self) -> Result<(), String> {
        let attributes = self.attributes;
        match (attributes.verb, attributes.subresource) {
            ("get", "") => self.read(Referenced::ServiceAccount),
            ("create", _) if attributes.name.is_empty() => {
                Err("can only create tokens for individual service accounts".to_owned())
            }
            ("create", "token") => self.used(Referenced::ServiceAccount),
            ("create", _) => Err("can only create token subresource of serviceaccount".to_owned()),
            _ => Err("can only create tokens for individual service accounts".to_owned()),
        }
    }

    fn pod(&self) -> Result<(), String> {
        let attributes = self.attributes;
        let of = |name: &str| self.relations.node_of(attributes.namespace, name);
        let is_ours = |name: &str| of(name).as_deref() == Some(self.node);
        match (attributes.verb, attributes.subresource) {
            ("get", "") if is_ours(attributes.name) => Ok(()),
            ("get", "") => self.unrelated(),
            ("list" | "watch", "") if attributes.requires("spec.nodeName") == Some(self.node) => Ok(()),
            ("list" | "watch", "") if !attributes.name.is_empty() && is_ours(attributes.name) => Ok(()),
            ("list" | "watch", "") if !attributes.name.is_empty() => self.unrelated(),
            ("list" | "watch", "") => Err("can only list/watch pods with spec.nodeName field selector".to_owned()),
            // NodeRestriction checks the Pod inside the transaction (`registry::restriction`): what holds when the headers arrive may not hold
            // when the object is written.
            ("create", "" | "eviction") | ("delete", "") | ("update" | "patch", "status") => Ok(()),
            _ => Err(String::new()),
        }
    }

    fn node(&self) -> Result<(), String> {
        let attributes = self.attributes;
        match (attributes.verb, attributes.subresource) {
            // NodeRestriction checks the name of the Node.
            ("create", "") | ("update" | "patch", "" | "status") => Ok(()),
            (verb, "") if READ.contains(&verb) && attributes.name == self.node => Ok(()),
            (verb, "") if READ.contains(&verb) && attributes.name.is_empty() => {
                Err(format!("node '{}' cannot read all nodes, only its own Node object", self.node))
            }
            (verb, "") if READ.contains(&verb) => {
                Err(format!("node '{}' cannot read '{}', only its own Node object", self.node, attributes.name))
            }
            _ => Err(String::new()),
        }
    }

    fn lease(&self) -> Result<(), String> {
        let attributes = self.attributes;
        // Each node sends clients of a Service to the holder of the Lease that it names.
        if READ.contains(&attributes.verb) && !attributes.name.is_empty() && self.used(Referenced::Lease).is_ok() {
            return Ok(());
        }
        if !["get", "create", "update", "patch", "delete"].contains(&attributes.verb) {
            return Err("can only get, create, update, patch, or delete a node lease".to_owned());
        }
        // NodeRestriction checks the name of a new Lease.
        let is_new = attributes.verb == "create" && attributes.name.is_empty() && attributes.namespace == ANNOUNCERS;
        if is_new || is_of_announcers(attributes.namespace, attributes.name) {
            return Ok(());
        }
        if attributes.namespace != LEASES {
            return Err(format!("can only access leases in the {LEASES:?} system namespace"));
        }
        if attributes.verb != "create" && attributes.name != self.node {
            return Err("can only access node lease with the same name as the requesting node".to_owned());
        }
        Ok(())
    }
}
