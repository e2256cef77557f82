//! Which requests are signed, and which are approved automatically.
//!
//! [`signable`] applies to every request, also a manually approved one. [`decide`] approves:
//! - a client certificate of a node for a bootstrap token, unless a running Node has that name; and for the node itself;
//! - a serving certificate for the node itself, under its name and the addresses of its Node;
//! - a serving certificate for administrators: agents with an administrator's kubeconfig.
//!
//! Pure: a request and the cluster state in, a reason out.

use std::net::IpAddr;
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

/// Why a request is not signed, or not approved automatically.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RequestError {
    /// It violates the rules of its signer.
    #[error("{0}")]
    Invalid(String),
    /// The name of the node is reserved.
    #[error("{0} is a name of the API server or of Services, not of a node")]
    ReservedNode(String),
    /// A DNS name belongs to something else.
    #[error("{0:?} is {1}: no agent serves under it")]
    ReservedName(String, String),
    /// An address belongs to something else.
    #[error("{0} is {1}: no agent serves under it")]
    ReservedAddress(IpAddr, String),
    /// Its signer has no automatic approval.
    #[error("requests to {0} are approved by people")]
    Manual(String),
    /// The node of a bootstrap token is running.
    #[error(
        "Node {0} exists and had a heartbeat in the last {minutes} minutes: a token cannot take over a running node",
        minutes = RUNNING_WINDOW.as_secs() / 60
    )]
    Running(String),
    /// The user requests a certificate of another node.
    #[error("{user} may not ask for the certificate of node {node}")]
    OtherNode {
        /// The user.
        user: String,
        /// The node.
        node: String,
    },
    /// The user is not the serving node.
    #[error("{0} is not the node that would serve")]
    NotServing(String),
    /// The Node does not exist.
    #[error("there is no Node {0}")]
    NoNode(String),
    /// The Node has another name.
    #[error("{0} is not the name of Node {1}")]
    NotItsName(String, String),
    /// The Node does not have the address.
    #[error("{0} is not an address of Node {1}")]
    NotItsAddress(IpAddr, String),
}

/// Why a request is not approved automatically.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingReason {
    /// The reason.
    pub why: RequestError,
    /// When to decide again without a change of objects.
    pub requeue_after: Option<Duration>,
    /// Whether it only waits for its Node, as usual during a join: no Event is recorded.
    pub usual: bool,
}

impl From<RequestError> for PendingReason {
    fn from(why: RequestError) -> Self {
        Self { why, requeue_after: None, usual: false }
    }
}

/// Checks the rules of the signer and that names and addresses are not reserved.
///
/// # Errors
/// Why it is not signed, even if approved.
pub fn signable(object: &Value, context: &CheckContext<'_>) -> Result<Request, RequestError> {
    let signer = object.text("spec.signerName");
    let request = Request::of(object).map_err(RequestError::Invalid)?;
    signers::check(signer, &request, &object.texts("spec.usages")).map_err(RequestError::Invalid)?;
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
        return Err(RequestError::Manual(signer.to_owned()).into());
    };
    let is_itself = user == request.common_name && groups.contains(&NODES);
    match signer {
        NODE_CLIENT if is_itself => Ok("Auto approving self kubelet client certificate after SubjectAccessReview."),
        NODE_CLIENT if groups.contains(&api::bootstrap_token::GROUP) => match alive(node, view) {
            Some(requeue_after) => Err(PendingReason {
                why: RequestError::Running(node.to_owned()),
                requeue_after: Some(requeue_after),
                usual: false,
            }),
            None => Ok("Auto approving kubelet client certificate after SubjectAccessReview."),
        },
        NODE_CLIENT => Err(RequestError::OtherNode { user: user.to_owned(), node: node.to_owned() }.into()),
        _ if groups.contains(&MASTERS) => Ok("Asked for by an administrator."),
        _ if is_itself => {
            own_addresses(&request, node, &context).map_err(|why| PendingReason {
                why,
                requeue_after: None,
                usual: true,
            })?;
            Ok("Auto approving kubelet serving certificate.")
        }
        _ => Err(RequestError::NotServing(user.to_owned()).into()),
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
fn own_addresses(request: &Request, name: &str, context: &CheckContext<'_>) -> Result<(), RequestError> {
    let node = context.get("minions", name).ok_or_else(|| RequestError::NoNode(name.to_owned()))?;
    let own = addresses(&node);
    if let Some(other) = request.dns.iter().find(|asked| *asked != name || !own.contains(&name)) {
        return Err(RequestError::NotItsName(other.clone(), name.to_owned()));
    }
    let is_own = |ip: &IpAddr| own.iter().any(|own| own.parse() == Ok(*ip));
    match request.ips.iter().find(|ip| !is_own(ip)) {
        Some(other) => Err(RequestError::NotItsAddress(*other, name.to_owned())),
        None => Ok(()),
    }
}

/// The requesting node, by user name.
pub(super) fn requesting_node(object: &Value) -> Option<&str> {
    object.text("spec.username").strip_prefix(NODE_USER)
}
