//! Which requests are signed, and which of them without a person's approval.
//!
//! [`signable`] holds for every request, also one that a person approved. Beyond that, [`decide`] approves:
//! - a client certificate of a node for whoever has a bootstrap token, unless a machine lives under that name; and for the node itself;
//! - a serving certificate for the node itself, under its name and the addresses of its Node;
//! - a serving certificate for administrators: agents that were given an administrator's kubeconfig.
//!
//! Pure: a request and a look at the cluster in, a reason out.

use std::time::Duration;

use api::kinds::certificatesigningrequest::request::Request;
use api::kinds::certificatesigningrequest::signers::{self, NODE_USER, NODES};
use api::kinds::certificatesigningrequest::{NODE_CLIENT, NODE_SERVING};
use api::value::ValueExt as _;
use serde_json::Value;
use store::{Key, Table};

use super::reserved::{self, Around, addresses};
use crate::controller::View;

const MASTERS: &str = "system:masters";
/// A Node that was heard of within this time is a running machine: a token does not give its identity to another one. Longer than a reboot takes.
const ALIVE: Duration = Duration::from_secs(300);

/// Why a person must decide.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waits {
    /// The reason.
    pub why: String,
    /// When the answer may be another one without any change of the objects.
    pub again: Option<Duration>,
    /// Whether it waits for its Node, which is usual while a machine joins: no person need hear of it.
    pub usual: bool,
}

impl From<String> for Waits {
    fn from(why: String) -> Self {
        Self { why, again: None, usual: false }
    }
}

/// Checks what holds for every request: the rules of its signer, and that the names are not somebody else's.
///
/// # Errors
/// Why it is not signed, whoever approves it.
pub fn signable(object: &Value, around: &Around<'_>) -> Result<Request, String> {
    let (request, signer) = (Request::of(object)?, object.text("spec.signerName"));
    signers::check(signer, &request, &object.texts("spec.usages"))?;
    if let Some(node) = signers::node_of(&request).filter(|_| [NODE_CLIENT, NODE_SERVING].contains(&signer)) {
        reserved::node_name(node)?;
        reserved::serving(&request, node, around)?;
    }
    Ok(request)
}

/// Approves a request, and says why; or says why a person must decide.
///
/// # Errors
/// The reason.
pub fn decide(object: &Value, view: &View<'_>) -> Result<&'static str, Waits> {
    let around = Around { store: view.store, settings: view.settings };
    let request = signable(object, &around)?;
    let (signer, user, groups) =
        (object.text("spec.signerName"), object.text("spec.username"), object.texts("spec.groups"));
    let Some(node) = signers::node_of(&request).filter(|_| [NODE_CLIENT, NODE_SERVING].contains(&signer)) else {
        return Err(format!("requests to {signer} are approved by people").into());
    };
    let is_itself = user == request.common_name && groups.contains(&NODES);
    match signer {
        NODE_CLIENT if is_itself => Ok("Auto approving self kubelet client certificate after SubjectAccessReview."),
        NODE_CLIENT if groups.contains(&api::bootstrap_token::GROUP) => match alive(node, view) {
            Some(again) => Err(Waits {
                why: format!(
                    "Node {node} exists and was heard of in the last {} minutes: a token does not take it over",
                    ALIVE.as_secs() / 60
                ),
                again: Some(again),
                usual: false,
            }),
            None => Ok("Auto approving kubelet client certificate after SubjectAccessReview."),
        },
        NODE_CLIENT => Err(format!("{user} may not ask for the certificate of node {node}").into()),
        _ if groups.contains(&MASTERS) => Ok("Asked for by an administrator."),
        _ if is_itself => {
            own_addresses(&request, node, &around).map_err(|why| Waits { why, again: None, usual: true })?;
            Ok("Auto approving kubelet serving certificate.")
        }
        _ => Err(format!("{user} is not the node that would serve").into()),
    }
}

/// How long a Node still counts as a running machine; nothing when there is none, or it is silent. What counts is when we heard of it, not
/// what its clock says.
fn alive(name: &str, view: &View<'_>) -> Option<Duration> {
    let node = view.world.nodes.get(name)?;
    let lease = Key::new(Table::named("leases"), format!("kube-node-lease/{name}"));
    // A Node that somebody made beforehand, and that no machine has spoken for yet, is free.
    if !node.ready && view.store.get(&lease).is_none() {
        return None;
    }
    let silent = view.instant.saturating_duration_since(view.world.nodes.last_heard(name)?);
    ALIVE.checked_sub(silent).filter(|rest| !rest.is_zero())
}

/// Whether all names and addresses in a request are those of its Node.
fn own_addresses(request: &Request, name: &str, around: &Around<'_>) -> Result<(), String> {
    let node = around.get("minions", name).ok_or_else(|| format!("there is no Node {name}"))?;
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

/// The node that asks, by its user name.
pub(super) fn asking_node(object: &Value) -> Option<&str> {
    object.text("spec.username").strip_prefix(NODE_USER)
}
