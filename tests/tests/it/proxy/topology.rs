//! Endpoints that are near, as hints tell: on this node, in this zone, or anywhere.

use testbed::net::objects::{self, Slice};
use testbed::net::{Family, Pod, Protocol, eventually};

use super::stage::{PORT, Stage, TARGET, cluster_ip};

/// The number of requests: enough that each of three endpoints is selected with
/// practical certainty.
const ENOUGH: usize = 60;

struct Scene {
    stage: Stage,
    servers: [Pod; 3],
    client: Pod,
}

impl Scene {
    /// The first node is in zone `a`.
    fn new() -> Self {
        let stage = Stage::new();
        let servers = [stage.near.pod("web-1"), stage.far.pod("web-2"), stage.far.pod("web-3")];
        let client = stage.near.pod("pod");
        servers.iter().for_each(|server| server.echo_on(&[Protocol::Tcp], TARGET));
        stage.served.put(&stage.published("web", 1).json());
        let scene = Self { stage, servers, client };
        scene.in_zone("a");
        scene
    }

    fn in_zone(&self, zone: &str) {
        self.stage.served.put(&objects::node(&self.stage.near).zone(zone).json());
    }

    fn have(&self, hint: impl Fn(Slice, usize) -> Slice) {
        self.stage.endpoints("web", |slice| {
            let servers = self.servers.iter().enumerate();
            servers.fold(slice, |slice, (index, pod)| hint(slice.endpoint(pod), index))
        });
        self.stage.served.settle();
    }

    fn names(&self) -> Vec<String> {
        let address = cluster_ip(1, Family::V4);
        let tally = self.client.ask_many(ENOUGH, Protocol::Tcp, address, PORT).all_answered();
        tally.names().into_iter().map(str::to_owned).collect()
    }
}

#[test]
fn endpoints_of_the_zone_are_preferred_and_a_new_zone_of_the_node_counts_at_once() {
    let scene = Scene::new();
    scene.have(|slice, index| slice.hint_zone(["a", "b", "b"][index]));
    eventually("zone a", || scene.names() == ["web-1"]);
    scene.in_zone("b");
    eventually("zone b", || scene.names() == ["web-2", "web-3"]);
    scene.in_zone("c");
    eventually("a zone without endpoints", || scene.names() == ["web-1", "web-2", "web-3"]);
    scene.in_zone("a");
    eventually("zone a again", || scene.names() == ["web-1"]);
}

#[test]
fn endpoints_of_the_node_are_preferred_to_those_of_the_zone() {
    let scene = Scene::new();
    scene.have(|slice, index| slice.hint_zone("a").hint_node(["n1", "n2", "n2"][index]));
    assert_eq!(scene.names(), ["web-1"]);
    scene.have(|slice, index| slice.hint_zone(["a", "a", "b"][index]).hint_node("n2"));
    eventually("the zone is next", || scene.names() == ["web-1", "web-2"]);
}

#[test]
fn one_endpoint_without_a_hint_and_all_are_asked() {
    let scene = Scene::new();
    scene.have(|slice, index| if index == 2 { slice } else { slice.hint_zone("a") });
    assert_eq!(scene.names(), ["web-1", "web-2", "web-3"]);
}

#[test]
fn hints_of_endpoints_that_are_not_ready_do_not_count() {
    let scene = Scene::new();
    scene.have(|slice, index| if index == 0 { slice.not_ready().hint_zone("a") } else { slice.hint_zone("b") });
    assert_eq!(scene.names(), ["web-2", "web-3"]);
    scene.have(|slice, index| if index == 0 { slice.not_ready() } else { slice.hint_zone(["", "a", "b"][index]) });
    eventually("one without hint that is not ready disturbs nobody", || scene.names() == ["web-2"]);
}
