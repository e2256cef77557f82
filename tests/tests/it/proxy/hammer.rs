//! New connections all the while that everything changes: none fails.
//!
//! The changes are random and the same every time. Endpoints that are taken away keep running, so whatever fails was the
//! proxy's doing.

use std::net::IpAddr;
use std::time::Duration;

use fastrand::Rng;
use testbed::net::objects::Slice;
use testbed::net::{Family, Hammer, Host, Pod, Protocol};

use super::stage::{Frontend, PORT, Stage, TARGET, cluster_ip};

/// How many changes there are.
const CHANGES: usize = 1_000;
/// How long a client rests between two connections, so that the changes get their turn.
const PACE: Duration = Duration::from_millis(1);
/// Where the dice start.
const SEED: u64 = 4;
/// The Services besides, which come and go.
const OTHERS: u8 = 8;

/// Some of these pods, at least one.
fn some<'a>(dice: &mut Rng, pods: &'a [Pod]) -> Vec<&'a Pod> {
    let count = dice.usize(1..=pods.len());
    dice.choose_multiple(pods, count)
}

/// Whole endpoints come and go.
fn replace_endpoints(stage: &Stage, dice: &mut Rng, service: &str, pods: &[Pod]) {
    let chosen = some(dice, pods);
    stage.endpoints(service, |slice| chosen.iter().fold(slice, |slice, pod| slice.endpoint(pod)));
}

/// Endpoints become ready or begin to end; all keep serving what they have. A UDP exchange with one that was taken away
/// altogether may be cut in its middle, which is right and not what is looked for here.
fn fade_endpoints(stage: &Stage, dice: &mut Rng, service: &str, pods: &[Pod]) {
    let chosen: Vec<&str> = some(dice, pods).iter().map(|pod| pod.name()).collect();
    let add = |slice: Slice, pod: &Pod| {
        let slice = slice.endpoint(pod);
        if chosen.contains(&pod.name()) { slice } else { slice.terminating() }
    };
    stage.endpoints(service, |slice| pods.iter().fold(slice, add));
}

/// Changes fields of the Service itself.
fn change_service(stage: &Stage, dice: &mut Rng, name: &str, number: u8) {
    let service = stage.published(name, number).label("turn", &dice.u32(..).to_string());
    let service = match dice.u8(0..4) {
        0 => service.port(81).named("more").target(TARGET),
        1 => service.affinity(60),
        2 => service.external_ip("198.51.100.200"),
        _ => service,
    };
    stage.served.put(&service.json());
}

/// A Service without traffic is created, changed or removed.
fn change_another(stage: &Stage, dice: &mut Rng, pods: &[Pod]) {
    let number = 10 + dice.u8(0..OTHERS);
    let name = format!("other-{number}");
    let service = stage.published(&name, number);
    if dice.u8(0..3) == 0 {
        // It may not be there.
        let path = format!("/api/v1/namespaces/default/services/{name}");
        let _ = stage.served.session(|session| session.delete(&path));
        return;
    }
    let service = if dice.bool() { service.policy_local() } else { service.internal_local() };
    stage.served.put(&service.json());
    replace_endpoints(stage, dice, &name, pods);
}

#[test]
fn s24_no_connection_fails_during_a_thousand_changes() {
    let stage = Stage::new();
    let servers: Vec<Pod> =
        (0..6).map(|i| if i % 2 == 0 { &stage.near } else { &stage.far }.pod(&format!("web-{i}"))).collect();
    let (pod, other) = (stage.near.pod("pod"), stage.far.pod("pod-far"));
    servers.iter().for_each(|server| server.echo(TARGET));
    for (service, number) in [("web", 1), ("fading", 2)] {
        stage.served.put(&stage.published(service, number).json());
        stage.endpoints(service, |slice| servers.iter().fold(slice, Slice::endpoint));
    }
    stage.served.settle();
    let (node_port, at) = {
        let (address, port) = Frontend::NodePort.at(1, Family::V4, &stage.near);
        (port, address)
    };
    let hammer =
        |client: &Host, protocol, address: IpAddr, port| client.caller().pace(PACE).hammer(protocol, address, port);
    let hammers: Vec<(&str, Hammer)> = vec![
        ("TCP, IPv4, pod", hammer(&pod, Protocol::Tcp, cluster_ip(1, Family::V4), PORT)),
        ("TCP, IPv6, pod on the other node", hammer(&other, Protocol::Tcp, cluster_ip(1, Family::V6), PORT)),
        ("TCP, node port, outside", hammer(&stage.outside, Protocol::Tcp, at, node_port)),
        ("UDP, IPv4, pod", hammer(&pod, Protocol::Udp, cluster_ip(2, Family::V4), PORT)),
        ("UDP, IPv6, pod on the other node", hammer(&other, Protocol::Udp, cluster_ip(2, Family::V6), PORT)),
    ];
    let mut dice = Rng::with_seed(SEED);
    for _ in 0..CHANGES {
        match dice.u8(0..10) {
            0..4 => replace_endpoints(&stage, &mut dice, "web", &servers),
            4..7 => fade_endpoints(&stage, &mut dice, "fading", &servers),
            7 => change_service(&stage, &mut dice, "web", 1),
            8 => change_service(&stage, &mut dice, "fading", 2),
            _ => change_another(&stage, &mut dice, &servers),
        }
    }
    stage.served.settle();
    for node in [&stage.near, &stage.far] {
        let log = stage.served.with_proxy(node, |proxy| proxy.log());
        assert!(!log.contains("sync failed"), "{log}");
    }
    for (what, hammer) in hammers {
        let tally = hammer.stop();
        let wrong: Vec<String> = tally.failures.iter().take(5).map(ToString::to_string).collect();
        assert!(wrong.is_empty(), "{what}: {} of {} failed: {wrong:#?}", tally.failures.len(), tally.asked);
        assert!(tally.asked > 100 && tally.names().len() > 1, "{what}: {tally:?}");
    }
}
