//! Totals over the reports of all nodes.
//!
//! In: reports, or the reasons why they are missing. Out: connections and bytes of each Service, port and backend. A total is unknown if
//! one node could not measure its part. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::why::report::{NoReport, ReportResult};

/// Connections and bytes; none where they were not measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Traffic {
    pub(super) connections: Option<u64>,
    pub(super) bytes: Option<u64>,
}

impl Traffic {
    /// No traffic.
    const NONE: Self = Self { connections: Some(0), bytes: Some(0) };

    fn read(backend: &Value) -> Self {
        Self { connections: backend["connections"].as_u64(), bytes: backend["bytes"].as_u64() }
    }

    fn and(self, other: Self) -> Self {
        let add = |one: Option<u64>, other: Option<u64>| Some(one?.saturating_add(other?));
        Self { connections: add(self.connections, other.connections), bytes: add(self.bytes, other.bytes) }
    }
}

/// A backend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Backend {
    pub(super) address: String,
    pub(super) traffic: Traffic,
    /// Whether a node still sends new connections to it.
    pub(super) planned: bool,
}

/// A port of a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Port {
    /// `http 80/TCP`.
    pub(super) name: String,
    pub(super) backends: Vec<Backend>,
}

/// A Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Service {
    pub(super) name: String,
    pub(super) ports: Vec<Port>,
}

/// The totals.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Totals {
    /// The nodes: the proxy mode of each, or why there is no report.
    pub(super) nodes: Vec<(String, Result<String, NoReport>)>,
    /// The Services, the busiest first.
    pub(super) services: Vec<Service>,
}

impl Port {
    pub(super) fn traffic(&self) -> Traffic {
        self.backends.iter().fold(Traffic::NONE, |totals, backend| totals.and(backend.traffic))
    }
}

impl Service {
    pub(super) fn traffic(&self) -> Traffic {
        self.ports.iter().fold(Traffic::NONE, |totals, port| totals.and(port.traffic()))
    }
}

type Ports = BTreeMap<String, BTreeMap<String, Backend>>;

impl Totals {
    /// The totals of Services of one namespace, or of all.
    pub(super) fn of(reports: &[(String, ReportResult)], namespace: Option<&str>) -> Self {
        let mut services: BTreeMap<String, Ports> = BTreeMap::new();
        let mut nodes = Vec::new();
        for (node, report) in reports {
            match report {
                Err(why) => nodes.push((node.clone(), Err(why.clone()))),
                Ok(report) => {
                    nodes.push((node.clone(), Ok(report["mode"].as_str().unwrap_or("?").to_owned())));
                    let all = report["services"].as_object().into_iter().flatten();
                    let of_namespace = |name: &str| name.split('/').next() == namespace;
                    for (name, service) in all.filter(|(name, _)| namespace.is_none() || of_namespace(name)) {
                        add(services.entry(name.clone()).or_default(), service);
                    }
                }
            }
        }
        let port = |(name, backends): (String, BTreeMap<String, Backend>)| Port {
            name,
            backends: backends.into_values().collect(),
        };
        let service = |(name, ports): (String, Ports)| Service { name, ports: ports.into_iter().map(port).collect() };
        let mut services: Vec<Service> = services.into_iter().map(service).collect();
        services.sort_by_key(|service| {
            let Traffic { connections, bytes } = service.traffic();
            std::cmp::Reverse((connections.unwrap_or_default(), bytes.unwrap_or_default()))
        });
        Self { nodes, services }
    }

    /// Whether there is a report.
    pub(super) fn is_measured(&self) -> bool {
        self.nodes.iter().any(|(_, mode)| mode.is_ok())
    }
}

/// Adds the report of one node about a Service.
fn add(ports: &mut Ports, service: &Value) {
    for port in service["ports"].as_array().into_iter().flatten() {
        let text = |member: &str| port[member].as_str().unwrap_or_default().to_owned();
        let number = port["port"].as_u64().unwrap_or_default();
        let name = format!("{} {number}/{}", text("name"), text("protocol")).trim_start().to_owned();
        let backends = ports.entry(name).or_default();
        for backend in port["backends"].as_array().into_iter().flatten() {
            let address = backend["address"].as_str().unwrap_or_default().to_owned();
            let planned = backend["planned"] != false;
            let known = backends.entry(address.clone());
            let known = known.or_insert(Backend { address, traffic: Traffic::NONE, planned: false });
            known.traffic = known.traffic.and(Traffic::read(backend));
            known.planned |= planned;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(backends: &Value) -> ReportResult {
        let ports = json!([{"name": "http", "protocol": "TCP", "port": 80, "backends": backends}]);
        Ok(json!({"mode": "nftables", "services": {"default/web": {"ports": ports}, "other/db": {"ports": []}}}))
    }

    fn backend(address: &str, connections: Option<u64>, bytes: Option<u64>) -> Value {
        json!({"address": address, "connections": connections, "bytes": bytes})
    }

    #[test]
    fn reports_of_nodes_are_added() {
        let reports = [
            ("n1".to_owned(), report(&json!([backend("a:1", Some(2), Some(10)), backend("b:1", Some(1), Some(1))]))),
            ("n2".to_owned(), report(&json!([backend("a:1", Some(3), Some(5))]))),
            ("n3".to_owned(), Err(NoReport("it is off".to_owned()))),
        ];
        let totals = Totals::of(&reports, None);
        assert_eq!(totals.nodes[2], ("n3".to_owned(), Err(NoReport("it is off".to_owned()))));
        let names: Vec<&str> = totals.services.iter().map(|service| service.name.as_str()).collect();
        assert_eq!(names, ["default/web", "other/db"], "the busiest first");
        let port = &totals.services[0].ports[0];
        assert_eq!(port.name, "http 80/TCP");
        assert_eq!(port.backends[0].traffic, Traffic { connections: Some(5), bytes: Some(15) });
        assert_eq!(totals.services[0].traffic(), Traffic { connections: Some(6), bytes: Some(16) });
        assert_eq!(Totals::of(&reports, Some("other")).services.len(), 1);
    }

    #[test]
    fn a_total_is_unknown_if_one_node_did_not_measure() {
        let reports = [
            ("n1".to_owned(), report(&json!([backend("a:1", Some(2), Some(10))]))),
            ("n2".to_owned(), report(&json!([backend("a:1", Some(3), None)]))),
        ];
        let traffic = Totals::of(&reports, None).services[0].traffic();
        assert_eq!(traffic, Traffic { connections: Some(5), bytes: None });
    }
}
