//! Endpoint selection: ready ones, else terminating ones; those of this node if a policy requires it; hairpin, too.

use std::cell::Cell;
use std::collections::BTreeSet;

use testbed::net::objects::{self, Slice};
use testbed::net::{Family, Host, Kind, Pod, Protocol, eventually};

use super::stage::{Frontend, PORT, Stage, TARGET, cluster_ip};

/// The state of an endpoint.
#[derive(Clone, Copy, Debug)]
enum State {
    Ready,
    NotReady,
    /// About to end, and still serving.
    Ending,
    /// About to end, and serving no more.
    Ended,
    Absent,
}

/// What a client gets.
#[derive(Clone, Copy, Debug)]
enum Gets {
    These(&'static [&'static str]),
    Refusal,
    Silence,
}

use Gets::{Refusal, Silence, These};
use State::{Absent, Ended, Ending, NotReady, Ready};

/// The number of requests: that one of two is not selected for so long is practically impossible.
const ENOUGH: usize = 30;

fn with(slice: Slice, pod: &Pod, state: State) -> Slice {
    match state {
        Ready => slice.endpoint(pod),
        NotReady => slice.endpoint(pod).not_ready(),
        Ending => slice.endpoint(pod).terminating(),
        Ended => slice.endpoint(pod).terminated(),
        Absent => slice,
    }
}

/// Two endpoints on the first node and one on the other, all serving regardless of their conditions.
struct Scene {
    stage: Stage,
    servers: [Pod; 3],
    client: Pod,
    /// The port that the next question comes from. None comes from one twice: a UDP flow that is remembered would lead to
    /// the endpoint it was made for.
    source: Cell<u16>,
}

impl Scene {
    fn new() -> Self {
        let stage = Stage::new();
        let servers = [stage.near.pod("near-1"), stage.near.pod("near-2"), stage.far.pod("far")];
        let client = stage.near.pod("pod");
        servers.iter().for_each(|server| server.echo_on(&[Protocol::Tcp, Protocol::Udp], TARGET));
        Self { stage, servers, client, source: Cell::new(10_000) }
    }

    fn have(&self, states: [State; 3]) {
        let endpoints = || self.servers.iter().zip(states);
        self.stage.endpoints("web", |slice| endpoints().fold(slice, |slice, (pod, state)| with(slice, pod, state)));
        self.stage.served.settle();
    }

    #[track_caller]
    fn check(&self, what: &str, client: &Host, frontend: Frontend, gets: Gets) {
        for (protocol, family) in [(Protocol::Tcp, Family::V4), (Protocol::Udp, Family::V6)] {
            let (address, port) = frontend.at(1, family, &self.stage.near);
            let what = format!("{what}: {} → {frontend:?} {protocol:?} {family:?}", client.name());
            if let These(names) = gets {
                let mut seen = BTreeSet::new();
                for _ in 0..ENOUGH {
                    let source = self.source.replace(self.source.get() + 1);
                    let answer = client.caller().source_port(source).ask(protocol, address, port);
                    seen.insert(answer.unwrap_or_else(|failure| panic!("{what}: {failure}")).name);
                }
                assert!(seen.iter().eq(names), "{what}: {names:?} are wanted, {seen:?} answer");
            } else {
                let caller = client.caller().timeout(std::time::Duration::from_millis(250));
                let kind =
                    caller.ask(protocol, address, port).map_err(|failure| failure.kind).map(|answer| answer.name);
                let wanted = if matches!(gets, Refusal) { Kind::Refused } else { Kind::TimedOut };
                assert_eq!(kind, Err(wanted), "{what}");
            }
        }
    }
}

#[test]
fn s26_when_none_is_ready_those_about_to_end_serve_wherever_they_are() {
    let scene = Scene::new();
    scene.stage.served.put(&scene.stage.published("web", 1).json());
    let cases = [
        ([Ready, Ready, Ready], These(&["far", "near-1", "near-2"])),
        ([Ready, Ending, Ending], These(&["near-1"])),
        ([Ending, Ending, Ready], These(&["far"])),
        ([Ending, NotReady, Ending], These(&["far", "near-1"])),
        ([Ended, NotReady, Ending], These(&["far"])),
        ([Ended, NotReady, Ended], Refusal),
        ([NotReady, Absent, Absent], Refusal),
        ([NotReady, Absent, Ready], These(&["far"])),
    ];
    for (states, gets) in cases {
        scene.have(states);
        let what = format!("{states:?}");
        scene.check(&what, &scene.client, Frontend::ClusterIp, gets);
        scene.check(&what, &scene.stage.outside, Frontend::NodePort, gets);
        scene.check(&what, &scene.stage.outside, Frontend::LoadBalancer, gets);
    }
}

#[test]
fn s26_where_traffic_stays_those_about_to_end_serve_before_those_elsewhere() {
    let scene = Scene::new();
    scene.stage.served.put(&scene.stage.published("web", 1).policy_local().internal_local().json());
    let cases = [
        ([Ready, Ready, Ready], These(&["near-1", "near-2"])),
        ([Ready, Ending, Ready], These(&["near-1"])),
        ([Ending, NotReady, Ready], These(&["near-1"])),
        ([Ending, Ending, Absent], These(&["near-1", "near-2"])),
        ([Ended, NotReady, Ready], Silence),
        ([Absent, Absent, Ending], Silence),
        ([Ended, NotReady, Ended], Refusal),
    ];
    for (states, gets) in cases {
        scene.have(states);
        let what = format!("{states:?}");
        scene.check(&what, &scene.client, Frontend::ClusterIp, gets);
        scene.check(&what, &scene.stage.outside, Frontend::NodePort, gets);
        scene.check(&what, &scene.stage.outside, Frontend::ExternalIp, gets);
    }
}

#[test]
fn s26_policies_can_be_changed_while_serving() {
    let scene = Scene::new();
    let all = These(&["far", "near-1", "near-2"]);
    let near = These(&["near-1", "near-2"]);
    let service = || scene.stage.published("web", 1);
    let steps = [
        (service(), all, all),
        (service().policy_local(), all, near),
        (service().internal_local(), near, all),
        (service().internal_local().policy_local(), near, near),
        (service(), all, all),
    ];
    scene.have([Ready, Ready, Ready]);
    for (step, (service, inside, outside)) in steps.into_iter().enumerate() {
        scene.stage.served.put(&service.json());
        scene.stage.served.settle();
        scene.check(&format!("step {step}"), &scene.client, Frontend::ClusterIp, inside);
        scene.check(&format!("step {step}"), &scene.stage.outside, Frontend::LoadBalancer, outside);
    }
}

#[test]
fn s20_a_pod_reaches_itself_by_every_frontend() {
    let stage = Stage::new();
    let pod = stage.near.pod("web");
    pod.echo(TARGET);
    let services = [
        stage.published("plain", 1),
        stage.published("outward", 2).policy_local(),
        stage.published("inward", 3).internal_local(),
        stage.published("sticky", 4).affinity(60),
    ];
    for (service, name) in services.into_iter().zip(["plain", "outward", "inward", "sticky"]) {
        stage.served.put(&service.json());
        stage.endpoints(name, |slice| slice.endpoint(&pod));
    }
    stage.served.settle();
    let mut wrong = Vec::new();
    for number in 1..=4 {
        for frontend in Frontend::ALL {
            for (protocol, family) in stage.ways() {
                let (address, port) = frontend.at(number, family, &stage.near);
                match pod.ask(protocol, address, port) {
                    // It must not see itself: it would answer itself past the node.
                    Ok(answer) if answer.client.ip() == stage.near.gateway(family) => {}
                    other => wrong.push(format!("{number} {frontend:?} {protocol:?} {family:?}: {other:?}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn s19_a_pod_that_is_not_ready_leaves_and_comes_back() {
    let stage = Stage::new();
    let (pods, client) = ([stage.near.pod("web-1"), stage.far.pod("web-2")], stage.near.pod("pod"));
    pods.iter().for_each(|pod| pod.echo_on(&[Protocol::Tcp], TARGET));
    stage.served.put(&stage.internal("web", 1).selector("app", "web").json());
    let put = |pod: &Pod, ready: bool| stage.served.put(&objects::pod(pod, ("app", "web"), ready));
    let names = || {
        let tally = client.ask_many(ENOUGH, Protocol::Tcp, cluster_ip(1, Family::V4), PORT);
        tally.names().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    put(&pods[0], true);
    put(&pods[1], true);
    eventually("both serve", || names() == ["web-1", "web-2"]);
    put(&pods[0], false);
    eventually("one left", || names() == ["web-2"]);
    put(&pods[0], true);
    eventually("it came back", || names() == ["web-1", "web-2"]);
    put(&pods[0], false);
    put(&pods[1], false);
    eventually("none is left", || {
        let failure = client.ask(Protocol::Tcp, cluster_ip(1, Family::V4), PORT).map(|answer| answer.name);
        failure.is_err_and(|failure| failure.kind == Kind::Refused)
    });
    let published = stage.internal("web", 1).selector("app", "web").spec("publishNotReadyAddresses", true);
    stage.served.put(&published.json());
    eventually("s18: they are published all the same", || names() == ["web-1", "web-2"]);
}
