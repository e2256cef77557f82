//! Parses a Service into ports per family, without endpoints.
//!
//! In: the object. Out: Service ports without endpoints, cluster IPs, and problems with what had to be ignored. A port
//! that uses the gateway is two: one without load-balancer addresses, and a redirected one with them.

use std::net::IpAddr;
use std::sync::Arc;

use api::ip::{Family, parse_lenient};
use api::view::Service;
use api::view::service::ServicePort as Port;
use ipnet::IpNet;

use crate::address::{cluster_ip_error, frontend_error, lenient_range};
use crate::balancing::Requested;
use crate::pool::Pool;
use crate::redirect::RedirectedFrontends;
use crate::service_port::{PortKey, ServicePort};

/// A parsed Service.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) ports: Vec<ServicePort>,
    pub(crate) cluster_ips: Vec<IpAddr>,
    pub(crate) requested: Requested,
    pub(crate) problems: Vec<String>,
}

/// What the ports of a Service have in common.
struct Common<'a> {
    service: &'a Service,
    name: &'a Arc<str>,
    external_ips: Vec<IpAddr>,
    lb_ips: Vec<IpAddr>,
    external_local: bool,
}

/// Parses a Service. One that is not served by this proxy has no ports.
pub(crate) fn read(service: &Service, name: &Arc<str>, names: &mut Pool<str>, rootless: bool) -> Read {
    let mut read = Read::default();
    if service.proxy_name().is_some() {
        return read;
    }
    let spec = &service.spec;
    read.cluster_ips = cluster_ips(service, rootless, &mut read.problems);
    if read.cluster_ips.is_empty() {
        return read;
    }
    read.requested = Requested::of(service, &mut read.problems);
    let vips = service.vips().filter(|_| service.is_load_balancer());
    let can_be_external = service.has_node_ports() || !spec.external_ips.is_empty();
    let common = Common {
        service,
        name,
        external_ips: addresses("external IP", spec.external_ips.iter().map(|text| &**text), &mut read.problems),
        lb_ips: addresses("load-balancer address", vips, &mut read.problems),
        external_local: can_be_external && service.is_external_local(),
    };
    let uses_gateway = spec.ports.iter().any(|port| service.uses_gateway(port));
    for family in [Family::V4, Family::V6] {
        let cluster_ip = read.cluster_ips.iter().copied().find(|ip| Family::of(*ip) == family);
        if cluster_ip.is_none() && !uses_gateway {
            continue;
        }
        let ranges = source_ranges(&common, family, &mut read.problems);
        for port in &spec.ports {
            let served = cluster_ip.and_then(|ip| common.port(port, ip, names, &mut read.problems));
            for mut port in served.into_iter().chain(common.redirected(port, family, names)) {
                if read.ports.iter().any(|other| other.key == port.key) {
                    read.problems.push(format!("duplicate port {}; the first one is used", port.key));
                    continue;
                }
                port.source_ranges.clone_from(&ranges);
                read.ports.push(port);
            }
        }
    }
    // A port's problems are the same in every family.
    read.problems.sort_unstable();
    read.problems.dedup();
    read
}

impl Common<'_> {
    fn port(
        &self,
        port: &Port,
        cluster_ip: IpAddr,
        names: &mut Pool<str>,
        problems: &mut Vec<String>,
    ) -> Option<ServicePort> {
        let (spec, name, family) = (&self.service.spec, &*port.name, Family::of(cluster_ip));
        let Some(protocol) = port.protocol else {
            problems.push(format!("its port `{name}` has an unknown protocol; ignored"));
            return None;
        };
        if port.port == 0 {
            problems.push(format!("its port `{name}` has no valid number; ignored"));
            return None;
        }
        let key =
            PortKey { service: Arc::clone(self.name), port: names.share(name), protocol, family, redirected: None };
        let lb_ips = if self.service.uses_gateway(port) { Vec::new() } else { of_family(&self.lb_ips, family) };
        Some(ServicePort {
            cluster_ip: Some(cluster_ip),
            node_port: Some(port.node_port).filter(|number| self.service.has_node_ports() && *number > 0),
            external_ips: of_family(&self.external_ips, family),
            lb_ips,
            affinity: self.service.affinity_timeout(),
            internal_local: self.service.is_internal_local(),
            external_local: self.external_local,
            health_port: Some(spec.health_check_node_port)
                .filter(|number| self.service.is_load_balancer() && self.external_local && *number > 0),
            ..ServicePort::new(key, port.port)
        })
    }

    /// The part of a port that is redirected: its load-balancer addresses, if it uses the gateway.
    fn redirected(&self, port: &Port, family: Family, names: &mut Pool<str>) -> Option<ServicePort> {
        let lb_ips = of_family(&self.lb_ips, family);
        if lb_ips.is_empty() || !self.service.uses_gateway(port) {
            return None;
        }
        let (service, name) = (Arc::clone(self.name), names.share(&*port.name));
        let redirected = Some(RedirectedFrontends::LoadBalancer);
        let key = PortKey { service, port: name, protocol: port.protocol?, family, redirected };
        Some(ServicePort { lb_ips, external_local: true, ..ServicePort::new(key, port.port) })
    }
}

fn of_family(all: &[IpAddr], family: Family) -> Vec<IpAddr> {
    all.iter().copied().filter(|ip| Family::of(*ip) == family).collect()
}

/// Cluster IPs of a Service, at most one per family.
fn cluster_ips(service: &Service, rootless: bool, problems: &mut Vec<String>) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for ip in [Family::V4, Family::V6].into_iter().filter_map(|family| service.cluster_ip(family)) {
        match cluster_ip_error(ip, rootless) {
            None => found.push(ip),
            Some(why) => problems.push(format!("its cluster IP {ip} {why}; ignored")),
        }
    }
    let spec = &service.spec;
    let unread = |text: &&str| !matches!(*text, "" | "None") && parse_lenient(text).is_none();
    for text in spec.cluster_ips.iter().chain([&spec.cluster_ip]).map(|text| &**text).filter(unread) {
        problems.push(format!("its cluster IP `{text}` is not an IP address; ignored"));
    }
    found.shrink_to_fit();
    found
}

/// Valid addresses, sorted and deduplicated.
fn addresses<'a>(kind: &str, texts: impl Iterator<Item = &'a str>, problems: &mut Vec<String>) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for text in texts {
        match parse_lenient(text).map(|ip| (ip, frontend_error(ip))) {
            Some((ip, None)) => found.push(ip),
            Some((_, Some(why))) => problems.push(format!("its {kind} {text} {why}; ignored")),
            None => problems.push(format!("its {kind} `{text}` is not an IP address; ignored")),
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Allowed sources of load balancer IPs of a family. A list without ranges of this family closes it. All addresses of
/// this family open it, and so do all addresses of the other one when this one is not named.
fn source_ranges(common: &Common<'_>, family: Family, problems: &mut Vec<String>) -> Option<Vec<IpNet>> {
    let texts = &common.service.spec.load_balancer_source_ranges;
    if !common.service.is_load_balancer() || texts.iter().all(|text| text.trim().is_empty()) {
        return None;
    }
    let mut all = Vec::new();
    for text in texts {
        match lenient_range(text) {
            Some(range) => all.push(range),
            None => problems.push(format!("its source range `{text}` is not a CIDR; it admits no client")),
        }
    }
    let here: Vec<IpNet> = all.iter().copied().filter(|range| Family::of(range.addr()) == family).collect();
    let deciding = if here.is_empty() { &all } else { &here };
    if deciding.iter().any(|range| range.prefix_len() == 0) {
        return None;
    }
    if here.is_empty() && common.lb_ips.iter().any(|ip| Family::of(*ip) == family) {
        let family = family.as_str();
        problems.push(format!(
            "its source ranges contain no {family} address: its {family} load balancer admits no client"
        ));
    }
    let mut ranges = IpNet::aggregate(&here);
    ranges.sort_unstable();
    Some(ranges)
}
