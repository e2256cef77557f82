//! Session affinity: a client keeps its endpoint on every frontend of a port until it expires or the endpoint is gone.

use std::collections::BTreeMap;
use std::time::Duration;

use testbed::net::objects::Slice;
use testbed::net::{Family, Host, Pod, Protocol};

use super::stage::{Frontend, PORT, Stage, TARGET, cluster_ip};

/// So many clients that with three endpoints they never choose the same one by chance, nor the same ones twice.
const CLIENTS: usize = 12;
/// How long a memory lasts where a test waits for its end.
const SECONDS: u32 = 2;

struct Scene {
    stage: Stage,
    servers: Vec<Pod>,
    clients: Vec<Pod>,
}

impl Scene {
    /// With this affinity; none without.
    fn new(seconds: Option<u32>) -> Self {
        let stage = Stage::new();
        let servers: Vec<Pod> = vec![stage.near.pod("web-0"), stage.near.pod("web-1"), stage.far.pod("web-2")];
        let clients = (0..CLIENTS).map(|i| stage.near.pod(&format!("pod-{i}"))).collect();
        servers.iter().for_each(|server| server.echo(TARGET));
        let scene = Self { stage, servers, clients };
        scene.publish(seconds);
        scene.have(&scene.servers);
        scene
    }

    fn publish(&self, seconds: Option<u32>) {
        let service = self.stage.published("web", 1);
        self.stage.served.put(&seconds.into_iter().fold(service, |service, seconds| service.affinity(seconds)).json());
        self.stage.served.settle();
    }

    /// Makes these the endpoints.
    fn have(&self, servers: &[Pod]) {
        self.stage.endpoints("web", |slice| servers.iter().fold(slice, Slice::endpoint));
        self.stage.served.settle();
    }

    fn ask(&self, client: &Host, way: (Frontend, Protocol, Family)) -> String {
        let (frontend, protocol, family) = way;
        let (address, port) = frontend.at(1, family, &self.stage.near);
        match client.ask(protocol, address, port) {
            Ok(answer) => answer.name,
            Err(failure) => panic!("{} → {way:?}: {failure}", client.name()),
        }
    }

    /// The endpoint of each client.
    fn choices(&self, protocol: Protocol, family: Family) -> BTreeMap<String, String> {
        let way = (Frontend::ClusterIp, protocol, family);
        self.clients.iter().map(|client| (client.name().to_owned(), self.ask(client, way))).collect()
    }
}

#[test]
fn s25_a_client_stays_with_its_endpoint_on_every_frontend_of_a_port() {
    let scene = Scene::new(Some(60));
    for (protocol, family) in scene.stage.ways() {
        for client in [&*scene.clients[0], &*scene.clients[1], &*scene.stage.outside, &*scene.stage.near] {
            let first = scene.ask(client, (Frontend::ClusterIp, protocol, family));
            for turn in 0..15 {
                let way = (Frontend::ALL[turn % 4], protocol, family);
                assert_eq!(scene.ask(client, way), first, "{} → {way:?}", client.name());
            }
        }
    }
}

#[test]
fn s25_every_client_and_every_port_is_remembered_for_itself() {
    let scene = Scene::new(Some(60));
    let of_tcp = scene.choices(Protocol::Tcp, Family::V4);
    let mut chosen: Vec<&String> = of_tcp.values().collect();
    chosen.sort();
    chosen.dedup();
    assert!(chosen.len() > 1, "all clients have the same endpoint: {of_tcp:?}");
    if scene.stage.served.mode().is_random {
        // Where endpoints take turns, two ports may well take them alike.
        assert_ne!(of_tcp, scene.choices(Protocol::Udp, Family::V4), "two ports");
    }
    assert_eq!(of_tcp, scene.choices(Protocol::Tcp, Family::V4), "once more");
}

#[test]
fn s25_the_memory_lasts_as_long_as_the_client_comes_back_and_then_ends() {
    let scene = Scene::new(Some(SECONDS));
    let first = scene.choices(Protocol::Tcp, Family::V4);
    // Longer than the memory in all, shorter each time.
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(scene.choices(Protocol::Tcp, Family::V4), first, "who comes back is known");
    }
    if !scene.stage.served.mode().forgets_soon {
        return;
    }
    std::thread::sleep(Duration::from_secs(u64::from(SECONDS)) + Duration::from_millis(1_200));
    // With round robin, as many clients as endpoints get the same ones again: one more request shifts the order.
    if !scene.stage.served.mode().is_random {
        scene.ask(&scene.stage.outside, (Frontend::ClusterIp, Protocol::Tcp, Family::V4));
    }
    assert_ne!(scene.choices(Protocol::Tcp, Family::V4), first, "who stayed away is forgotten");
}

#[test]
fn s25_who_loses_its_endpoint_gets_another_and_nobody_else_notices() {
    let scene = Scene::new(Some(60));
    let before = scene.choices(Protocol::Tcp, Family::V4);
    scene.have(&scene.servers[1..]);
    let after = scene.choices(Protocol::Tcp, Family::V4);
    for (client, endpoint) in &before {
        if endpoint == "web-0" {
            assert_ne!(after[client], "web-0", "{client}");
        } else {
            assert_eq!(&after[client], endpoint, "{client}");
        }
    }
    assert_eq!(scene.choices(Protocol::Tcp, Family::V4), after, "the new choice is remembered too");
    scene.have(&scene.servers);
    assert_eq!(scene.choices(Protocol::Tcp, Family::V4), after, "an endpoint that comes back takes nobody away");
}

#[test]
fn s25_affinity_can_be_switched_on_and_off() {
    let scene = Scene::new(None);
    let names = |scene: &Scene| {
        let tally = scene.clients[0].ask_many(40, Protocol::Tcp, cluster_ip(1, Family::V6), PORT).all_answered();
        tally.answers.len()
    };
    for _ in 0..2 {
        assert_eq!(names(&scene), 3, "without affinity");
        scene.publish(Some(60));
        assert_eq!(names(&scene), 1, "with affinity");
        scene.publish(None);
    }
}

#[test]
fn s25_affinity_survives_a_restart_of_the_program() {
    let scene = Scene::new(Some(60));
    if !scene.stage.served.mode().outlives_program {
        return;
    }
    let before = scene.choices(Protocol::Tcp, Family::V4);
    scene.stage.served.kill_proxy(&scene.stage.near);
    assert_eq!(scene.choices(Protocol::Tcp, Family::V4), before, "while it is dead");
    scene.stage.served.serve(&scene.stage.near, &[]);
    scene.stage.served.settle();
    assert_eq!(scene.choices(Protocol::Tcp, Family::V4), before, "when it is back");
}

#[test]
fn s25_policy_local_remembers_among_the_endpoints_of_the_node() {
    let scene = Scene::new(None);
    scene.stage.served.put(&scene.stage.published("web", 1).policy_local().affinity(60).json());
    scene.stage.served.settle();
    let way = (Frontend::LoadBalancer, Protocol::Tcp, Family::V4);
    let first = scene.ask(&scene.stage.outside, way);
    assert_ne!(first, "web-2", "that one is on the other node");
    for _ in 0..15 {
        assert_eq!(scene.ask(&scene.stage.outside, way), first);
    }
}
