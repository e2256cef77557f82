//! The same for Services at layer 7: the routes whose parent is the Service, for each group of its clients.
//!
//! The Host does not count there: the cluster IP and the port choose the routes.

use std::net::IpAddr;
use std::sync::Arc;

use routing::model::{Clients, ListenerProtocol, MeshConfig, MeshPort, Place, ServicePortId, Target};

use super::answer::Answer;
use super::listeners::ListenerStep;
use super::rules::Served;
use super::{Candidate, Layer7, Request, Subject};
use crate::layer7::services::describe_clients;
use crate::layer7::{name_of, namespace_of};

impl Layer7<'_> {
    /// What becomes of a request at the Services at layer 7 with this cluster IP.
    pub(super) fn at_services_with(&self, request: &Request, ip: IpAddr) -> Vec<Candidate> {
        let has = |config: &&Arc<MeshConfig>| config.cluster_ips.contains(&ip);
        let configs = self.cluster.mesh_configs().filter(has);
        configs.flat_map(|config| self.at_service(request, config, "it has the cluster IP")).collect()
    }

    /// The same for those with the name that is the host of the URL.
    pub(super) fn at_services_named(&self, request: &Request) -> Vec<Candidate> {
        let is_named = |config: &&Arc<MeshConfig>| is_named(&config.service, &request.url_host);
        let configs = self.cluster.mesh_configs().filter(is_named);
        configs.flat_map(|config| self.at_service(request, config, "the host is its name")).collect()
    }

    /// One candidate for each group of clients.
    fn at_service(&self, request: &Request, config: &MeshConfig, why: &'static str) -> Vec<Candidate> {
        let Some(port) = config.ports.iter().find(|port| port.number == request.port) else { return Vec::new() };
        let all = port.places.iter();
        all.map(|(clients, protocol)| self.at_port(request, (config, port), (clients, *protocol), why)).collect()
    }

    fn at_port(
        &self,
        request: &Request,
        (config, port): (&MeshConfig, &MeshPort),
        (clients, protocol): (&Clients, ListenerProtocol),
        why: &'static str,
    ) -> Candidate {
        let name = if port.name.is_empty() { String::new() } else { format!("{} ", port.name) };
        let listener = format!("{name}({})", port.number);
        let step = ListenerStep { listener, set: None, chosen: true, says: describe_clients(clients), id: None };
        let mut candidate = Candidate {
            gateway: Subject { kind: "Service", key: (*config.service).into() },
            addresses: config.cluster_ips.iter().map(IpAddr::to_string).collect(),
            why,
            listeners: vec![step],
            rules: Vec::new(),
            more_rules: 0,
            taken: None,
            answer: Answer::refused(""),
            findings: Vec::new(),
        };
        if protocol == ListenerProtocol::Http && request.tls {
            candidate.answer = Answer::reset("the port is read as plain HTTP: the TLS handshake fails; use http://");
            return candidate;
        }
        let id = ServicePortId { service: Arc::clone(&config.service), port: port.number, clients: clients.clone() };
        let place = Place::from(id);
        if self.cluster.attached(&place).next().is_none() {
            candidate.answer = match &port.own.target {
                Target::Service(_) => Answer::forwarded("to an endpoint of the Service, chosen for each request"),
                Target::Invalid(why) => Answer::status(500, super::invalid_text(*why)),
            };
            return candidate;
        }
        self.apply_rules(request, Served { place: &place, protocol, port: port.number }, &mut candidate);
        self.add_findings_of_rule(&mut candidate);
        candidate
    }
}

/// Whether a host is a name of a Service: `NAME`, `NAME.NAMESPACE`, or more of its full name.
fn is_named(service: &str, host: &str) -> bool {
    let Some(rest) = host.trim_end_matches('.').strip_prefix(name_of(service)) else { return false };
    let of_namespace = rest.strip_prefix('.').and_then(|rest| rest.strip_prefix(namespace_of(service)));
    rest.is_empty() || of_namespace.is_some_and(|rest| rest.is_empty() || rest == ".svc" || rest.starts_with(".svc."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_short_and_full_names() {
        for host in ["web", "web.apps", "web.apps.svc", "web.apps.svc.cluster.local", "web."] {
            assert!(is_named("apps/web", host), "{host}");
        }
        for host in ["webs", "web.app", "web.apps.example", "web.apps2", "a.web.apps"] {
            assert!(!is_named("apps/web", host), "{host}");
        }
    }
}
