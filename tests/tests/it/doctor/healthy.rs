//! Services of every shape that work: the doctor has nothing to say of them.

use serde_json::json;
use testbed::net::backend;
use testbed::session::text;

use super::clinic::Clinic;

/// Makes Services of different shapes that all work, and answers how many.
fn shapes(clinic: &mut Clinic) -> usize {
    clinic.pod("default", "web-1", "web");
    clinic.pod("default", "web-2", "web");
    clinic.node.echo(8081);
    let here = clinic.node.v4().to_string();
    let http = || json!([{"port": 80, "targetPort": "http"}]);
    let web = || json!({"app": "web"});
    let shapes = [
        ("by-name", json!({"selector": web(), "ports": http()})),
        ("by-number", json!({"selector": web(), "ports": [{"port": 80, "targetPort": 8080}]})),
        ("node-port", json!({"type": "NodePort", "selector": web(), "ports": http()})),
        ("headless", json!({"clusterIP": "None", "selector": web(), "ports": http()})),
        ("alias", json!({"type": "ExternalName", "externalName": "by-name.default.svc.cluster.local"})),
        ("by-hand", json!({"ports": [{"port": 80, "targetPort": 8081}]})),
        ("datagrams", json!({"selector": web(), "ports": [{"port": 53, "targetPort": 5353, "protocol": "UDP"}]})),
        ("sticky", json!({"selector": web(), "sessionAffinity": "ClientIP", "ports": http()})),
        ("local", json!({"selector": web(), "internalTrafficPolicy": "Local", "ports": http()})),
        ("dual", json!({"selector": web(), "ipFamilyPolicy": "RequireDualStack", "ports": http()})),
        (
            "outside-local",
            json!({"type": "NodePort", "externalTrafficPolicy": "Local", "selector": web(), "ports": http()}),
        ),
        (
            "balanced",
            json!({
                "type": "LoadBalancer", "loadBalancerSourceRanges": ["192.0.2.0/24"], "selector": web(), "ports": http(),
            }),
        ),
        (
            "two-ports",
            json!({"selector": web(), "ports": [
                {"name": "a", "port": 80, "targetPort": "http"}, {"name": "b", "port": 81, "targetPort": 8080},
            ]}),
        ),
        ("external", json!({"externalIPs": ["198.51.100.7"], "selector": web(), "ports": http()})),
    ];
    let count = shapes.len();
    for (name, spec) in shapes {
        clinic.service("default", name, spec);
    }
    clinic.slice("default", "by-hand", &here, 8081);
    clinic.balance("default", "balanced", &["198.51.100.1"]);
    count
}

#[test]
fn services_of_every_shape_that_work_raise_no_alarm() {
    let mut clinic = Clinic::new();
    let count = shapes(&mut clinic);
    // Rules of other programs that accept all of this traffic, and a Pod that is not ready beside two
    // that are.
    let ruleset = "table inet guard {\n chain input { type filter hook input priority 0; policy accept;\n  tcp dport 22 accept\n  \
                   tcp dport { 23, 2323 } drop\n }\n chain forward { type filter hook forward priority 0; policy drop;\n  \
                   ct state established,related accept\n  ip daddr 10.244.0.0/16 accept\n  ip6 daddr fd00:10:244::/56 accept\n }\n}\n";
    assert!(clinic.node.run_with("nft -f -", ruleset).ok);
    let mut unready = backend(8080);
    unready["containers"][0]["readinessProbe"] = json!({"exec": {"command": ["false"]}, "periodSeconds": 1});
    clinic.pod_of("default", "web-3", "web", unready);
    let said = clinic.doctor("-A");
    said.is_healthy();
    let services = said.whole["services"].as_array().expect("Services");
    // Those of the cluster itself are checked, too.
    let names: Vec<&str> = services.iter().map(|one| text(one, "/name")).collect();
    assert!(names.len() == count + 2 && names.contains(&"kubernetes") && names.contains(&"kube-dns"), "{names:?}");
    for name in ["by-name", "node-port", "sticky", "local", "dual", "balanced", "two-ports", "external"] {
        let said = clinic.doctor(name);
        for check in [
            "object",
            "selected",
            "ready",
            "slices",
            "rules",
            "proxy",
            "firewall",
            "listening",
            "flows",
            "name",
            "reachable",
        ] {
            assert_eq!(said.outcome(check), "proved", "{name}: {check}: {:#}", said.whole);
        }
    }
    let udp = clinic.doctor("datagrams");
    assert_eq!((udp.outcome("listening"), udp.outcome("reachable")), ("not measured", "not measured"));
    assert_eq!(clinic.doctor("alias").outcome("name"), "proved");
    assert_eq!(clinic.doctor("headless").outcome("name"), "proved");
}

#[test]
fn without_a_name_the_sick_come_in_detail_and_the_rest_in_a_number() {
    let mut clinic = Clinic::new();
    clinic.pod("default", "web-1", "web");
    clinic.service(
        "default",
        "web",
        json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}),
    );
    clinic.service("default", "sick", json!({"selector": {"app": "wep"}, "ports": [{"port": 80}]}));
    let mut command = std::process::Command::new(testbed::binary());
    command.arg("doctor").env("KUBECONFIG", clinic.kubeconfig());
    let run = clinic.node.run(command);
    assert_eq!(run.code, Some(1), "{run:?}");
    for part in [
        "default/sick: NOT WORKING",
        "verdict",
        "kubectl set selector service sick -n default app=web",
        "3 Services: 1 NOT WORKING, 2 OK",
    ] {
        assert!(run.out.contains(part), "{part:?} is not in\n{}", run.out);
    }
    assert!(!run.out.contains("default/web:"), "{}", run.out);
}
