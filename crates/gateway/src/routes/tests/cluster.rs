//! From objects to responses: a gateway that watches a server.

use std::io::Write as _;

use api::gateway_api::watched;
use api::kinds;
use client::memory::Memory;
use client::watch::Source;
use plan::{Protocol, Redirect};

use super::*;
use crate::controller::{Gateway, Settings};
use crate::tests::next_answer;

/// A gateway that watches objects, with the runtime that outlives it.
pub(super) struct Watching {
    pub(super) gateway: Gateway,
    pub(super) runtime: Runtime,
}

impl Watching {
    /// Starts one whose settings are changed so.
    pub(super) fn start(source: Arc<dyn Source>, change: impl FnOnce(&mut Settings)) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let mut settings = Settings {
            node: "n1".to_owned(),
            addresses: Arc::new(|| vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]),
            limits: Limits::default(),
            ingress: routing::ingress::Options::default(),
            access_log: None,
            events: Arc::new(|_| {}),
        };
        change(&mut settings);
        let inside = runtime.enter();
        let gateway = Gateway::start(source, settings).expect("a gateway");
        drop(inside);
        Self { gateway, runtime }
    }

    /// Waits for a redirect, and returns the first such.
    pub(super) fn redirect(&self, is_it: impl Fn(&Redirect) -> bool) -> Redirect {
        let mut redirects = self.gateway.redirects();
        self.runtime.block_on(async {
            let all = redirects.wait_for(|all| all.iter().any(&is_it)).await.expect("redirects").clone();
            all.iter().find(|one| is_it(one)).expect("one").clone()
        })
    }
}

/// A Service with one endpoint.
pub(super) fn service(memory: &Memory, name: &str, pod: SocketAddr) {
    memory.put(
        &kinds::service::KIND,
        json!({
            "metadata": {"namespace": "shop", "name": name},
            "spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ports": [{"port": 80, "protocol": "TCP"}]},
        }),
    );
    memory.put(
        &kinds::endpointslice::KIND,
        json!({
            "metadata": {"namespace": "shop", "name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4", "ports": [{"name": "", "port": pod.port(), "protocol": "TCP"}],
            "endpoints": [{"addresses": [pod.ip().to_string()], "conditions": {"ready": true}}],
        }),
    );
}

fn route(memory: &Memory, name: &str, backend: &str) {
    memory.put(&watched::HTTP_ROUTE, json!({
        "metadata": {"namespace": "shop", "name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1},
        "spec": {"parentRefs": [{"name": "public"}], "hostnames": [format!("{name}.example")],
                 "rules": [{"backendRefs": [{"name": backend, "port": 80}]}]},
    }));
}

#[test]
fn objects_become_listeners_and_rules_and_changes_close_no_connection() {
    let memory = Arc::new(Memory::default());
    memory.put(&kinds::namespace::KIND, json!({"metadata": {"name": "shop"}}));
    memory.put(
        &watched::GATEWAY_CLASS,
        json!({
            "metadata": {"name": "waypost"}, "spec": {"controllerName": "waypost.dev/gateway-controller"},
        }),
    );
    for name in ["one", "two"] {
        service(&memory, name, named(name));
    }
    route(&memory, "web", "one");
    memory.put(&kinds::service::KIND, json!({
        "metadata": {"namespace": "shop", "name": "public-waypost", "annotations": {"waypost.dev/gateway": "public"}},
        "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.2", "ports": [{"name": "tcp-80", "port": 80}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}},
    }));
    let watching = Watching::start(Arc::clone(&memory) as _, |_| {});
    memory.put(&watched::GATEWAY, json!({
        "metadata": {"namespace": "shop", "name": "public", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1},
        "spec": {"gatewayClassName": "waypost", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
    }));
    let redirect = watching.redirect(|_| true);
    assert_eq!(
        (&*redirect.service, &*redirect.port, redirect.protocol),
        ("shop/public-waypost", "tcp-80", Protocol::Tcp)
    );
    let mut stream = TcpStream::connect(redirect.listener).expect("a connection");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let mut get = |host: &str| {
        write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("sent");
        next_answer(&mut stream)
    };
    let (head, body) = get("web.example");
    assert!(head.starts_with("http/1.1 200") && body.starts_with("one "), "{head}{body}");
    for change in 0..50 {
        let backend = ["two", "one"][change % 2];
        route(&memory, "web", backend);
        crate::tests::eventually("the change takes effect", || get("web.example").1.starts_with(backend));
    }
    assert!(get("other.example").0.starts_with("http/1.1 404"));
    memory.delete(&watched::HTTP_ROUTE, "shop", "web");
    crate::tests::eventually("the route is gone", || get("web.example").0.starts_with("http/1.1 404"));
    memory.delete(&watched::GATEWAY, "shop", "public");
    let mut redirects = watching.gateway.redirects();
    watching.runtime.block_on(async { redirects.wait_for(|all| all.is_empty()).await.map(drop) }).expect("no redirect");
}
