//! A test node with Services, built from short descriptions.

use std::net::IpAddr;

use api::ip::Family;
use api::view::{EndpointSlice, Node, Service, ServiceCidr};
use plan::oracle::{Forward, Outcome, Packet, judge};
use plan::{Options, Planner, PortKey, Protocol, ServicePort, Touched, Update};
use serde_json::{Value, json};

/// The node whose proxy is planned.
pub(crate) const HERE: &str = "here";
/// Its address.
pub(crate) const NODE: &str = "192.0.2.1";
/// A Pod on it.
pub(crate) const POD: &str = "10.244.1.9";
/// A client outside the cluster.
pub(crate) const STRANGER: &str = "203.0.113.9";

/// A planner with query helpers.
pub(crate) struct World(pub(crate) Planner);

impl World {
    /// A node with an address in zone `a`, and nothing else.
    pub(crate) fn new() -> Self {
        Self::with(options())
    }

    pub(crate) fn with(options: Options) -> Self {
        let mut planner = Planner::new(options);
        planner.update(node(NODE, Some("a")));
        Self(planner)
    }

    pub(crate) fn say(&mut self, update: Update) -> Touched {
        self.0.update(update)
    }

    /// The port `namespace/name:port/protocol`.
    pub(crate) fn port(&self, name: &str) -> &ServicePort {
        self.find(name, Family::V4).unwrap_or_else(|| panic!("{name} is not planned"))
    }

    pub(crate) fn find(&self, name: &str, family: Family) -> Option<&ServicePort> {
        self.0
            .plan()
            .ports
            .values()
            .find(|port| port.key.to_string() == name && port.key.family == family)
            .map(|port| &**port)
    }

    /// All problems, as `service: sentence`.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.0.problems().map(|problem| format!("{}: {}", problem.service, problem.what)).collect()
    }

    /// What happens to a TCP packet.
    pub(crate) fn judge(&self, source: &str, to: &str, port: u16) -> Outcome {
        self.judge_packet(&packet(source, to, port))
    }

    pub(crate) fn judge_packet(&self, packet: &Packet) -> Outcome {
        judge(self.0.plan(), packet)
    }

    pub(crate) fn forward(&self, source: &str, to: &str, port: u16) -> Forward {
        match self.judge(source, to, port) {
            Outcome::Forward(forward) => forward,
            other => panic!("{source} to {to}:{port}: {other:?}"),
        }
    }
}

pub(crate) fn options() -> Options {
    Options { node_name: HERE.to_owned(), ..Options::default() }
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is not an address"))
}

pub(crate) fn packet(source: &str, to: &str, port: u16) -> Packet {
    let from_node = [NODE, "2001:db8::1"].contains(&source);
    let from_pod = source.starts_with("10.244.") || source.starts_with("fd00:10:244:");
    let interface = if from_pod { "veth7" } else { "eth0" };
    Packet {
        source: ip(source),
        from_node,
        interface: (!from_node).then(|| interface.to_owned()),
        destination: ip(to),
        protocol: Protocol::Tcp,
        port,
    }
}

pub(crate) fn read_service(object: Value) -> Update {
    Update::Service(Box::new(serde_json::from_value::<Service>(object).expect("a Service")))
}

/// A Service `default/<name>` of this spec.
pub(crate) fn service(name: &str, spec: Value) -> Update {
    service_with(name, spec, json!({}))
}

pub(crate) fn service_with(name: &str, spec: Value, status: Value) -> Update {
    let mut object = json!({"metadata": {"namespace": "default", "name": name}});
    object["spec"] = spec;
    object["status"] = status;
    read_service(object)
}

/// A Service with a cluster IP and a TCP port 80.
pub(crate) fn simple(name: &str, cluster_ip: &str) -> Update {
    service(
        name,
        json!({"clusterIP": cluster_ip, "clusterIPs": [cluster_ip], "ports": [{"port": 80, "protocol": "TCP"}]}),
    )
}

pub(crate) fn read_slice(object: Value) -> Update {
    Update::Slice(serde_json::from_value::<EndpointSlice>(object).expect("a slice"))
}

/// A slice `default/<name>` of a Service with a nameless port 8080, and endpoints from [`endpoint`].
pub(crate) fn slice(name: &str, service: &str, endpoints: &str) -> Update {
    slice_of(name, service, "IPv4", &json!([{"name": "", "port": 8080, "protocol": "TCP"}]), endpoints)
}

pub(crate) fn slice_of(name: &str, service: &str, family: &str, ports: &Value, endpoints: &str) -> Update {
    let endpoints: Vec<Value> = endpoints.split_whitespace().map(endpoint).collect();
    read_slice(json!({
        "metadata": {"namespace": "default", "name": name, "labels": {"kubernetes.io/service-name": service}},
        "addressType": family, "ports": ports, "endpoints": endpoints,
    }))
}

/// An endpoint: `address`, or `address=rstl` with letters for ready, serving, terminating and local, then `/zone` for
/// each zone and `@node` for each node it should serve. A number is the address `10.244.0.<number>`.
pub(crate) fn endpoint(text: &str) -> Value {
    let (address, rest) = text.split_once('=').unwrap_or((text, "rs"));
    let letters = rest.split(['/', '@']).next().unwrap_or_default();
    let hints = |mark: char| -> Vec<Value> {
        let parts = rest.split_inclusive(['/', '@']).zip(rest.split(['/', '@']).skip(1));
        parts.filter(|(before, _)| before.ends_with(mark)).map(|(_, name)| json!({"name": name})).collect()
    };
    let address = if address.parse::<u8>().is_ok() { format!("10.244.0.{address}") } else { address.to_owned() };
    let is = |letter: char| letters.contains(letter);
    json!({
        "addresses": [address],
        "conditions": {"ready": is('r'), "serving": is('s'), "terminating": is('t')},
        "nodeName": if is('l') { HERE } else { "there" },
        "hints": {"forZones": hints('/'), "forNodes": hints('@')},
    })
}

pub(crate) fn node(address: &str, zone: Option<&str>) -> Update {
    let labels = zone.map_or_else(|| json!({}), |zone| json!({"topology.kubernetes.io/zone": zone}));
    read_node(json!({
        "metadata": {"name": HERE, "labels": labels},
        "status": {"addresses": [{"type": "Hostname", "address": "here"}, {"type": "InternalIP", "address": address}]},
    }))
}

pub(crate) fn read_node(object: Value) -> Update {
    Update::Node(Some(Box::new(serde_json::from_value::<Node>(object).expect("a Node"))))
}

pub(crate) fn cidr(name: &str, ranges: &[&str]) -> Update {
    let object = json!({"metadata": {"name": name}, "spec": {"cidrs": ranges}});
    Update::Cidr(serde_json::from_value::<ServiceCidr>(object).expect("a ServiceCIDR"))
}

/// Touched ports, by name.
pub(crate) fn names(touched: &Touched) -> Vec<String> {
    touched.ports.iter().map(PortKey::to_string).collect()
}

/// Last parts of the backends' addresses: `1,2`.
pub(crate) fn ends(backends: &[plan::Backend]) -> String {
    let end = |one: &plan::Backend| one.ip.to_string().rsplit(['.', ':']).next().unwrap_or_default().to_owned();
    backends.iter().map(end).collect::<Vec<_>>().join(",")
}
