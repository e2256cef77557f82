//! Statuses of routes whose parent is a Service, in a cluster without a Gateway.

use super::*;
use crate::testing::service as backend;

/// A route to Service `web` whose parent is Service `shop`.
fn put_mesh_route(cluster: &mut Cluster, table: &'static str, name: &str, section: Option<&str>) {
    let mut parent = json!({"group": "", "kind": "Service", "name": "shop"});
    if let Some(section) = section {
        parent.put("sectionName", section);
    }
    let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
    put(cluster, table, name, json!({"parentRefs": [parent], "rules": rules}));
}

fn parents(cluster: &Cluster, table: &'static str, name: &str) -> Vec<Value> {
    cluster.get(table, &format!("default/{name}")).expect("a route").items("status.parents").to_vec()
}

/// Condition `Accepted` of the only parent.
fn accepted(cluster: &Cluster, table: &'static str, name: &str) -> String {
    let all = parents(cluster, table, name);
    let [parent] = &all[..] else { panic!("one parent: {all:?}") };
    let accepted = condition(parent, "Accepted");
    format!("{}/{}", accepted.text("status"), accepted.text("reason"))
}

#[test]
fn s54_routes_have_an_entry_for_their_service() {
    let mut cluster = cluster();
    for name in ["web", "shop"] {
        cluster.put(service::TABLE, backend(name, name));
    }
    put_mesh_route(&mut cluster, HTTP_ROUTES, "r", None);
    converge(&mut cluster);
    let entries = parents(&cluster, HTTP_ROUTES, "r");
    let [parent] = &entries[..] else { panic!("one parent: {entries:?}") };
    assert_eq!(*parent.at("parentRef"), json!({"group": "", "kind": "Service", "name": "shop"}));
    assert_eq!(parent.text("controllerName"), "waypost.dev/gateway-controller");
    assert_condition(parent, "Accepted=True/Accepted");
    assert_condition(parent, "ResolvedRefs=True/ResolvedRefs");
    assert!(parent.items("conditions").iter().all(|one| one.int("observedGeneration") == 1), "{parent}");
    put_mesh_route(&mut cluster, HTTP_ROUTES, "r", Some("odd"));
    converge(&mut cluster);
    assert_eq!(accepted(&cluster, HTTP_ROUTES, "r"), "False/NoMatchingParent");
    let parent = &parents(&cluster, HTTP_ROUTES, "r")[0];
    assert!(parent.items("conditions").iter().all(|one| one.int("observedGeneration") == 2), "{parent}");
}

#[test]
fn s54_a_service_that_changes_is_judged_again() {
    let mut cluster = cluster();
    cluster.put(service::TABLE, backend("web", "web"));
    put_mesh_route(&mut cluster, HTTP_ROUTES, "r", None);
    converge(&mut cluster);
    assert_eq!(accepted(&cluster, HTTP_ROUTES, "r"), "False/NoMatchingParent", "it does not exist");
    let shop = backend("shop", "shop");
    cluster.put(service::TABLE, shop.clone());
    converge(&mut cluster);
    assert_eq!(accepted(&cluster, HTTP_ROUTES, "r"), "True/Accepted");
    let mut changed = shop.clone();
    changed.put("metadata.annotations", json!({"waypost.dev/layer-7": "false"}));
    cluster.put(service::TABLE, changed);
    converge(&mut cluster);
    assert_eq!(accepted(&cluster, HTTP_ROUTES, "r"), "False/NotAllowedByListeners");
    let mut headless = shop.clone();
    headless.put("spec.clusterIP", "None");
    headless.put("spec.clusterIPs", json!(["None"]));
    cluster.put(service::TABLE, headless);
    converge(&mut cluster);
    assert_eq!(accepted(&cluster, HTTP_ROUTES, "r"), "False/UnsupportedValue");
    cluster.put(service::TABLE, shop);
    put_mesh_route(&mut cluster, ROUTES[1].0, "g", None);
    converge(&mut cluster);
    assert_eq!(accepted(&cluster, ROUTES[1].0, "g"), "True/Accepted");
    assert_eq!(accepted(&cluster, HTTP_ROUTES, "r"), "False/Conflicted", "GRPCRoutes have precedence");
    cluster.remove(ROUTES[1].0, "default/g");
    converge(&mut cluster);
    assert_eq!(accepted(&cluster, HTTP_ROUTES, "r"), "True/Accepted");
}

#[test]
fn s54_entries_of_other_controllers_stay_and_nothing_is_written_twice() {
    let mut cluster = cluster();
    for name in ["web", "shop"] {
        cluster.put(service::TABLE, backend(name, name));
    }
    put_mesh_route(&mut cluster, HTTP_ROUTES, "r", None);
    converge(&mut cluster);
    let foreign = json!({
        "controllerName": "example.com/mesh", "parentRef": {"group": "", "kind": "Service", "name": "shop"},
        "conditions": [{"type": "Accepted", "status": "False", "reason": "Odd", "message": "", "observedGeneration": 1,
                        "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    });
    let mut route = cluster.get(HTTP_ROUTES, "default/r").expect("a route");
    let mut all = route.items("status.parents").to_vec();
    all.insert(0, foreign.clone());
    route.put("status.parents", all.clone());
    cluster.put(HTTP_ROUTES, route);
    converge(&mut cluster);
    cluster.writes_to(HTTP_ROUTES);
    // What does not matter to the route: another Service, and an address of its own.
    cluster.put(service::TABLE, backend("other", "other"));
    let mut shop = backend("shop", "shop");
    shop.put("status.loadBalancer.ingress", json!([{"ip": "192.0.2.9"}]));
    cluster.put(service::TABLE, shop);
    converge(&mut cluster);
    assert_eq!(cluster.writes_to(HTTP_ROUTES), 0);
    assert_eq!(parents(&cluster, HTTP_ROUTES, "r"), all);
    put(&mut cluster, HTTP_ROUTES, "r", json!({"parentRefs": []}));
    converge(&mut cluster);
    assert_eq!(parents(&cluster, HTTP_ROUTES, "r"), [foreign]);
    assert!(!format!("{:?}", cluster.cache.gateways).contains("default/other"), "only what is referred to is kept");
}
