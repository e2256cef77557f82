//! TrafficPolicies of objects that the gateway watches.

use std::collections::BTreeSet;
use std::io::Write as _;

use api::gateway_api::watched;
use api::kinds;
use client::memory::Memory;
use client::watch::{Selection, Source, Watch};
use parking_lot::Mutex;

use super::cluster::Watching;
use super::*;
use crate::tests::rest_of;

/// A Gateway `public` with a TCP listener, and a TCPRoute to a Pod that says `one`.
pub(super) fn objects(memory: &Memory, pod: SocketAddr) {
    let metadata = |name: &str| json!({"namespace": "shop", "name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1});
    memory.put(&kinds::namespace::KIND, json!({"metadata": {"name": "shop"}}));
    let controller = json!({"controllerName": "waypost.dev/gateway-controller"});
    memory.put(&watched::GATEWAY_CLASS, json!({"metadata": {"name": "waypost"}, "spec": controller}));
    let ports = json!([{"port": 80, "protocol": "TCP"}]);
    memory.put(
        &kinds::service::KIND,
        json!({"metadata": metadata("one"), "spec": {"clusterIP": "10.96.0.1", "ports": ports}}),
    );
    memory.put(
        &kinds::endpointslice::KIND,
        json!({
            "metadata": {"namespace": "shop", "name": "one", "labels": {"kubernetes.io/service-name": "one"}},
            "addressType": "IPv4", "ports": [{"name": "", "port": pod.port(), "protocol": "TCP"}],
            "endpoints": [{"addresses": [pod.ip().to_string()], "conditions": {"ready": true}}],
        }),
    );
    memory.put(&kinds::service::KIND, json!({
        "metadata": {"namespace": "shop", "name": "public-waypost", "annotations": {"waypost.dev/gateway": "public"}},
        "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.2", "ports": [{"name": "tcp-80", "port": 80}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}},
    }));
    let rules = json!([{"backendRefs": [{"name": "one", "port": 80}]}]);
    memory.put(
        &watched::TCP_ROUTE,
        json!({"metadata": metadata("t"), "spec": {"parentRefs": [{"name": "public"}], "rules": rules}}),
    );
    let listeners = json!([{"name": "tcp", "port": 80, "protocol": "TCP"}]);
    let spec = json!({"gatewayClassName": "waypost", "listeners": listeners});
    memory.put(&watched::GATEWAY, json!({"metadata": metadata("public"), "spec": spec}));
}

/// Objects, and which Secrets are watched.
#[derive(Default)]
struct Recording {
    memory: Memory,
    secrets: Mutex<BTreeSet<String>>,
}

impl Source for Recording {
    fn watch(&self, selection: Selection) -> Watch {
        if selection.kind.table == kinds::secret::KIND.table {
            self.secrets.lock().insert(selection.fields().to_owned());
        }
        self.memory.watch(selection)
    }
}

#[test]
fn only_secrets_of_policies_that_hold_for_a_rule_are_watched() {
    let source = Arc::new(Recording::default());
    let memory = &source.memory;
    objects(memory, unused_address());
    let metadata = |name: &str| json!({"namespace": "shop", "name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1});
    let listeners = json!([{"name": "http", "port": 80, "protocol": "HTTP"}]);
    let spec = json!({"gatewayClassName": "waypost", "listeners": listeners});
    memory.put(&watched::GATEWAY, json!({"metadata": metadata("public"), "spec": spec}));
    let rules = json!([{"backendRefs": [{"name": "one", "port": 80}]}]);
    let spec = json!({"parentRefs": [{"name": "public"}], "rules": rules});
    memory.put(&watched::HTTP_ROUTE, json!({"metadata": metadata("web"), "spec": spec}));
    let policy = |kind: &str, name: &str, secret: &str| {
        let target = json!({"group": "gateway.networking.k8s.io", "kind": kind, "name": name});
        let spec = json!({"targetRefs": [target], "authentication": {"basic": {"secretName": secret}}});
        memory.put(&kinds::trafficpolicy::KIND, json!({"metadata": metadata(secret), "spec": spec}));
    };
    policy("HTTPRoute", "missing", "stray");
    policy("Gateway", "public", "outer");
    policy("HTTPRoute", "web", "inner");
    let _watching = Watching::start(Arc::clone(&source) as _, |_| {});
    let watched = |name: &str| source.secrets.lock().contains(&format!("metadata.name={name}"));
    crate::tests::eventually("Secrets are watched", || watched("outer") && watched("inner"));
    assert!(!watched("stray"), "its policy has no target");
    policy("HTTPRoute", "web", "other");
    memory.delete(&kinds::trafficpolicy::KIND, "shop", "inner");
    crate::tests::eventually("the Secret of the next policy is watched", || watched("other"));
    assert!(!watched("stray"), "its policy has no target");
}

#[test]
fn address_ranges_of_a_policy_hold_for_tcp_connections() {
    let memory = Arc::new(Memory::default());
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    objects(&memory, server.local_addr().expect("an address"));
    std::thread::spawn(move || server.incoming().flatten().for_each(|mut stream| drop(stream.write_all(b"one"))));
    let watching = Watching::start(Arc::clone(&memory) as _, |_| {});
    let address = watching.redirect(|_| true).listener;
    let answer = || {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        rest_of(stream)
    };
    crate::tests::eventually("connections are served", || answer() == "one");
    let policy = |field: &str, range: &str| {
        let target = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "public"});
        let spec = json!({"targetRefs": [target], "sourceRanges": {field: [range]}});
        memory.put(
            &kinds::trafficpolicy::KIND,
            json!({"metadata": {"namespace": "shop", "name": "p", "generation": 1}, "spec": spec}),
        );
    };
    policy("deny", "127.0.0.0/8");
    crate::tests::eventually("connections are reset", || answer().is_empty());
    policy("allow", "127.0.0.0/8");
    crate::tests::eventually("connections are served again", || answer() == "one");
    policy("allow", "the office");
    crate::tests::eventually("a policy that is not understood closes", || answer().is_empty());
}
