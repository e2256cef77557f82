//! Whether a Service has an address: the condition `AddressAssigned`.
//!
//! In: the Service alone. Out: a finding whose message names the address.

use api::value::ValueExt as _;
use serde_json::Value;

use super::list::Finding;
use super::stored::{Ingress, Spec, Stored};
use super::words::list;
use crate::load_balancer::CONDITION;
use crate::objects::service::Service;

/// How many addresses or ports are named.
const NAMED: usize = 3;

/// Whether the Service has an address, and which.
pub(super) fn find(service: &Service, stored: &Stored) -> Finding {
    let Stored { spec, status } = stored;
    if service.is_external_name {
        return Finding::good("ExternalName", format!("clients are sent on to {}", spec.external_name));
    }
    if service.cluster_ips.first().is_some_and(|address| &**address == "None") {
        return Finding::good("Headless", "no cluster IP was asked for; the name leads to the endpoints themselves");
    }
    if service.is_headless() {
        return Finding::bad("Pending", "no cluster IP has been assigned yet");
    }
    let noun = if service.cluster_ips.len() == 1 { "cluster IP" } else { "cluster IPs" };
    let inside = format!("{noun} {}", list(&service.cluster_ips, NAMED));
    match spec.kind.as_str() {
        "LoadBalancer" if status.load_balancer.ingress.is_empty() => {
            let works = if service.cluster_ips.len() == 1 { "works" } else { "work" };
            let why = why_pending(&status.conditions).unwrap_or("no load balancer has answered yet");
            Finding::bad("Pending", format!("{why}; {inside} {works} meanwhile"))
        }
        "LoadBalancer" => {
            let outside: Vec<&str> = status.load_balancer.ingress.iter().map(place).collect();
            Finding::good("LoadBalancer", format!("load balancer {}, {inside}", list(&outside, NAMED)))
        }
        "NodePort" => Finding::good("NodePort", format!("{inside}{}", node_ports(spec))),
        _ => Finding::good("ClusterIP", inside),
    }
}

/// What our own load balancers say.
fn why_pending(conditions: &[Value]) -> Option<&str> {
    let said = conditions.iter().find(|one| one.text("type") == CONDITION && one.text("status") == "False")?;
    Some(said.text("message"))
}

fn place(ingress: &Ingress) -> &str {
    if ingress.ip.is_empty() { &ingress.hostname } else { &ingress.ip }
}

fn node_ports(spec: &Spec) -> String {
    let ports: Vec<String> =
        spec.ports.iter().filter(|port| port.node_port > 0).map(|port| port.node_port.to_string()).collect();
    match ports.len() {
        0 => String::new(),
        1 => format!(", node port {}", ports[0]),
        _ => format!(", node ports {}", list(&ports, NAMED)),
    }
}
