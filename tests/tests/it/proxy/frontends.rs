//! What is served at all: every Service but the headless, the foreign and the external ones; and which ranges are ours.

use serde_json::{Value, json};
use testbed::net::objects::service;
use testbed::net::{Family, Kind, Protocol, eventually};

use super::stage::{Frontend, PORT, Stage, TARGET, cluster_ip};

/// A Service that serves, and what a pod of the first node gets at one of its frontends.
fn scene() -> (Stage, testbed::net::Pod) {
    let stage = Stage::new();
    let (web, pod) = (stage.near.pod("web"), stage.near.pod("pod"));
    web.echo(TARGET);
    stage.served.put(&stage.published("web", 1).json());
    stage.endpoints("web", |slice| slice.endpoint(&web));
    stage.served.settle();
    (stage, pod)
}

/// What a pod gets at a frontend, in both families alike. By UDP, which hears at once that there is no way.
#[track_caller]
fn gets(stage: &Stage, pod: &testbed::net::Pod, frontend: Frontend) -> Result<String, Kind> {
    let [v4, v6] = Family::BOTH.map(|family| {
        let (address, port) = frontend.at(1, family, &stage.near);
        pod.ask(Protocol::Udp, address, port).map(|answer| answer.name).map_err(|failure| failure.kind)
    });
    assert_eq!(v4, v6, "{frontend:?}");
    v4
}

fn web() -> Result<String, Kind> {
    Ok("web".to_owned())
}

#[test]
fn s20_a_service_of_another_proxy_is_not_ours_until_it_is() {
    let (stage, pod) = scene();
    for _ in 0..2 {
        assert_eq!(Frontend::ALL.map(|frontend| gets(&stage, &pod, frontend)), [web(), web(), web(), web()]);
        let foreign = stage.published("web", 1).label("service.kubernetes.io/service-proxy-name", "theirs");
        stage.served.put(&foreign.json());
        stage.served.settle();
        for frontend in Frontend::ALL {
            assert!(gets(&stage, &pod, frontend).is_err(), "{frontend:?}");
        }
        stage.served.put(&stage.published("web", 1).json());
        stage.served.settle();
    }
}

/// The tokens of one ruleset, both sorted, that another does not have, or not as often.
fn lacking<'a>(of: &'a [String], other: &[String]) -> Vec<&'a str> {
    let mut others = other.iter().peekable();
    let is_lacking = |word: &&String| {
        while others.next_if(|other| other < word).is_some() {}
        others.next_if(|other| other == word).is_none()
    };
    of.iter().filter(is_lacking).map(String::as_str).collect()
}

#[test]
fn s30_a_headless_service_is_not_served() {
    let (stage, pod) = scene();
    let rules = super::nftables::rules(&stage.near);
    stage.served.put(&service("bare").headless().port(PORT).named("tcp").target(TARGET).json());
    let lone = stage.near.pod("lone");
    stage.endpoints("bare", |slice| slice.endpoint(&lone));
    stage.served.settle();
    let after = super::nftables::rules(&stage.near);
    assert!(!after.iter().any(|word| word.contains(&lone.v4().to_string())), "its endpoints are in no rule");
    let (gone, new) = (lacking(&rules, &after), lacking(&after, &rules));
    assert_eq!(after.len(), rules.len(), "nothing came or went with it: gone {gone:?}, new {new:?}");
    // And one that becomes headless is served no more.
    stage.served.remove(&stage.published("web", 1).json());
    stage.served.put(&service("web").headless().port(PORT).named("tcp").target(TARGET).json());
    stage.served.settle();
    assert_eq!(gets(&stage, &pod, Frontend::ClusterIp), Err(Kind::Refused));
}

#[test]
fn s30_slices_of_headless_services_do_not_count() {
    let (stage, pod) = scene();
    stage.endpoints("web", |slice| slice.endpoint(&pod).label("service.kubernetes.io/headless", ""));
    stage.served.settle();
    assert_eq!(gets(&stage, &pod, Frontend::ClusterIp), Err(Kind::Refused));
}

#[test]
fn s20_an_external_name_is_not_served() {
    let (stage, pod) = scene();
    let mut external = service("web").spec("type", "ExternalName").spec("externalName", "example.com").json();
    external["spec"].as_object_mut().expect("a spec").retain(|key, _| ["type", "externalName"].contains(&key.as_str()));
    stage.served.put(&external);
    stage.served.settle();
    for frontend in Frontend::ALL {
        assert!(gets(&stage, &pod, frontend).is_err(), "{frontend:?}");
    }
    stage.served.put(&stage.published("web", 1).json());
    stage.served.settle();
    assert_eq!(Frontend::ALL.map(|frontend| gets(&stage, &pod, frontend)), [web(), web(), web(), web()]);
}

#[test]
fn s43_an_address_that_only_the_balancer_answers_is_left_to_it() {
    let (stage, pod) = scene();
    let set = |mode: Value| {
        let addresses = Family::BOTH.map(|family| Frontend::LoadBalancer.at(1, family, &stage.near).0.to_string());
        let ingress = addresses.map(|ip| json!({ "ip": ip, "ipMode": mode }));
        let status = json!({ "status": { "loadBalancer": { "ingress": ingress } } });
        let path = "/api/v1/namespaces/default/services/web/status";
        let _ = stage.served.session(|session| session.merge(path, &status)).success();
        stage.served.settle();
    };
    set(json!("Proxy"));
    assert_eq!(gets(&stage, &pod, Frontend::LoadBalancer), Err(Kind::Unreachable));
    assert_eq!(gets(&stage, &pod, Frontend::NodePort), web());
    set(json!("VIP"));
    assert_eq!(gets(&stage, &pod, Frontend::LoadBalancer), web());
    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "hostname": "balancer.example" }] } } });
    let path = "/api/v1/namespaces/default/services/web/status";
    let _ = stage.served.session(|session| session.merge(path, &status)).success();
    stage.served.settle();
    assert_eq!(gets(&stage, &pod, Frontend::LoadBalancer), Err(Kind::Unreachable));
}

#[test]
fn s20_a_service_of_one_family_is_served_in_that_family_only() {
    let (stage, pod) = scene();
    let web = stage.near.pod("six");
    web.echo_on(&[Protocol::Tcp], TARGET);
    let only = service("six").cluster_ip(cluster_ip(2, Family::V6)).port(PORT).named("tcp").target(TARGET);
    stage.served.put(&only.node_port(super::stage::node_port(2)).json());
    // Slices of both families are there, as when a Service has just lost one of its families.
    stage.endpoints("six", |slice| slice.endpoint(&web));
    stage.served.settle();
    let at = |family| Frontend::NodePort.at(2, family, &stage.near);
    assert_eq!(pod.ask(Protocol::Tcp, cluster_ip(2, Family::V6), PORT).expect("an answer").name, "six");
    assert_eq!(pod.ask(Protocol::Tcp, at(Family::V6).0, at(Family::V6).1).expect("an answer").name, "six");
    assert!(pod.ask(Protocol::Tcp, cluster_ip(2, Family::V4), PORT).is_err());
    assert!(pod.ask(Protocol::Tcp, at(Family::V4).0, at(Family::V4).1).is_err());
}

#[test]
fn s49_two_services_share_an_external_ip_by_their_ports() {
    let (stage, pod) = scene();
    let other = stage.near.pod("other");
    other.echo_on(&[Protocol::Tcp], 9090);
    let (shared, _) = Frontend::ExternalIp.at(1, Family::V4, &stage.near);
    let second = service("second").cluster_ip(cluster_ip(2, Family::V4)).port(81).target(9090).external_ip(shared);
    stage.served.put(&second.json());
    stage.served.put(&testbed::net::objects::slice("second").port(9090).endpoint(&other).json());
    stage.served.settle();
    assert_eq!(pod.ask(Protocol::Tcp, shared, PORT).expect("an answer").name, "web");
    assert_eq!(pod.ask(Protocol::Tcp, shared, 81).expect("an answer").name, "other");
}

#[test]
fn s28_a_range_for_services_counts_as_soon_as_it_is_there_and_no_longer() {
    let (stage, pod) = scene();
    if !stage.served.mode().refuses_unknown {
        return;
    }
    let range = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": { "name": "more" },
        "spec": { "cidrs": ["10.97.0.0/24", "fd00:10:97::/112"] },
    });
    let unknown =
        |address: &str| pod.ask(Protocol::Udp, address, PORT).map(|answer| answer.name).map_err(|failure| failure.kind);
    assert_eq!(unknown("10.97.0.5"), Err(Kind::Unreachable), "nobody's address");
    stage.served.put(&range);
    for address in ["10.97.0.5", "fd00:10:97::5"] {
        eventually(address, || unknown(address) == Err(Kind::Refused));
    }
    stage.served.remove(&range);
    for address in ["10.97.0.5", "fd00:10:97::5"] {
        eventually(address, || unknown(address) == Err(Kind::Unreachable));
    }
}
