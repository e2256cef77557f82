//! The reports of all nodes, added up.
//!
//! In: reports, or why there is none. Out: for each Service, port and backend what all nodes together carry. What a node could not
//! measure makes the sum no number: it is not guessed. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::why::report::ReportResult;

/// What passes: nothing where it was not measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Passing {
    pub(super) connections: Option<u64>,
    pub(super) bytes: Option<u64>,
}

impl Passing {
    /// Nothing passes.
    const NOTHING: Self = Self { connections: Some(0), bytes: Some(0) };

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
    pub(super) passing: Passing,
    /// Whether a node still sends new connections there.
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

/// Everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Sum {
    /// The nodes: how each serves, or why it does not say.
    pub(super) nodes: Vec<(String, Result<String, String>)>,
    /// The Services, the busiest first.
    pub(super) services: Vec<Service>,
}

impl Port {
    pub(super) fn passing(&self) -> Passing {
        self.backends.iter().fold(Passing::NOTHING, |sum, backend| sum.and(backend.passing))
    }
}

impl Service {
    pub(super) fn passing(&self) -> Passing {
        self.ports.iter().fold(Passing::NOTHING, |sum, port| sum.and(port.passing()))
    }
}

type Ports = BTreeMap<String, BTreeMap<String, Backend>>;

impl Sum {
    /// Adds up what nodes report, of Services of one namespace or of all.
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
            let Passing { connections, bytes } = service.passing();
            std::cmp::Reverse((connections.unwrap_or_default(), bytes.unwrap_or_default()))
        });
        Self { nodes, services }
    }

    /// Whether some node reports.
    pub(super) fn is_measured(&self) -> bool {
        self.nodes.iter().any(|(_, told)| told.is_ok())
    }
}

/// Adds what one node says of a Service.
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
            let known = known.or_insert(Backend { address, passing: Passing::NOTHING, planned: false });
            known.passing = known.passing.and(Passing::read(backend));
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
    fn nodes_are_added_up() {
        let reports = [
            ("n1".to_owned(), report(&json!([backend("a:1", Some(2), Some(10)), backend("b:1", Some(1), Some(1))]))),
            ("n2".to_owned(), report(&json!([backend("a:1", Some(3), Some(5))]))),
            ("n3".to_owned(), Err("it is off".to_owned())),
        ];
        let sum = Sum::of(&reports, None);
        assert_eq!(sum.nodes[2], ("n3".to_owned(), Err("it is off".to_owned())));
        let names: Vec<&str> = sum.services.iter().map(|service| service.name.as_str()).collect();
        assert_eq!(names, ["default/web", "other/db"], "the busiest first");
        let port = &sum.services[0].ports[0];
        assert_eq!(port.name, "http 80/TCP");
        assert_eq!(port.backends[0].passing, Passing { connections: Some(5), bytes: Some(15) });
        assert_eq!(sum.services[0].passing(), Passing { connections: Some(6), bytes: Some(16) });
        assert_eq!(Sum::of(&reports, Some("other")).services.len(), 1);
    }

    #[test]
    fn what_one_node_cannot_measure_is_not_guessed() {
        let reports = [
            ("n1".to_owned(), report(&json!([backend("a:1", Some(2), Some(10))]))),
            ("n2".to_owned(), report(&json!([backend("a:1", Some(3), None)]))),
        ];
        let passing = Sum::of(&reports, None).services[0].passing();
        assert_eq!(passing, Passing { connections: Some(5), bytes: None });
    }
}
