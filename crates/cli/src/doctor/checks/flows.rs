//! Conntrack entries: those of removed endpoints, and the size of the table.

use std::net::SocketAddr;

use plan::Protocol;

use super::super::evidence::Evidence;
use super::super::format::{count, listed};
use super::super::machine::{Flow, Rules};
use super::super::verdict::CheckResult;

/// Whether the conntrack entries of the Service belong to existing endpoints.
pub(super) fn stale(evidence: &Evidence<'_>) -> CheckResult {
    let flows = match &evidence.machine.flows {
        Ok(flows) => flows,
        Err(unmeasured) => return unmeasured.clone().into(),
    };
    if let Ok(Rules { mode, .. }) = &evidence.machine.rules
        && !["nftables", "iptables"].contains(&&**mode)
    {
        return CheckResult::not_measured(
            format!("in mode {mode} conntrack entries do not name the endpoint"),
            "conntrack -L",
        );
    }
    let endpoints = evidence.endpoints();
    if endpoints.is_empty() {
        return CheckResult::not_applicable("there is no endpoint");
    }
    let mut found: Vec<(Protocol, &Flow, SocketAddr)> = Vec::new();
    let mut all = 0;
    for port in evidence.ports() {
        let serving: Vec<SocketAddr> = endpoints
            .iter()
            .filter(|one| one.serving && one.port == port.name && one.protocol == port.protocol)
            .map(|one| one.address)
            .collect();
        let own = evidence.cluster_ips().into_iter().chain(evidence.balancer_ips());
        let mut at: Vec<SocketAddr> = own.map(|ip| SocketAddr::new(ip, port.number)).collect();
        at.extend(
            port.node_port
                .iter()
                .flat_map(|number| evidence.node_ips().into_iter().map(|ip| SocketAddr::new(ip, *number))),
        );
        let ours =
            flows.iter().filter(|flow| flow.protocol == port.protocol.number() && at.contains(&flow.destination));
        for flow in ours {
            all += 1;
            // Without a translation this is the Service itself, which never answers.
            let answering = flow.answering;
            if !serving.contains(&answering) && serving.iter().any(|one| one.is_ipv4() == answering.is_ipv4()) {
                found.push((port.protocol, flow, answering));
            }
        }
    }
    let (udp, tcp): (Vec<_>, Vec<_>) = found.into_iter().partition(|(protocol, ..)| *protocol == Protocol::Udp);
    let Some((_, flow, gone)) = udp.first() else {
        let ending = match tcp.len() {
            0 => String::new(),
            n => format!("; {} of TCP to removed endpoints, which end by themselves", count(n, "flow")),
        };
        return CheckResult::passed(format!("{}, none to a removed endpoint{ending}", count(all, "flow")));
    };
    let stale_flows: Vec<String> =
        udp.iter().map(|(_, flow, gone)| format!("{} → {} goes to {gone}", flow.source, flow.destination)).collect();
    let to = flow.destination;
    CheckResult::failed(
        format!("{} of UDP to a removed endpoint: {}", count(udp.len(), "flow"), listed(&stale_flows)),
        format!("conntrack -D -p udp --orig-dst {} --dport {} --reply-src {}", to.ip(), to.port(), gone.ip()),
    )
}

/// Whether the conntrack table has room.
pub(super) fn room(evidence: &Evidence<'_>) -> CheckResult {
    match &evidence.machine.room {
        Ok((used, most)) if used >= most => CheckResult::failed(
            format!("{used} of {most} entries: the table is full"),
            format!("sysctl -w net.netfilter.nf_conntrack_max={}", most.saturating_mul(2)),
        ),
        Ok((used, most)) => CheckResult::passed(format!("{used} of {most}")),
        Err(unmeasured) => unmeasured.clone().into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{Fixture, failed, not_measured, passed};
    use super::*;

    fn fixture(protocol: &str, answering: [u8; 4]) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.service(
            "default",
            "dns",
            json!({"clusterIP": "10.96.0.5", "ports": [{"port": 53, "protocol": protocol}]}),
        );
        fixture.slice("default", "dns", 5353, &[("10.244.0.1", true, "n1")]);
        use api::value::ValueExt as _;
        fixture.cluster.slices[0].items_mut("ports")[0].put("protocol", protocol);
        fixture.machine.flows = Ok(vec![Flow {
            protocol: Protocol::named(protocol).expect("a protocol").number(),
            source: SocketAddr::new([10, 244, 0, 9].into(), 4000),
            destination: SocketAddr::new([10, 96, 0, 5].into(), 53),
            answering: SocketAddr::new(answering.into(), 5353),
        }]);
        fixture
    }

    #[test]
    fn a_udp_flow_to_an_endpoint_that_is_gone_is_reported() {
        passed(fixture("UDP", [10, 244, 0, 1]).check("default", "dns", stale));
        let (saw, fix) = failed(fixture("UDP", [10, 244, 0, 77]).check("default", "dns", stale));
        assert!(saw.contains("10.244.0.77:5353"), "{saw}");
        assert_eq!(fix, "conntrack -D -p udp --orig-dst 10.96.0.5 --dport 53 --reply-src 10.244.0.77");
    }

    #[test]
    fn tcp_ends_by_itself_and_other_modes_are_not_judged() {
        assert!(passed(fixture("TCP", [10, 244, 0, 77]).check("default", "dns", stale)).contains("1 flow of TCP"));
        let mut relayed = fixture("UDP", [10, 244, 0, 77]);
        relayed.machine.rules = Ok(Rules { mode: "userspace".to_owned(), ..Rules::default() });
        not_measured(relayed.check("default", "dns", stale));
    }

    #[test]
    fn a_full_table_is_reported() {
        let mut fixture = fixture("UDP", [10, 244, 0, 1]);
        fixture.machine.room = Ok((100, 100));
        assert_eq!(failed(fixture.check("default", "dns", room)).1, "sysctl -w net.netfilter.nf_conntrack_max=200");
        fixture.machine.room = Ok((99, 100));
        passed(fixture.check("default", "dns", room));
    }
}
