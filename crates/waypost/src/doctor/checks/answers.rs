//! Real connections: to the endpoints, and to the Service itself.

use std::net::SocketAddr;

use diagnose::Declared;
use plan::Protocol;

use super::super::evidence::{Dial, Endpoint, Evidence};
use super::super::verdict::Judged;
use super::super::words::{count, listed};
use super::target;

/// Whether somebody listens behind every ready endpoint.
pub(in crate::doctor) fn backends(evidence: &Evidence<'_>) -> Judged {
    let ready = evidence.ready();
    if ready.is_empty() {
        return Judged::moot("there is no ready endpoint");
    }
    let tcp: Vec<&Endpoint> = ready.iter().filter(|endpoint| endpoint.protocol == Protocol::Tcp).collect();
    if tcp.is_empty() {
        return Judged::unknown(
            "its ports are not TCP, and others say nothing until they are spoken to in their own words",
            "ask with a client of the protocol, such as `waypost dig` for DNS",
        );
    }
    let dials = match &evidence.tried.backends {
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
        return Judged::disproved(format!("nobody answers at {}{hint}", listed(&silent)), fix);
    }
    let asked = tcp.iter().filter(|endpoint| dials.contains_key(&endpoint.address)).count();
    let more = match evidence.tried.left_out {
        0 => String::new(),
        n => format!("; {n} more were not asked"),
    };
    let connect = if asked == 1 { "connects" } else { "connect" };
    Judged::proved(format!("{} {connect}{more}", count(asked, "endpoint")))
}

fn whose(endpoint: &Endpoint) -> String {
    if endpoint.pod.is_empty() { String::new() } else { format!(" (Pod {})", endpoint.pod) }
}

/// What to do about an endpoint that does not answer: lead to the port where somebody does, if one was found.
fn instead(evidence: &Evidence<'_>, endpoint: &Endpoint, dial: Option<&Dial>) -> (String, String) {
    let pods = evidence.pods();
    let declared = target::declared(&pods);
    let words: Vec<String> = declared.iter().map(Declared::text).collect();
    let look = match &*endpoint.pod {
        "" => format!("ss -ltn # on the machine of {}", endpoint.address.ip()),
        pod => format!("kubectl exec {pod} {} -- ss -ltn", evidence.flag()),
    };
    let port =
        evidence.ports().into_iter().find(|port| port.name == endpoint.port && port.protocol == endpoint.protocol);
    if dial != Some(&Dial::Refused) {
        return (String::new(), format!("waypost doctor {} {}; {look}", evidence.name, evidence.flag()));
    }
    let open = |one: &&Declared| {
        let at = SocketAddr::new(endpoint.address.ip(), one.number);
        let dials = evidence.tried.backends.as_ref();
        dials.is_ok_and(|dials| dials.get(&at) == Some(&Dial::Connected))
    };
    match (declared.iter().find(open), port) {
        (Some(one), Some(port)) => {
            let hint = format!("; its containers declare {}, and there somebody answers", one.text());
            (hint, evidence.typed().retarget(port.index, &one.target()))
        }
        _ if pods.is_empty() => (String::new(), look),
        _ if words.is_empty() => ("; its containers declare no port".to_owned(), look),
        _ => (format!("; its containers declare {}", listed(&words)), look),
    }
}

/// Whether the Service answers at its own addresses.
pub(in crate::doctor) fn frontends(evidence: &Evidence<'_>) -> Judged {
    if evidence.cluster_ips().is_empty() {
        return Judged::moot("it has no address of its own");
    }
    if evidence.ready().is_empty() {
        return Judged::moot("there is no ready endpoint that could answer");
    }
    if !evidence.ports().iter().any(|port| port.protocol == Protocol::Tcp) {
        return Judged::unknown(
            "its ports are not TCP, and others say nothing until they are spoken to in their own words",
            "ask with a client of the protocol, such as `waypost dig` for DNS",
        );
    }
    let dials = match &evidence.tried.frontends {
        Ok(dials) => dials,
        Err(unmeasured) => return unmeasured.clone().into(),
    };
    let bad: Vec<String> = dials
        .iter()
        .filter(|(_, dial)| **dial != Dial::Connected)
        .map(|(at, dial)| format!("{at}: {}", dial.words()))
        .collect();
    match bad.is_empty() {
        true => Judged::proved(listed(&dials.keys().map(|at| format!("{at} connects")).collect::<Vec<_>>())),
        false => {
            Judged::disproved(listed(&bad), format!("waypost doctor {} {} -o json", evidence.name, evidence.flag()))
        }
    }
}

#[cfg(test)]
mod tests {
    use api::value::ValueExt as _;
    use serde_json::json;

    use super::super::super::testing::{World, disproved, moot, proved, unknown};
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn world(protocol: &str, dials: &[(&str, Dial)]) -> World {
        let mut world = World::new();
        let port = json!({"port": 80, "targetPort": 9999, "protocol": protocol});
        world.service("default", "web", json!({"clusterIP": "10.96.0.5", "selector": {"app": "web"}, "ports": [port]}));
        world.pod("default", "web-1", json!({"app": "web"}));
        world.slice("default", "web", 9999, &[("10.244.0.1", true, "n1")]);
        world.cluster.slices[0].items_mut("ports")[0].put("protocol", protocol);
        world.tried.backends = Ok(dials.iter().map(|(to, dial)| (at(to), dial.clone())).collect());
        world
    }

    #[test]
    fn a_port_where_nobody_listens_is_told_with_the_one_where_somebody_does() {
        let dials = [("10.244.0.1:9999", Dial::Refused), ("10.244.0.1:8080", Dial::Connected)];
        let (saw, fix) = disproved(world("TCP", &dials).judge("default", "web", backends));
        assert!(
            saw.contains("10.244.0.1:9999") && saw.contains("http (8080/TCP), and there somebody answers"),
            "{saw}"
        );
        assert!(fix.contains(r#""value":"http""#), "{fix}");
        let (saw, fix) = disproved(world("TCP", &dials[..1]).judge("default", "web", backends));
        assert!(saw.contains("declare http"), "{saw}");
        assert!(fix.starts_with("ss -ltn"), "{fix}");
    }

    #[test]
    fn endpoints_that_connect_are_proved_and_udp_is_not_measured() {
        proved(world("TCP", &[("10.244.0.1:9999", Dial::Connected)]).judge("default", "web", backends));
        assert!(unknown(world("UDP", &[]).judge("default", "web", backends)).contains("not TCP"));
        disproved(world("TCP", &[("10.244.0.1:9999", Dial::Silent)]).judge("default", "web", backends));
        let mut nobody = world("TCP", &[]);
        nobody.cluster.slices.clear();
        moot(nobody.judge("default", "web", backends));
        moot(nobody.judge("default", "web", frontends));
    }

    #[test]
    fn its_own_address_must_answer() {
        let mut world = world("TCP", &[]);
        world.tried.frontends = Ok([(at("10.96.0.5:80"), Dial::Connected)].into());
        proved(world.judge("default", "web", frontends));
        world.tried.frontends = Ok([(at("10.96.0.5:80"), Dial::Silent)].into());
        assert!(disproved(world.judge("default", "web", frontends)).0.contains("10.96.0.5:80: no answer"));
        world.not_a_node();
        unknown(world.judge("default", "web", frontends));
        unknown(world.judge("default", "web", backends));
    }
}
