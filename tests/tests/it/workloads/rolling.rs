//! Pods that come and go under a controller on three machines, while clients notice nothing.

use std::time::{Duration, Instant};

use serde_json::json;
use testbed::net::Protocol::Tcp;
use testbed::net::{Fleet, Hammer, MODES, Node, Tally, backend, eventually, objects};
use testbed::session::text;

/// The cluster IP of the Service.
const VIP: &str = "10.96.0.80";
/// Its node port, of those that are not given out by themselves.
const NODE_PORT: u16 = 30080;
/// How often all Pods are replaced.
const UPDATES: u16 = 20;
/// Four clients that rest so long between two requests ask more than two hundred times a second.
const PACE: Duration = Duration::from_millis(15);

/// A Deployment of three Pods behind a Service that leads to their port `http`.
fn serve(fleet: &Fleet) {
    let service =
        objects::service("web").selector("app", "web").cluster_ip(VIP).port(80).target("http").node_port(NODE_PORT);
    fleet.put(&service.json());
    fleet.deploy("web", 3, &backend(8080));
    for name in ["n1", "n2", "n3"] {
        let machine = fleet.machine(name);
        eventually("the Service is served", || machine.ask(Tcp, VIP, 80).is_ok());
    }
}

/// Clients on two machines and outside, by the cluster IP and by node ports.
fn clients(fleet: &Fleet) -> Vec<Hammer> {
    let outside = fleet.cluster().outside("client");
    let (n1, n2, n3) = (fleet.machine("n1"), fleet.machine("n2"), fleet.machine("n3"));
    let by_node_port = |address| outside.caller().pace(PACE).hammer(Tcp, address, NODE_PORT);
    let by_cluster_ip = |machine: &Node| machine.caller().pace(PACE).hammer(Tcp, VIP, 80);
    vec![by_node_port(n1.v4()), by_node_port(n3.v4()), by_cluster_ip(n1), by_cluster_ip(n2)]
}

/// Twenty updates, each of which moves the named port, under four clients.
fn update_under_load(mode: &str) {
    let mode = *MODES.iter().find(|known| known.name == mode).expect("a mode");
    let fleet = Fleet::new(mode, &["n1", "n2", "n3"]);
    serve(&fleet);
    let hammers = clients(&fleet);
    let begun = Instant::now();
    for update in 1..=UPDATES {
        fleet.update("web", &backend(8080 + update % 2));
        // Each generation must get requests, not only be waited for.
        let asked = |tally: &Tally| tally.asked;
        for hammer in &hammers {
            let before = asked(&hammer.so_far());
            assert!(hammer.wait_until(Duration::from_secs(30), |tally| asked(tally) > before + 5));
        }
    }
    let took = begun.elapsed();
    let tallies: Vec<Tally> = hammers.into_iter().map(|hammer| hammer.stop().all_answered()).collect();
    let asked: usize = tallies.iter().map(|tally| tally.asked).sum();
    let servers: std::collections::BTreeSet<&str> = tallies.iter().flat_map(Tally::names).collect();
    eprintln!("{}: {UPDATES} updates in {took:?}, {asked} requests, {} Pods answered", mode.name, servers.len());
    assert!(servers.len() >= 3 * usize::from(UPDATES), "only {} Pods were ever reached", servers.len());
}

#[test]
fn s05_updates_lose_no_request_with_nftables() {
    update_under_load("nftables");
}

#[test]
fn s05_updates_lose_no_request_with_iptables() {
    update_under_load("iptables");
}

#[test]
fn s05_updates_lose_no_request_with_userspace() {
    update_under_load("userspace");
}

/// For the machine of [`crate::ipvs`].
#[test]
#[ignore = "runs inside the virtual machine that the tests of ipvs.rs boot"]
fn inside() {
    update_under_load("ipvs");
}

#[test]
fn s18_a_pod_that_is_not_ready_leaves_within_a_second_and_comes_back() {
    let fleet = Fleet::new(MODES[0], &["n1", "n2", "n3"]);
    let folder = testbed::folder();
    serve(&fleet);
    // Each Pod is ready unless a file with its name sets otherwise.
    let script = format!("test ! -e {}/$(uname -n)", folder.path().display());
    let mut pod = backend(8080);
    pod["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["sh", "-c", script]}, "periodSeconds": 1, "failureThreshold": 1});
    fleet.update("web", &pod);
    let pod = fleet.pods("web")[0].clone();
    let name = text(&pod, "/metadata/name").to_owned();
    let machine = fleet.machine("n2");
    let hammer = machine.caller().pace(Duration::from_millis(5)).hammer(Tcp, VIP, 80);
    assert!(hammer.wait_until(Duration::from_secs(30), |tally| tally.of(&name) > 0), "it answers at first");
    std::fs::write(folder.path().join(&name), "").expect("written");
    fleet.until_ready(&name, false);
    // The second that it has to leave.
    std::thread::sleep(Duration::from_secs(1));
    let left = hammer.so_far();
    assert!(hammer.wait_until(Duration::from_secs(30), |tally| tally.asked > left.asked + 100));
    assert_eq!(hammer.so_far().of(&name), left.of(&name), "a Pod that is not ready is asked");
    std::fs::remove_file(folder.path().join(&name)).expect("removed");
    fleet.until_ready(&name, true);
    assert!(
        hammer.wait_until(Duration::from_secs(1), |tally| tally.of(&name) > left.of(&name)),
        "it does not come back"
    );
    let _ = hammer.stop().all_answered();
    let again = fleet.pods("web");
    let status = again.iter().find(|pod| text(pod, "/metadata/name") == name).expect("the same Pod");
    assert_eq!(status["status"]["containerStatuses"][0]["restartCount"], 0);
}
