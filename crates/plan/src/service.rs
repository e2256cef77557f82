//! Reads a Service: what it says of each of its ports in each family, before endpoints are known.
//!
//! In: the object. Out: Service ports without endpoints, its cluster IPs, and sentences about whatever had to be left
//! out.

use std::net::IpAddr;
use std::sync::Arc;

use api::ip::{Family, parse_lenient};
use api::view::Service;
use api::view::service::ServicePort as Port;
use ipnet::IpNet;

use crate::address::{lenient_range, unfit_cluster_ip, unfit_frontend};
use crate::pool::Pool;
use crate::service_port::{PortKey, ServicePort};

/// What was read of a Service.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) ports: Vec<ServicePort>,
    pub(crate) cluster_ips: Vec<IpAddr>,
    pub(crate) problems: Vec<String>,
}

/// What all ports of a Service have in common, in both families.
struct Common<'a> {
    service: &'a Service,
    name: &'a Arc<str>,
    external_ips: Vec<IpAddr>,
    lb_ips: Vec<IpAddr>,
    external_local: bool,
}

/// Reads a Service of this name. One that is not for us is as good as none.
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
                read.problems.push(format!("it has port {} twice; the first counts", port.key));
                continue;
            }
            port.source_ranges.clone_from(&ranges);
            read.ports.push(port);
        }
    }
    // What is wrong with a port is wrong with it in every family.
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
            problems.push(format!("its port `{name}` has an unknown protocol; it is left out"));
            return None;
        };
        if port.port == 0 {
            problems.push(format!("its port `{name}` has no number that could be used; it is left out"));
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

/// The cluster IPs of a Service, at most one of a family.
fn cluster_ips(service: &Service, rootless: bool, problems: &mut Vec<String>) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for ip in [Family::V4, Family::V6].into_iter().filter_map(|family| service.cluster_ip(family)) {
        match unfit_cluster_ip(ip, rootless) {
            None => found.push(ip),
            Some(why) => problems.push(format!("its cluster IP {ip} {why}; it is left out")),
        }
    }
    let spec = &service.spec;
    let unread = |text: &&str| !matches!(*text, "" | "None") && parse_lenient(text).is_none();
    for text in spec.cluster_ips.iter().chain([&spec.cluster_ip]).map(|text| &**text).filter(unread) {
        problems.push(format!("its cluster IP `{text}` is not an address; it is left out"));
    }
    found.shrink_to_fit();
    found
}

/// The addresses that can be used, each once, in order.
fn addresses<'a>(kind: &str, texts: impl Iterator<Item = &'a str>, problems: &mut Vec<String>) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for text in texts {
        match parse_lenient(text).map(|ip| (ip, unfit_frontend(ip))) {
            Some((ip, None)) => found.push(ip),
            Some((_, Some(why))) => problems.push(format!("its {kind} {text} {why}; it is left out")),
            None => problems.push(format!("its {kind} `{text}` is not an address; it is left out")),
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Who may use load-balancer addresses of a family. A list that names none of this family closes it: whoever wrote it
/// meant to let in those it names and nobody else. Everything of this family opens it, and so does everything of the
/// other one when this one is not named: whoever wrote that did not mean to keep anybody out.
fn source_ranges(common: &Common<'_>, family: Family, problems: &mut Vec<String>) -> Option<Vec<IpNet>> {
    let texts = &common.service.spec.load_balancer_source_ranges;
    if !common.service.is_load_balancer() || texts.iter().all(|text| text.trim().is_empty()) {
        return None;
    }
    let mut all = Vec::new();
    for text in texts {
        match lenient_range(text) {
            Some(range) => all.push(range),
            None => problems.push(format!("its source range `{text}` is not a range; it lets in nobody")),
        }
    }
    let here: Vec<IpNet> = all.iter().copied().filter(|range| Family::of(range.addr()) == family).collect();
    let deciding = if here.is_empty() { &all } else { &here };
    if deciding.iter().any(|range| range.prefix_len() == 0) {
        return None;
    }
    if here.is_empty() && common.lb_ips.iter().any(|ip| Family::of(*ip) == family) {
        let family = family.as_str();
        problems.push(format!("its source ranges name no {family} address: its {family} load balancer lets in nobody"));
    }
    let mut ranges = IpNet::aggregate(&here);
    ranges.sort_unstable();
    Some(ranges)
}
