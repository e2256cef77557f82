//! Nodes on one wire that serve and announce, and an outside client on the same wire.

use std::net::IpAddr;

use kernel::packets::Mac;
use serde_json::Value;
use testbed::net::objects::{self, service, slice};
use testbed::net::{Family, Mode, Node, Outside, Pod, Protocol, Served, eventually};

use super::wire;

/// The port of every Service here, and of the endpoints behind it.
pub(super) const PORT: u16 = 80;
pub(super) const TARGET: u16 = 8080;
/// What nodes do here.
const ROLES: [&str; 2] = ["--roles", "proxy,announce"];

pub(super) struct Stage {
    pub(super) served: Served,
    pub(super) nodes: Vec<Node>,
    /// Their addresses on the wire.
    macs: Vec<Mac>,
    pub(super) outside: Outside,
}

/// The address of the load balancer of this number, on the wire of nodes and clients.
pub(super) fn vip(number: u8, family: Family) -> IpAddr {
    let text = match family {
        Family::V4 => format!("192.0.2.{}", 200 + number),
        Family::V6 => format!("2001:db8::c:{number}"),
    };
    text.parse().expect("an address")
}

impl Stage {
    pub(super) fn new(names: &[&str]) -> Self {
        // No kubelet sends heartbeats: the grace period keeps these Nodes ready.
        let served = Served::with_server(Mode::under_test(), &["--node-monitor-grace-period", "3600"]);
        let nodes: Vec<Node> = names.iter().map(|name| served.node(name)).collect();
        nodes.iter().for_each(|node| served.serve(node, &ROLES));
        let outside = served.cluster().outside("outside");
        served.settle();
        let macs = nodes.iter().map(|node| wire::mac_of(node)).collect();
        Self { served, nodes, macs, outside }
    }

    /// A Service with an address of each family, announced by layer 2.
    pub(super) fn service(&self, name: &str, number: u8) -> objects::Service {
        let base = Family::BOTH.iter().fold(service(name), |service, family| {
            let cluster_ip = match family {
                Family::V4 => format!("10.96.0.{}", 60 + number),
                Family::V6 => format!("fd00:10:96::{:x}", 0x60 + number),
            };
            service.cluster_ip(cluster_ip).load_balancer(vip(number, *family))
        });
        let base = base.spec("loadBalancerClass", "waypost.dev/l2").spec("allocateLoadBalancerNodePorts", false);
        self.protocols().iter().fold(base, |service, protocol| {
            service.port(PORT).named(protocol.port_name()).protocol(*protocol).target(TARGET)
        })
    }

    pub(super) fn protocols(&self) -> &'static [Protocol] {
        self.served.mode().protocols
    }

    /// Makes these the endpoints of a Service, in both families.
    pub(super) fn endpoints(&self, name: &str, pods: &[&Pod]) {
        for family in Family::BOTH {
            let slice = self.protocols().iter().fold(slice(name).family(family), |slice, protocol| {
                slice.port(TARGET).named(protocol.port_name()).protocol(*protocol)
            });
            self.served.put(&pods.iter().fold(slice, |slice, pod| slice.endpoint(pod)).json());
        }
    }

    /// A pod on each node, behind the Service `web` of this number.
    pub(super) fn web(&self, number: u8) -> Vec<Pod> {
        let pods: Vec<Pod> = self.nodes.iter().map(|node| node.pod(&format!("web-{}", node.name()))).collect();
        pods.iter().for_each(|pod| pod.echo(TARGET));
        self.endpoints("web", &pods.iter().collect::<Vec<_>>());
        self.served.put(&self.service("web", number).json());
        self.served.settle();
        pods
    }

    /// Waits until the client reaches an address, and returns the pod that responded.
    #[track_caller]
    pub(super) fn reached(&self, ip: IpAddr) -> String {
        let mut name = String::new();
        eventually(&format!("{ip} is reached"), || {
            let answer = self.outside.ask(Protocol::Tcp, ip, PORT);
            answer.map(|answer| name = answer.name).is_ok()
        });
        name
    }

    /// The node that has this address on the wire.
    #[track_caller]
    pub(super) fn node_of(&self, mac: Mac) -> &Node {
        let place = self.macs.iter().position(|known| *known == mac);
        &self.nodes[place.unwrap_or_else(|| panic!("{mac} is no node of ours"))]
    }

    /// Waits until a node responds for an address, and returns it.
    #[track_caller]
    pub(super) fn owner(&self, ip: IpAddr) -> &Node {
        let mut wire = wire::Wire::of(&self.outside);
        let mut found = Vec::new();
        eventually(&format!("somebody answers for {ip}"), || {
            found = wire.who_has(ip);
            !found.is_empty()
        });
        assert_eq!(found.len(), 1, "{found:?} answer for {ip}");
        self.node_of(found[0])
    }

    /// Events of a Service with this reason.
    pub(super) fn events(&self, service: &str, reason: &str) -> Vec<String> {
        let all = self.served.session(|session| session.items("/api/v1/namespaces/default/events"));
        let meant = |event: &&Value| event["involvedObject"]["name"] == service && event["reason"] == reason;
        let text = |event: &Value| event["message"].as_str().unwrap_or_default().to_owned();
        all.iter().filter(meant).map(text).collect()
    }

    /// The Leases of announcers, by name: who holds them.
    pub(super) fn leases(&self) -> Vec<(String, String)> {
        let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?labelSelector=waypost.dev/announcer";
        let all = self.served.session(|session| session.items(path));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        all.iter().map(|lease| (text(&lease["metadata"]["name"]), text(&lease["spec"]["holderIdentity"]))).collect()
    }
}
