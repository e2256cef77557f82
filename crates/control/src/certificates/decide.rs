//! Who may have which certificate without asking people.
//!
//! - A machine that comes with a bootstrap token may become a node, and a node may renew its own certificate.
//! - A node may serve under the addresses of its Node, as far as they are nobody else's. A node writes those itself, and the authority is also
//!   the one that clients trust for the API: whoever had a certificate for the server's address could be the server for them.
//! - Whoever may do everything may also have this: agents that were given an administrator's kubeconfig.
//!
//! Pure: a request and a look at the objects in, a reason out.

use std::net::IpAddr;

use api::kinds::certificatesigningrequest::request::Request;
use api::kinds::certificatesigningrequest::{API_CLIENT, NODE_CLIENT, NODE_SERVING};
use api::object;
use api::value::ValueExt as _;
use serde_json::Value;
use store::{Key, Store, Table};

/// What the user name of a node begins with.
pub const NODE_USER: &str = "system:node:";
const NODES: &str = "system:nodes";
const MASTERS: &str = "system:masters";

const CLIENT: &str = "client auth";
const SERVER: &str = "server auth";
const SIGNATURE: &str = "digital signature";
/// Only RSA keys need it, and those that ask for it get it.
const ENCIPHERMENT: &str = "key encipherment";

/// What is looked at besides the request.
pub struct Around<'a> {
    /// Objects as they are now.
    pub store: &'a dyn Store,
}

/// Grants a request, and says why; or says why people must decide.
///
/// # Errors
/// The reason.
pub fn decide(object: &Value, around: &Around<'_>) -> Result<&'static str, String> {
    let signer = object.text("spec.signerName");
    let request = Request::of(object)?;
    let user = object.text("spec.username");
    let groups = object.texts("spec.groups");
    let node = request.common_name.strip_prefix(NODE_USER).filter(|name| !name.is_empty());
    let node = node.ok_or("the subject is not that of a node")?;
    if request.organizations != [NODES] {
        return Err("the organization is not that of nodes".to_owned());
    }
    usages_fit(signer, &object.texts("spec.usages"))?;
    let is_itself = user == request.common_name && groups.contains(&NODES);
    match signer {
        NODE_CLIENT => {
            if !request.dns.is_empty() || !request.ips.is_empty() || request.other_names {
                return Err("a client has no other names than its subject".to_owned());
            }
            if is_itself {
                Ok("Auto approving self kubelet client certificate after SubjectAccessReview.")
            } else if groups.contains(&api::bootstrap_token::GROUP) {
                Ok("Auto approving kubelet client certificate after SubjectAccessReview.")
            } else {
                Err(format!("{user} may not ask for the certificate of a node"))
            }
        }
        NODE_SERVING if groups.contains(&MASTERS) => Ok("Asked for by an administrator."),
        NODE_SERVING if is_itself => {
            serving(&request, node, around).map(|()| "Auto approving kubelet serving certificate.")
        }
        NODE_SERVING => Err(format!("{user} is not the node that would serve")),
        other => Err(format!("requests to {other} are for people to decide")),
    }
}

/// Whether what a certificate is for is what its signer signs.
///
/// # Errors
/// What does not fit.
pub fn usages_fit(signer: &str, usages: &[&str]) -> Result<(), String> {
    let main = if signer == NODE_SERVING { SERVER } else { CLIENT };
    let known = [main, SIGNATURE, ENCIPHERMENT];
    // Who is not a node may leave the signature out.
    let needed = if signer == API_CLIENT { &known[..1] } else { &known[..2] };
    if usages.iter().all(|usage| known.contains(usage)) && needed.iter().all(|usage| usages.contains(usage)) {
        return Ok(());
    }
    Err(format!("usages {usages:?} do not fit the signer {signer}, which signs for {}", known.join(", ")))
}

/// Whether a node may serve under the names in a request.
fn serving(request: &Request, name: &str, around: &Around<'_>) -> Result<(), String> {
    if request.other_names || (request.dns.is_empty() && request.ips.is_empty()) {
        return Err("a server has names and addresses, and nothing else".to_owned());
    }
    let node = around.get("minions", name).ok_or_else(|| format!("there is no Node {name}"))?;
    let own = addresses(&node);
    for asked in &request.dns {
        // Only its own name: other names could be those of the server.
        if asked != name || !own.contains(&name) {
            return Err(format!("{asked} is not the name of Node {name}"));
        }
    }
    let others = around.all("minions");
    let others: Vec<&str> =
        others.iter().filter(|other| other.text("metadata.name") != name).flat_map(addresses).collect();
    for ip in &request.ips {
        let text = ip.to_string();
        if !own.iter().any(|own| own.parse() == Ok(*ip)) {
            return Err(format!("{text} is not an address of Node {name}"));
        }
        if ip.is_loopback() || ip.is_unspecified() || others.iter().any(|other| other.parse() == Ok(*ip)) {
            return Err(format!("{text} is also an address of others"));
        }
        if around.leads_to_services(*ip) {
            return Err(format!("{text} is the address of the server, or of a Service"));
        }
    }
    Ok(())
}

fn addresses(node: &Value) -> Vec<&str> {
    node.items("status.addresses").iter().map(|address| address.text("address")).collect()
}

impl Around<'_> {
    fn get(&self, table: &str, name: &str) -> Option<Value> {
        let entry = self.store.get(&Key::new(Table::named(table), name))?;
        Some(object::decode_light(&entry.value))
    }

    fn all(&self, table: &str) -> Vec<Value> {
        let found = self.store.range(Table::named(table), "", None).map(|range| range.entries).unwrap_or_default();
        found.iter().map(|entry| object::decode_light(&entry.value)).collect()
    }

    /// Whether clients who mean a Service, or the server itself, come to an address.
    fn leads_to_services(&self, ip: IpAddr) -> bool {
        let is_it = |text: &&str| text.parse() == Ok(ip);
        let server = self.get("endpointslices", "default/kubernetes").unwrap_or_default();
        let mut server = server.items("endpoints").iter().flat_map(|endpoint| endpoint.texts("addresses"));
        server.any(|text| is_it(&text))
            || self.all("services/specs").iter().any(|service| {
                ["spec.clusterIPs", "spec.externalIPs"].iter().any(|list| service.texts(list).iter().any(is_it))
            })
    }
}
