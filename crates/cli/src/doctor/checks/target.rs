//! The targetPorts of a Service: names that containers must declare, numbers that they may.

use api::view::pod::ContainerPort;
use diagnose::Detail;
use serde_json::Value;

use super::super::evidence::{Evidence, port_number};
use super::super::format::listed;
use super::super::verdict::CheckResult;

/// What the containers of Pods declare, each once.
pub(super) fn declared(pods: &[&Value]) -> Vec<ContainerPort> {
    let details: Vec<Detail> = pods.iter().map(|pod| Detail::of(pod)).collect();
    let mut all: Vec<ContainerPort> = details.iter().flat_map(Detail::ports).cloned().collect();
    all.sort_unstable_by(|a, b| (&a.name, a.container_port, a.protocol).cmp(&(&b.name, b.container_port, b.protocol)));
    all.dedup();
    all
}

/// Whether every targetPort can be resolved.
pub(super) fn named(evidence: &Evidence<'_>) -> CheckResult {
    let pods = evidence.pods();
    if pods.is_empty() {
        return CheckResult::not_applicable("it selects no Pod");
    }
    if let Some(finding) = evidence.found("targetPort") {
        return finding.into();
    }
    let declared = declared(&pods);
    let saw = evidence.ports().into_iter().map(|port| {
        let fits = |one: &&ContainerPort| one.protocol == Some(port.protocol);
        if let Some(name) = port.target.as_str() {
            let one = declared.iter().filter(fits).find(|one| *one.name == *name);
            return one.map_or_else(|| name.to_owned(), |one| format!("{name} is {}", one.container_port));
        }
        let number = port_number(&port.target).unwrap_or(port.number);
        let known = declared.iter().filter(fits).any(|one| one.container_port == number);
        format!("{number}{}", if known { "" } else { " (which no container declares; it need not)" })
    });
    CheckResult::passed(listed(&saw.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use api::value::ValueExt as _;
    use serde_json::json;

    use super::super::super::testing::{Fixture, failed, passed};
    use super::*;

    fn fixture(port: &Value, declared: &Value) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.service("default", "web", json!({"selector": {"app": "web"}, "ports": [port]}));
        fixture.pod("default", "web-1", json!({"app": "web"}));
        fixture.cluster.pods[0].put("spec.containers", json!([{"name": "main", "ports": declared}]));
        fixture
    }

    #[test]
    fn a_name_that_no_container_has_fails_with_those_that_they_have() {
        let fixture =
            fixture(&json!({"port": 80, "targetPort": "htp"}), &json!([{"name": "http", "containerPort": 8080}]));
        let (saw, fix) = failed(fixture.check("default", "web", named));
        assert!(saw.contains("targetPort htp is not a port of pod web-1; its only named port is http"), "{saw}");
        assert!(saw.contains("declares port http (8080/TCP)"), "{saw}");
        let wanted = r#"'[{"op":"replace","path":"/spec/ports/0/targetPort","value":"http"}]'"#;
        assert!(fix.ends_with(wanted), "{fix}");
    }

    #[test]
    fn a_name_of_another_protocol_is_another_name() {
        let declared = json!([{"name": "dns", "containerPort": 53, "protocol": "UDP"}]);
        let fixture = fixture(&json!({"port": 53, "targetPort": "dns", "protocol": "TCP"}), &declared);
        assert!(failed(fixture.check("default", "web", named)).0.contains("targetPort dns is a UDP port of pod"));
    }

    #[test]
    fn names_that_are_there_and_numbers_pass() {
        let declared = json!([{"name": "http", "containerPort": 8080}]);
        let by_name = fixture(&json!({"port": 80, "targetPort": "http"}), &declared);
        assert_eq!(passed(by_name.check("default", "web", named)), "http is 8080");
        let by_number = fixture(&json!({"port": 80, "targetPort": 9999}), &declared);
        assert!(passed(by_number.check("default", "web", named)).contains("it need not"));
    }

    #[test]
    fn a_number_that_is_declared_for_another_protocol_alone_fails() {
        let declared = json!([{"name": "http", "containerPort": 8080}]);
        let mut udp = fixture(&json!({"port": 53, "targetPort": 8080, "protocol": "UDP"}), &declared);
        udp.slice("default", "web", 8080, &[("10.244.0.1", true, "n1")]);
        udp.cluster.slices[0]["ports"] = json!([{"name": "", "port": 8080, "protocol": "UDP"}]);
        let (saw, _) = failed(udp.check("default", "web", named));
        assert!(saw.contains("port 53: the Service sends UDP to port 8080") && saw.contains("for TCP only"), "{saw}");
        udp.cluster.pods[0]["spec"]["containers"][0]["ports"][0]["protocol"] = json!("UDP");
        passed(udp.check("default", "web", named));
    }
}
