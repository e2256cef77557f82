//! What is tried for a Service: connections to its endpoints and to itself, routes, and its name.
//!
//! In: its objects, and what this machine is. Out: [`Tried`]. Everything is bounded in time and in number. The doctor tries all that
//! there is; a node that reports on a Service while somebody looks tries less, and gives up sooner.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use api::value::ValueExt as _;
use dns::wire::{rcode, rtype};
use futures_util::{StreamExt as _, stream};
use plan::Protocol;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use crate::commands::dig::ask::{Reply, ask_within};
use crate::commands::dig::search::Search;
use crate::commands::doctor::objects::DNS;
use crate::doctor::{Cluster, Dial, Endpoint, Evidence, Here, Measured, NameAnswer, Tried, Unmeasured};

/// How long a connection may take to begin.
const PATIENCE: Duration = Duration::from_secs(1);
/// Any port: nothing is sent there.
const ROUTED: u16 = 9;

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Bounds {
    /// How many connections begin at once.
    abreast: usize,
    /// How many endpoints of a Service are asked.
    endpoints: usize,
    /// How long a reply of the DNS may take.
    reply: Duration,
}

impl Bounds {
    /// For somebody who waits for the answer.
    pub(in crate::commands) const THOROUGH: Self = Self { abreast: 64, endpoints: 64, reply: Duration::from_secs(2) };
    /// For those who look again and again.
    pub(in crate::commands) const BRIEF: Self = Self { abreast: 8, endpoints: 8, reply: Duration::from_millis(500) };
}

/// Who tries.
pub(in crate::commands) struct Tries<'a> {
    cluster: &'a Cluster,
    here: &'a Here,
    bounds: Bounds,
    /// Where the cluster's DNS answers, or why it does not.
    dns: Measured<Result<SocketAddr, String>>,
    turns: Semaphore,
}

impl<'a> Tries<'a> {
    /// Finds out where to ask for names, and whether somebody answers there: a server that is silent would be waited for again
    /// and again.
    pub(in crate::commands) async fn new(cluster: &'a Cluster, here: &'a Here, bounds: Bounds) -> Self {
        let dns = match here.node.clone().and_then(|_| find_dns(cluster)) {
            Err(why) => Err(why),
            Ok(server) => {
                let name = format!("kubernetes.default.svc.{}.", cluster.domain);
                let answer = ask_within(server, &name, rtype::A, bounds.reply).await;
                Ok(answer.map(|_| server).map_err(|error| format!("{server}: {error:#}")))
            }
        };
        Self { cluster, here, bounds, dns, turns: Semaphore::new(bounds.abreast) }
    }

    /// Tries a Service.
    pub(in crate::commands) async fn of(&self, namespace: &str, name: &str) -> Tried {
        let nothing = Tried {
            backends: Ok(BTreeMap::new()),
            left_out: 0,
            no_route: BTreeMap::new(),
            frontends: Ok(BTreeMap::new()),
            name: Err(Unmeasured { why: String::new(), how: String::new() }),
        };
        let (cluster, here) = (self.cluster, self.here);
        let evidence = Evidence { namespace, name, cluster, here, tried: &nothing, diagnosis: None };
        let ready = evidence.ready();
        let mut backends: Vec<&Endpoint> = ready.iter().filter(|one| one.protocol == Protocol::Tcp).collect();
        let left_out = backends.len().saturating_sub(self.bounds.endpoints);
        backends.truncate(self.bounds.endpoints);
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
        Tried { backends, left_out, no_route, frontends, name }
    }

    /// Connects to endpoints; where one refuses, also to the ports that its Pod declares.
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
        if let Err(why) = &self.here.node {
            return Err(why.clone());
        }
        let dials = stream::iter(to).map(|to| async move {
            // The turns are never closed.
            let _turn = self.turns.acquire().await;
            (to, dial(to).await)
        });
        Ok(dials.buffer_unordered(self.bounds.abreast).collect().await)
    }

    async fn ask(&self, server: SocketAddr, name: &str, qtype: u16) -> anyhow::Result<Reply> {
        ask_within(server, name, qtype, self.bounds.reply).await
    }

    /// Asks for the name of a Service as its clients do.
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
            match (self.ask(server, &full, qtype).await, &mut records) {
                (Ok(reply), Ok(records)) => {
                    let known = [rcode::NOERROR, rcode::NXDOMAIN].contains(&reply.rcode);
                    records.extend(reply.answer.iter().map(|record| record.data_text().to_lowercase()));
                    // Where the name leads out of the cluster, the rest is others' business.
                    if !known && records.is_empty() {
                        return Ok(NameAnswer {
                            name: full,
                            records: Err(rcode::text(reply.rcode).to_owned()),
                            by_search,
                            notes: search.notes,
                        });
                    }
                }
                (Err(error), said) => *said = Err(format!("{error:#}")),
                (Ok(_), Err(_)) => {}
            }
        }
        Ok(NameAnswer { name: full, records, by_search, notes: search.notes })
    }
}

/// Addresses to which this machine knows no way. Choosing a peer for datagrams asks for the route and sends nothing.
async fn routes(ready: &[Endpoint], own: &[IpAddr]) -> BTreeMap<IpAddr, String> {
    let mut missing = BTreeMap::new();
    let used = own.iter().filter(|ip| ready.iter().any(|one| one.address.is_ipv4() == ip.is_ipv4()));
    for ip in ready.iter().map(|endpoint| endpoint.address.ip()).chain(used.copied()) {
        let any = if ip.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
        let Ok(socket) = UdpSocket::bind((any, 0)).await else { continue };
        if let Err(error) = socket.connect((ip, ROUTED)).await
            && matches!(error.kind(), ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable)
        {
            missing.insert(ip, error.to_string());
        }
    }
    missing
}

/// Where the cluster's DNS answers.
fn find_dns(cluster: &Cluster) -> Measured<SocketAddr> {
    let service = cluster.service(DNS.0, DNS.1);
    let ip = service.and_then(|service| service.text("spec.clusterIP").parse().ok());
    ip.map(|ip| SocketAddr::new(ip, 53)).ok_or_else(|| Unmeasured {
        why: "there is no Service kube-system/kube-dns to ask".to_owned(),
        how: "`waypost dig NAME --server IP` asks another one".to_owned(),
    })
}

async fn dial(to: SocketAddr) -> Dial {
    match tokio::time::timeout(PATIENCE, TcpStream::connect(to)).await {
        Ok(Ok(_)) => Dial::Connected,
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => Dial::Refused,
        Ok(Err(error)) => Dial::Failed(error.to_string()),
        Err(_) => Dial::Silent,
    }
}
