//! The program dies, restarts, loses its server, and cleans up: traffic continues in all but the last.

use testbed::net::{Family, Hammer, Pod, Protocol, eventually};

use super::stage::{Frontend, PORT, Stage, cluster_ip};

/// A Service with an endpoint on each node, and those who hammer it by the first.
struct Scene {
    stage: Stage,
    servers: [Pod; 2],
    client: Pod,
}

impl Scene {
    fn new() -> Self {
        let stage = Stage::new();
        let servers = [stage.near.pod("web-near"), stage.far.pod("web-far")];
        let client = stage.near.pod("pod");
        stage.web(&[&servers[0], &servers[1]]);
        Self { stage, servers, client }
    }

    fn hammers(&self) -> Vec<Hammer> {
        let (address, port) = Frontend::NodePort.at(1, Family::V4, &self.stage.near);
        vec![
            self.client.hammer(Protocol::Tcp, cluster_ip(1, Family::V4), PORT),
            self.client.hammer(Protocol::Udp, cluster_ip(1, Family::V6), PORT),
            self.stage.outside.hammer(Protocol::Tcp, address, port),
        ]
    }

    /// Until all clients have got so many more responses, or failures.
    #[track_caller]
    fn go_on(hammers: &[Hammer]) {
        for hammer in hammers {
            let wanted = hammer.so_far().asked + 50;
            assert!(hammer.wait_until(super::TIMEOUT, |tally| tally.asked >= wanted), "{:?}", hammer.so_far());
        }
    }
}

#[track_caller]
fn all_answered(hammers: Vec<Hammer>) {
    for hammer in hammers {
        let tally = hammer.stop().all_answered();
        assert_eq!(tally.names(), ["web-far", "web-near"]);
    }
}

#[test]
fn s24_traffic_goes_on_while_the_program_is_dead_and_when_it_comes_back() {
    let scene = Scene::new();
    if !scene.stage.served.mode().outlives_program {
        return;
    }
    let hammers = scene.hammers();
    for _ in 0..3 {
        Scene::go_on(&hammers);
        scene.stage.served.kill_proxy(&scene.stage.near);
        Scene::go_on(&hammers);
        scene.stage.served.serve(&scene.stage.near, &[]);
        scene.stage.served.settle();
    }
    all_answered(hammers);
}

#[test]
fn s24_a_program_that_is_asked_to_end_leaves_the_traffic_alone() {
    let scene = Scene::new();
    if !scene.stage.served.mode().outlives_program {
        return;
    }
    let hammers = scene.hammers();
    let status = scene.stage.served.with_proxy(&scene.stage.near, testbed::net::Process::terminate);
    assert!(status.success(), "{status:?}");
    Scene::go_on(&hammers);
    all_answered(hammers);
}

#[test]
fn what_changed_while_the_program_was_dead_is_followed_when_it_comes_back() {
    let scene = Scene::new();
    let Scene { stage, servers, client } = &scene;
    stage.served.kill_proxy(&stage.near);
    stage.endpoints("web", |slice| slice.endpoint(&servers[1]));
    stage.served.put(&stage.published("late", 2).json());
    stage.endpoints("late", |slice| slice.endpoint(&servers[0]));
    stage.served.serve(&stage.near, &[]);
    stage.served.settle();
    for (protocol, family) in stage.ways() {
        let tally = client.ask_many(10, protocol, cluster_ip(1, family), PORT).all_answered();
        assert_eq!(tally.names(), ["web-far"], "{protocol:?} {family:?}");
        let tally = client.ask_many(3, protocol, cluster_ip(2, family), PORT).all_answered();
        assert_eq!(tally.names(), ["web-near"], "{protocol:?} {family:?}");
    }
}

#[test]
fn nothing_changes_while_the_server_is_away_and_all_is_followed_when_it_is_back() {
    let scene = Scene::new();
    let Scene { stage, servers, client } = &scene;
    let hammers = scene.hammers();
    let rules = super::nftables::rules(&stage.near);
    stage.served.kill_server();
    Scene::go_on(&hammers);
    if stage.served.mode().outlives_program {
        // A proxy that starts without a server must not take half a world for all of it.
        stage.served.kill_proxy(&stage.near);
        stage.served.start_proxy(&stage.near, &[]);
    }
    stage.served.with_proxy(&stage.near, |proxy| {
        proxy.wait_for_line("watch failed, keeping the last known state", super::TIMEOUT)
    });
    Scene::go_on(&hammers);
    assert_eq!(super::nftables::rules(&stage.near), rules);
    stage.served.start_server();
    stage.served.settle();
    all_answered(hammers);
    stage.endpoints("web", |slice| slice.endpoint(&servers[0]));
    stage.served.settle();
    let tally = client.ask_many(20, Protocol::Tcp, cluster_ip(1, Family::V4), PORT).all_answered();
    assert_eq!(tally.names(), ["web-near"]);
}

#[test]
fn what_was_deleted_while_a_proxy_could_not_see_it_is_gone() {
    let scene = Scene::new();
    let Scene { stage, client, .. } = &scene;
    stage.served.put(&stage.published("gone", 2).json());
    stage.served.settle();
    // The watch of a proxy that is stopped breaks, and it must list again.
    stage.served.kill_server();
    stage.served.start_server();
    stage.served.remove(&stage.published("gone", 2).json());
    stage.no_endpoints("web");
    stage.served.settle();
    let failure = client.ask(Protocol::Tcp, cluster_ip(1, Family::V4), PORT).expect_err("its endpoints are gone");
    assert_eq!(failure.kind, testbed::net::Kind::Refused, "{failure}");
}

#[test]
fn a_proxy_serves_cluster_ips_before_its_node_is_known_and_node_ports_as_soon_as_it_is() {
    let scene = Scene::new();
    let stage = &scene.stage;
    let late = stage.served.cluster().node("n3");
    stage.served.serve(&late, &[]);
    stage.served.settle();
    let client = late.pod("late");
    for (protocol, family) in stage.ways() {
        let answer = client.ask(protocol, cluster_ip(1, family), PORT);
        assert!(answer.is_ok(), "{protocol:?} {family:?}: {answer:?}");
    }
    let _ = stage.served.node("n3");
    for (protocol, family) in stage.ways() {
        let (address, port) = Frontend::NodePort.at(1, family, &late);
        eventually("its node port is served", || stage.outside.ask(protocol, address, port).is_ok());
    }
}

#[test]
fn of_two_programs_on_one_machine_the_second_waits_for_its_turn() {
    let scene = Scene::new();
    let served = &scene.stage.served;
    let hammers = scene.hammers();
    let second = scene.stage.near.spawn(served.proxy_command(
        &scene.stage.near,
        &["--metrics-listen", "127.0.0.1:11249", "--healthz-listen", "127.0.0.1:11256"],
    ));
    second.wait_for_line("another waypost proxy runs", super::TIMEOUT);
    served.kill_proxy(&scene.stage.near);
    second.wait_for_line("ready", super::TIMEOUT);
    Scene::go_on(&hammers);
    if served.mode().outlives_program {
        all_answered(hammers);
    }
    assert!(second.is_running());
}

#[test]
fn cleanup_leaves_nothing() {
    let scene = Scene::new();
    let stage = &scene.stage;
    stage.served.kill_proxy(&stage.near);
    assert_ne!(stage.near.ruleset(), "");
    let mut command = std::process::Command::new(testbed::binary());
    command.arg("cleanup");
    let run = stage.near.run(command);
    assert!(run.ok, "{}", run.err);
    assert_eq!(stage.near.ruleset(), "", "{}", run.err);
    // Once more: there is nothing left to do, and that is no error.
    let mut command = std::process::Command::new(testbed::binary());
    command.arg("cleanup");
    let run = stage.near.run(command);
    assert!(run.ok, "{}", run.err);
    // And the program can start again.
    stage.served.serve(&stage.near, &[]);
    stage.served.settle();
    let answer = scene.client.ask(Protocol::Tcp, cluster_ip(1, Family::V4), PORT);
    assert!(answer.is_ok(), "{answer:?}");
}
