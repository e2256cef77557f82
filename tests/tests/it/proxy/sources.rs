//! `loadBalancerSourceRanges`: who may use the address of a load balancer, and what that leaves open.

use std::time::Duration;

use testbed::net::{Family, Host, Kind, Outside, Pod, Protocol};

use super::stage::{Frontend, Stage, TARGET};

/// How long silence is listened to.
const SILENCE: Duration = Duration::from_millis(250);

struct Scene {
    stage: Stage,
    pod: Pod,
    stranger: Outside,
}

impl Scene {
    /// A Service whose balancer lets these in.
    fn new(ranges: &[&str]) -> Self {
        let stage = Stage::new();
        let (web, pod) = (stage.near.pod("web"), stage.near.pod("pod"));
        let stranger = stage.served.cluster().outside("stranger");
        for range in ["203.0.113.0/24", "2001:db8:f::/64", "198.51.100.0/24", "2001:db8:e::/64", "10.96.0.0/16"] {
            stranger.route(range, &stage.near);
        }
        web.echo(TARGET);
        stage.endpoints("web", |slice| slice.endpoint(&web));
        let scene = Self { stage, pod, stranger };
        scene.allow(ranges);
        scene
    }

    fn allow(&self, ranges: &[&str]) {
        let service = ranges.iter().fold(self.stage.published("web", 1), |service, range| service.source_range(range));
        self.stage.served.put(&service.json());
        self.stage.served.settle();
    }

    /// Sends requests by every protocol and family in parallel: timeouts take long.
    #[track_caller]
    fn check(&self, client: &Host, frontend: Frontend, is_allowed: bool) {
        let wanted = if is_allowed { Ok("web".to_owned()) } else { Err(Kind::TimedOut) };
        let timeout = if is_allowed { super::TIMEOUT } else { SILENCE };
        let ask = |(protocol, family)| {
            let (address, port) = frontend.at(1, family, &self.stage.near);
            let got = client.caller().timeout(timeout).ask(protocol, address, port);
            (protocol, family, got.map(|answer| answer.name).map_err(|failure| failure.kind))
        };
        let asked: Vec<_> = std::thread::scope(|scope| {
            let asked: Vec<_> = self.stage.ways().into_iter().map(|way| scope.spawn(move || ask(way))).collect();
            asked.into_iter().map(|one| one.join().expect("it is asked")).collect()
        });
        for (protocol, family, got) in asked {
            assert_eq!(got, wanted, "{} → {frontend:?} {protocol:?} {family:?}", client.name());
        }
    }
}

#[test]
fn s50_only_those_within_the_ranges_use_the_balancer_and_nothing_else_is_closed() {
    let outside = ["192.0.2.102/32", "2001:db8::102/128"];
    let scene = Scene::new(&outside);
    assert_eq!(outside[0], format!("{}/32", scene.stage.outside.v4()), "who is who");
    scene.check(&scene.stage.outside, Frontend::LoadBalancer, true);
    for client in [&*scene.stranger, &*scene.pod, &*scene.stage.near] {
        scene.check(client, Frontend::LoadBalancer, false);
        scene.check(client, Frontend::NodePort, true);
    }
    scene.check(&scene.stranger, Frontend::ExternalIp, true);
    scene.check(&scene.pod, Frontend::ClusterIp, true);
}

#[test]
fn s50_ranges_can_be_changed_and_overlap() {
    let scene = Scene::new(&["10.244.0.0/16", "fd00:10:244::/56", "10.244.1.0/24", " 192.0.2.103/32 "]);
    scene.check(&scene.pod, Frontend::LoadBalancer, true);
    scene.check(&scene.stage.near, Frontend::LoadBalancer, false);
    scene.allow(&[]);
    for client in [&*scene.stage.outside, &*scene.stranger, &*scene.pod, &*scene.stage.near] {
        scene.check(client, Frontend::LoadBalancer, true);
    }
    scene.allow(&["192.0.2.0/24", "2001:db8::/64"]);
    scene.check(&scene.stranger, Frontend::LoadBalancer, true);
    scene.check(&scene.stage.near, Frontend::LoadBalancer, true);
    scene.check(&scene.pod, Frontend::LoadBalancer, false);
    scene.allow(&["0.0.0.0/0", "::/0"]);
    scene.check(&scene.pod, Frontend::LoadBalancer, true);
}

#[test]
fn s50_a_node_that_has_the_address_itself_speaks_from_it() {
    let scene = Scene::new(&["192.0.2.0/24", "2001:db8::/64"]);
    for family in Family::BOTH {
        let (address, _) = Frontend::LoadBalancer.at(1, family, &scene.stage.near);
        let length = if family == Family::V4 { 32 } else { 128 };
        scene.stage.near.ip(&format!("addr add {address}/{length} dev lo\n"));
    }
    scene.check(&scene.stage.near, Frontend::LoadBalancer, true);
    // Where the node may not, its other name does not help.
    scene.allow(&["192.0.2.102/32", "2001:db8::102/128"]);
    scene.check(&scene.stage.near, Frontend::LoadBalancer, false);
    scene.check(&scene.stage.outside, Frontend::LoadBalancer, true);
}

#[test]
fn s50_connections_that_stand_are_not_cut_by_new_ranges() {
    let scene = Scene::new(&[]);
    let (address, port) = Frontend::LoadBalancer.at(1, Family::V4, &scene.stage.near);
    let mut connection = scene.stranger.connect(Protocol::Tcp, address, port).expect("a connection");
    assert_eq!(connection.ask().expect("an answer").name, "web");
    scene.allow(&["192.0.2.102/32"]);
    assert_eq!(connection.ask().expect("an answer").name, "web");
}
