//! Routes whose parent is a Service: whom they hold for, how they split, what gets no rule.

use serde_json::json;
use testbed::net::{Family, Pod, eventually};

use super::grpc::Grpc;
use super::stage::{Connection, Mesh, Spoken, marked, to};

/// Requests of a split.
const REQUESTS: usize = 1000;

#[test]
fn s54_producer_routes_hold_for_all_and_consumer_routes_for_their_namespace() {
    let mesh = Mesh::new();
    mesh.single("web");
    let clients = [("own", "default"), ("consumer", "team-a"), ("third", "team-b")];
    let clients = clients.map(|(name, namespace)| mesh.client(name, namespace));
    let [own, consumer, third] = &clients;
    let until = |client: &Pod, mark: Option<&str>| {
        let what = format!("{} gets {mark:?}", client.name());
        let page = mesh.until(&what, client, "web", |page| page.code == 200 && page.header("x-route") == mark);
        assert_eq!(page.pod(), Some("web"));
    };
    // No ReferenceGrant: the backend of the consumer route is in another namespace.
    mesh.route("team-a", "web", "web", &marked("consumer", "web"));
    until(consumer, Some("consumer"));
    until(own, None);
    until(third, None);
    mesh.route("default", "web", "web", &marked("producer", "web"));
    until(own, Some("producer"));
    until(third, Some("producer"));
    until(consumer, Some("consumer"));
    mesh.remove_route("team-a", "web");
    until(consumer, Some("producer"));
    mesh.route("team-a", "web", "web", &marked("consumer", "web"));
    mesh.remove_route("default", "web");
    until(own, None);
    until(third, None);
    until(consumer, Some("consumer"));
}

#[test]
fn s54_traffic_is_split_by_weight() {
    let mesh = Mesh::new();
    mesh.single("web");
    mesh.single("next");
    let client = mesh.client("client", "default");
    for weight in [10, 50, 100, 0] {
        let rules = json!([{"backendRefs": [to("web", 100 - weight), to("next", weight)], "filters": [{
            "type": "ResponseHeaderModifier",
            "responseHeaderModifier": {"set": [{"name": "x-route", "value": weight.to_string()}]},
        }]}]);
        mesh.route("default", "canary", "web", &rules);
        let _ = mesh.until("the weights are in force", &client, "web", |page| {
            page.header("x-route") == Some(weight.to_string().as_str())
        });
        let mut connection = Connection::open(&client, mesh.address("web", Family::V6)).expect("a connection");
        let moved = (0..REQUESTS)
            .filter(|_| {
                let page = connection.exchange("/").expect("the connection stays open");
                assert_eq!(page.code, 200, "{page:?}");
                page.pod() == Some("next")
            })
            .count();
        let expected = REQUESTS * weight as usize / 100;
        let tolerated = if [0, 100].contains(&weight) { 0 } else { REQUESTS / 20 };
        assert!(moved.abs_diff(expected) <= tolerated, "weight {weight}: {moved} of {REQUESTS} requests");
    }
}

#[test]
fn s54_cluster_ip_and_port_choose_the_routes_and_not_the_host() {
    let mesh = Mesh::new();
    mesh.single("web");
    mesh.single("other");
    let client = mesh.client("client", "default");
    let match_api = json!([{"path": {"type": "PathPrefix", "value": "/api"}}]);
    let match_old = json!([{"path": {"type": "PathPrefix", "value": "/old"}}]);
    let redirect = json!([{"type": "RequestRedirect", "requestRedirect": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"}}}]);
    mesh.route(
        "default",
        "web",
        "web",
        &json!([
            {"matches": match_api, "backendRefs": [to("web", 1)]},
            {"matches": match_old, "filters": redirect},
        ]),
    );
    let _ = mesh.until("the route is in force", &client, "web", |page| page.code == 404);
    let ask = |service: &str, path: &str| {
        mesh.ask(&client, service, path, &["-H", "Host: anything.test"]).expect("a response")
    };
    let page = ask("web", "/api/x");
    assert_eq!((page.code, page.pod(), page.heard("host")), (200, Some("web"), Some("anything.test")), "{page:?}");
    assert_eq!(page.heard("x-forwarded-for"), Some(client.v4().to_string().as_str()), "{page:?}");
    let page = ask("web", "/old/x?y=1");
    assert_eq!((page.code, page.header("location")), (302, Some("http://anything.test/new/x?y=1")), "{page:?}");
    assert_eq!(
        ask("web", "/other").code,
        404,
        "no rule of the route matches, and the Service's own endpoints are not asked"
    );
    assert_eq!(ask("other", "/other").pod(), Some("other"), "a Service without routes is as it was");
}

#[test]
fn s54_a_grpc_call_without_a_rule_is_unimplemented() {
    let mesh = Mesh::new();
    mesh.service("web", |service| service.app_protocol("kubernetes.io/h2c"));
    mesh.endpoints("web", &[mesh.backend("web", Spoken::Http2)]);
    let client = mesh.client("client", "default");
    let call = || {
        let grpc = Grpc::try_connect(&client, mesh.address("web", Family::V4))?;
        grpc.status().ok()
    };
    eventually("calls succeed at layer 4", || call().as_deref() == Some("0"));
    let route = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GRPCRoute",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "parentRefs": [{"group": "", "kind": "Service", "name": "web"}],
            "rules": [{"matches": [{"method": {"service": "test.Other"}}], "backendRefs": [to("web", 1)]}],
        },
    });
    mesh.stage.put("/apis/gateway.networking.k8s.io/v1/namespaces/default/grpcroutes", &route);
    eventually("calls without a rule end with 12", || call().as_deref() == Some("12"));
}
