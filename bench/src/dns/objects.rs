//! The load: Services in many namespaces, one of ten headless with named endpoints; probes, whose one endpoint moves.
//!
//! Names and addresses follow from the number of a Service, so the server need not be queried.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::load::{self, Work};
pub use crate::proxy::objects::Size;
use crate::proxy::objects::{HERE, THERE};

/// How many namespaces there are.
pub const TEAMS: usize = 50;
/// Where all names of Services end.
pub const ZONE: &str = "svc.cluster.local";
/// The namespace of probes.
const PROBES: &str = "team-00";
/// Addresses of new Services, above all others.
const NEW: Ipv4Addr = Ipv4Addr::new(10, 96, 241, 0);
/// One in this number of Services is headless.
const HEADLESS: usize = 10;

/// The namespace of a Service.
#[must_use]
pub fn namespace(number: usize) -> String {
    format!("team-{:02}", number % TEAMS)
}

/// Whether a Service has no cluster IP.
#[must_use]
pub const fn is_headless(number: usize) -> bool {
    number % HEADLESS == HEADLESS - 1
}

/// The full name of a Service.
#[must_use]
pub fn full_name(number: usize) -> String {
    format!("{}.{}.{ZONE}", load::service_name(number), namespace(number))
}

/// What its name leads to.
#[must_use]
pub fn addresses(size: Size, number: usize) -> Vec<Ipv4Addr> {
    if is_headless(number) {
        return (0..size.endpoints).map(|index| size.endpoint(number, index)).collect();
    }
    vec![vip(size, number)]
}

/// The address of a Service that has one.
#[must_use]
pub fn vip(size: Size, number: usize) -> Ipv4Addr {
    match size.vip(number).ip() {
        std::net::IpAddr::V4(address) => address,
        std::net::IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

/// What makes the namespaces.
#[must_use]
pub fn namespaces() -> Vec<Work> {
    let object = |number| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace(number)}});
    (0..TEAMS).map(|number| Work::create("/api/v1/namespaces", &object(number))).collect()
}

/// What makes everything in them.
#[must_use]
pub fn create(size: Size) -> Vec<Work> {
    let mut work = Vec::new();
    for number in 0..size.services {
        let (name, namespace) = (load::service_name(number), namespace(number));
        let at = if is_headless(number) { "None".to_owned() } else { vip(size, number).to_string() };
        let endpoints: Vec<Ipv4Addr> = (0..size.endpoints).map(|index| size.endpoint(number, index)).collect();
        work.push(Work::create(&services(&namespace), &service(&namespace, &name, &at)));
        work.push(Work::create(&slices(&namespace), &slice(&namespace, &name, &endpoints, is_headless(number))));
    }
    work.extend(probe(HERE));
    work
}

/// What makes the probe, a headless Service with one endpoint.
fn probe(at: Ipv4Addr) -> [Work; 2] {
    let (service, slice) = (service(PROBES, "probe", "None"), slice(PROBES, "probe", &[at], false));
    [Work::create(&services(PROBES), &service), Work::create(&slices(PROBES), &slice)]
}

/// The name of the probe.
#[must_use]
pub fn probe_name() -> String {
    format!("probe.{PROBES}.{ZONE}")
}

/// What moves the probe's endpoint, and where to, the first time and then back and forth.
#[must_use]
pub fn move_probe(round: usize) -> (Work, Ipv4Addr) {
    let to = if round.is_multiple_of(2) { THERE } else { HERE };
    (Work::replace(&slices(PROBES), &slice_name("probe"), &slice(PROBES, "probe", &[to], false)), to)
}

/// A Service that comes later: its name, its address, what makes it and what removes it again.
#[must_use]
pub fn newcomer(round: usize) -> (String, Ipv4Addr, Work, Work) {
    let name = format!("new-{round:04}");
    let offset = u32::try_from(round % 2000).unwrap_or_default();
    let at = Ipv4Addr::from_bits(NEW.to_bits() + offset);
    let create = Work::create(&services(PROBES), &service(PROBES, &name, &at.to_string()));
    (format!("{name}.{PROBES}.{ZONE}"), at, create, Work::delete(&services(PROBES), &name))
}

fn services(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/services")
}

fn slices(namespace: &str) -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")
}

fn slice_name(service: &str) -> String {
    format!("{service}-slice")
}

fn service(namespace: &str, name: &str, cluster_ip: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name, "tier": "backend"}},
        "spec": {"clusterIP": cluster_ip, "ports": [
            {"name": "http", "port": 80, "targetPort": 8080}, {"name": "metrics", "port": 9100, "targetPort": 9100},
        ]},
    })
}

fn slice(namespace: &str, service: &str, addresses: &[Ipv4Addr], named: bool) -> Value {
    let endpoint = |(index, address): (usize, &Ipv4Addr)| {
        let mut endpoint = json!({
            "addresses": [address.to_string()],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": format!("node-{:02}", index % 10),
            "targetRef": {"kind": "Pod", "namespace": namespace, "name": format!("{service}-{index:05}"),
                "uid": format!("00000000-0000-4000-8000-{:012}", address.to_bits())},
        });
        if named {
            endpoint["hostname"] = json!(format!("{service}-{index}"));
        }
        endpoint
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": slice_name(service), "namespace": namespace, "labels": {
            "kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "bench"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}, {"name": "metrics", "protocol": "TCP", "port": 9100}],
        "endpoints": addresses.iter().enumerate().map(endpoint).collect::<Vec<_>>(),
    })
}
