//! Stale flows: a UDP client that keeps its port must not keep a removed endpoint, and flows to serving endpoints survive.

use std::time::Duration;

use testbed::net::{Connection, Family, Pod, Protocol, eventually};

use super::stage::{Frontend, PORT, Stage, TARGET, cluster_ip};

/// How long an answer is waited for where silence is possible.
const SHORT: Duration = Duration::from_millis(150);

/// A Service, two pods that may be its endpoints, and clients that keep their flows.
struct Scene {
    stage: Stage,
    one: Pod,
    other: Pod,
    client: Pod,
}

impl Scene {
    fn new() -> Self {
        let stage = Stage::new();
        let (one, other, client) = (stage.near.pod("one"), stage.far.pod("other"), stage.near.pod("pod"));
        one.echo(TARGET);
        other.echo(TARGET);
        stage.served.put(&stage.published("web", 1).json());
        stage.served.settle();
        Self { stage, one, other, client }
    }

    fn have(&self, pods: &[&Pod]) {
        self.stage.endpoints("web", |slice| pods.iter().fold(slice, |slice, pod| slice.endpoint(pod)));
        self.stage.served.settle();
    }

    /// Flows that keep their port, by every frontend and family, from inside and outside.
    fn flows(&self) -> Vec<(String, Connection)> {
        let mut flows = Vec::new();
        for family in Family::BOTH {
            for frontend in Frontend::ALL {
                let (address, port) = frontend.at(1, family, &self.stage.near);
                for client in [&*self.client, &*self.stage.outside] {
                    let flow = client.caller().timeout(SHORT).connect(Protocol::Udp, address, port);
                    let flow = flow.expect("a UDP socket");
                    flows.push((format!("{} → {frontend:?} {family:?}", client.name()), flow));
                }
            }
        }
        flows
    }
}

/// The flow reaches this endpoint, sooner or later; it never stops sending.
#[track_caller]
fn reach(flows: &mut [(String, Connection)], wanted: &str) {
    for (what, flow) in flows {
        eventually(&format!("{what} reaches {wanted}"), || flow.ask().is_ok_and(|answer| answer.name == wanted));
    }
}

/// The flow reaches no endpoint, eventually.
#[track_caller]
fn reach_nobody(flows: &mut [(String, Connection)]) {
    for (what, flow) in flows {
        eventually(&format!("{what} reaches nobody"), || flow.ask().is_err());
    }
}

#[test]
fn a_udp_flow_moves_from_an_endpoint_that_is_gone() {
    let scene = Scene::new();
    scene.have(&[&scene.one]);
    let mut flows = scene.flows();
    reach(&mut flows, "one");
    scene.have(&[&scene.other]);
    reach(&mut flows, "other");
    scene.have(&[&scene.one]);
    reach(&mut flows, "one");
}

#[test]
fn a_udp_flow_that_began_before_there_was_an_endpoint_finds_the_first_one() {
    let scene = Scene::new();
    let mut flows = scene.flows();
    reach_nobody(&mut flows);
    scene.have(&[&scene.one]);
    reach(&mut flows, "one");
    scene.have(&[]);
    reach_nobody(&mut flows);
    scene.have(&[&scene.other]);
    reach(&mut flows, "other");
}

#[test]
fn a_udp_flow_that_began_before_there_was_a_service_finds_it() {
    let scene = Scene::new();
    scene.stage.served.remove(&scene.stage.published("web", 1).json());
    scene.stage.served.settle();
    let mut flows = scene.flows();
    reach_nobody(&mut flows);
    scene.stage.served.put(&scene.stage.published("web", 1).json());
    scene.have(&[&scene.one]);
    reach(&mut flows, "one");
}

#[test]
fn a_udp_flow_ends_with_its_service() {
    let scene = Scene::new();
    scene.have(&[&scene.one]);
    let mut flows = scene.flows();
    reach(&mut flows, "one");
    scene.stage.served.remove(&scene.stage.published("web", 1).json());
    scene.stage.served.settle();
    reach_nobody(&mut flows);
}

#[test]
fn a_udp_flow_ends_with_its_node_port_and_its_load_balancer() {
    let scene = Scene::new();
    scene.have(&[&scene.one]);
    let mut flows = scene.flows();
    reach(&mut flows, "one");
    scene.stage.served.put(&scene.stage.internal("web", 1).json());
    scene.stage.served.settle();
    let (mut inside, mut outside): (Vec<_>, Vec<_>) =
        flows.into_iter().partition(|(what, _)| what.contains("ClusterIp"));
    reach_nobody(&mut outside);
    reach(&mut inside, "one");
}

#[test]
fn a_udp_flow_follows_a_change_of_the_target_port() {
    let scene = Scene::new();
    scene.have(&[&scene.one]);
    let mut flows = scene.flows();
    reach(&mut flows, "one");
    scene.one.echo_on(&[Protocol::Udp], TARGET + 1);
    for family in Family::BOTH {
        let slice = testbed::net::objects::slice("web").family(family).port(TARGET + 1).named("udp");
        scene.stage.served.put(&slice.protocol(Protocol::Udp).endpoint(&scene.one).json());
    }
    scene.stage.served.settle();
    for (what, flow) in &mut flows {
        eventually(&format!("{what} reaches the new port"), || {
            flow.ask().is_ok_and(|answer| answer.server.port() == TARGET + 1)
        });
    }
}

#[test]
fn a_udp_flow_to_an_endpoint_that_still_serves_stays() {
    let scene = Scene::new();
    scene.have(&[&scene.one]);
    let mut flows = scene.flows();
    reach(&mut flows, "one");
    // Another one comes, the first begins to end, and other Services change: none of it is reason to move.
    scene.have(&[&scene.one, &scene.other]);
    scene.stage.served.put(&scene.stage.published("more", 2).json());
    scene.stage.endpoints("web", |slice| slice.endpoint(&scene.one).terminating().endpoint(&scene.other));
    scene.stage.served.settle();
    if scene.stage.served.mode().outlives_program {
        scene.stage.served.kill_proxy(&scene.stage.near);
        scene.stage.served.serve(&scene.stage.near, &[]);
        scene.stage.served.settle();
    }
    for (what, flow) in &mut flows {
        for _ in 0..3 {
            let answer = flow.ask().unwrap_or_else(|failure| panic!("{what}: {failure}"));
            assert_eq!(answer.name, "one", "{what}");
        }
    }
}

#[test]
fn what_became_stale_while_the_program_was_dead_is_found_at_its_start() {
    let scene = Scene::new();
    scene.have(&[&scene.one]);
    let mut flows = scene.flows();
    reach(&mut flows, "one");
    scene.stage.served.kill_proxy(&scene.stage.near);
    scene.stage.endpoints("web", |slice| slice.endpoint(&scene.other));
    scene.stage.served.serve(&scene.stage.near, &[]);
    scene.stage.served.settle();
    reach(&mut flows, "other");
}

#[test]
fn connections_live_on_when_their_endpoint_leaves_the_slices() {
    let scene = Scene::new();
    scene.have(&[&scene.one]);
    for (protocol, family) in scene.stage.ways().into_iter().filter(|(protocol, _)| *protocol != Protocol::Udp) {
        let mut connection = scene.client.connect(protocol, cluster_ip(1, family), PORT).expect("a connection");
        assert_eq!(connection.ask().expect("an answer").name, "one", "{protocol:?} {family:?}");
        scene.have(&[&scene.other]);
        assert_eq!(connection.ask().expect("an answer").name, "one", "{protocol:?} {family:?}");
        scene.have(&[]);
        assert_eq!(connection.ask().expect("an answer").name, "one", "{protocol:?} {family:?}");
        scene.have(&[&scene.one]);
        assert_eq!(connection.ask().expect("an answer").name, "one", "{protocol:?} {family:?}");
    }
}

#[test]
fn flows_of_others_are_left_alone() {
    let scene = Scene::new();
    // The same port numbers, at addresses and hosts that are not frontends.
    let neighbour = scene.stage.far.pod("neighbour");
    neighbour.echo_on(&[Protocol::Udp], super::stage::node_port(1));
    neighbour.echo_on(&[Protocol::Udp], PORT);
    let to = |port: u16| scene.client.connect(Protocol::Udp, neighbour.v4(), port).expect("a UDP socket");
    let mut flows = [to(super::stage::node_port(1)), to(PORT)];
    for flow in &mut flows {
        flow.ask().expect("an answer");
    }
    let count = || scene.stage.near.conntrack_count(&["udp", &format!("dst={}", neighbour.v4())]);
    let before = count();
    assert!(before > 0, "{:?}", scene.stage.near.conntrack());
    scene.have(&[&scene.one]);
    scene.have(&[&scene.other]);
    scene.have(&[]);
    assert_eq!(count(), before, "{:?}", scene.stage.near.conntrack());
}
