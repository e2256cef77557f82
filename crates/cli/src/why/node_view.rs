//! Services as a node serves them: a planner with the inputs and options of the node's proxy.
//!
//! In: the objects, the name of a node, and its report if there is one. Out: a planner. Without a report the options of its proxy are not
//! known; the answer states the assumption.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{bail, ensure};
use api::view::Service;
use ipnet::IpNet;
use plan::{
    DataPlane, LocalDetector, NodePortAddresses, Options, Planner, Protocol, Redirect, RedirectedFrontends, ServicePortName,
    Update, lenient_ranges,
};
use serde_json::Value;

use super::cluster::ClusterObjects;
use super::report::{self, ReportResult};
use crate::api_client::ApiClient;

/// A node's view.
pub(super) struct NodeView {
    pub(super) planner: Planner,
    /// The name of the node.
    pub(super) node: String,
    /// Its report.
    pub(super) report: ReportResult,
}

impl NodeView {
    /// The view of a node, with its report about `service`.
    pub(super) async fn of(api: &mut ApiClient, cluster: &ClusterObjects, node: &str, service: &str) -> Self {
        let report = report::fetch(api, node, Some(service)).await;
        Self { planner: planner(cluster, node, report.as_ref().ok()), node: node.to_owned(), report }
    }

    /// The assumption made without a report.
    pub(super) fn assumption(&self) -> Option<String> {
        let why = self.report.as_ref().err()?;
        Some(format!(
            "not measured on node {}: {why}; its proxy is assumed to have default settings and to be synced",
            self.node
        ))
    }
}

/// The node of an answer: the named one, this machine, or the first.
pub(super) fn choose(cluster: &ClusterObjects, named: Option<&str>) -> anyhow::Result<String> {
    let names = || cluster.nodes.iter().map(|node| &*node.metadata.name);
    if let Some(name) = named {
        ensure!(
            names().any(|one| one == name) || cluster.nodes.is_empty(),
            "there is no Node {name}; there are: {}",
            names().collect::<Vec<_>>().join(", ")
        );
        return Ok(name.to_owned());
    }
    let host = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    let chosen = names().find(|name| **name == *host).or_else(|| names().min());
    Ok(chosen.map_or(host, str::to_owned))
}

/// A planner with the inputs of this node.
pub(super) fn planner(cluster: &ClusterObjects, node: &str, report: Option<&Value>) -> Planner {
    let (options, machine) = options(cluster, node, report);
    let mut planner = Planner::new(options);
    let own = cluster.nodes.iter().find(|one| &*one.metadata.name == node).cloned();
    let services = cluster.services.iter().cloned().map(|one| Update::Service(Box::new(one)));
    let redirects = report.map(redirects).unwrap_or_default();
    planner.update_all(
        [Update::Node(own.map(Box::new)), Update::Machine(machine), Update::Redirects(Arc::new(redirects))]
            .into_iter()
            .chain(cluster.cidrs.iter().cloned().map(Update::Cidr))
            .chain(services)
            .chain(report.map(leaders).unwrap_or_default())
            .chain(cluster.slices.iter().cloned().map(Update::Slice)),
    );
    planner
}

/// The holders of Leases that a node reports.
fn leaders(report: &Value) -> Vec<Update> {
    let leases = report["leaders"].as_object().into_iter().flatten();
    leases.map(|(lease, holder)| Update::Leader(lease.as_str().into(), holder.as_str().map(Into::into))).collect()
}

/// The redirects that a node reports.
fn redirects(report: &Value) -> BTreeSet<Redirect> {
    let services = report["services"].as_object().into_iter().flatten();
    let ports = services.flat_map(|(service, reported)| {
        reported["ports"].as_array().into_iter().flatten().map(move |port| (service, port))
    });
    let name = |value: &Value| -> Option<ServicePortName> {
        Some(ServicePortName { service: value["service"].as_str()?.into(), port: value["port"].as_str()?.into() })
    };
    let redirect = |(service, port): (&String, &Value)| {
        let redirect = &port["redirect"];
        // Nodes of earlier releases report the listener as the endpoint only, and redirect no cluster IPs.
        let listener = redirect["listener"].as_str().or_else(|| port["backends"][0]["address"].as_str());
        Some(Redirect {
            service: service.as_str().into(),
            port: port["name"].as_str()?.into(),
            protocol: Protocol::named(port["protocol"].as_str()?)?,
            frontends: match redirect["frontends"].as_str() {
                Some(frontends) if frontends == RedirectedFrontends::ClusterIp.as_str() => {
                    RedirectedFrontends::ClusterIp
                }
                _ => RedirectedFrontends::LoadBalancer,
            },
            listener: listener?.parse().ok()?,
            direct: name(&redirect["direct"]),
            backends: redirect["backends"].as_array().into_iter().flatten().filter_map(name).collect(),
        })
    };
    ports.filter(|(_, port)| port["redirected"] == true).filter_map(redirect).collect()
}

/// The options of a node's proxy, and the addresses on which it serves node ports.
fn options(cluster: &ClusterObjects, node: &str, report: Option<&Value>) -> (Options, BTreeSet<IpAddr>) {
    let usual = Options {
        node_name: node.to_owned(),
        local: local_detector(cluster.nodes.iter().flat_map(|node| lenient_ranges(&node.spec.pod_cidrs)).collect()),
        rootless: cluster
            .cidrs
            .iter()
            .any(|cidr| lenient_ranges(&cidr.spec.cidrs).any(|range| range.addr().is_loopback())),
        ..Options::default()
    };
    let Some(options) = report.map(|report| &report["options"]).filter(|options| options.is_object()) else {
        return (usual, BTreeSet::new());
    };
    let mode = report.and_then(|report| report["mode"].as_str()).unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let pods = &options["pods"];
    let texts = pods["ranges"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ranges: Vec<IpNet> = texts.iter().filter_map(|text| text.as_str()?.parse().ok()).collect();
    let local = match (text(&pods["interface"]), text(&pods["interfacePrefix"])) {
        (Some(name), _) => LocalDetector::Interface(name),
        (None, Some(prefix)) => LocalDetector::InterfacePrefix(prefix),
        (None, None) => local_detector(ranges),
    };
    let machine = serde_json::from_value(options["nodePortIPs"].clone()).unwrap_or_default();
    let options = Options {
        masquerade_all: options["masqueradeAll"] == true,
        rootless: options["rootless"] == true,
        local,
        data_plane: DataPlane::of_mode(mode),
        // The report names exactly these addresses.
        node_port_addresses: NodePortAddresses::All,
        ..usual
    };
    (options, machine)
}

fn local_detector(ranges: Vec<IpNet>) -> LocalDetector {
    if ranges.is_empty() { LocalDetector::None } else { LocalDetector::Ranges(ranges) }
}

/// `svc/NAME`, `service/NAME`, or the name alone.
pub(super) fn service_name(text: &str) -> anyhow::Result<&str> {
    match text.split_once('/') {
        None => Ok(text),
        Some(("svc" | "service" | "services", name)) => Ok(name),
        Some((kind, name)) => bail!(
            "`{kind}/{name}` is no Service, Gateway, route or Ingress: write `svc/{name}` or `route/{name}`; the fields of a kind are explained by `waypost explain KIND`"
        ),
    }
}

/// The type of a Service.
pub(super) fn kind(service: &Service) -> &str {
    match &*service.spec.kind {
        "" => "ClusterIP",
        kind => kind,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn redirects_are_read_from_the_report_of_a_node() {
        let port = |redirect: Value| {
            json!({"services": {"shop/public-waypost": {"ports": [
                {"name": "tcp-80", "protocol": "TCP", "redirected": false, "redirect": null, "backends": []},
                {"name": "tcp-80", "protocol": "TCP", "redirected": true, "redirect": redirect,
                 "backends": [{"address": "192.0.2.1:41000"}]},
            ]}}})
        };
        let redirect = |direct: Option<ServicePortName>| Redirect {
            service: "shop/public-waypost".into(),
            port: "tcp-80".into(),
            protocol: Protocol::Tcp,
            frontends: RedirectedFrontends::LoadBalancer,
            listener: "192.0.2.1:41000".parse().expect("an address"),
            backends: direct.iter().cloned().collect(),
            direct,
        };
        let name = json!({"service": "shop/db", "port": ""});
        let reported = json!({"listener": "192.0.2.1:41000", "direct": name, "backends": [name]});
        let db = ServicePortName { service: "shop/db".into(), port: "".into() };
        assert_eq!(redirects(&port(reported)), [redirect(Some(db))].into());
        let of_program = json!({"listener": "192.0.2.1:41000", "direct": null, "backends": []});
        assert_eq!(redirects(&port(of_program)), [redirect(None)].into());
        assert_eq!(redirects(&port(Value::Null)), [redirect(None)].into(), "of an earlier release");
        let of_cluster_ip =
            json!({"frontends": "ClusterIP", "listener": "192.0.2.1:41000", "direct": null, "backends": []});
        let layer7 = Redirect { frontends: RedirectedFrontends::ClusterIp, ..redirect(None) };
        assert_eq!(redirects(&port(of_cluster_ip)), [layer7].into());
    }
}
