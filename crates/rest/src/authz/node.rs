//! What a node may do: its own Node, its own Pods and what they use, and what every kubelet must know of the cluster.
//!
//! In: a request of a user `system:node:NAME` of the group `system:nodes`, and [`Relations`], which know what runs where. Out: yes, or no with
//! a reason. A machine that was taken over can then do harm only to what it runs. What this lets through is looked at once more with the
//! object in hand (`registry::restriction`): names and labels of new objects are not known here.

use api::bootstrap_token::CLUSTER_INFO;
use api::rbac::defaults::NODE_RULES;

use super::Attributes;
use crate::auth::User;

/// The group of nodes.
pub const NODES: &str = "system:nodes";
/// What the user name of a node begins with.
pub(crate) const USER_PREFIX: &str = "system:node:";
/// Where nodes say that they live.
const LEASES: &str = "kube-node-lease";
/// Where nodes agree on who announces which address, and what the Leases for that are called.
const ANNOUNCERS: &str = "kube-system";
const ANNOUNCER_PREFIXES: [&str; 2] = ["waypost-announcer-", "waypost-address-"];

/// Whether a Lease is one by which nodes agree on who announces which address.
#[must_use]
pub fn is_of_announcers(namespace: &str, name: &str) -> bool {
    namespace == ANNOUNCERS && ANNOUNCER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// What Pods use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Used {
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
    /// A ServiceAccount.
    ServiceAccount,
}

/// What runs where, and what it uses.
pub trait Relations {
    /// The node of a Pod; nothing when there is no such Pod.
    fn node_of(&self, namespace: &str, pod: &str) -> Option<String>;
    /// Whether a Pod of a node uses something.
    fn uses(&self, node: &str, namespace: &str, what: Used, name: &str) -> bool;
}

/// Where nothing runs.
pub struct Nothing;

impl Relations for Nothing {
    fn node_of(&self, _: &str, _: &str) -> Option<String> {
        None
    }

    fn uses(&self, _: &str, _: &str, _: Used, _: &str) -> bool {
        false
    }
}

const READ: &[&str] = &["get", "list", "watch"];

/// Whether a user is a node.
#[must_use]
pub fn is_node(user: &User) -> bool {
    user.name.starts_with(USER_PREFIX) && user.is_in(NODES)
}

/// The name of the node that a user is.
#[must_use]
pub fn name_of(user: &User) -> Option<&str> {
    user.name.strip_prefix(USER_PREFIX).filter(|name| !name.is_empty() && is_node(user))
}

/// Decides a request about a resource; nothing when a node is not who asks.
pub(super) fn decide(asked: &Attributes<'_>, relations: &dyn Relations) -> Option<Result<(), String>> {
    if !is_node(asked.user) || asked.path.is_some() {
        return None;
    }
    let Some(node) = name_of(asked.user) else {
        return Some(Err(format!("unknown node for user {:?}", asked.user.name)));
    };
    let asks = Question { node, asked, relations };
    Some(match (asked.group, asked.resource) {
        ("", "secrets") => asks.read(Used::Secret),
        // The CAs to trust, which everybody may read: nodes follow their rotation.
        ("", "configmaps") if asked.verb == "get" && (asked.namespace, asked.name) == CLUSTER_INFO => Ok(()),
        ("", "configmaps") => asks.read(Used::ConfigMap),
        ("", "serviceaccounts") => asks.account(),
        ("", "pods") => asks.pod(),
        ("", "nodes") => asks.node(),
        ("coordination.k8s.io", "leases") => asks.lease(),
        _ if NODE_RULES.iter().any(|rule| rule.allows(&asked.request())) => Ok(()),
        _ => Err(String::new()),
    })
}

struct Question<'a> {
    node: &'a str,
    asked: &'a Attributes<'a>,
    relations: &'a dyn Relations,
}

impl Question<'_> {
    fn unrelated(&self) -> Result<(), String> {
        Err(format!("no relationship found between node '{}' and this object", self.node))
    }

    fn used(&self, what: Used) -> Result<(), String> {
        let Attributes { namespace, name, .. } = *self.asked;
        if self.relations.uses(self.node, namespace, what, name) { Ok(()) } else { self.unrelated() }
    }

    /// One object at a time, by its name; a list or a watch of one name is one object.
    fn read(&self, what: Used) -> Result<(), String> {
        let asked = self.asked;
        let why = if !READ.contains(&asked.verb) {
            "can only read resources of this type"
        } else if !asked.subresource.is_empty() {
            "cannot read subresource"
        } else if asked.namespace.is_empty() {
            "can only read namespaced object of this type"
        } else if asked.name.is_empty() {
            "No Object name found"
        } else {
            return self.used(what);
        };
        Err(why.to_owned())
    }

    /// Accounts of its Pods: it may read each, and have tokens for it.
    fn account(&self) -> Result<(), String> {
        let asked = self.asked;
        match (asked.verb, asked.subresource) {
            ("get", "") => self.read(Used::ServiceAccount),
            ("create", _) if asked.name.is_empty() => {
                Err("can only create tokens for individual service accounts".to_owned())
            }
            ("create", "token") => self.used(Used::ServiceAccount),
            ("create", _) => Err("can only create token subresource of serviceaccount".to_owned()),
            _ => Err("can only create tokens for individual service accounts".to_owned()),
        }
    }

    fn pod(&self) -> Result<(), String> {
        let asked = self.asked;
        let of = |name: &str| self.relations.node_of(asked.namespace, name);
        let is_ours = |name: &str| of(name).as_deref() == Some(self.node);
        match (asked.verb, asked.subresource) {
            ("get", "") if is_ours(asked.name) => Ok(()),
            ("get", "") => self.unrelated(),
            ("list" | "watch", "") if asked.requires("spec.nodeName") == Some(self.node) => Ok(()),
            ("list" | "watch", "") if !asked.name.is_empty() && is_ours(asked.name) => Ok(()),
            ("list" | "watch", "") if !asked.name.is_empty() => self.unrelated(),
            ("list" | "watch", "") => Err("can only list/watch pods with spec.nodeName field selector".to_owned()),
            // Which Pods these may be is decided on the object, inside the transaction (`registry::restriction`): what is true when the
            // headers arrive need not be true when the object is written.
            ("create", "" | "eviction") | ("delete", "") | ("update" | "patch", "status") => Ok(()),
            _ => Err(String::new()),
        }
    }

    fn node(&self) -> Result<(), String> {
        let asked = self.asked;
        match (asked.verb, asked.subresource) {
            // Which Node this may be is decided on the object as well.
            ("create", "") | ("update" | "patch", "" | "status") => Ok(()),
            (verb, "") if READ.contains(&verb) && asked.name == self.node => Ok(()),
            (verb, "") if READ.contains(&verb) && asked.name.is_empty() => {
                Err(format!("node '{}' cannot read all nodes, only its own Node object", self.node))
            }
            (verb, "") if READ.contains(&verb) => {
                Err(format!("node '{}' cannot read '{}', only its own Node object", self.node, asked.name))
            }
            _ => Err(String::new()),
        }
    }

    fn lease(&self) -> Result<(), String> {
        let asked = self.asked;
        if !["get", "create", "update", "patch", "delete"].contains(&asked.verb) {
            return Err("can only get, create, update, patch, or delete a node lease".to_owned());
        }
        // The name of a new Lease is looked at with the object in hand.
        let is_new = asked.verb == "create" && asked.name.is_empty() && asked.namespace == ANNOUNCERS;
        if is_new || is_of_announcers(asked.namespace, asked.name) {
            return Ok(());
        }
        if asked.namespace != LEASES {
            return Err(format!("can only access leases in the {LEASES:?} system namespace"));
        }
        if asked.verb != "create" && asked.name != self.node {
            return Err("can only access node lease with the same name as the requesting node".to_owned());
        }
        Ok(())
    }
}
