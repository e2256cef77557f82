//! Parses a Service into ports per family, without endpoints.
//!
//! In: the object. Out: Service ports without endpoints, cluster IPs, and problems with what had to be ignored.

use std::net::IpAddr;
use std::sync::Arc;

use api::ip::{Family, parse_lenient};
use api::view::Service;
use api::view::service::ServicePort as Port;
use ipnet::IpNet;

use crate::address::{cluster_ip_error, frontend_error, lenient_range};
use crate::pool::Pool;
use crate::service_port::{PortKey, ServicePort};

/// A parsed Service.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) ports: Vec<ServicePort>,
    pub(crate) cluster_ips: Vec<IpAddr>,
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
    let vips = service.vips().filter(|_| service.is_load_balancer());
    let can_be_external = service.has_node_ports() || !spec.external_ips.is_empty();
    let common = Common {
        service,
        name,
        external_ips: addresses("external IP", spec.external_ips.iter().map(|text| &**text), &mut read.problems),
        lb_ips: addresses("load-balancer address", vips, &mut read.problems),
        external_local: can_be_external && service.is_external_local(),
    };
    for cluster_ip in &read.cluster_ips {
        let ranges = source_ranges(&common, Family::of(*cluster_ip), &mut read.problems);
        for port in &spec.ports {
            let Some(mut port) = common.port(port, *cluster_ip, names, &mut read.problems) else { continue };
            if read.ports.iter().any(|other| other.key == port.key) {
                read.problems.push(format!("duplicate port {}; the first one is used", port.key));
                continue;
            }
            port.source_ranges.clone_from(&ranges);
            read.ports.push(port);
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
        let of_family = |all: &[IpAddr]| all.iter().copied().filter(|ip| Family::of(*ip) == family).collect();
        Some(ServicePort {
            key: PortKey { service: Arc::clone(self.name), port: names.share(name), protocol, family },
            cluster_ip,
            port: port.port,
            node_port: Some(port.node_port).filter(|number| self.service.has_node_ports() && *number > 0),
            external_ips: of_family(&self.external_ips),
            lb_ips: if port.at_gateway { Vec::new() } else { of_family(&self.lb_ips) },
            source_ranges: None,
            own_vips_allowed: false,
            affinity: self.service.affinity_timeout(),
            internal_local: self.service.is_internal_local(),
            external_local: self.external_local,
            health_port: Some(spec.health_check_node_port)
                .filter(|number| self.service.is_load_balancer() && self.external_local && *number > 0),
            cluster: Vec::new(),
            local: Vec::new(),
            hairpin: Vec::new(),
            has_any: false,
            local_ready: 0,
            serving: Vec::new(),
        })
    }
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
