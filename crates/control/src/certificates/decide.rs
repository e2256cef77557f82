//! Which requests are signed, and which are approved automatically.
//!
//! [`signable`] applies to every request, also a manually approved one. [`decide`] approves:
//! - a client certificate of a node for a bootstrap token, unless a running Node has that name; and for the node itself;
//! - a serving certificate for the node itself, under its name and the addresses of its Node;
//! - a serving certificate for administrators: agents with an administrator's kubeconfig.
//!
//! Pure: a request and the cluster state in, a reason out.

use std::time::Duration;

use api::kinds::certificatesigningrequest::request::Request;
use api::kinds::certificatesigningrequest::signers::{self, NODE_USER, NODES};
use api::kinds::certificatesigningrequest::{NODE_CLIENT, NODE_SERVING};
use api::value::ValueExt as _;
use serde_json::Value;
use store::{Key, Table};

use super::reserved::{self, CheckContext, addresses};
use crate::controller::View;

const MASTERS: &str = "system:masters";
/// A Node with a heartbeat within this time is running: a token cannot take over its identity. Longer than a reboot.
const RUNNING_WINDOW: Duration = Duration::from_secs(300);

/// Why a request is not approved automatically.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingReason {
    /// The reason.
    pub why: String,
    /// When to decide again without a change of objects.
    pub requeue_after: Option<Duration>,
    /// Whether it only waits for its Node, as usual during a join: no Event is recorded.
    pub usual: bool,
}

impl From<String> for PendingReason {
    fn from(why: String) -> Self {
        Self { why, requeue_after: None, usual: false }
    }
}

/// Checks the rules of the signer and that names and addresses are not reserved.
///
/// # Errors
/// Why it is not signed, even if approved.
pub fn signable(object: &Value, context: &CheckContext<'_>) -> Result<Request, String> {
    let (request, signer) = (Request::of(object)?, object.text("spec.signerName"));
    signers::check(signer, &request, &object.texts("spec.usages"))?;
    if let Some(node) = signers::node_of(&request).filter(|_| [NODE_CLIENT, NODE_SERVING].contains(&signer)) {
        reserved::node_name(node)?;
        reserved::serving(&request, node, context)?;
    }
    Ok(request)
}

/// Approves a request with a reason.
///
/// # Errors
/// Why it needs manual approval.
pub fn decide(object: &Value, view: &View<'_>) -> Result<&'static str, PendingReason> {
    let context = CheckContext { store: view.store, settings: view.settings };
    let request = signable(object, &context)?;
    let (signer, user, groups) =
        (object.text("spec.signerName"), object.text("spec.username"), object.texts("spec.groups"));
    let Some(node) = signers::node_of(&request).filter(|_| [NODE_CLIENT, NODE_SERVING].contains(&signer)) else {
        return Err(format!("requests to {signer} are approved by people").into());
    };
    let is_itself = user == request.common_name && groups.contains(&NODES);
    match signer {
        NODE_CLIENT if is_itself => Ok("Auto approving self kubelet client certificate after SubjectAccessReview."),
        NODE_CLIENT if groups.contains(&api::bootstrap_token::GROUP) => match alive(node, view) {
            Some(requeue_after) => Err(PendingReason {
                why: format!(
                    "Node {node} exists and had a heartbeat in the last {} minutes: a token cannot take over a running node",
                    RUNNING_WINDOW.as_secs() / 60
                ),
                requeue_after: Some(requeue_after),
                usual: false,
            }),
            None => Ok("Auto approving kubelet client certificate after SubjectAccessReview."),
        },
        NODE_CLIENT => Err(format!("{user} may not ask for the certificate of node {node}").into()),
        _ if groups.contains(&MASTERS) => Ok("Asked for by an administrator."),
        _ if is_itself => {
            own_addresses(&request, node, &context).map_err(|why| PendingReason {
                why,
                requeue_after: None,
                usual: true,
            })?;
            Ok("Auto approving kubelet serving certificate.")
        }
        _ => Err(format!("{user} is not the node that would serve").into()),
    }
}

/// How long a Node still counts as running; `None` when it does not exist or has no recent heartbeat.
fn alive(name: &str, view: &View<'_>) -> Option<Duration> {
    let node = view.cache.nodes.get(name)?;
    let lease = Key::new(Table::named("leases"), format!("kube-node-lease/{name}"));
    // A Node object that was created in advance and never had a heartbeat may be claimed.
    if !node.ready && view.store.get(&lease).is_none() {
        return None;
    }
    let silent = view.instant.saturating_duration_since(view.cache.nodes.last_heartbeat(name)?);
    RUNNING_WINDOW.checked_sub(silent).filter(|rest| !rest.is_zero())
}

/// Whether all names and addresses in a request are those of its Node.
fn own_addresses(request: &Request, name: &str, context: &CheckContext<'_>) -> Result<(), String> {
    let node = context.get("minions", name).ok_or_else(|| format!("there is no Node {name}"))?;
    let own = addresses(&node);
    if let Some(other) = request.dns.iter().find(|asked| *asked != name || !own.contains(&name)) {
        return Err(format!("{other} is not the name of Node {name}"));
    }
    let is_own = |ip: &std::net::IpAddr| own.iter().any(|own| own.parse() == Ok(*ip));
    match request.ips.iter().find(|ip| !is_own(ip)) {
        Some(other) => Err(format!("{other} is not an address of Node {name}")),
        None => Ok(()),
    }
}

/// The requesting node, by user name.
pub(super) fn requesting_node(object: &Value) -> Option<&str> {
    object.text("spec.username").strip_prefix(NODE_USER)
}
