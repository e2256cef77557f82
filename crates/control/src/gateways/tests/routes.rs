//! Statuses of routes, ListenerSets and policies.

use super::*;
use crate::objects::gateway_api::POLICIES;
use crate::testing::service as backend;

fn parents(cluster: &Cluster, table: &'static str, name: &str) -> Vec<Value> {
    cluster.get(table, &format!("default/{name}")).expect("a route").items("status.parents").to_vec()
}

#[test]
fn s52_routes_of_all_kinds_are_accepted_and_counted() {
    let mut cluster = cluster();
    cluster.put(service::TABLE, backend("web", "web"));
    let tls = json!({"name": "tls", "port": 443, "protocol": "TLS", "tls": {"mode": "Passthrough"}});
    let listeners = [listener("http", 80, "HTTP"), tls, listener("tcp", 5432, "TCP"), listener("udp", 53, "UDP")];
    put_gateway(&mut cluster, &listeners);
    let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
    for (index, (table, _)) in ROUTES.into_iter().enumerate() {
        let section = ["http", "http", "tls", "tcp", "udp"][index];
        let mut spec = json!({"parentRefs": [{"name": "public", "sectionName": section}], "rules": rules});
        if section == "tls" {
            spec.put("hostnames", json!(["a.example.com"]));
        }
        put(&mut cluster, table, "r", spec);
    }
    converge(&mut cluster);
    for (table, _) in ROUTES {
        let parents = parents(&cluster, table, "r");
        let [parent] = &parents[..] else { panic!("{table}: one parent: {parents:?}") };
        assert_eq!(parent.text("controllerName"), "waypost.dev/gateway-controller");
        assert_condition(parent, "Accepted=True/Accepted");
    }
    let status = status(&cluster);
    let counts: Vec<i64> = status.items("listeners").iter().map(|one| one.int("attachedRoutes")).collect();
    assert_eq!(counts, [2, 1, 1, 1]);
}

#[test]
fn s52_foreign_parents_and_conditions_stay() {
    let mut cluster = cluster();
    cluster.put(service::TABLE, backend("web", "web"));
    put_gateway(&mut cluster, &[listener("http", 80, "HTTP")]);
    put_route(&mut cluster, "r");
    converge(&mut cluster);
    let foreign = json!({
        "controllerName": "example.com/controller", "parentRef": {"name": "theirs"},
        "conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 1,
                        "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    });
    let mut route = cluster.get(HTTP_ROUTES, "default/r").expect("a route");
    let mut all = route.items("status.parents").to_vec();
    all.push(foreign.clone());
    route.put("status.parents", all);
    cluster.put(HTTP_ROUTES, route);
    put(&mut cluster, HTTP_ROUTES, "r", json!({"parentRefs": [{"name": "elsewhere"}]}));
    converge(&mut cluster);
    assert_eq!(parents(&cluster, HTTP_ROUTES, "r"), [foreign]);
}

#[test]
fn s52_conditions_have_the_generation_that_they_judge() {
    let mut cluster = cluster();
    cluster.put(service::TABLE, backend("web", "web"));
    put_gateway(&mut cluster, &[listener("http", 80, "HTTP")]);
    put_route(&mut cluster, "r");
    converge(&mut cluster);
    put_route(&mut cluster, "r");
    // The change is stored, and the controller does not know it yet: it writes nothing.
    cluster.writes_to(HTTP_ROUTES);
    let outcome = cluster.reconcile(&route::CONTROLLER, &format!("{HTTP_ROUTES} default/r"));
    assert_eq!(outcome, crate::Outcome::done());
    converge(&mut cluster);
    let parents = parents(&cluster, HTTP_ROUTES, "r");
    assert!(parents[0].items("conditions").iter().all(|one| one.int("observedGeneration") == 2), "{parents:?}");
    assert_eq!(cluster.get(HTTP_ROUTES, "default/r").expect("a route").int("metadata.generation"), 2);
}

#[test]
fn s52_listener_sets_are_accepted_and_their_ports_served() {
    let mut cluster = cluster();
    let spec = json!({
        "gatewayClassName": "waypost", "listeners": [listener("http", 80, "HTTP")],
        "allowedListeners": {"namespaces": {"from": "Same"}},
    });
    put(&mut cluster, GATEWAYS, "public", spec);
    let set = json!({"parentRef": {"name": "public"}, "listeners": [listener("more", 8080, "HTTP")]});
    put(&mut cluster, LISTENER_SETS, "more", set);
    converge(&mut cluster);
    let set = cluster.get(LISTENER_SETS, "default/more").expect("a set");
    assert_condition(set.at("status"), "Accepted=True/Accepted");
    assert_eq!(status(&cluster).int("attachedListenerSets"), 1);
    let service = cluster.get(service::TABLE, SERVICE).expect("a Service");
    let ports: Vec<i64> = service.items("spec.ports").iter().map(|port| port.int("port")).collect();
    assert_eq!(ports, [80, 8080]);
}

#[test]
fn s52_policies_say_whether_their_authorities_are_valid() {
    let mut cluster = cluster();
    cluster.put(service::TABLE, backend("web", "web"));
    put_gateway(&mut cluster, &[listener("http", 80, "HTTP")]);
    put_route(&mut cluster, "r");
    let bundle = |text: &str| json!({"metadata": {"name": "ca", "namespace": "default"}, "data": {"ca.crt": text}});
    cluster.put("configmaps", bundle("bad"));
    let spec = json!({
        "targetRefs": [{"group": "", "kind": "Service", "name": "web"}],
        "validation": {"hostname": "web.example.com", "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]},
    });
    put(&mut cluster, POLICIES, "web", spec);
    converge(&mut cluster);
    let ancestor = |cluster: &Cluster| {
        cluster.get(POLICIES, "default/web").expect("a policy").items("status.ancestors")[0].clone()
    };
    assert_condition(&ancestor(&cluster), "Accepted=False/NoValidCACertificate");
    cluster.put("configmaps", bundle("good"));
    converge(&mut cluster);
    assert_condition(&ancestor(&cluster), "Accepted=True/Accepted");
}
