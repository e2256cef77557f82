//! Which routes the kernel serves: every reason against it, and redirects that follow the objects.

use std::io::{Read as _, Write as _};

use api::gateway_api::watched;
use api::kinds;
use client::memory::Memory;
use plan::{Protocol, Redirect, ServicePortName};
use routing::policy::Policy;

use super::super::direct::{NeedsProgram, PortFacts, backends, decide};
use super::stream::tcp;
use super::*;
use crate::access_log::tests::Lines;
use crate::access_log::{AccessLog, AccessLogFormat};
use crate::controller::{Gateway, Settings};
use crate::tests::rest_of;

const TCP: PortFacts = PortFacts { protocol: ListenerProtocol::Tcp, has_proxies: false, is_logged: false };

/// A rule with these backends.
fn stream(given: &[Value]) -> StreamRule {
    let route = RouteId { kind: RouteKind::Tcp, key: "shop/t".into() };
    StreamRule { route, hostnames: Vec::new(), backends: given.iter().map(backend).collect(), policy: None }
}

fn port_of(service: &str) -> ServicePortName {
    ServicePortName { service: format!("shop/{service}").into(), port: "".into() }
}

#[test]
fn one_service_with_a_weight_is_served_directly() {
    let (one, none) = (json!({"name": "one"}), json!({"name": "two", "weight": 0}));
    for given in
        [&[one.clone()][..], &[none.clone(), one.clone()], &[one.clone(), json!({"name": "invalid", "weight": 0})]]
    {
        assert_eq!(decide(TCP, Some(&stream(given))), Ok(port_of("one")), "{given:?}");
    }
    let rule = stream(&[none, one, json!({"name": "invalid"})]);
    assert_eq!(backends(Some(&rule)), [port_of("one"), port_of("two")].into(), "all that flows may belong to");
    assert!(backends(None).is_empty());
}

#[test]
fn what_needs_the_program_stays_there() {
    let rule = |given: &[Value]| Some(stream(given));
    let one = || rule(&[json!({"name": "one"})]);
    let of = |protocol| PortFacts { protocol, ..TCP };
    let (logged, proxied) = (PortFacts { is_logged: true, ..TCP }, PortFacts { has_proxies: true, ..TCP });
    let guarded = one().map(|rule| StreamRule { policy: Some(Arc::new(Policy::default())), ..rule });
    let mut encrypted = stream(&[json!({"name": "one"})]);
    let tls =
        BackendTls { hostname: "one".into(), authorities: Vec::new(), subject_alt_names: Vec::new(), verify: true };
    encrypted.backends[0].target = Target::Service(target_by("one", BackendProtocol::Stream, Some(tls)));
    let several = rule(&[json!({"name": "one"}), json!({"name": "two", "weight": 9})]);
    let with_invalid = rule(&[json!({"name": "one"}), json!({"name": "invalid"})]);
    for (facts, rule, reason) in [
        (of(ListenerProtocol::TlsPassthrough), one(), NeedsProgram::Protocol),
        (of(ListenerProtocol::TlsTerminate), one(), NeedsProgram::Protocol),
        (of(ListenerProtocol::Http), one(), NeedsProgram::Protocol),
        (logged, one(), NeedsProgram::AccessLog),
        (proxied, one(), NeedsProgram::ProxyProtocol),
        (TCP, None, NeedsProgram::NoRoute),
        (TCP, guarded, NeedsProgram::Policy),
        (TCP, rule(&[]), NeedsProgram::NoBackend),
        (TCP, rule(&[json!({"name": "one", "weight": 0})]), NeedsProgram::NoBackend),
        (TCP, several, NeedsProgram::SeveralBackends),
        (TCP, with_invalid, NeedsProgram::SeveralBackends),
        (TCP, rule(&[json!({"name": "invalid"}), json!({"name": "one", "weight": 0})]), NeedsProgram::InvalidBackend),
        (TCP, Some(encrypted), NeedsProgram::BackendTls),
    ] {
        assert_eq!(decide(facts, rule.as_ref()), Err(reason), "{facts:?} {rule:?}");
        assert!(!reason.to_string().is_empty());
    }
    let udp = PortFacts { protocol: ListenerProtocol::Udp, has_proxies: true, is_logged: true };
    assert_eq!(decide(udp, one().as_ref()), Ok(port_of("one")), "neither concerns UDP");
}

/// A Gateway with the listeners `tcp` and `udp` at port 80, and the Services `one` and `two`.
struct Scene {
    memory: Arc<Memory>,
    gateway: Gateway,
    runtime: Runtime,
}

impl Scene {
    fn new(access_log: Option<Arc<AccessLog>>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let memory = Arc::new(Memory::default());
        memory.put(&kinds::namespace::KIND, json!({"metadata": {"name": "shop"}}));
        let controller = json!({"controllerName": "waypost.dev/gateway-controller"});
        memory.put(&watched::GATEWAY_CLASS, json!({"metadata": {"name": "waypost"}, "spec": controller}));
        for name in ["one", "two"] {
            service(&memory, name, tcp(name));
        }
        memory.put(&kinds::service::KIND, json!({
            "metadata": {"namespace": "shop", "name": "public-waypost", "annotations": {"waypost.dev/gateway": "public"}},
            "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.2", "ports": [{"name": "tcp-80", "port": 80}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}},
        }));
        let inside = runtime.enter();
        let settings = Settings {
            node: "n1".to_owned(),
            addresses: Arc::new(|| vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]),
            limits: Limits::default(),
            ingress: routing::ingress::Options::default(),
            access_log,
            events: Arc::new(|_| {}),
        };
        let gateway = Gateway::start(Arc::clone(&memory) as _, settings).expect("a gateway");
        drop(inside);
        let scene = Self { memory, gateway, runtime };
        scene.gateway(&json!({}));
        scene
    }

    fn gateway(&self, annotations: &Value) {
        let listeners =
            json!([{"name": "tcp", "port": 80, "protocol": "TCP"}, {"name": "udp", "port": 80, "protocol": "UDP"}]);
        let mut object = object("public", &json!({"gatewayClassName": "waypost", "listeners": listeners}));
        object["metadata"]["annotations"] = annotations.clone();
        self.memory.put(&watched::GATEWAY, object);
    }

    /// Both routes have these backends.
    fn route(&self, backends: &Value) {
        for (kind, listener) in [(&watched::TCP_ROUTE, "tcp"), (&watched::UDP_ROUTE, "udp")] {
            let parents = json!([{"name": "public", "sectionName": listener}]);
            self.memory.put(kind, object("t", &json!({"parentRefs": parents, "rules": [{"backendRefs": backends}]})));
        }
    }

    /// Waits until TCP and UDP lead directly to these Services; returns the redirects.
    #[track_caller]
    fn until(&self, what: &str, [of_tcp, of_udp]: [Option<&str>; 2]) -> Vec<Redirect> {
        let wanted = |redirect: &Redirect| {
            let service = if redirect.protocol == Protocol::Tcp { of_tcp } else { of_udp };
            redirect.direct == service.map(port_of)
        };
        let mut redirects = self.gateway.redirects();
        self.runtime.block_on(async {
            let all = redirects.wait_for(|all| all.len() == 2 && all.iter().all(wanted));
            let all = tokio::time::timeout(TIMEOUT, all).await.unwrap_or_else(|_| panic!("{what}: not so"));
            all.expect("redirects").iter().cloned().collect()
        })
    }
}

fn object(name: &str, spec: &Value) -> Value {
    let created = "2026-01-01T00:00:00Z";
    json!({"metadata": {"namespace": "shop", "name": name, "creationTimestamp": created, "generation": 1}, "spec": spec})
}

/// A Service with a TCP and a UDP port 80, and one endpoint.
fn service(memory: &Memory, name: &str, pod: SocketAddr) {
    let ports = json!([{"port": 80, "protocol": "TCP"}, {"port": 80, "protocol": "UDP"}]);
    memory.put(&kinds::service::KIND, object(name, &json!({"clusterIP": "10.96.0.1", "ports": ports})));
    memory.put(
        &kinds::endpointslice::KIND,
        json!({
            "metadata": {"namespace": "shop", "name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4", "ports": [{"name": "", "port": pod.port(), "protocol": "TCP"}],
            "endpoints": [{"addresses": [pod.ip().to_string()], "conditions": {"ready": true}}],
        }),
    );
}

#[test]
fn redirects_follow_the_routes_and_listeners_stay() {
    let scene = Scene::new(None);
    let (one, two) = (json!({"name": "one", "port": 80}), json!({"name": "two", "port": 80}));
    let first = scene.until("without a route", [None, None]);
    scene.route(&json!([one]));
    let redirects = scene.until("one Service", [Some("one"), Some("one")]);
    assert!(redirects.iter().all(|redirect| redirect.backends == [port_of("one")].into()), "{redirects:?}");
    let listener = redirects.iter().find(|redirect| redirect.protocol == Protocol::Tcp).expect("one").listener;
    // A connection that the program serves stays open while the kernel serves new ones.
    let mut open = TcpStream::connect(listener).expect("a connection");
    open.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let mut name = [0; 3];
    open.read_exact(&mut name).expect("the name of the pod");
    for _ in 0..10 {
        scene.route(&json!([one, two]));
        let redirects = scene.until("two Services", [None, None]);
        assert!(redirects.iter().all(|redirect| redirect.backends.len() == 2), "{redirects:?}");
        scene.route(&json!([two]));
        scene.until("another Service", [Some("two"), Some("two")]);
    }
    open.write_all(b"hello").expect("it is open");
    assert_eq!(rest_of(open), "hello");
    let redirects = scene.until("still so", [Some("two"), Some("two")]);
    let listeners = |all: &[Redirect]| all.iter().map(|redirect| redirect.listener).collect::<Vec<_>>();
    assert_eq!(listeners(&redirects), listeners(&first), "no socket is opened again");
    scene.memory.delete(&watched::UDP_ROUTE, "shop", "t");
    scene.until("the UDPRoute is deleted", [Some("two"), None]);
    scene.memory.delete(&kinds::service::KIND, "shop", "two");
    scene.until("the Service is deleted", [None, None]);
}

#[test]
fn policies_proxies_and_grants_count() {
    let scene = Scene::new(None);
    scene.route(&json!([{"name": "one", "port": 80}]));
    scene.until("one Service", [Some("one"), Some("one")]);
    let listener =
        json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "public", "sectionName": "tcp"});
    let spec = json!({"targetRefs": [listener], "sourceRanges": {"allow": ["192.0.2.0/24"]}});
    scene.memory.put(&kinds::trafficpolicy::KIND, object("p", &spec));
    scene.until("a policy of the listener", [None, Some("one")]);
    scene.memory.delete(&kinds::trafficpolicy::KIND, "shop", "p");
    scene.until("no policy", [Some("one"), Some("one")]);
    scene.gateway(&json!({"waypost.dev/proxy-protocol-from": "192.0.2.0/28"}));
    scene.until("proxies in front", [None, Some("one")]);
    scene.gateway(&json!({}));
    scene.until("no proxies", [Some("one"), Some("one")]);
    scene.route(&json!([{"name": "one", "namespace": "other", "port": 80}]));
    let redirects = scene.until("a Service of another namespace without a grant", [None, None]);
    assert!(redirects.iter().all(|redirect| redirect.backends.is_empty()), "{redirects:?}");
}

#[test]
fn an_access_log_keeps_tcp_in_the_program() {
    let (log, _lines) = Lines::log(AccessLogFormat::Json);
    let scene = Scene::new(Some(log));
    scene.route(&json!([{"name": "one", "port": 80}]));
    scene.until("UDP is not logged", [None, Some("one")]);
}

#[test]
fn a_gateway_that_stops_leaves_to_the_kernel_what_it_serves() {
    let scene = Scene::new(None);
    scene.route(&json!([{"name": "one", "port": 80}]));
    scene.until("one Service", [Some("one"), Some("one")]);
    let two = json!([{"name": "one", "port": 80}, {"name": "two", "port": 80}]);
    let parents = json!([{"name": "public", "sectionName": "udp"}]);
    let spec = json!({"parentRefs": parents, "rules": [{"backendRefs": two}]});
    scene.memory.put(&watched::UDP_ROUTE, object("t", &spec));
    scene.until("UDP is for the gateway", [Some("one"), None]);
    let redirects = scene.gateway.redirects();
    scene.runtime.block_on(scene.gateway.stop());
    let left: Vec<_> = redirects.borrow().iter().map(|redirect| (redirect.protocol, redirect.direct.clone())).collect();
    assert_eq!(left, [(Protocol::Tcp, Some(port_of("one")))]);
}
