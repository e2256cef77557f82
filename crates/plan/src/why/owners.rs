//! Finds the owners of an address or port.
//!
//! In: the objects, an address, a port. Out: all owners, most specific first: Service address, Pod, Node, endpoint,
//! range.

use std::net::IpAddr;

use api::ip::parse_lenient;
use api::view::endpoint_slice::{Endpoint, EndpointSlice};
use api::view::service::ServicePort;
use api::view::{Node, Pod, Protocol, Service, ServiceCidr};

use crate::address::lenient_ranges;

/// All objects that can own an address.
#[derive(Clone, Copy, Debug, Default)]
pub struct Objects<'a> {
    /// All Services.
    pub services: &'a [Service],
    /// All slices.
    pub slices: &'a [EndpointSlice],
    /// All Pods.
    pub pods: &'a [Pod],
    /// All Nodes.
    pub nodes: &'a [Node],
    /// All ServiceCIDRs.
    pub cidrs: &'a [ServiceCidr],
}

/// What to look up: an address, a port, or both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressQuery {
    /// The address; without it a node port is looked up.
    pub ip: Option<IpAddr>,
    /// The port.
    pub port: Option<u16>,
}

/// An owner.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Owner {
    /// The kind of object.
    pub kind: &'static str,
    /// `namespace/name`, or the name.
    pub name: String,
    /// Role: `cluster IP`, `node port`, …
    pub role: &'static str,
    /// Details: port name, target.
    pub says: String,
}

/// All owners.
#[must_use]
pub fn owners(objects: &Objects<'_>, query: AddressQuery) -> Vec<Owner> {
    let mut found: Vec<Owner> = objects.services.iter().flat_map(|service| of_service(service, query)).collect();
    let of_node = query.ip.is_none_or(|ip| objects.nodes.iter().any(|node| node.addresses().contains(&ip)));
    if let Some(port) = query.port.filter(|_| of_node) {
        found.extend(objects.services.iter().flat_map(|service| node_ports(service, port)));
    }
    let Some(ip) = query.ip else { return found };
    found.extend(objects.pods.iter().filter_map(|pod| of_pod(pod, ip)));
    found.extend(objects.nodes.iter().filter_map(|node| of_node_object(node, ip)));
    found.extend(objects.slices.iter().flat_map(|slice| of_slice(slice, ip, query.port)));
    found.extend(objects.cidrs.iter().filter_map(|cidr| of_range(cidr, ip)));
    found.extend(objects.nodes.iter().filter_map(|node| of_pod_range(node, ip)));
    found
}

fn of_service(service: &Service, query: AddressQuery) -> Vec<Owner> {
    let Some(ip) = query.ip else { return Vec::new() };
    let spec = &service.spec;
    let is = |text: &str| parse_lenient(text) == Some(ip);
    let has_cluster_ip =
        !service.is_external_name() && spec.cluster_ips.iter().chain([&spec.cluster_ip]).any(|one| is(one));
    let ingress = &service.status.load_balancer.ingress;
    let roles = [
        ("cluster IP", has_cluster_ip),
        ("load-balancer address", ingress.iter().any(|one| is(&one.ip))),
        ("external IP", spec.external_ips.iter().any(|one| is(one))),
    ];
    let says = ports(service, query.port);
    let owners = roles.into_iter().filter(|(_, has)| *has);
    owners.map(|(role, _)| Owner { kind: "Service", name: service.metadata.key(), role, says: says.clone() }).collect()
}

/// A port as text: `80/TCP http`.
fn port_text(port: &ServicePort) -> String {
    let protocol = port.protocol.map_or("?", Protocol::as_str);
    let text = format!("port {}/{protocol} {}", port.port, port.name);
    text.trim_end().to_owned()
}

/// The matching ports of a Service.
fn ports(service: &Service, asked: Option<u16>) -> String {
    let all = &service.spec.ports;
    let wanted = list(all.iter().filter(|port| asked.is_none_or(|asked| port.port == asked)));
    match (asked, wanted.is_empty()) {
        (Some(asked), true) => format!("has no port {asked}; it has {}", list(all.iter())),
        _ => wanted,
    }
}

fn list<'a>(ports: impl Iterator<Item = &'a ServicePort>) -> String {
    ports.map(port_text).collect::<Vec<_>>().join(", ")
}

fn node_ports(service: &Service, asked: u16) -> Vec<Owner> {
    let serves = service.has_node_ports();
    let owner = |role, says| Owner { kind: "Service", name: service.metadata.key(), role, says };
    let ports = service.spec.ports.iter().filter(|port| serves && port.node_port == asked);
    let mut found: Vec<Owner> = ports.map(|port| owner("node port", port_text(port))).collect();
    if service.spec.health_check_node_port == asked {
        found.push(owner("health-check node port", "tells load balancers whether this node has endpoints".to_owned()));
    }
    found
}

fn of_pod(pod: &Pod, ip: IpAddr) -> Option<Owner> {
    let has = pod.status.pod_ips.iter().any(|one| parse_lenient(&one.ip) == Some(ip));
    let node = match &*pod.spec.node_name {
        "" => String::new(),
        node => format!("on node {node}"),
    };
    let says = match (pod.has_ended(), pod.spec.host_network) {
        (true, _) => format!("has ended ({}); the address may be another's by now", pod.status.phase),
        (false, true) => format!("{node}, whose network it uses").trim_start_matches(", ").to_owned(),
        (false, false) => node,
    };
    has.then(|| Owner { kind: "Pod", name: pod.metadata.key(), role: "Pod address", says })
}

fn of_node_object(node: &Node, ip: IpAddr) -> Option<Owner> {
    let address = node.status.addresses.iter().find(|one| parse_lenient(&one.address) == Some(ip))?;
    let name = node.metadata.name.to_string();
    Some(Owner { kind: "Node", name, role: "node address", says: address.kind.to_string() })
}

fn of_slice(slice: &EndpointSlice, ip: IpAddr, asked: Option<u16>) -> Vec<Owner> {
    let has = |text: &str| parse_lenient(text) == Some(ip);
    let service = slice.service().unwrap_or_else(|| "no Service".to_owned());
    let name = slice.metadata.key();
    let endpoints = slice.endpoints.iter().filter(|one| one.addresses.iter().any(|text| has(text)));
    let owner = |endpoint: &Endpoint| {
        let state = match (endpoint.conditions.is_ready(), endpoint.conditions.is_terminating()) {
            (_, true) => "terminating",
            (true, false) => "ready",
            (false, false) => "not ready",
        };
        let ports = slice.ports.iter().filter(|port| asked.is_none_or(|asked| port.port == Some(i64::from(asked))));
        let ports: Vec<String> = ports
            .map(|port| {
                let number = port.port.map(|number| number.to_string()).unwrap_or_default();
                let protocol = port.protocol.map_or("?", Protocol::as_str);
                format!("port {number}/{protocol} {}", port.name.as_deref().unwrap_or_default()).trim_end().to_owned()
            })
            .collect();
        let ports = if ports.is_empty() { "not at this port".to_owned() } else { ports.join(", ") };
        let says = format!("of Service {service}, {ports}, {state}");
        Owner { kind: "EndpointSlice", name: name.clone(), role: "endpoint", says }
    };
    endpoints.map(owner).collect()
}

fn of_range(cidr: &ServiceCidr, ip: IpAddr) -> Option<Owner> {
    let range = lenient_ranges(&cidr.spec.cidrs).find(|range| range.contains(&ip))?;
    let name = cidr.metadata.name.to_string();
    Some(Owner { kind: "ServiceCIDR", name, role: "Service range", says: format!("{range} is kept for cluster IPs") })
}

fn of_pod_range(node: &Node, ip: IpAddr) -> Option<Owner> {
    let range = lenient_ranges(&node.spec.pod_cidrs).find(|range| range.contains(&ip))?;
    let (name, says) = (node.metadata.name.to_string(), format!("{range} is for the Pods of this node"));
    Some(Owner { kind: "Node", name, role: "Pod range", says })
}
