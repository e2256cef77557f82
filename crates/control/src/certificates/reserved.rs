//! Names and addresses under which no agent serves, because clients expect somebody else there: the API server, a Service, another Node.
//!
//! In: what a request asks for, the settings of the server and the objects as they are. Out: nothing, or what stands against it. This holds at
//! automatic approval and at signing, so a person who approves a request without reading it gives nothing away. Pure.

use std::net::IpAddr;

use api::kinds::certificatesigningrequest::request::Request;
use api::kinds::certificatesigningrequest::server_names::{canonical, is_at_or_under, is_reserved};
use api::names;
use api::object;
use api::value::ValueExt as _;
use serde_json::Value;
use store::{Key, Store, Table};

use crate::settings::Settings;

/// Under which names and addresses clients reach the API server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerNames {
    /// The names in its certificate; `*.` stands for one label.
    pub dns: Vec<String>,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// The domain of the cluster.
    pub domain: String,
}

/// What is looked at besides a request.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// Objects as they are now.
    pub store: &'a dyn Store,
    /// What the server was told.
    pub settings: &'a Settings,
}

/// Whether a machine may be a Node of this name. Names that depend on settings are refused for serving alone: a machine that has such a name
/// already goes on as a client.
///
/// # Errors
/// Whose name it is.
pub fn node_name(name: &str) -> Result<(), String> {
    if is_reserved(name) {
        return Err(format!("{name} is a name of the API server or of Services, not of a node"));
    }
    Ok(())
}

/// Whether the agent of a node may serve under all names and addresses in a request.
///
/// # Errors
/// The first one under which it may not, and whose it is.
pub fn serving(request: &Request, node: &str, around: &Around<'_>) -> Result<(), String> {
    let services = around.all("services/specs");
    for name in &request.dns {
        if let Some(whose) = owner_of_name(name, &services, around) {
            return Err(format!("{name:?} is {whose}: no agent serves under it"));
        }
    }
    let nodes = around.all("minions");
    for ip in &request.ips {
        if let Some(whose) = owner_of_address(*ip, node, &services, &nodes, around) {
            return Err(format!("{ip} is {whose}: no agent serves under it"));
        }
    }
    Ok(())
}

fn owner_of_name(name: &str, services: &[Value], around: &Around<'_>) -> Option<String> {
    let (asked, server) = (canonical(name), &around.settings.server_names);
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

/// Whether a name in a certificate stands for a name.
fn covers(own: &str, asked: &str) -> bool {
    let own = canonical(own);
    match own.strip_prefix("*.") {
        Some(parent) => asked.split_once('.').is_some_and(|(_, rest)| rest == parent),
        None => own == asked,
    }
}

/// `name.namespace`, `name.namespace.svc…`, or where its load balancer says that it is.
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
    around: &Around<'_>,
) -> Option<String> {
    let ip = ip.to_canonical();
    let is_it = |text: &str| text.parse::<IpAddr>().is_ok_and(|own| own.to_canonical() == ip);
    if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() {
        return Some("not the address of one machine".to_owned());
    }
    let advertised = around.get("endpointslices", "default/kubernetes").unwrap_or_default();
    let mut advertised = advertised.items("endpoints").iter().flat_map(|endpoint| endpoint.texts("addresses"));
    if around.settings.server_names.ips.iter().any(|own| own.to_canonical() == ip) || advertised.any(is_it) {
        return Some("an address of the API server".to_owned());
    }
    if around.settings.ranges.addresses.iter().any(|range| range.contains(&ip)) {
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

/// What a Node says of where it is.
pub(super) fn addresses(node: &Value) -> Vec<&str> {
    node.items("status.addresses").iter().map(|address| address.text("address")).collect()
}

impl Around<'_> {
    pub(super) fn get(&self, table: &str, name: &str) -> Option<Value> {
        let entry = self.store.get(&Key::new(Table::named(table), name))?;
        Some(object::decode_light(&entry.value))
    }

    fn all(&self, table: &str) -> Vec<Value> {
        let found = self.store.range(Table::named(table), "", None).map(|range| range.entries).unwrap_or_default();
        found.iter().map(|entry| object::decode_light(&entry.value)).collect()
    }
}
