//! Sources and targets in arguments.
//!
//! In: arguments such as `web-1`, `10.0.0.7`, `node`, `outside`; `web:80`, `web.shop:http`, `10.96.0.5:80`, `30080`. Out: addresses and
//! ports, resolved from the objects, or an error with suggestions.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, anyhow, bail, ensure};
use api::ip::Family;
use api::view::service::ServicePort as Port;
use api::view::{Pod, Service};
use plan::{Planner, Protocol};

use crate::why::cluster::ClusterObjects;

/// The source of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// The node itself.
    Node,
    /// A client outside of the cluster.
    Outside,
    /// This address.
    Address(IpAddr),
    /// This Pod: its name, with or without its namespace.
    Pod(String),
}

/// The destination of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// An address and a port.
    Address(SocketAddr),
    /// A port of the node.
    NodePort(u16),
    /// A Service, its namespace if given, and a port by number or name.
    Service(String, Option<String>, Option<String>),
}

/// Source and target; an arrow may be between them.
pub(super) fn split<'a>(words: &[&'a str]) -> anyhow::Result<(&'a str, &'a str)> {
    let usage = "say who sends and where to: `waypost trace web-1 db:5432`";
    match *words {
        [source, "-"] => {
            bail!(
                "your shell took `>` for a file to write to; leave the arrow out: `waypost trace {source} SERVICE:PORT`"
            )
        }
        [source, target] => Ok((source, target)),
        [source, "->" | "→" | "to", target] => Ok((source, target)),
        [one] => match one.split_once("->").or_else(|| one.split_once('→')) {
            Some((source, target)) => Ok((source.trim(), target.trim())),
            None => bail!("{usage}"),
        },
        _ => bail!("{usage}"),
    }
}

impl Source {
    pub(super) fn read(text: &str) -> anyhow::Result<Self> {
        ensure!(!text.is_empty(), "say who sends: a Pod, an address, `node` or `outside`");
        Ok(match text {
            "node" => Self::Node,
            "outside" => Self::Outside,
            _ => match text.trim_matches(['[', ']']).parse::<IpAddr>() {
                Ok(ip) => Self::Address(ip.to_canonical()),
                Err(_) => {
                    let name = ["pod/", "pods/", "po/"].iter().find_map(|kind| text.strip_prefix(kind));
                    Self::Pod(name.unwrap_or(text).to_owned())
                }
            },
        })
    }

    /// The node of the source, if it has one.
    pub(super) fn node(&self, cluster: &ClusterObjects, namespace: &str) -> anyhow::Result<Option<String>> {
        let pod = match self {
            Self::Node | Self::Outside => return Ok(None),
            Self::Address(ip) => {
                let of_node = cluster.nodes.iter().find(|node| node.addresses().contains(ip));
                if let Some(node) = of_node {
                    return Ok(Some(node.metadata.name.to_string()));
                }
                let key = cluster.pod_at(&ip.to_string());
                key.and_then(|key| cluster.pods.iter().find(|pod| pod.metadata.key() == key))
            }
            Self::Pod(name) => Some(pod(cluster, namespace, name)?),
        };
        Ok(pod.map(|pod| pod.spec.node_name.to_string()).filter(|node| !node.is_empty()))
    }

    /// The address family of the source, if it has only one.
    pub(super) fn family(&self, cluster: &ClusterObjects, namespace: &str) -> anyhow::Result<Option<Family>> {
        Ok(match self {
            Self::Node | Self::Outside => None,
            Self::Address(ip) => Some(Family::of(*ip)),
            Self::Pod(name) => {
                let pod = pod(cluster, namespace, name)?;
                let has = |family| pod_address(pod, family).is_ok();
                match (has(Family::V4), has(Family::V6)) {
                    (true, false) => Some(Family::V4),
                    (false, true) => Some(Family::V6),
                    (true, true) => None,
                    (false, false) => {
                        bail!("the Pod {} has no address yet; `waypost get pod {name}`", pod.metadata.key())
                    }
                }
            }
        })
    }
}

/// The Pod of a name, with or without its namespace: `shop/web-1`.
pub(super) fn pod<'a>(cluster: &'a ClusterObjects, namespace: &str, name: &str) -> anyhow::Result<&'a Pod> {
    let (namespace, name) = name.split_once('/').unwrap_or((namespace, name));
    let named = || cluster.pods.iter().filter(|pod| &*pod.metadata.name == name);
    if let Some(found) = named().find(|pod| &*pod.metadata.namespace == namespace) {
        return Ok(found);
    }
    match named().next() {
        Some(other) => bail!("there is no Pod {namespace}/{name}, but there is {}; name that", other.metadata.key()),
        None => bail!("there is no Pod {namespace}/{name}; `waypost get pods -A` lists those there are"),
    }
}

/// The address of a Pod in a family.
pub(super) fn pod_address(pod: &Pod, family: Family) -> anyhow::Result<IpAddr> {
    let all = pod.status.pod_ips.iter().filter_map(|one| one.ip.parse::<IpAddr>().ok());
    all.into_iter()
        .find(|ip| Family::of(*ip) == family)
        .with_context(|| format!("the Pod {} has no {} address", pod.metadata.key(), family.as_str()))
}

impl Target {
    pub(super) fn read(text: &str) -> anyhow::Result<Self> {
        if let Ok(at) = text.parse::<SocketAddr>() {
            return Ok(Self::Address(SocketAddr::new(at.ip().to_canonical(), at.port())));
        }
        if text.parse::<IpAddr>().is_ok() {
            bail!("{text:?} has no port; write {text}:80");
        }
        let node_port = text.strip_prefix("node:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
        if let Ok(port) = node_port.parse::<u16>() {
            return Ok(Self::NodePort(port));
        }
        let text = ["svc/", "service/", "services/"].iter().find_map(|kind| text.strip_prefix(kind)).unwrap_or(text);
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, Some(port.to_owned())),
            None => (text, None),
        };
        let mut labels = name.split('.');
        let name = labels.next().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| anyhow!("{text:?} names no Service; write SERVICE:PORT"))?;
        Ok(Self::Service(name.to_owned(), labels.next().map(str::to_owned), port))
    }

    /// The Service that has this address or port.
    pub(super) fn service<'a>(&self, cluster: &'a ClusterObjects, namespace: &str) -> Option<&'a Service> {
        let mut all = cluster.services.iter();
        match self {
            Self::Address(at) => all.find(|one| has_address(one, at.ip())),
            Self::NodePort(number) => all.find(|one| one.spec.ports.iter().any(|port| port.node_port == *number)),
            Self::Service(name, own, _) => cluster.service(own.as_deref().unwrap_or(namespace), name).ok(),
        }
    }

    /// The address, the port and the protocol.
    pub(super) fn find(
        &self,
        cluster: &ClusterObjects,
        planner: &Planner,
        namespace: &str,
        family: Option<Family>,
        asked: Option<Protocol>,
    ) -> anyhow::Result<(IpAddr, u16, Protocol)> {
        match self {
            Self::Address(at) => {
                let ports =
                    cluster.services.iter().filter(|one| has_address(one, at.ip())).flat_map(|one| &one.spec.ports);
                let known = protocol(ports.filter(|port| port.port == at.port()));
                Ok((at.ip(), at.port(), asked.or(known).unwrap_or(Protocol::Tcp)))
            }
            Self::NodePort(number) => {
                let plan = planner.plan();
                let family = family.unwrap_or(Family::V4);
                let here = plan.node_port_ips.iter().chain(&plan.node_ips).find(|ip| Family::of(**ip) == family);
                let node = &plan.options.node_name;
                let here = here.with_context(|| format!("the node {node} has no {} address", family.as_str()))?;
                let ports = cluster.services.iter().flat_map(|one| &one.spec.ports);
                let known = protocol(ports.filter(|port| port.node_port == *number));
                Ok((*here, *number, asked.or(known).unwrap_or(Protocol::Tcp)))
            }
            Self::Service(name, own, port) => {
                let service = cluster.service(own.as_deref().unwrap_or(namespace), name)?;
                let port = port_of(service, port.as_deref(), asked)?;
                let address = address_of(service, family)?;
                let number = port.port;
                Ok((address, number, port.protocol.unwrap_or(Protocol::Tcp)))
            }
        }
    }
}

/// Whether packets to an address are for a Service.
fn has_address(service: &Service, ip: IpAddr) -> bool {
    let spec = &service.spec;
    let ingress = service.status.load_balancer.ingress.iter().map(|one| &one.ip);
    let all = spec.cluster_ips.iter().chain([&spec.cluster_ip]).chain(&spec.external_ips).chain(ingress);
    all.into_iter().any(|text| api::ip::parse_lenient(text) == Some(ip))
}

/// The protocol of ports; TCP where there are several.
fn protocol<'a>(ports: impl Iterator<Item = &'a Port>) -> Option<Protocol> {
    ports.filter_map(|port| port.protocol).min()
}

/// The requested port of a Service.
fn port_of<'a>(service: &'a Service, asked: Option<&str>, protocol: Option<Protocol>) -> anyhow::Result<&'a Port> {
    let ports = &service.spec.ports;
    let key = service.metadata.key();
    let list = || {
        let one = |port: &Port| format!("{} {}", port.port, port.name).trim_end().to_owned();
        ports.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let fits = |port: &&Port| protocol.is_none_or(|protocol| port.protocol == Some(protocol));
    match asked {
        Some(asked) => {
            let meant = |port: &&Port| &*port.name == asked || asked.parse() == Ok(port.port);
            let mut found: Vec<&Port> = ports.iter().filter(meant).filter(fits).collect();
            found.sort_by_key(|port| port.protocol);
            let first = found.first().copied();
            first.with_context(|| format!("the Service {key} has no port {asked}; it has: {}", list()))
        }
        None => match &ports.iter().filter(fits).collect::<Vec<_>>()[..] {
            [only] => Ok(*only),
            _ => bail!("the Service {key} has several ports or none; add one of: {}", list()),
        },
    }
}

/// The address of a Service in a family.
fn address_of(service: &Service, family: Option<Family>) -> anyhow::Result<IpAddr> {
    let key = service.metadata.key();
    let both = [Family::V4, Family::V6];
    let wanted = both.into_iter().filter(|one| family.is_none_or(|family| family == *one));
    let found = wanted.into_iter().find_map(|family| service.cluster_ip(family));
    found.with_context(|| match (&*service.spec.kind, &*service.spec.cluster_ip, family) {
        ("ExternalName", ..) => format!("{key} is another name and has no address; `waypost dig` shows where it leads"),
        (_, "None", _) => format!(
            "{key} is headless: no packet is sent to it, but to its endpoints; `waypost explain svc/{}`",
            service.metadata.name
        ),
        (_, _, Some(family)) => format!("{key} has no {} address, and the sender has no other", family.as_str()),
        _ => format!("{key} has no address yet"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        text.split(' ').collect()
    }

    #[test]
    fn the_arrow_is_optional() {
        for text in ["web-1 db:80", "web-1 -> db:80", "web-1 to db:80", "web-1->db:80"] {
            let words = words(text);
            assert_eq!(split(&words).ok(), Some(("web-1", "db:80")), "{text}");
        }
        let taken = split(&words("web-1 -")).map_err(|error| error.to_string());
        assert!(taken.is_err_and(|error| error.contains("your shell took `>`")));
        assert!(split(&words("web-1")).is_err());
    }

    #[test]
    fn sources_are_parsed() {
        assert_eq!(Source::read("node").ok(), Some(Source::Node));
        assert_eq!(Source::read("outside").ok(), Some(Source::Outside));
        assert_eq!(Source::read("10.0.0.1").ok(), Some(Source::Address([10, 0, 0, 1].into())));
        assert_eq!(Source::read("pod/web-1").ok(), Some(Source::Pod("web-1".to_owned())));
        assert_eq!(Source::read("shop/web-1").ok(), Some(Source::Pod("shop/web-1".to_owned())));
    }

    #[test]
    fn targets_are_parsed() {
        let service = |name: &str, namespace: Option<&str>, port: Option<&str>| {
            Some(Target::Service(name.to_owned(), namespace.map(str::to_owned), port.map(str::to_owned)))
        };
        assert_eq!(Target::read("db:5432").ok(), service("db", None, Some("5432")));
        assert_eq!(Target::read("svc/db").ok(), service("db", None, None));
        assert_eq!(Target::read("db.shop:sql").ok(), service("db", Some("shop"), Some("sql")));
        assert_eq!(Target::read("db.shop.svc.cluster.local:80").ok(), service("db", Some("shop"), Some("80")));
        let at = "[fd00::1]:80".parse().expect("an address and a port");
        assert_eq!(Target::read("[fd00::1]:80").ok(), Some(Target::Address(at)));
        assert_eq!(Target::read("30080").ok(), Some(Target::NodePort(30080)));
        assert_eq!(Target::read("node:30080").ok(), Some(Target::NodePort(30080)));
        assert!(Target::read("10.96.0.1").is_err_and(|error| error.to_string().contains("has no port")));
        assert!(Target::read("").is_err());
    }
}
