//! The stage of most cases: two served nodes, an outside client, and Services that can be reached in every way.
//!
//! In: a number per Service. Out: its addresses, which follow from the number, and the objects that say so. Every Service has
//! the same port by every protocol of the mode under test.

use std::net::IpAddr;

use testbed::net::{Family, Node, Outside, Pod, Protocol, Served, objects};

/// The port of every Service here.
pub(crate) const PORT: u16 = 80;
/// The port of the endpoints behind it.
pub(crate) const TARGET: u16 = 8080;

/// Where outside clients find virtual addresses: behind the nodes.
const BEHIND_NODES: [&str; 6] =
    ["10.96.0.0/16", "fd00:10:96::/112", "198.51.100.0/24", "2001:db8:e::/64", "203.0.113.0/24", "2001:db8:f::/64"];

/// Where a Service can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frontend {
    ClusterIp,
    NodePort,
    ExternalIp,
    LoadBalancer,
}

impl Frontend {
    pub(crate) const ALL: [Self; 4] = [Self::ClusterIp, Self::NodePort, Self::ExternalIp, Self::LoadBalancer];
    pub(crate) const EXTERNAL: [Self; 3] = [Self::NodePort, Self::ExternalIp, Self::LoadBalancer];

    /// The address and port of a Service, as reached through this node.
    pub(crate) fn at(self, number: u8, family: Family, node: &Node) -> (IpAddr, u16) {
        if self == Self::NodePort {
            return (node.address(family), node_port(number));
        }
        (self.address(number, family), PORT)
    }

    fn address(self, number: u8, family: Family) -> IpAddr {
        let text = match (self, family) {
            (Self::ClusterIp, Family::V4) => format!("10.96.0.{}", 100 + number),
            (Self::ClusterIp, Family::V6) => format!("fd00:10:96::{:x}", 0xa0 + number),
            (Self::ExternalIp, Family::V4) => format!("198.51.100.{number}"),
            (Self::ExternalIp, Family::V6) => format!("2001:db8:e::{number}"),
            (Self::LoadBalancer, Family::V4) => format!("203.0.113.{number}"),
            (Self::LoadBalancer, Family::V6) => format!("2001:db8:f::{number}"),
            (Self::NodePort, _) => panic!("node ports are at the addresses of nodes"),
        };
        text.parse().expect("an address")
    }
}

/// The cluster IP of a Service.
pub(crate) fn cluster_ip(number: u8, family: Family) -> IpAddr {
    Frontend::ClusterIp.address(number, family)
}

/// The node port of a Service, by every protocol: of the lower band, where no port is given out to who does not ask
/// for one.
pub(crate) fn node_port(number: u8) -> u16 {
    30_000 + u16::from(number)
}

/// Two served nodes and an outside client that is routed through the first.
pub(crate) struct Stage {
    pub(crate) served: Served,
    pub(crate) near: Node,
    pub(crate) far: Node,
    pub(crate) outside: Outside,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// With these arguments for the proxies.
    pub(crate) fn with(arguments: &[&str]) -> Self {
        Self::prepare(|served, node| served.serve(node, arguments))
    }

    /// With exactly these arguments for the proxies.
    pub(crate) fn exactly(arguments: &[&str]) -> Self {
        Self::prepare(|served, node| served.serve_exactly(node, arguments))
    }

    /// With proxies that are started so.
    pub(crate) fn prepare(serve: impl Fn(&Served, &Node)) -> Self {
        let served = Served::new();
        let (near, far) = (served.node("n1"), served.node("n2"));
        serve(&served, &near);
        serve(&served, &far);
        let outside = served.cluster().outside("outside");
        BEHIND_NODES.iter().for_each(|range| outside.route(range, &near));
        served.settle();
        Self { served, near, far, outside }
    }

    /// A Service with nothing but its cluster IPs.
    pub(crate) fn internal(&self, name: &str, number: u8) -> objects::Service {
        let service = Family::BOTH
            .iter()
            .fold(objects::service(name), |service, family| service.cluster_ip(cluster_ip(number, *family)));
        self.served.mode().protocols.iter().fold(service, |service, protocol| {
            service.port(PORT).named(protocol.port_name()).protocol(*protocol).target(TARGET)
        })
    }

    /// A Service that can be reached in every way.
    pub(crate) fn published(&self, name: &str, number: u8) -> objects::Service {
        let service = Family::BOTH.iter().fold(objects::service(name), |service, family| {
            service
                .cluster_ip(cluster_ip(number, *family))
                .external_ip(Frontend::ExternalIp.address(number, *family))
                .load_balancer(Frontend::LoadBalancer.address(number, *family))
        });
        self.served.mode().protocols.iter().fold(service, |service, protocol| {
            let service = service.port(PORT).named(protocol.port_name()).protocol(*protocol).target(TARGET);
            service.node_port(node_port(number))
        })
    }

    /// Has these pods answer behind the Service `web`, the first by number, which can be reached in every way.
    pub(crate) fn web(&self, pods: &[&Pod]) {
        pods.iter().for_each(|pod| pod.echo(TARGET));
        self.served.put(&self.published("web", 1).json());
        self.endpoints("web", |slice| pods.iter().fold(slice, |slice, pod| slice.endpoint(pod)));
        self.served.settle();
    }

    /// Makes these the endpoints of a Service, in both families.
    pub(crate) fn endpoints(&self, service: &str, fill: impl Fn(objects::Slice) -> objects::Slice) {
        for slice in self.slices(service, fill) {
            self.served.put(&slice.json());
        }
    }

    /// Removes the slices of a Service.
    pub(crate) fn no_endpoints(&self, service: &str) {
        for slice in self.slices(service, |slice| slice) {
            self.served.remove(&slice.json());
        }
    }

    fn slices(&self, service: &str, fill: impl Fn(objects::Slice) -> objects::Slice) -> [objects::Slice; 2] {
        Family::BOTH.map(|family| {
            let slice = objects::slice(service).family(family);
            let protocols = self.served.mode().protocols.iter();
            fill(
                protocols
                    .fold(slice, |slice, protocol| slice.port(TARGET).named(protocol.port_name()).protocol(*protocol)),
            )
        })
    }

    /// Every protocol of the mode with every family.
    pub(crate) fn ways(&self) -> Vec<(Protocol, Family)> {
        let protocols = self.served.mode().protocols.iter();
        protocols.flat_map(|protocol| Family::BOTH.map(|family| (*protocol, family))).collect()
    }
}
