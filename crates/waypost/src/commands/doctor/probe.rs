//! Measurements of a Service: connections to its endpoints and cluster IPs, routes, and its DNS name.
//!
//! In: its objects, and the state of this machine. Out: [`Probes`]. Time and number of probes are limited; the report of a node has lower
//! limits than the doctor.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use api::value::ValueExt as _;
use cli::doctor::objects::DNS;
use cli::doctor::{Cluster, Dial, Endpoint, Evidence, Machine, Measured, NameAnswer, NameError, Probes, Unmeasured};
use dns::wire::{rcode, rtype};
use futures_util::{StreamExt as _, stream};
use plan::Protocol;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use crate::commands::dig::query::{Reply, query_within};
use crate::commands::dig::search::Search;

/// Timeout of a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Any port, for route lookups: nothing is sent.
const ANY_PORT: u16 = 9;

/// Limits of probes.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Limits {
    /// Concurrent connections.
    concurrency: usize,
    /// Probed endpoints of a Service.
    endpoints: usize,
    /// Timeout of a DNS response.
    dns_timeout: Duration,
}

impl Limits {
    /// For the doctor.
    pub(in crate::commands) const THOROUGH: Self =
        Self { concurrency: 64, endpoints: 64, dns_timeout: Duration::from_secs(2) };
    /// For reports, which are requested often.
    pub(in crate::commands) const BRIEF: Self =
        Self { concurrency: 8, endpoints: 8, dns_timeout: Duration::from_millis(500) };
}

/// Probes Services.
pub(in crate::commands) struct Prober<'a> {
    cluster: &'a Cluster,
    machine: &'a Machine,
    limits: Limits,
    /// The address of the cluster's DNS; the inner error if it does not respond.
    dns: Measured<Result<SocketAddr, NameError>>,
    permits: Semaphore,
}

impl<'a> Prober<'a> {
    /// Finds the cluster's DNS and queries it once: without a response, no further query is sent.
    pub(in crate::commands) async fn new(cluster: &'a Cluster, machine: &'a Machine, limits: Limits) -> Self {
        let dns = match machine.node.clone().and_then(|_| find_dns(cluster)) {
            Err(why) => Err(why),
            Ok(server) => {
                let name = format!("kubernetes.default.svc.{}.", cluster.domain);
                let answer = query_within(server, &name, rtype::A, limits.dns_timeout).await;
                Ok(answer.map(|_| server).map_err(|error| NameError::Query(format!("{server}: {error:#}"))))
            }
        };
        Self { cluster, machine, limits, dns, permits: Semaphore::new(limits.concurrency) }
    }

    /// Probes a Service.
    pub(in crate::commands) async fn of(&self, namespace: &str, name: &str) -> Probes {
        let none = Probes {
            backends: Ok(BTreeMap::new()),
            left_out: 0,
            no_route: BTreeMap::new(),
            frontends: Ok(BTreeMap::new()),
            name: Err(Unmeasured { why: String::new(), how: String::new() }),
        };
        let (cluster, machine) = (self.cluster, self.machine);
        let evidence = Evidence { namespace, name, cluster, machine, probes: &none, diagnosis: None };
        let ready = evidence.ready();
        let mut backends: Vec<&Endpoint> = ready.iter().filter(|one| one.protocol == Protocol::Tcp).collect();
        let left_out = backends.len().saturating_sub(self.limits.endpoints);
        backends.truncate(self.limits.endpoints);
        let tcp = evidence.ports().into_iter().filter(|port| port.protocol == Protocol::Tcp);
        let ips = evidence.cluster_ips();
        let frontends: Vec<SocketAddr> =
            tcp.flat_map(|port| ips.iter().map(move |ip| SocketAddr::new(*ip, port.number))).collect();
        let frontends =
            frontends.into_iter().filter(|at| ready.iter().any(|one| one.address.is_ipv4() == at.is_ipv4()));
        let (name, backends, frontends, no_route) = tokio::join!(
            self.name(&evidence),
            self.backends(&evidence, &backends),
            self.dial(frontends.collect()),
            routes(&ready, &ips)
        );
        Probes { backends, left_out, no_route, frontends, name }
    }

    /// Connects to endpoints; if one refuses, also to the ports that its Pod declares.
    async fn backends(&self, evidence: &Evidence<'_>, endpoints: &[&Endpoint]) -> Measured<BTreeMap<SocketAddr, Dial>> {
        let mut dials = self.dial(endpoints.iter().map(|endpoint| endpoint.address).collect()).await?;
        let refused = endpoints.iter().filter(|endpoint| dials.get(&endpoint.address) == Some(&Dial::Refused));
        let mut others: Vec<SocketAddr> = Vec::new();
        for endpoint in refused {
            let pods = evidence.pods();
            let pod = pods.iter().find(|pod| pod.text("metadata.name") == endpoint.pod);
            let containers = pod.map_or(&[][..], |pod| pod.items("spec.containers"));
            let ports = containers.iter().flat_map(|container| container.items("ports"));
            let numbers = ports.filter_map(|port| u16::try_from(port.int("containerPort")).ok());
            others.extend(numbers.map(|number| SocketAddr::new(endpoint.address.ip(), number)));
        }
        dials.extend(self.dial(others).await?);
        Ok(dials)
    }

    /// Connects to each of these.
    async fn dial(&self, to: Vec<SocketAddr>) -> Measured<BTreeMap<SocketAddr, Dial>> {
        if let Err(why) = &self.machine.node {
            return Err(why.clone());
        }
        let dials = stream::iter(to).map(|to| async move {
            // The semaphore is never closed.
            let _permit = self.permits.acquire().await;
            (to, dial(to).await)
        });
        Ok(dials.buffer_unordered(self.limits.concurrency).collect().await)
    }

    async fn query(&self, server: SocketAddr, name: &str, qtype: u16) -> anyhow::Result<Reply> {
        query_within(server, name, qtype, self.limits.dns_timeout).await
    }

    /// Queries the DNS name of a Service.
    async fn name(&self, evidence: &Evidence<'_>) -> Measured<NameAnswer> {
        let server = self.dns.clone()?;
        let Evidence { namespace, name, cluster, .. } = evidence;
        let full = format!("{name}.{namespace}.svc.{}.", cluster.domain);
        let pod = cluster.pods.iter().find(|pod| pod.text("metadata.namespace") == *namespace);
        let search = Search::of(namespace, pod, &cluster.domain);
        let by_search = search.names(name).contains(&full).then(|| search.whose.clone());
        let server = match server {
            Ok(server) => server,
            Err(why) => return Ok(NameAnswer { name: full, records: Err(why), by_search, notes: search.notes }),
        };
        let ips = evidence.cluster_ips();
        let mut types = Vec::new();
        if ips.is_empty() || ips.iter().any(IpAddr::is_ipv4) {
            types.push(rtype::A);
        }
        if !evidence.is_external_name() && (ips.is_empty() || ips.iter().any(IpAddr::is_ipv6)) {
            types.push(rtype::AAAA);
        }
        let mut records = Ok(Vec::new());
        for qtype in types {
            match (self.query(server, &full, qtype).await, &mut records) {
                (Ok(reply), Ok(records)) => {
                    let known = [rcode::NOERROR, rcode::NXDOMAIN].contains(&reply.rcode);
                    records.extend(reply.answer.iter().map(|record| record.data_text().to_lowercase()));
                    // A CNAME may lead out of the cluster; errors behind it are not ours.
                    if !known && records.is_empty() {
                        return Ok(NameAnswer {
                            name: full,
                            records: Err(NameError::Rcode(rcode::text(reply.rcode).to_owned())),
                            by_search,
                            notes: search.notes,
                        });
                    }
                }
                (Err(error), result) => *result = Err(NameError::Query(format!("{error:#}"))),
                (Ok(_), Err(_)) => {}
            }
        }
        Ok(NameAnswer { name: full, records, by_search, notes: search.notes })
    }
}

/// Addresses without a route. Connecting a UDP socket looks up the route and sends nothing.
async fn routes(ready: &[Endpoint], own: &[IpAddr]) -> BTreeMap<IpAddr, String> {
    let mut missing = BTreeMap::new();
    let used = own.iter().filter(|ip| ready.iter().any(|one| one.address.is_ipv4() == ip.is_ipv4()));
    for ip in ready.iter().map(|endpoint| endpoint.address.ip()).chain(used.copied()) {
        let any = if ip.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
        let Ok(socket) = UdpSocket::bind((any, 0)).await else { continue };
        if let Err(error) = socket.connect((ip, ANY_PORT)).await
            && matches!(error.kind(), ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable)
        {
            missing.insert(ip, error.to_string());
        }
    }
    missing
}

/// The address of the cluster's DNS.
fn find_dns(cluster: &Cluster) -> Measured<SocketAddr> {
    let service = cluster.service(DNS.0, DNS.1);
    let ip = service.and_then(|service| service.text("spec.clusterIP").parse().ok());
    ip.map(|ip| SocketAddr::new(ip, 53)).ok_or_else(|| Unmeasured {
        why: "there is no Service kube-system/kube-dns to query".to_owned(),
        how: "`waypost dig NAME --server IP` asks another one".to_owned(),
    })
}

async fn dial(to: SocketAddr) -> Dial {
    match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(to)).await {
        Ok(Ok(_)) => Dial::Connected,
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => Dial::Refused,
        Ok(Err(error)) => Dial::Failed(error.to_string()),
        Err(_) => Dial::Silent,
    }
}
