//! The measured stages of a Service on one node: whether its name resolves, and whether it accepts connections.
//!
//! In: measurements. Out: JSON with the result of each, for the report of the node. A node that forwards nothing to the Service does not
//! count as one on which it fails.

use api::value::ValueExt as _;
use plan::Protocol;
use serde_json::{Value, json};

use super::checks::{backends, frontends, resolves};
use super::evidence::{Evidence, Unmeasured};
use super::format::listed;
use super::verdict::CheckResult;

/// Both stages, and whether one of them failed.
pub fn measurements(evidence: &Evidence<'_>) -> (Value, bool) {
    let (name, reachable) = (resolves(evidence), reachable(evidence));
    let failed = [&name, &reachable].iter().any(|result| matches!(result, CheckResult::Failed(_)));
    (json!({"name": shown(name), "reachable": shown(reachable)}), failed)
}

/// Endpoints come first: a Service of two Pods, one of which does not answer, connects every other time.
fn reachable(evidence: &Evidence<'_>) -> CheckResult {
    if evidence.is_external_name() {
        return CheckResult::not_applicable("an ExternalName Service has no address of its own");
    }
    let node = evidence.machine.node.as_deref().unwrap_or_default();
    let ready = evidence.ready();
    let is_local = evidence.spec().text("internalTrafficPolicy") == "Local" && !evidence.is_headless();
    if is_local && !ready.is_empty() && !ready.iter().any(|endpoint| endpoint.node == node) {
        return CheckResult::not_applicable(
            "internalTrafficPolicy is Local, and this node has no ready endpoint: it forwards nothing",
        );
    }
    let behind = backends(evidence);
    if evidence.is_headless() {
        return behind;
    }
    match (behind, frontends(evidence)) {
        (bad @ CheckResult::Failed(_), _) | (_, bad @ CheckResult::Failed(_)) => bad,
        (CheckResult::Passed(behind), CheckResult::Passed(own)) => {
            CheckResult::passed(format!("{own}; {behind}{}", untried(evidence)))
        }
        (_, own) => own,
    }
}

/// The ports that TCP connections do not measure.
fn untried(evidence: &Evidence<'_>) -> String {
    let others: Vec<String> = evidence
        .ports()
        .iter()
        .filter(|port| port.protocol != Protocol::Tcp)
        .map(|port| format!("{}/{}", port.number, port.protocol.as_str()))
        .collect();
    match others.is_empty() {
        true => String::new(),
        false => format!("; {} was not measured: it needs a request of the application protocol", listed(&others)),
    }
}

fn shown(result: CheckResult) -> Value {
    let (verdict, text, next) = match result {
        CheckResult::Passed(saw) => ("proved", saw, String::new()),
        CheckResult::Failed(finding) => ("failed", finding.message, finding.fix),
        CheckResult::NotMeasured(Unmeasured { why, how }) if how.is_empty() => ("unneeded", why, how),
        CheckResult::NotMeasured(Unmeasured { why, how }) => ("unmeasured", why, how),
    };
    json!({"verdict": verdict, "text": text, "next": next})
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::super::evidence::{Dial, NameAnswer};
    use super::super::testing::Fixture;
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn fixture(spec: Value, own: Dial, behind: Dial) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.service("default", "web", spec);
        fixture.slice("default", "web", 9999, &[("10.244.0.1", true, "n1")]);
        fixture.probes.frontends = Ok([(at("10.96.0.5:80"), own)].into());
        fixture.probes.backends = Ok([(at("10.244.0.1:9999"), behind)].into());
        fixture.probes.name = Ok(NameAnswer {
            name: "web.default.svc.cluster.local.".to_owned(),
            records: Ok(vec!["10.96.0.5".to_owned()]),
            by_search: Some("a Pod of namespace default".to_owned()),
            notes: Vec::new(),
        });
        fixture
    }

    fn spec() -> Value {
        json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80}]})
    }

    fn verdicts(fixture: &Fixture) -> (Value, bool) {
        let (found, failed) = measurements(&fixture.evidence("default", "web"));
        (json!([found["name"]["verdict"], found["reachable"]["verdict"]]), failed)
    }

    #[test]
    fn a_service_that_answers_passes_and_unmeasured_ports_are_named() {
        let mut fixture = fixture(spec(), Dial::Connected, Dial::Connected);
        assert_eq!(verdicts(&fixture), (json!(["proved", "proved"]), false));
        fixture.cluster.services[0].put("spec.ports", json!([{"port": 80}, {"port": 53, "protocol": "UDP"}]));
        let (found, _) = measurements(&fixture.evidence("default", "web"));
        let text = found["reachable"]["text"].as_str().expect("words").to_owned();
        assert!(text.starts_with("10.96.0.5:80 connects; 1 endpoint connects"), "{text}");
        assert!(text.contains("53/UDP was not measured"), "{text}");
    }

    #[test]
    fn an_endpoint_that_refuses_fails_with_its_address_even_where_another_answers() {
        let fixture = fixture(spec(), Dial::Connected, Dial::Refused);
        let (found, failed) = measurements(&fixture.evidence("default", "web"));
        assert!(failed);
        assert_eq!(found["reachable"]["text"], "connection failed: 10.244.0.1:9999: refused");
        let silent = self::fixture(spec(), Dial::Silent, Dial::Connected);
        let (found, _) = measurements(&silent.evidence("default", "web"));
        assert_eq!(found["reachable"]["text"], "10.96.0.5:80: no answer");
    }

    #[test]
    fn a_node_that_forwards_nothing_does_not_fail() {
        let mut local = fixture(spec(), Dial::Silent, Dial::Connected);
        local.cluster.services[0].put("spec.internalTrafficPolicy", "Local");
        assert_eq!(verdicts(&local), (json!(["proved", "failed"]), true), "it has an endpoint");
        local.cluster.slices[0].items_mut("endpoints")[0].put("nodeName", "n2");
        assert_eq!(verdicts(&local).0[1], "unneeded");
        local.cluster.slices.clear();
        assert_eq!(verdicts(&local).0[1], "unneeded", "no endpoint is ready");
        let headless = fixture(json!({"clusterIP": "None", "ports": [{"port": 80}]}), Dial::Silent, Dial::Connected);
        assert_eq!(verdicts(&headless).0[1], "proved", "its endpoints connect");
        let alias = fixture(json!({"type": "ExternalName", "externalName": "a.example"}), Dial::Silent, Dial::Silent);
        assert_eq!(verdicts(&alias).0[1], "unneeded");
    }

    #[test]
    fn udp_is_not_measured_and_the_way_is_named() {
        let mut fixture = fixture(
            json!({"clusterIP": "10.96.0.5", "ports": [{"port": 53, "protocol": "UDP"}]}),
            Dial::Silent,
            Dial::Silent,
        );
        fixture.cluster.slices[0].items_mut("ports")[0].put("protocol", "UDP");
        let (found, _) = measurements(&fixture.evidence("default", "web"));
        assert_eq!(found["reachable"]["verdict"], "unmeasured");
        assert!(found["reachable"]["next"].as_str().expect("words").contains("waypost dig"));
    }
}
