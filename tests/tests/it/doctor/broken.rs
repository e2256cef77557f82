//! Services that are broken by their objects. The cause is the verdict, its command fixes it.

use serde_json::{Value, json};
use testbed::net::backend;

use super::clinic::Clinic;

#[test]
fn a_selector_that_is_nearly_right_is_named_and_mended() {
    let mut clinic = Clinic::new();
    clinic.pod("default", "web-1", "web");
    clinic.service(
        "default",
        "web",
        json!({"selector": {"app": "wbe"}, "ports": [{"port": 80, "targetPort": "http"}]}),
    );
    let said = clinic.doctor("web");
    said.names(
        "selected",
        &["selector app=wbe matches 0 of 1 pod in default", "1 pod has app=web"],
        "kubectl set selector service web -n default app=web",
    );
    clinic.mend(&said);
    clinic.doctor("web").is_healthy();
}

#[test]
fn a_target_port_that_is_wrong_by_name_or_by_number_is_named_and_mended() {
    let mut clinic = Clinic::new();
    clinic.pod("default", "web-1", "web");
    clinic.service(
        "default",
        "named",
        json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "htttp"}]}),
    );
    clinic.service(
        "default",
        "numbered",
        json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 9999}]}),
    );
    let said = clinic.doctor("named");
    said.names(
        "targetPort",
        &["targetPort htttp is not a port of pod web-1", "pod web-1 declares port http (8080/TCP)"],
        "kubectl patch service named -n default --type=json",
    );
    clinic.mend(&said);
    clinic.doctor("named").is_healthy();
    let said = clinic.doctor("numbered");
    said.names(
        "listening",
        &[":9999", "refused", "http (8080/TCP), which accepts connections"],
        "kubectl patch service numbered",
    );
    assert_eq!((said.outcome("rules"), said.outcome("firewall")), ("proved", "proved"));
    clinic.mend(&said);
    clinic.doctor("numbered").is_healthy();
}

#[test]
fn pods_that_are_not_ready_or_do_not_run_are_named_with_their_reason() {
    let mut clinic = Clinic::new();
    let mut unready = backend(8080);
    unready["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["sh", "-c", "echo the database is away; exit 1"]}, "periodSeconds": 1});
    clinic.pod_of("default", "slow-1", "slow", unready);
    let crash = json!({"containers": [{"name": "main", "image": "host", "command": ["sh", "-c", "exit 3"]}]});
    clinic.pod_of("default", "crash-1", "crash", crash);
    for app in ["slow", "crash"] {
        clinic.service("default", app, json!({"selector": {"app": app}, "ports": [{"port": 80, "targetPort": 8080}]}));
    }
    clinic.until("default", "slow-1", "running", |pod| pod["status"]["phase"] == "Running");
    let mut said = clinic.doctor("slow");
    // The first probe may still be under way.
    testbed::net::eventually("the probe has failed", || {
        said = clinic.doctor("slow");
        said.told().contains("the database is away")
    });
    said.names("ready", &["slow-1", "Readiness probe failed"], "kubectl describe pod slow-1 -n default");
    clinic.until("default", "crash-1", "ended", |pod| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    });
    let said = clinic.doctor("crash");
    assert!(["running", "ready"].contains(&said.check()), "{:#}", said.whole);
    assert!(said.saw().contains("CrashLoopBackOff") && said.saw().contains("exit code was 3"), "{}", said.saw());
    assert_eq!(said.fix(), "kubectl logs crash-1 -n default -c main --previous");
}

#[test]
fn pods_of_another_namespace_and_no_pods_at_all_are_told_apart() {
    let mut clinic = Clinic::new();
    clinic.namespace("shop");
    clinic.pod("shop", "web-1", "web");
    clinic.service("default", "web", json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}));
    let said = clinic.doctor("web");
    said.names(
        "selected",
        &["pods in namespace shop match", "a Service selects only pods of its own namespace"],
        "kubectl expose pod web-1 -n shop",
    );
    clinic.mend(&said);
    clinic.doctor("web -n shop").is_healthy();
    clinic.service("default", "nobody", json!({"selector": {"app": "ghost"}, "ports": [{"port": 80}]}));
    clinic.doctor("nobody").names("selected", &["there are no pods in default"], "kubectl run nobody -n default");
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "idle"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "idle"}},
                 "template": {"metadata": {"labels": {"app": "idle"}}, "spec": backend(8080)}},
    });
    let _ = clinic.api(|session| session.post("/apis/apps/v1/namespaces/default/deployments", &deployment)).success();
    clinic.service(
        "default",
        "idle",
        json!({"selector": {"app": "idle"}, "ports": [{"port": 80, "targetPort": 8080}]}),
    );
    let said = clinic.doctor("idle");
    said.names(
        "selected",
        &["deployment idle", "scaled to 0"],
        "kubectl scale deployment idle -n default --replicas=1",
    );
    clinic.mend(&said);
    testbed::net::eventually("the Deployment serves", || clinic.doctor("idle").code == Some(0));
}

#[test]
fn a_local_policy_without_local_pods_and_ranges_that_shut_out_are_named_and_mended() {
    let mut clinic = Clinic::new();
    clinic.node.echo(8080);
    let here = clinic.node.v4().to_string();
    clinic.service(
        "default",
        "local",
        json!({"internalTrafficPolicy": "Local", "ports": [{"port": 80, "targetPort": 8080}]}),
    );
    clinic.slice("default", "local", &here, 8080);
    let said = clinic.doctor("local");
    said.names(
        "policy",
        &["internalTrafficPolicy is Local", "n1"],
        "kubectl patch service local -n default --type=merge",
    );
    clinic.mend(&said);
    clinic.doctor("local").is_healthy();
    let ranges = json!(["203.0.113.0/24"]);
    // Of its own class: no other controller gives it addresses.
    let spec = json!({
        "type": "LoadBalancer", "loadBalancerClass": "example.com/tests", "loadBalancerSourceRanges": ranges,
        "ports": [{"port": 80, "targetPort": 8080}],
    });
    clinic.service("default", "ranges", spec);
    clinic.slice("default", "ranges", &here, 8080);
    clinic.balance("default", "ranges", &["198.51.100.1"]);
    let said = clinic.doctor("ranges");
    said.names(
        "sources",
        &[&here, "203.0.113.0/24", "198.51.100.1"],
        "kubectl patch service ranges -n default --type=merge",
    );
    clinic.doctor("ranges --from 203.0.113.9").is_healthy();
    clinic.mend(&said);
    clinic.doctor("ranges").is_healthy();
    clinic.balance("default", "ranges", &["198.51.100.1", "2001:db8:1::1"]);
    clinic.doctor("ranges").names("sources", &["no range of IPv6", "2001:db8:1::1"], "kubectl patch service ranges");
}

#[test]
fn an_external_name_that_is_an_address_is_named_and_mended() {
    let mut clinic = Clinic::new();
    clinic.node.echo(80);
    let here = clinic.node.v4().to_string();
    clinic.service("default", "db", json!({"type": "ExternalName", "externalName": here}));
    let said = clinic.doctor("db");
    said.names("shape", &["externalName is", &here, "an address"], "kubectl patch service db -n default --type=merge");
    clinic.mend(&said);
    clinic.doctor("db").is_healthy();
}

#[test]
fn the_address_of_a_service_as_an_endpoint_is_named_and_mended() {
    let mut clinic = Clinic::new();
    clinic.pod("default", "web-1", "web");
    let spec =
        json!({"selector": {"app": "web"}, "clusterIP": "10.96.0.81", "ports": [{"port": 80, "targetPort": 8080}]});
    clinic.service("default", "web", spec);
    clinic.service("default", "again", json!({"ports": [{"port": 80}]}));
    clinic.slice("default", "again", "10.96.0.81", 80);
    let said = clinic.doctor("again");
    said.names(
        "endpoints",
        &["10.96.0.81", "cluster IP of Service default/web"],
        "kubectl delete service again -n default",
    );
    clinic.mend(&said);
    clinic.doctor("again").is_healthy();
}

#[test]
fn a_service_that_is_not_there_is_looked_for_nearby() {
    let mut clinic = Clinic::new();
    clinic.namespace("shop");
    clinic.service("shop", "frontend", json!({"type": "ExternalName", "externalName": "example.org"}));
    clinic.doctor("frontend").names("object", &["there is shop/frontend"], "waypost doctor frontend -n shop");
    clinic.doctor("fronted -n shop").names("object", &["there is shop/frontend"], "waypost doctor frontend -n shop");
    clinic.doctor("frontend -n shp").names("object", &["no namespace shp"], "waypost doctor frontend -n shop");
}

/// Runs the doctor on a Service, and shows that its condition and `explain` have the same code and sentence.
#[track_caller]
fn agree(clinic: &mut Clinic, name: &str, check: &str, code: &str, saw: &[&str]) {
    let said = clinic.doctor(name);
    said.names(check, saw, "");
    assert_eq!(said.code_of_verdict(), code, "{:#}", said.whole);
    clinic.condition_says(name, &said);
    assert_eq!(clinic.explained(name), (code.to_owned(), said.saw().to_owned()));
}

#[test]
fn b13_condition_doctor_and_explain_give_one_verdict() {
    let mut clinic = Clinic::new();
    clinic.pod("default", "web-1", "web");
    let here = clinic.node.v4().to_string();
    let web = || json!({"app": "web"});
    let mut service = |name: &str, spec: Value| _ = clinic.service("default", name, spec);
    service("typo", json!({"selector": {"app": "wbe"}, "ports": [{"port": 80, "targetPort": "http"}]}));
    service("named", json!({"selector": web(), "ports": [{"port": 80, "targetPort": "htttp"}]}));
    // What the containers serve is TCP: no datagram is answered.
    let datagrams = json!([{"port": 53, "targetPort": 8080, "protocol": "UDP"}]);
    service("datagrams", json!({"selector": web(), "ports": datagrams}));
    let balanced = json!({
        "type": "LoadBalancer", "loadBalancerClass": "example.com/nobody", "selector": web(),
        "ports": [{"port": 80, "targetPort": "http"}],
    });
    service("balanced", balanced);
    service("misnamed", json!({"ports": [{"name": "sql", "port": 80, "targetPort": 8080}]}));
    clinic.slice("default", "misnamed", &here, 8080);
    let clinic = &mut clinic;
    agree(clinic, "typo", "selected", "NoPodMatches", &["1 pod has app=web"]);
    agree(clinic, "named", "targetPort", "NoSuchTargetPort", &["its only named port is http"]);
    agree(clinic, "datagrams", "targetPort", "ProtocolNotDeclared", &["sends UDP to port 8080", "for TCP only"]);
    agree(clinic, "balanced", "balancer", "LoadBalancerClassNotServed", &["loadBalancerClass example.com/nobody"]);
    agree(clinic, "misnamed", "slices", "NoSuchPort", &["no ready endpoint for port sql", "theirs are unnamed TCP"]);
}
