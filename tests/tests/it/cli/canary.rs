//! `waypost rollout canary`: the route that it writes, and what it refuses.

use serde_json::json;

use super::Desk;

const ROUTE: &str = "httproute.gateway.networking.k8s.io/web-canary";

/// A server with the Services `web` and `next`.
fn desk() -> Desk {
    let desk = Desk::start();
    for (name, target) in [("web", 8080), ("next", 9090)] {
        desk.service(name, &format!("{{selector: {{app: {name}}}, ports: [{{port: 80, targetPort: {target}}}]}}"));
    }
    desk
}

#[test]
fn s54_a_canary_begins_moves_and_ends() {
    let desk = desk();
    assert_eq!(desk.ok("rollout canary web"), "service/web has no canary\n");
    let weights = |stable: u8, canary: u8| format!("{stable}% to service/web, {canary}% to service/next\n");
    let begin = "rollout canary web --to next --weight 10 --timeout 0s";
    assert_eq!(desk.ok(&format!("{begin} --dry-run -o name")), format!("{ROUTE}\n"));
    assert_eq!(desk.ok("rollout canary web"), "service/web has no canary\n", "a dry run changes nothing");
    assert_eq!(desk.ok(begin), format!("{ROUTE} created: {}", weights(90, 10)));
    assert_eq!(desk.ok(begin), format!("{ROUTE} unchanged: {}", weights(90, 10)));
    assert_eq!(desk.ok("rollout canary service/web --weight 50"), format!("{ROUTE} configured: {}", weights(50, 50)));
    let shown = desk.ok("rollout canary web --to next");
    assert!(shown.starts_with(ROUTE) && shown.ends_with(&weights(50, 50)), "{shown}");
    let spec = &desk.json("httproute web-canary")["spec"];
    assert_eq!(spec["parentRefs"], json!([{"group": "", "kind": "Service", "name": "web", "port": 80}]));
    let weight = |place: usize| spec["rules"][0]["backendRefs"][place]["weight"].clone();
    assert_eq!((weight(0), weight(1)), (json!(50), json!(50)));
    assert_eq!(desk.ok("rollout canary web --abort"), format!("{ROUTE} deleted: all requests go to service/web\n"));
    assert_eq!(desk.ok("rollout canary web --abort"), "service/web has no canary\n");
}

#[test]
fn s54_a_canary_is_promoted_and_that_can_be_repeated() {
    let desk = desk();
    desk.ok("rollout canary web --to svc/next --weight 10 --timeout 0s");
    let done = format!("service/web configured: it selects the Pods of service/next\n{ROUTE} deleted\n");
    assert_eq!(desk.ok("rollout canary web --promote"), done);
    let spec = desk.json("service web")["spec"].clone();
    assert_eq!(
        (&spec["selector"], &spec["ports"][0]["targetPort"], &spec["ports"][0]["port"]),
        (&json!({"app": "next"}), &json!(9090), &json!(80))
    );
    let again = desk.ok("rollout canary web --promote --to next");
    assert_eq!(again, "service/web unchanged: it selects the Pods of service/next\n");
    assert!(desk.fails("rollout canary web --promote").contains("no canary that could be promoted"));
}

#[test]
fn s54_a_canary_refuses_foreign_routes_and_wrong_services() {
    let desk = desk();
    desk.ok_with(
        "apply -f -",
        "apiVersion: gateway.networking.k8s.io/v1\nkind: GRPCRoute\nmetadata: {name: mine}\nspec:\n  \
         parentRefs: [{group: '', kind: Service, name: web}]\n  rules: [{backendRefs: [{name: web, port: 80}]}]\n",
    );
    let begin = "rollout canary web --to next --weight 10 --timeout 0s";
    let said = desk.fails(begin);
    assert!(said.contains("grpcroute/mine decides about requests to port 80 of service/web"), "{said}");
    desk.ok("delete grpcroute mine");
    desk.ok_with(
        "apply -f -",
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: web-canary}\nspec:\n  \
         rules: [{backendRefs: [{name: web, port: 80}]}]\n",
    );
    for line in [begin, "rollout canary web", "rollout canary web --abort", "rollout canary web --promote"] {
        assert!(desk.fails(line).contains("has no annotation waypost.dev/canary"), "{line}");
    }
    desk.ok("delete httproute web-canary");
    desk.service("plain", "{clusterIP: None, ports: [{port: 80}]}");
    for (line, why) in [
        ("rollout canary web --to next", "--weight"),
        ("rollout canary web --weight 10", "--to"),
        ("rollout canary web --to nextt --weight 10", "did you mean \"next\""),
        ("rollout canary web --to web --weight 10", "its own canary"),
        ("rollout canary plain --to next --weight 10", "no cluster IP"),
        ("rollout canary deploy/web --to next --weight 10", "no Service"),
        ("rollout canary web --to next --weight 101", "101"),
        ("rollout canary web --promote --abort", "--abort"),
    ] {
        let said = desk.fails(line);
        assert!(said.contains(why), "{line}: {said}");
    }
    assert!(desk.fails("get httproute web-canary").contains("not found"), "nothing was made");
    desk.ok(begin);
    let said = desk.fails("rollout canary web --to plain --weight 10");
    assert!(said.contains("has a canary already, service/next") && said.contains("--abort"), "{said}");
}

#[test]
fn s54_a_route_that_nothing_accepts_is_an_error() {
    let desk = desk();
    desk.ok("annotate service web waypost.dev/layer-7=false");
    let said = desk.fails("rollout canary web --to next --weight 10 --timeout 1s");
    assert!(said.contains("web-canary was created, and"), "{said}");
    // The route is there, and can be removed.
    assert!(desk.ok("rollout canary web --abort").contains("deleted"));
}
