//! ListenerSets of a Gateway come, change and go: the other listeners of the port stay as they are.

use api::gateway_api::watched;
use api::kinds;
use client::memory::Memory;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind};

use super::cluster::{Watching, service};
use super::tls::{Ca, secret_of};
use super::*;
use crate::tests::eventually;

fn metadata(name: &str) -> Value {
    json!({"namespace": "shop", "name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1})
}

/// A ListenerSet with an HTTPS listener for this host.
fn put_set(memory: &Memory, name: &str, host: &str, certificate: &str) {
    let tls = json!({"mode": "Terminate", "certificateRefs": [{"name": certificate}]});
    let listener = json!({"name": "https", "port": 443, "protocol": "HTTPS", "hostname": host, "tls": tls});
    let spec = json!({"parentRef": {"name": "public"}, "listeners": [listener]});
    memory.put(&watched::LISTENER_SET, json!({"metadata": metadata(name), "spec": spec}));
}

/// A Gateway with a listener for `own.example`, a route of all ListenerSets, and the certificates `one` and `two`.
fn start(ca: &Ca) -> (Arc<Memory>, Watching, SocketAddr) {
    let memory = Arc::new(Memory::default());
    memory.put(&kinds::namespace::KIND, json!({"metadata": {"name": "shop"}}));
    let controller = json!({"controllerName": "waypost.dev/gateway-controller"});
    memory.put(&watched::GATEWAY_CLASS, json!({"metadata": {"name": "waypost"}, "spec": controller}));
    for name in ["one", "two"] {
        memory.put(&kinds::secret::KIND, secret_of(name, &ca.sign(&["own.example", "a.example", "b.example"])));
    }
    service(&memory, "one", named("one"));
    memory.put(&kinds::service::KIND, json!({
        "metadata": {"namespace": "shop", "name": "public-waypost", "annotations": {"waypost.dev/gateway": "public"}},
        "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.2", "ports": [{"name": "tcp-443", "port": 443}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}},
    }));
    let tls = json!({"mode": "Terminate", "certificateRefs": [{"name": "one"}]});
    let listener = json!({"name": "https", "port": 443, "protocol": "HTTPS", "hostname": "own.example", "tls": tls});
    let allowed = json!({"namespaces": {"from": "Same"}});
    let spec = json!({"gatewayClassName": "waypost", "listeners": [listener], "allowedListeners": allowed});
    memory.put(&watched::GATEWAY, json!({"metadata": metadata("public"), "spec": spec}));
    let set = |name: &str| json!({"group": "gateway.networking.k8s.io", "kind": "ListenerSet", "name": name});
    let rules = json!([{"backendRefs": [{"name": "one", "port": 80}]}]);
    let spec = json!({"parentRefs": [{"name": "public"}, set("a"), set("b")], "rules": rules});
    memory.put(&watched::HTTP_ROUTE, json!({"metadata": metadata("web"), "spec": spec}));
    let watching = Watching::start(Arc::clone(&memory) as _, |_| {});
    let address = watching.redirect(|_| true).listener;
    (memory, watching, address)
}

/// A client that resumes TLS sessions where it can.
struct Client(Arc<ClientConfig>, SocketAddr);

impl Client {
    fn new(ca: &Ca, address: SocketAddr) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = builder.expect("versions").with_root_certificates(ca.roots()).with_no_client_auth();
        Self(Arc::new(config), address)
    }

    /// How the handshake went and the status; none without a listener of this host.
    fn get(&self, host: &'static str) -> Option<(HandshakeKind, u16)> {
        use std::io::{Read as _, Write as _};
        let name = ServerName::try_from(host).expect("a name");
        let connection = ClientConnection::new(Arc::clone(&self.0), name).expect("a connection");
        let stream = TcpStream::connect(self.1).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let mut tls = rustls::StreamOwned::new(connection, stream);
        write!(tls, "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = Vec::new();
        let _ = tls.read_to_end(&mut answer);
        let kind = tls.conn.handshake_kind()?;
        Some((kind, code(std::str::from_utf8(&answer).ok().filter(|answer| !answer.is_empty())?)))
    }
}

#[test]
fn s52_listener_sets_come_change_and_go_and_others_keep_their_sessions() {
    let ca = Ca::new();
    let (memory, _watching, address) = start(&ca);
    let client = Client::new(&ca, address);
    assert_eq!(client.get("own.example"), Some((HandshakeKind::Full, 200)));
    assert_eq!(client.get("own.example"), Some((HandshakeKind::Resumed, 200)));
    put_set(&memory, "a", "a.example", "one");
    put_set(&memory, "b", "b.example", "two");
    for host in ["a.example", "b.example"] {
        eventually("the set is served", || client.get(host).is_some_and(|(_, code)| code == 200));
    }
    assert_eq!(client.get("own.example"), Some((HandshakeKind::Resumed, 200)), "not made again for the sets");
    // Another certificate of one set.
    memory.put(&kinds::secret::KIND, secret_of("two", &ca.sign(&["b.example"])));
    eventually("the certificate is shown", || {
        client.get("b.example").is_some_and(|(kind, _)| kind != HandshakeKind::Resumed)
    });
    assert_eq!(client.get("a.example"), Some((HandshakeKind::Resumed, 200)), "it has another certificate");
    // Another host: the rules of the listener stay.
    put_set(&memory, "b", "*.b.example", "two");
    eventually("the host is gone", || client.get("b.example").is_none());
    put_set(&memory, "b", "b.example", "two");
    eventually("the host is back", || client.get("b.example").is_some_and(|(_, code)| code == 200));
    memory.delete(&watched::LISTENER_SET, "shop", "a");
    eventually("the set is gone", || client.get("a.example").is_none());
    assert_eq!(client.get("b.example").map(|(_, code)| code), Some(200));
    assert_eq!(client.get("own.example"), Some((HandshakeKind::Resumed, 200)));
}
