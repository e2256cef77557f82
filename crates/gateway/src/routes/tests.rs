//! Ports of a Gateway, backends and clients in one process over loopback. Tables are made from rules; where the rules
//! come from is tested with the cluster.

mod access_log;
mod challenges;
mod cluster;
mod direct;
mod external_auth;
mod filters;
mod health;
mod http;
mod http3;
mod ingress;
mod listener_sets;
mod load;
mod mesh;
mod policies;
mod proxy_protocol;
mod sessions;
mod stream;
mod tls;
mod traffic;
mod upstreams;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use ::http::HeaderValue;
use api::view::EndpointSlice;
use arc_swap::{ArcSwap, ArcSwapOption};
use routing::cluster::RouteState;
use routing::model::{
    Backend, BackendProtocol, BackendTls, InvalidTarget, ListenerConfig, ListenerId, ListenerProtocol, Matches,
    RouteId, RouteKind, Rule, ServiceTarget, StreamRule, Target,
};
use routing::policy::Policy;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::pools::Pools;
use super::rule::{CompiledRule, CompiledStream};
use super::tables::{Parent, PortTable, RoutedListener, RoutedPort, Tables};
use super::trust::Trust;
use super::udp::UdpListener;
use crate::challenges::Challenges;
use crate::limits::Limits;
use crate::listener::Listener;
use crate::metrics::GatewayMetrics;
use crate::policy::{Enforcer, may_connect};
use crate::port_config::{PortConfig, Serving};
use crate::tests::TIMEOUT;
use crate::workers::Workers;

/// A port of the Gateway `shop/public`.
struct TestGateway {
    address: SocketAddr,
    pools: Pools,
    trust: Trust,
    tables: HashMap<String, Arc<ArcSwap<Tables>>>,
    metrics: GatewayMetrics,
    enforcer: Arc<Enforcer>,
    challenges: Arc<Challenges>,
    ages: usize,
    port_config: Arc<PortConfig>,
    workers: Arc<Workers>,
    _sockets: (Option<Listener>, Option<UdpListener>),
    runtime: Runtime,
}

/// A listener of the Gateway, at port 80 or 443.
fn listener(name: &str, protocol: ListenerProtocol, hostname: Option<&str>) -> ListenerConfig {
    ListenerConfig {
        id: ListenerId { gateway: "shop/public".into(), set: None, name: name.into() },
        port: if protocol == ListenerProtocol::Http { 80 } else { 443 },
        protocol,
        hostname: hostname.map(Into::into),
        certificates: vec![format!("shop/{name}").into()],
        client_validation: None,
    }
}

/// The port of a Service.
fn target(service: &str) -> Arc<ServiceTarget> {
    target_by(service, BackendProtocol::Http1, None)
}

fn target_by(service: &str, protocol: BackendProtocol, tls: Option<BackendTls>) -> Arc<ServiceTarget> {
    let service = format!("shop/{service}").into();
    Arc::new(ServiceTarget { service, port: 80, port_name: "".into(), protocol, tls: tls.map(Arc::new) })
}

/// A backend from `{name, weight, filters}`; the name `invalid` is one that cannot be resolved.
fn backend(given: &Value) -> Backend {
    let name = given["name"].as_str().expect("a name");
    let invalid = Target::Invalid(InvalidTarget::BackendNotFound);
    let to = |name: &str| if name == "invalid" { invalid.clone() } else { Target::Service(target(name)) };
    Backend {
        weight: given["weight"].as_u64().map_or(1, |weight| u32::try_from(weight).expect("a weight")),
        target: to(name),
        filters: serde_json::from_value(given["filters"].clone()).unwrap_or_default(),
        mirrors: Vec::new(),
        policy: None,
    }
}

/// A rule from `{matches, filters, mirrors, backends}`.
fn rule(given: &Value) -> Rule {
    let array = |name: &str| given[name].as_array().cloned().unwrap_or_default();
    let mirrors = array("mirrors");
    Rule {
        route: route_id("any"),
        index: 0,
        name: None,
        matches: Matches::Http(serde_json::from_value(json!(array("matches"))).expect("matches")),
        filters: serde_json::from_value(json!(array("filters"))).expect("filters"),
        mirrors: mirrors.iter().map(|name| Target::Service(target(name.as_str().expect("a name")))).collect(),
        backends: array("backends").iter().map(backend).collect(),
        request_timeout: None,
        backend_timeout: None,
        retry: None,
        session: None,
        policy: None,
        broken: None,
    }
}

fn route_id(name: &str) -> RouteId {
    RouteId { kind: RouteKind::Http, key: format!("shop/{name}").into() }
}

/// The table of a port with these listeners.
fn port_table(
    listeners: &[ListenerConfig],
    tables: &HashMap<String, Arc<ArcSwap<Tables>>>,
    trust: &Trust,
    metrics: &GatewayMetrics,
) -> PortTable {
    let routed = |config: &ListenerConfig| {
        Arc::new(RoutedListener {
            config: Arc::new(config.clone()),
            tls: ArcSwapOption::new(trust.of_listener(config)),
            tables: Arc::clone(&tables[&*config.id.name]),
            metrics: metrics.routing().for_listener(&config.id),
        })
    };
    PortTable::of(&listeners.iter().map(routed).collect::<Vec<_>>())
}

impl TestGateway {
    fn new(listeners: &[ListenerConfig]) -> Self {
        Self::with(listeners, Trust::default())
    }

    fn with(listeners: &[ListenerConfig], trust: Trust) -> Self {
        Self::configured(listeners, trust, |_| {})
    }

    fn configured(listeners: &[ListenerConfig], trust: Trust, configure: impl FnOnce(&mut PortConfig)) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (workers, metrics, limits) = (Arc::new(Workers::new()), GatewayMetrics::default(), Limits::default());
        let challenges: Arc<Challenges> = Arc::default();
        let tables: HashMap<String, Arc<ArcSwap<Tables>>> =
            listeners.iter().map(|config| (config.id.name.to_string(), Arc::default())).collect();
        let number = listeners[0].port;
        let table = ArcSwap::from_pointee(port_table(listeners, &tables, &trust, &metrics));
        let serving = Serving::Routes(Box::new(RoutedPort {
            parent: Parent::Gateway("shop/public".into()),
            table,
            number: HeaderValue::from(number),
            challenges: Arc::clone(&challenges),
            alt_svc: ArcSwapOption::default(),
        }));
        let mut port_config = PortConfig::new("shop/public-waypost", number, (limits, None), serving, Arc::default());
        configure(&mut port_config);
        let port_config = Arc::new(port_config);
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let inside = runtime.enter();
        let sockets = match listeners[0].protocol {
            ListenerProtocol::Udp => (None, Some(UdpListener::open(here, &port_config).expect("a port"))),
            _ => (Some(Listener::open(here, &port_config, &workers).expect("a port")), None),
        };
        drop(inside);
        let tcp = sockets.0.as_ref().map(|listener| listener.address);
        let address = tcp.or(sockets.1.as_ref().map(|listener| listener.address)).expect("an address");
        let pools = Pools::new(limits, workers.count(), metrics.clone());
        let enforcer = Enforcer::new(limits, workers.count(), Box::new(|address| may_connect(address, &[])));
        let (ages, _sockets) = (0, sockets);
        Self {
            address,
            pools,
            trust,
            tables,
            metrics,
            enforcer,
            challenges,
            ages,
            port_config,
            workers,
            _sockets,
            runtime,
        }
    }

    /// Serves listeners with their certificates as they are now.
    fn reload(&self, listeners: &[ListenerConfig]) {
        let Serving::Routes(port) = &self.port_config.serving else { panic!("a port of a Gateway") };
        port.table.store(Arc::new(port_table(listeners, &self.tables, &self.trust, &self.metrics)));
    }

    /// Sets the endpoints of a Service.
    fn service(&mut self, name: &str, pods: &[SocketAddr]) {
        // A slice has one port; pods of tests have different ones.
        for (index, kind) in (0..8).flat_map(|index| [(index, "tcp"), (index, "udp")]) {
            self.pools.apply_slice(&format!("shop/{name}-{kind}-{index}"), None);
        }
        for (index, pod) in pods.iter().enumerate() {
            for (protocol, kind) in [("TCP", "tcp"), ("UDP", "udp")] {
                let slice: EndpointSlice = serde_json::from_value(json!({
                    "metadata": {"namespace": "shop", "name": format!("{name}-{kind}-{index}"),
                                 "labels": {"kubernetes.io/service-name": name}},
                    "addressType": "IPv4",
                    "endpoints": [{"addresses": [pod.ip().to_string()], "conditions": {"ready": true}}],
                    "ports": [{"name": "", "port": pod.port(), "protocol": protocol}],
                }))
                .expect("a slice");
                self.pools.apply_slice(&format!("shop/{name}-{kind}-{index}"), Some(slice));
            }
        }
        self.pools.update();
    }

    /// Attaches a route with these rules to a listener; it is younger than those before.
    fn route(&mut self, at: &str, name: &str, hostnames: &[&str], rules: Vec<Rule>) {
        self.attach(at, &route_id(name), hostnames, rules, None);
    }

    /// Attaches a TLSRoute, a TCPRoute or a UDPRoute.
    fn stream(&mut self, at: &str, kind: RouteKind, name: &str, hostnames: &[&str], backends: &[Value]) {
        self.stream_with(at, (kind, name), hostnames, backends, None);
    }

    /// Attaches one with a policy.
    fn stream_with(
        &mut self,
        at: &str,
        (kind, name): (RouteKind, &str),
        hostnames: &[&str],
        backends: &[Value],
        policy: Option<Arc<Policy>>,
    ) {
        let id = RouteId { kind, key: format!("shop/{name}").into() };
        let protocol = if kind == RouteKind::Udp { BackendProtocol::Datagram } else { BackendProtocol::Stream };
        let backend = |given: &Value| {
            let mut backend = backend(given);
            if let Target::Service(_) = &backend.target {
                backend.target = Target::Service(target_by(given["name"].as_str().expect("a name"), protocol, None));
            }
            backend
        };
        let rule = StreamRule {
            route: id.clone(),
            hostnames: hostnames.iter().map(|host| Arc::from(*host)).collect(),
            backends: backends.iter().map(backend).collect(),
            policy,
        };
        self.attach(at, &id, hostnames, Vec::new(), Some(rule));
    }

    fn attach(&mut self, at: &str, id: &RouteId, hostnames: &[&str], rules: Vec<Rule>, stream: Option<StreamRule>) {
        self.ages += 1;
        let state = RouteState {
            generation: 1,
            created: format!("2026-01-01T00:00:{:02}Z", self.ages % 60).into(),
            parents: Vec::new(),
            rules: rules.into_iter().map(Arc::new).collect(),
            stream: None,
        };
        let hostnames: Vec<Arc<str>> = hostnames.iter().map(|host| Arc::from(*host)).collect();
        let metrics = self.metrics.routing().for_route("shop/public", id);
        let Self { pools, trust, tables, enforcer, .. } = self;
        let means = (&*enforcer, &trust.passwords);
        let mut upstream = |target: &Target| match target {
            Target::Service(target) => Some(pools.upstream(target, None, trust)),
            Target::Invalid(_) => None,
        };
        let stream =
            stream.map(|rule| Arc::new(CompiledStream::new(&Arc::new(rule), &mut upstream, Arc::clone(&metrics))));
        let compile = |rule: &Rule| Arc::new(CompiledRule::new(rule, &mut upstream, Arc::clone(&metrics), means));
        let table = &tables[at];
        let mut new = Tables::clone(&table.load());
        new.insert(id, (&state, &hostnames), compile, stream);
        table.store(Arc::new(new));
    }

    /// One rule for all requests of a host, to these backends.
    fn simple(&mut self, at: &str, name: &str, hostnames: &[&str], backends: &[&str]) {
        let backends: Vec<Value> = backends.iter().map(|name| json!({"name": name})).collect();
        self.route(at, name, hostnames, vec![rule(&json!({"backends": backends}))]);
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a read timeout");
        stream
    }

    /// Response to a GET, on a connection of its own.
    fn get(&self, host: &str, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    }

    /// Everything that is received until the connection closes.
    fn ask(&self, text: &str) -> String {
        use std::io::Write as _;
        let mut stream = self.connect();
        stream.write_all(text.as_bytes()).expect("sent");
        crate::tests::rest_of(stream)
    }
}

/// Code of a response.
fn code(answer: &str) -> u16 {
    answer.get(9..12).and_then(|code| code.parse().ok()).unwrap_or_default()
}

/// Address at which nothing listens.
fn unused_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address")
}

/// Pod that answers each request as this says, from the head and the body of the request. An empty answer is none: the
/// connection stays open.
fn scripted(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> SocketAddr {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("an address");
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in server.incoming().flatten() {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || -> Option<()> {
                let mut reader = BufReader::new(stream.try_clone().ok()?);
                loop {
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        if reader.read_line(&mut head).ok()? == 0 {
                            return None;
                        }
                    }
                    let length = head.to_lowercase();
                    let length = length.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                    let mut body = vec![0; length.unwrap_or(0)];
                    reader.read_exact(&mut body).ok()?;
                    let text = answer(&format!("{head}{}", String::from_utf8_lossy(&body)));
                    (&stream).write_all(text.as_bytes()).ok()?;
                }
            });
        }
    });
    address
}

/// A response with this status and body.
fn response(status: u16, body: &str) -> String {
    format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Pod whose responses are its name and the request head.
fn named(name: &'static str) -> SocketAddr {
    scripted(move |request| response(200, &format!("{name} {request}")))
}

const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}
