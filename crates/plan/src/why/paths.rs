//! Traffic paths to a Service port: each frontend from each kind of source, with a representative packet.
//!
//! In: a plan and one of its ports. Out: the oracle's verdict on each of these packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::ip::Family;
use ipnet::IpNet;

use super::{Sender, TrafficPath};
use crate::claims::{Frontend, Role};
use crate::options::LocalDetector;
use crate::oracle::{self, Outcome, Packet};
use crate::plan::Plan;
use crate::service_port::ServicePort;

/// All paths to a port.
pub(super) fn paths(plan: &Plan, port: &ServicePort) -> Vec<TrafficPath> {
    let senders = [Sender::Pod, Sender::Node, Sender::Outside, Sender::Unlisted];
    let mut found = Vec::new();
    for (frontend, role) in port.frontends() {
        for sender in senders {
            let fenced = role == Role::LoadBalancer && port.source_ranges.is_some();
            // Clients outside cannot reach a cluster IP.
            let sensible = match sender {
                Sender::Outside => role != Role::Cluster,
                Sender::Unlisted => fenced,
                Sender::Pod | Sender::Node => true,
            };
            if sensible && let Some((source, interface)) = source(plan, port, sender, fenced) {
                found.push(path(plan, port, (frontend, role), sender, source, interface));
            }
        }
    }
    found
}

fn path(
    plan: &Plan,
    port: &ServicePort,
    (frontend, role): (Frontend, Role),
    sender: Sender,
    source: IpAddr,
    interface: Option<String>,
) -> TrafficPath {
    let target = match frontend {
        Frontend::Address(ip, protocol, number) => Some((ip, protocol, number)),
        Frontend::NodePort(family, protocol, number) => {
            let here = plan.node_port_ips.iter().find(|ip| Family::of(**ip) == family);
            here.map(|ip| (*ip, protocol, number))
        }
    };
    let packet = target.map(|(destination, protocol, number)| Packet {
        source,
        from_node: sender == Sender::Node,
        interface,
        destination,
        protocol,
        port: number,
    });
    let found = packet.as_ref().and_then(|packet| oracle::find(plan, packet));
    let taken = found.filter(|(_, owner)| owner.key != port.key).map(|(_, owner)| owner.key.clone());
    let rule =
        packet.as_ref().zip(found).map(|(packet, (role, port))| oracle::treatment(plan, role, port, packet).rule);
    let outcome = packet.as_ref().map_or(Outcome::Pass, |packet| oracle::judge(plan, packet));
    TrafficPath { frontend, role, sender, packet, outcome, rule, taken }
}

/// An address of a kind of source and its incoming interface; none if there is no such source.
fn source(plan: &Plan, port: &ServicePort, sender: Sender, fenced: bool) -> Option<(IpAddr, Option<String>)> {
    let family = port.key.family;
    match sender {
        Sender::Node => plan.node_ips.iter().find(|ip| Family::of(**ip) == family).map(|ip| (*ip, None)),
        Sender::Pod => Some(pod(plan, family)),
        Sender::Outside => {
            let listed = port.source_ranges.iter().flatten().filter(|_| fenced).flat_map(ends);
            let outside = listed.chain(strangers(family)).find(|ip| is_outside(plan, port, *ip));
            outside.map(|ip| (ip, Some(String::new())))
        }
        Sender::Unlisted => {
            let unlisted = |ip: &IpAddr| is_outside(plan, port, *ip) && !oracle::may_use(plan, port, *ip);
            strangers(family).find(unlisted).map(|ip| (ip, Some(String::new())))
        }
    }
}

/// A Pod of this node. The first address of a range is unused, so it is no endpoint either.
fn pod(plan: &Plan, family: Family) -> (IpAddr, Option<String>) {
    let own = plan.own_pods(family).iter().find(|range| Family::of(range.addr()) == family).map(IpNet::network);
    let source = own.or_else(|| strangers(family).next()).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    (source, Some(pod_interface(plan)))
}

/// The incoming interface of Pods, where they are detected by it; else an empty name.
#[must_use]
pub fn pod_interface(plan: &Plan) -> String {
    match &plan.options.local {
        LocalDetector::Interface(name) | LocalDetector::InterfacePrefix(name) => name.clone(),
        LocalDetector::None | LocalDetector::Ranges(_) => String::new(),
    }
}

/// An address outside the cluster.
#[must_use]
pub fn stranger(plan: &Plan, family: Family) -> Option<IpAddr> {
    strangers(family).find(|ip| !is_of_pods(plan, *ip) && !plan.node_ips.contains(ip))
}

/// Whether an address is outside the cluster.
fn is_outside(plan: &Plan, port: &ServicePort, ip: IpAddr) -> bool {
    !is_of_pods(plan, ip) && !plan.node_ips.contains(&ip) && !port.lb_ips.contains(&ip)
}

/// Whether an address is in a Pod range.
fn is_of_pods(plan: &Plan, ip: IpAddr) -> bool {
    let detector = &plan.options.local;
    matches!(detector, LocalDetector::Ranges(_)) && detector.is_local(ip, None)
        || plan.node_pods.iter().any(|range| range.contains(&ip))
}

/// Addresses of a range that a client outside could have.
fn ends(range: &IpNet) -> impl Iterator<Item = IpAddr> {
    [range.network(), range.broadcast()].into_iter()
}

/// Addresses in documentation ranges.
fn strangers(family: Family) -> impl Iterator<Item = IpAddr> {
    let numbers = 1..=8u8;
    numbers.flat_map(move |last| -> [IpAddr; 3] {
        match family {
            Family::V4 => [[203, 0, 113], [198, 51, 100], [192, 0, 2]]
                .map(|[one, two, three]| Ipv4Addr::new(one, two, three, 240 + last).into()),
            Family::V6 => [0xffff, 0xfff0, 0xff00]
                .map(|block| Ipv6Addr::new(0x2001, 0xdb8, block, 0, 0, 0, 0, u16::from(last)).into()),
        }
    })
}
