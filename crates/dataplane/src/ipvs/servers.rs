//! What a Service port wants of IPVS: a virtual server per frontend, and addresses on our device.
//!
//! Pure. A node port is a virtual server on every address that serves node ports; those addresses are the node's own and are
//! never put on our device.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use api::ip::Family;
use kernel::ipvs::{Scheduler, Server, Settings};
use plan::{Frontend, Plan, ServicePort};

use crate::frontends::owned;
use crate::nft::Way;

/// How a virtual server should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    pub(super) settings: Settings,
    pub(super) destinations: BTreeSet<SocketAddr>,
    /// Everybody who still answers, wanted or not.
    pub(super) serving: BTreeSet<SocketAddr>,
}

/// What a Service port wants.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Reach {
    pub(super) servers: BTreeMap<Server, Wanted>,
    pub(super) addresses: BTreeSet<IpAddr>,
    /// Whether it depends on which addresses serve node ports.
    pub(super) has_node_port: bool,
}

/// What a Service port wants, given the frontends that are its own.
pub(super) fn of(plan: &Plan, port: &ServicePort, scheduler: Scheduler) -> Reach {
    let mut reach = Reach { has_node_port: port.node_port.is_some(), ..Reach::default() };
    for (frontend, role) in owned(plan, port) {
        let places: Vec<(IpAddr, u16)> = match frontend {
            Frontend::Address(ip, _, number) => {
                reach.addresses.insert(ip);
                vec![(ip, number)]
            }
            Frontend::NodePort(family, _, number) => node_places(plan, port, family, number),
        };
        let Some(list) = Way::of(port, role).balanced() else { continue };
        let places_of = |list: &[plan::Backend]| -> BTreeSet<SocketAddr> {
            list.iter().map(|one| SocketAddr::new(one.ip, one.port)).collect()
        };
        let (destinations, serving) = (places_of(list), places_of(&port.serving));
        for (ip, number) in places {
            let server = Server { ip, protocol: port.key.protocol.number(), port: number };
            let settings = scheduler.settings(port.affinity);
            reach
                .servers
                .insert(server, Wanted { settings, destinations: destinations.clone(), serving: serving.clone() });
        }
    }
    reach
}

/// Where a node port is served: on every such address, unless a Service has that address and port for its own.
fn node_places(plan: &Plan, port: &ServicePort, family: Family, number: u16) -> Vec<(IpAddr, u16)> {
    let free = |ip: &&IpAddr| plan.owner(&Frontend::Address(**ip, port.key.protocol, number)).is_none();
    let here = plan.node_port_ips.iter().filter(|ip| Family::of(**ip) == family).filter(free);
    here.map(|ip| (*ip, number)).collect()
}

/// What a Service port wants, for people to read: as `ipvsadm-save` writes it.
pub(super) fn text(reach: &Reach) -> String {
    let mut lines = Vec::new();
    for (server, wanted) in &reach.servers {
        let kind = if server.protocol == 17 { "-u" } else { "-t" };
        let kind = if server.protocol == 132 { "--sctp-service" } else { kind };
        let at = SocketAddr::new(server.ip, server.port);
        let stays = wanted.settings.persistence.map(|seconds| format!(" -p {seconds}")).unwrap_or_default();
        lines.push(format!("-A {kind} {at} -s {}{stays}\n", wanted.settings.scheduler));
        lines.extend(wanted.destinations.iter().map(|to| format!("-a {kind} {at} -r {to} -m\n")));
    }
    lines.concat()
}
