//! Virtual servers and device addresses of a Service port.
//!
//! Pure. A node port is a virtual server on every address that serves node ports; those addresses belong to the node
//! and are never added to our device.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use api::ip::Family;
use kernel::ipvs::{Flags, Scheduler, Server, Settings};
use plan::{Backend, Balancing, Frontend, Plan, Policy, ServicePort};

use crate::frontends::owned;
use crate::nft::Routing;

/// Weight of destinations without one of their own.
const WEIGHT: u32 = 1;

/// Desired state of a virtual server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DesiredServer {
    pub(super) settings: Settings,
    /// Weights of the destinations that get new connections.
    pub(super) destinations: BTreeMap<SocketAddr, u32>,
    /// Endpoints that still serve, including terminating ones.
    pub(super) serving: BTreeSet<SocketAddr>,
}

/// Virtual servers and addresses of a Service port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct PortServers {
    pub(super) servers: BTreeMap<Server, DesiredServer>,
    pub(super) addresses: BTreeSet<IpAddr>,
    /// Virtual servers, with destinations or without, whose destinations are deleted at once, with their connections.
    pub(super) exclusive: BTreeSet<Server>,
    /// Whether it depends on the node port addresses.
    pub(super) has_node_port: bool,
}

/// Virtual servers and addresses of a Service port.
pub(super) fn of(plan: &Plan, port: &ServicePort, scheduler: Scheduler) -> PortServers {
    let mut port_servers = PortServers { has_node_port: port.node_port.is_some(), ..PortServers::default() };
    for (frontend, role) in owned(plan, port) {
        let places: Vec<(IpAddr, u16)> = match frontend {
            Frontend::Address(ip, _, number) => {
                port_servers.addresses.insert(ip);
                vec![(ip, number)]
            }
            Frontend::NodePort(family, _, number) => node_port_addresses(plan, port, family, number),
        };
        let servers = places.into_iter().map(|(ip, port_number)| Server {
            ip,
            protocol: port.key.protocol.number(),
            port: port_number,
        });
        let servers: Vec<Server> = servers.collect();
        if port.balancing.is_exclusive() {
            port_servers.exclusive.extend(&servers);
        }
        let Some(list) = Routing::of(port, role).ipvs_destinations() else { continue };
        let place = |one: &Backend| SocketAddr::new(one.ip, one.port);
        let weight = |one: &Backend| match &port.balancing {
            Balancing::Weighted(weights) => weights.of(one).into(),
            _ => WEIGHT,
        };
        let destinations: BTreeMap<_, _> = list.iter().map(|one| (place(one), weight(one))).collect();
        let serving: BTreeSet<SocketAddr> = port.serving.iter().map(place).collect();
        let settings = settings(port, scheduler);
        for server in servers {
            let settings = settings.clone();
            port_servers.servers.insert(
                server,
                DesiredServer { settings, destinations: destinations.clone(), serving: serving.clone() },
            );
        }
    }
    port_servers
}

/// Settings of the virtual servers of a port: the scheduler of its policy, else the one of the mode.
fn settings(port: &ServicePort, scheduler: Scheduler) -> Settings {
    match scheduler_of(port.balancing.policy()) {
        // The address of the client decides alone.
        Some(Scheduler::Mh) => Settings { flags: Flags::default(), ..Scheduler::Mh.settings(port.affinity) },
        Some(own) => own.settings(port.affinity),
        None => scheduler.settings(port.affinity),
    }
}

/// The scheduler of a policy; none where that of the mode is used.
pub(super) const fn scheduler_of(policy: Policy) -> Option<Scheduler> {
    match policy {
        Policy::Random => None,
        // It has one destination.
        Policy::Leader => None,
        Policy::RoundRobin => Some(Scheduler::Rr),
        Policy::LeastConnections => Some(Scheduler::Lc),
        Policy::Weighted => Some(Scheduler::Wrr),
        Policy::Maglev => Some(Scheduler::Mh),
    }
}

/// Addresses of a node port: all node port addresses, except where a Service owns the address and port.
fn node_port_addresses(plan: &Plan, port: &ServicePort, family: Family, number: u16) -> Vec<(IpAddr, u16)> {
    let free = |ip: &&IpAddr| plan.owner(&Frontend::Address(**ip, port.key.protocol, number)).is_none();
    let here = plan.node_port_ips.iter().filter(|ip| Family::of(**ip) == family).filter(free);
    here.map(|ip| (*ip, number)).collect()
}

/// Virtual servers in the format of `ipvsadm-save`.
pub(super) fn text(port_servers: &PortServers) -> String {
    let mut lines = Vec::new();
    for (server, wanted) in &port_servers.servers {
        let kind = if server.protocol == 17 { "-u" } else { "-t" };
        let kind = if server.protocol == 132 { "--sctp-service" } else { kind };
        let at = SocketAddr::new(server.ip, server.port);
        let stays = wanted.settings.persistence.map(|seconds| format!(" -p {seconds}")).unwrap_or_default();
        lines.push(format!("-A {kind} {at} -s {}{stays}\n", wanted.settings.scheduler));
        let weighted = |weight: u32| if weight == WEIGHT { String::new() } else { format!(" -w {weight}") };
        let destinations = wanted.destinations.iter();
        lines.extend(destinations.map(|(to, weight)| format!("-a {kind} {at} -r {to} -m{}\n", weighted(*weight))));
    }
    lines.concat()
}
