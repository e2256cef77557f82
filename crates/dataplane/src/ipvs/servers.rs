//! Virtual servers and device addresses of a Service port.
//!
//! Pure. A node port is a virtual server on every address that serves node ports; those addresses belong to the node
//! and are never added to our device.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use api::ip::Family;
use kernel::ipvs::{Scheduler, Server, Settings};
use plan::{Frontend, Plan, ServicePort};

use crate::frontends::owned;
use crate::nft::Routing;

/// Desired state of a virtual server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DesiredServer {
    pub(super) settings: Settings,
    pub(super) destinations: BTreeSet<SocketAddr>,
    /// Endpoints that still serve, including terminating ones.
    pub(super) serving: BTreeSet<SocketAddr>,
}

/// Virtual servers and addresses of a Service port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct PortServers {
    pub(super) servers: BTreeMap<Server, DesiredServer>,
    pub(super) addresses: BTreeSet<IpAddr>,
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
        let Some(list) = Routing::of(port, role).ipvs_destinations() else { continue };
        let places_of = |list: &[plan::Backend]| -> BTreeSet<SocketAddr> {
            list.iter().map(|one| SocketAddr::new(one.ip, one.port)).collect()
        };
        let (destinations, serving) = (places_of(list), places_of(&port.serving));
        for (ip, number) in places {
            let server = Server { ip, protocol: port.key.protocol.number(), port: number };
            let settings = scheduler.settings(port.affinity);
            port_servers.servers.insert(
                server,
                DesiredServer { settings, destinations: destinations.clone(), serving: serving.clone() },
            );
        }
    }
    port_servers
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
        lines.extend(wanted.destinations.iter().map(|to| format!("-a {kind} {at} -r {to} -m\n")));
    }
    lines.concat()
}
