//! TCP connections to the endpoints and to the addresses of the Service.

use std::net::SocketAddr;

use api::view::pod::ContainerPort;
use diagnose::{port_text, target_of};
use plan::Protocol;

use super::super::evidence::{Dial, Endpoint, Evidence};
use super::super::format::{count, listed};
use super::super::verdict::CheckResult;
use super::target;

/// Whether every ready endpoint accepts connections.
pub(in crate::doctor) fn backends(evidence: &Evidence<'_>) -> CheckResult {
    let ready = evidence.ready();
    if ready.is_empty() {
        return CheckResult::not_applicable("there is no ready endpoint");
    }
    let tcp: Vec<&Endpoint> = ready.iter().filter(|endpoint| endpoint.protocol == Protocol::Tcp).collect();
    if tcp.is_empty() {
        return CheckResult::not_measured(
            "its ports are not TCP; UDP and SCTP need a request of the application protocol",
            "use a client of the protocol, such as `waypost dig` for DNS",
        );
    }
    let dials = match &evidence.probes.backends {
        Ok(dials) => dials,
        Err(unmeasured) => return unmeasured.clone().into(),
    };
    let bad = |endpoint: &&&Endpoint| !matches!(dials.get(&endpoint.address), None | Some(Dial::Connected));
    let silent: Vec<String> = tcp
        .iter()
        .filter(bad)
        .map(|endpoint| {
            let how = dials.get(&endpoint.address).map(Dial::words).unwrap_or_default();
            format!("{}{}: {how}", endpoint.address, whose(endpoint))
        })
        .collect();
    if let Some(first) = tcp.iter().find(bad) {
        let (hint, fix) = instead(evidence, first, dials.get(&first.address));
        return CheckResult::failed(format!("connection failed: {}{hint}", listed(&silent)), fix);
    }
    let asked = tcp.iter().filter(|endpoint| dials.contains_key(&endpoint.address)).count();
    let more = match evidence.probes.left_out {
        0 => String::new(),
        n => format!("; {n} more were not measured"),
    };
    let connect = if asked == 1 { "connects" } else { "connect" };
    CheckResult::passed(format!("{} {connect}{more}", count(asked, "endpoint")))
}

fn whose(endpoint: &Endpoint) -> String {
    if endpoint.pod.is_empty() { String::new() } else { format!(" (Pod {})", endpoint.pod) }
}

/// The remedy for an endpoint that does not answer: another declared port, if one accepts connections.
fn instead(evidence: &Evidence<'_>, endpoint: &Endpoint, dial: Option<&Dial>) -> (String, String) {
    let pods = evidence.pods();
    let declared = target::declared(&pods);
    let words: Vec<String> = declared.iter().map(port_text).collect();
    let look = match &*endpoint.pod {
        "" => format!("ss -ltn # on the machine of {}", endpoint.address.ip()),
        pod => format!("kubectl exec {pod} {} -- ss -ltn", evidence.flag()),
    };
    let port =
        evidence.ports().into_iter().find(|port| port.name == endpoint.port && port.protocol == endpoint.protocol);
    if dial != Some(&Dial::Refused) {
        return (String::new(), format!("waypost doctor {} {}; {look}", evidence.name, evidence.flag()));
    }
    let open = |one: &&ContainerPort| {
        let at = SocketAddr::new(endpoint.address.ip(), one.container_port);
        let dials = evidence.probes.backends.as_ref();
        dials.is_ok_and(|dials| dials.get(&at) == Some(&Dial::Connected))
    };
    match (declared.iter().find(open), port) {
        (Some(one), Some(port)) => {
            let hint = format!("; its containers declare {}, which accepts connections", port_text(one));
            (hint, evidence.typed().retarget(port.index, &target_of(one)))
        }
        _ if pods.is_empty() => (String::new(), look),
        _ if words.is_empty() => ("; its containers declare no port".to_owned(), look),
        _ => (format!("; its containers declare {}", listed(&words)), look),
    }
}

/// Whether the Service accepts connections at its addresses.
pub(in crate::doctor) fn frontends(evidence: &Evidence<'_>) -> CheckResult {
    if evidence.cluster_ips().is_empty() {
        return CheckResult::not_applicable("it has no address of its own");
    }
    if evidence.ready().is_empty() {
        return CheckResult::not_applicable("there is no ready endpoint");
    }
    if !evidence.ports().iter().any(|port| port.protocol == Protocol::Tcp) {
        return CheckResult::not_measured(
            "its ports are not TCP; UDP and SCTP need a request of the application protocol",
            "use a client of the protocol, such as `waypost dig` for DNS",
        );
    }
    let dials = match &evidence.probes.frontends {
        Ok(dials) => dials,
        Err(unmeasured) => return unmeasured.clone().into(),
    };
    let bad: Vec<String> = dials
        .iter()
        .filter(|(_, dial)| **dial != Dial::Connected)
        .map(|(at, dial)| format!("{at}: {}", dial.words()))
        .collect();
    match bad.is_empty() {
        true => CheckResult::passed(listed(&dials.keys().map(|at| format!("{at} connects")).collect::<Vec<_>>())),
        false => {
            CheckResult::failed(listed(&bad), format!("waypost doctor {} {} -o json", evidence.name, evidence.flag()))
        }
    }
}

#[cfg(test)]
mod tests {
    use api::value::ValueExt as _;
    use serde_json::json;

    use super::super::super::testing::{Fixture, failed, not_applicable, not_measured, passed};
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn fixture(protocol: &str, dials: &[(&str, Dial)]) -> Fixture {
        let mut fixture = Fixture::new();
        let port = json!({"port": 80, "targetPort": 9999, "protocol": protocol});
        fixture.service(
            "default",
            "web",
            json!({"clusterIP": "10.96.0.5", "selector": {"app": "web"}, "ports": [port]}),
        );
        fixture.pod("default", "web-1", json!({"app": "web"}));
        fixture.slice("default", "web", 9999, &[("10.244.0.1", true, "n1")]);
        fixture.cluster.slices[0].items_mut("ports")[0].put("protocol", protocol);
        fixture.probes.backends = Ok(dials.iter().map(|(to, dial)| (at(to), dial.clone())).collect());
        fixture
    }

    #[test]
    fn a_port_without_listener_is_reported_with_one_that_accepts_connections() {
        let dials = [("10.244.0.1:9999", Dial::Refused), ("10.244.0.1:8080", Dial::Connected)];
        let (saw, fix) = failed(fixture("TCP", &dials).check("default", "web", backends));
        assert!(saw.contains("10.244.0.1:9999") && saw.contains("http (8080/TCP), which accepts connections"), "{saw}");
        assert!(fix.contains(r#""value":"http""#), "{fix}");
        let (saw, fix) = failed(fixture("TCP", &dials[..1]).check("default", "web", backends));
        assert!(saw.contains("declare http"), "{saw}");
        assert!(fix.starts_with("ss -ltn"), "{fix}");
    }

    #[test]
    fn endpoints_that_connect_pass_and_udp_is_not_measured() {
        passed(fixture("TCP", &[("10.244.0.1:9999", Dial::Connected)]).check("default", "web", backends));
        assert!(not_measured(fixture("UDP", &[]).check("default", "web", backends)).contains("not TCP"));
        failed(fixture("TCP", &[("10.244.0.1:9999", Dial::Silent)]).check("default", "web", backends));
        let mut empty = fixture("TCP", &[]);
        empty.cluster.slices.clear();
        not_applicable(empty.check("default", "web", backends));
        not_applicable(empty.check("default", "web", frontends));
    }

    #[test]
    fn its_own_address_must_answer() {
        let mut fixture = fixture("TCP", &[]);
        fixture.probes.frontends = Ok([(at("10.96.0.5:80"), Dial::Connected)].into());
        passed(fixture.check("default", "web", frontends));
        fixture.probes.frontends = Ok([(at("10.96.0.5:80"), Dial::Silent)].into());
        assert!(failed(fixture.check("default", "web", frontends)).0.contains("10.96.0.5:80: no answer"));
        fixture.not_a_node();
        not_measured(fixture.check("default", "web", frontends));
        not_measured(fixture.check("default", "web", backends));
    }
}
