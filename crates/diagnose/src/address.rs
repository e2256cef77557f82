//! Whether a Service has an address.
//!
//! In: the Service, with the conditions that load balancers set. Out: a stage whose message names the address.

use std::net::IpAddr;

use api::ip::Family;
use api::value::ValueExt as _;
use api::view::labels::SERVICE_NAME;
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::finding::{Finding, Level, Stage, code, healthy};
use crate::model::Service;
use crate::words::{list, quoted};

/// How many addresses or ports are named.
const NAMED: usize = 3;
/// The condition in which our load balancers report why a Service has no address.
const LOAD_BALANCER_READY: &str = "LoadBalancerReady";
/// The prefix of the classes of our load balancers.
const OWN_CLASSES: &str = "waypost.dev/";
/// The prefixes of the commands that our load balancers suggest.
const COMMANDS: [&str; 4] = ["kubectl ", "echo ", "ss ", "waypost "];

/// Whether the Service has an address, and which.
pub(crate) fn find(service: &Service) -> Stage {
    if service.is_external_name() {
        return external_name(service);
    }
    let ips: Vec<&str> = service.cluster_ips().collect();
    match ips.first().copied() {
        Some("None") => {
            return healthy("Headless", "no cluster IP was asked for; the name leads to the endpoints themselves");
        }
        None | Some("") => {
            let message = "no cluster IP has been assigned yet";
            return Err(Finding::new(code::PENDING, message, service.describe()));
        }
        Some(_) => {}
    }
    let inside = format!("cluster {} {}", if ips.len() == 1 { "IP" } else { "IPs" }, list(&ips, NAMED));
    match (&*service.spec.kind, &service.ingress()[..]) {
        ("LoadBalancer", []) => Err(pending(service, &inside)),
        ("LoadBalancer", outside) => {
            healthy("LoadBalancer", format!("load balancer {}, {inside}", list(outside, NAMED)))
        }
        ("NodePort", _) => healthy("NodePort", format!("{inside}{}", node_ports(service))),
        _ => healthy("ClusterIP", inside),
    }
}

/// Why there is no address of a load balancer.
fn pending(service: &Service, inside: &str) -> Finding {
    let works = if service.cluster_ips().count() == 1 { "works" } else { "work" };
    let meanwhile = |why: &str| format!("{why}; {inside} {works} meanwhile");
    let mut conditions = service.conditions().iter();
    let said = conditions.find(|one| one.text("type") == LOAD_BALANCER_READY && one.text("status") == "False");
    if let Some(said) = said {
        let (reason, message) = (said.text("reason"), said.text("message"));
        let command = message.rsplit_once(": ").map(|(_, command)| command);
        let command = command.filter(|command| COMMANDS.iter().any(|word| command.starts_with(word)));
        let code = if reason.is_empty() { code::PENDING.to_owned() } else { reason.to_owned() };
        let fix = command.map_or_else(|| service.edit(), str::to_owned);
        return Finding { evidence: vec![format!("{inside} {works} meanwhile")], ..Finding::new(code, message, fix) };
    }
    match service.spec.load_balancer_class.as_deref().unwrap_or_default() {
        class if !class.is_empty() && !class.starts_with(OWN_CLASSES) => {
            let why = format!("no controller has answered for loadBalancerClass {class}");
            Finding::new(code::CLASS_NOT_SERVED, meanwhile(&why), "kubectl get deployments,daemonsets -A")
        }
        _ => Finding::new(
            code::PENDING,
            meanwhile("no load balancer has answered yet"),
            "waypost server --load-balancer=on",
        ),
    }
}

fn node_ports(service: &Service) -> String {
    let ports = service.ports().iter().filter(|port| port.node_port > 0);
    let ports: Vec<String> = ports.map(|port| port.node_port.to_string()).collect();
    match &ports[..] {
        [] => String::new(),
        [one] => format!(", node port {one}"),
        many => format!(", node ports {}", list(many, NAMED)),
    }
}

fn external_name(service: &Service) -> Stage {
    let name = &service.spec.external_name;
    let Ok(ip) = name.trim_matches(['[', ']']).parse::<IpAddr>() else {
        return healthy("ExternalName", format!("clients are sent on to {name}"));
    };
    let port = service.ports().first().map_or(80, |port| port.port);
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{}-1", service.name()), "namespace": service.namespace(),
            "labels": {SERVICE_NAME: service.name()},
        },
        "addressType": Family::of(ip).as_str(),
        "ports": [{"port": port}], "endpoints": [{"addresses": [ip]}],
    });
    let patch = json!({"spec": {"type": "ClusterIP", "externalName": Value::Null, "ports": [{"port": port}]}});
    let fix = format!("{} && echo {} | kubectl apply -f -", service.patch(&patch), quoted(&slice.to_string()));
    let message = format!("externalName is {ip}, an address: DNS gives it out as a CNAME, which leads to no name");
    Err(Finding::new(code::EXTERNAL_NAME_IS_ADDRESS, message, fix))
}

/// An address of a load balancer that no source range allows clients to use.
pub(crate) fn sources(service: &Service) -> Option<Finding> {
    let written = &service.spec.load_balancer_source_ranges;
    if !service.is_load_balancer() || written.is_empty() {
        return None;
    }
    let ranges: Vec<IpNet> = written.iter().filter_map(|text| text.trim().parse().ok()).collect();
    let shut = |ip: &IpAddr| !ranges.iter().any(|range| range.addr().is_ipv4() == ip.is_ipv4());
    let ip = service.ingress().into_iter().filter_map(|text| text.parse().ok()).find(shut)?;
    let everybody = if ip.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
    let all: Vec<&str> = written.iter().map(|range| &**range).chain([everybody]).collect();
    let message = format!(
        "loadBalancerSourceRanges {} names no range of {}: no client can use {ip}",
        list(written, NAMED),
        Family::of(ip).as_str()
    );
    let fix = service.patch(&json!({"spec": {"loadBalancerSourceRanges": all}}));
    Some(Finding::new(code::SOURCES_LACK_FAMILY, message, fix).at(Level::Degraded))
}
