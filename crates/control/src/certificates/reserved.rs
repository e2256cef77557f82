//! Names and addresses that no agent may have in its serving certificate: those of the API server, Services and other Nodes.
//!
//! In: a request, the settings and the stored objects. Out: an error for a reserved name. Checked at automatic approval and at signing, so that a careless
//! manual approval does no harm. Pure.

use std::net::IpAddr;

use api::kinds::certificatesigningrequest::request::Request;
use api::kinds::certificatesigningrequest::server_names::{canonical, is_at_or_under, is_reserved};
use api::names;
use api::object;
use api::value::ValueExt as _;
use serde_json::Value;
use store::{Key, Store, Table};

use super::decide::RequestError;
use crate::settings::Settings;

/// The context of a check.
#[derive(Clone, Copy)]
pub struct CheckContext<'a> {
    /// Stored objects.
    pub store: &'a dyn Store,
    /// Settings of the server.
    pub settings: &'a Settings,
}

/// Checks a Node name. Names that depend on settings are checked for serving certificates only, so that existing Nodes keep working as clients.
///
/// # Errors
/// When the name is reserved.
pub fn node_name(name: &str) -> Result<(), RequestError> {
    if is_reserved(name) {
        return Err(RequestError::ReservedNode(name.to_owned()));
    }
    Ok(())
}

/// Checks all names and addresses of a serving certificate.
///
/// # Errors
/// The first reserved one, and its owner.
pub fn serving(request: &Request, node: &str, context: &CheckContext<'_>) -> Result<(), RequestError> {
    let services = context.all("services/specs");
    for name in &request.dns {
        if let Some(whose) = owner_of_name(name, &services, context) {
            return Err(RequestError::ReservedName(name.clone(), whose));
        }
    }
    let nodes = context.all("minions");
    for ip in &request.ips {
        if let Some(whose) = owner_of_address(*ip, node, &services, &nodes, context) {
            return Err(RequestError::ReservedAddress(*ip, whose));
        }
    }
    Ok(())
}

fn owner_of_name(name: &str, services: &[Value], context: &CheckContext<'_>) -> Option<String> {
    let (asked, server) = (canonical(name), &context.settings.server_names);
    if !names::dns_subdomain(&asked).is_empty() || asked.parse::<IpAddr>().is_ok() {
        return Some("not the DNS name of a machine".to_owned());
    }
    if is_reserved(&asked) || server.dns.iter().any(|own| covers(own, &asked)) {
        return Some("a name of the API server".to_owned());
    }
    if is_at_or_under(&asked, &server.domain) {
        return Some(format!("in the domain of the cluster, {}", server.domain));
    }
    let service = services.iter().find(|service| is_name_of(service, &asked))?;
    Some(format!("a name of Service {}/{}", service.text("metadata.namespace"), service.text("metadata.name")))
}

/// Whether a certificate name, possibly a wildcard, matches.
fn covers(own: &str, asked: &str) -> bool {
    let own = canonical(own);
    match own.strip_prefix("*.") {
        Some(parent) => asked.split_once('.').is_some_and(|(_, rest)| rest == parent),
        None => own == asked,
    }
}

/// `name.namespace`, `name.namespace.svc…`, or the host name of its load balancer.
fn is_name_of(service: &Value, asked: &str) -> bool {
    let own = format!("{}.{}", service.text("metadata.name"), service.text("metadata.namespace"));
    let is_own = asked.strip_prefix(&own).is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix(".svc").is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    });
    let mut ingress = service.items("status.loadBalancer.ingress").iter().map(|one| canonical(one.text("hostname")));
    is_own || ingress.any(|hostname| hostname == asked)
}

fn owner_of_address(
    ip: IpAddr,
    node: &str,
    services: &[Value],
    nodes: &[Value],
    context: &CheckContext<'_>,
) -> Option<String> {
    let ip = ip.to_canonical();
    let is_it = |text: &str| text.parse::<IpAddr>().is_ok_and(|own| own.to_canonical() == ip);
    if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() {
        return Some("not the address of one machine".to_owned());
    }
    let advertised = context.get("endpointslices", "default/kubernetes").unwrap_or_default();
    let mut advertised = advertised.items("endpoints").iter().flat_map(|endpoint| endpoint.texts("addresses"));
    if context.settings.server_names.ips.iter().any(|own| own.to_canonical() == ip) || advertised.any(is_it) {
        return Some("an address of the API server".to_owned());
    }
    if context.settings.ranges.addresses.iter().any(|range| range.contains(&ip)) {
        return Some("in the range of cluster IPs".to_owned());
    }
    if let Some(service) = services.iter().find(|service| has_address(service, is_it)) {
        return Some(format!(
            "an address of Service {}/{}",
            service.text("metadata.namespace"),
            service.text("metadata.name")
        ));
    }
    let other = |other: &&Value| other.text("metadata.name") != node && addresses(other).into_iter().any(is_it);
    nodes.iter().find(other).map(|other| format!("an address of Node {}", other.text("metadata.name")))
}

fn has_address(service: &Value, is_it: impl Fn(&str) -> bool) -> bool {
    let lists = ["spec.clusterIPs", "spec.externalIPs"];
    let single = ["spec.clusterIP", "spec.loadBalancerIP"];
    lists.iter().any(|list| service.texts(list).into_iter().any(&is_it))
        || single.iter().any(|field| is_it(service.text(field)))
        || service.items("status.loadBalancer.ingress").iter().any(|ingress| is_it(ingress.text("ip")))
}

/// The addresses of a Node.
pub(super) fn addresses(node: &Value) -> Vec<&str> {
    node.items("status.addresses").iter().map(|address| address.text("address")).collect()
}

impl CheckContext<'_> {
    pub(super) fn get(&self, table: &str, name: &str) -> Option<Value> {
        let entry = self.store.get(&Key::new(Table::named(table), name))?;
        Some(object::decode_light(&entry.value))
    }

    fn all(&self, table: &str) -> Vec<Value> {
        let found = self.store.range(Table::named(table), "", None).map(|range| range.entries).unwrap_or_default();
        found.iter().map(|entry| object::decode_light(&entry.value)).collect()
    }
}
