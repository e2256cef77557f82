//! A node changes its mode while it serves: no connection fails, those that are open go on, and nothing of the mode before is left.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use tempfile::TempDir;
use testbed::net::{Connection, Family, Node, Pod, Process, Protocol, Served, eventually};

use super::stage::{Frontend, PORT, Stage, cluster_ip};

/// What each mode leaves in the kernel, as `nft` shows it.
const SIGNS: [(&str, &str); 4] = [
    ("nftables", "table ip waypost {"),
    ("iptables", "chain KUBE-SERVICES"),
    ("userspace", "table ip waypost-userspace"),
    ("ipvs", "table ip waypost-ipvs"),
];

/// A node whose mode is in a file, with two endpoints and a client.
struct Scene {
    stage: Stage,
    home: TempDir,
    client: Pod,
    _servers: [Pod; 2],
}

impl Scene {
    fn new(mode: &str) -> Self {
        let home = testbed::folder();
        write(home.path(), mode);
        let stage = Stage::prepare(|served, node| start(served, node, home.path()));
        let servers = [stage.near.pod("web-near"), stage.far.pod("web-far")];
        let client = stage.near.pod("pod");
        stage.web(&[&servers[0], &servers[1]]);
        Self { stage, home, client, _servers: servers }
    }

    fn connect(&self) -> Connection {
        let mut open = self.client.connect(Protocol::Tcp, cluster_ip(1, Family::V4), PORT).expect("a connection");
        open.ask().expect("an answer");
        open
    }

    /// Has the near node serve in this mode from now on.
    fn change(&self, mode: &str) {
        write(self.home.path(), mode);
        self.stage.served.with_proxy(&self.stage.near, |proxy| proxy.hang_up());
        self.begun(mode);
    }

    /// Waits until the near node serves so, and nothing else is left.
    fn begun(&self, mode: &str) {
        let is_shown = || self.stage.near.page("127.0.0.1", 10249, "/proxyMode").is_some_and(|page| page.body == mode);
        eventually("the mode is shown", is_shown);
        self.stage.served.settle();
        let is_alone = || {
            let rules = self.stage.near.ruleset();
            SIGNS.iter().all(|(sign_of, sign)| rules.contains(sign) == (*sign_of == mode))
        };
        eventually("nothing of others is left", is_alone);
    }
}

/// Writes the mode into the file.
fn write(home: &Path, mode: &str) {
    std::fs::write(home.join("settings"), format!("proxy-mode: {mode}\n")).expect("written");
}

fn start(served: &Served, node: &Node, home: &Path) {
    let mut command = Command::new(testbed::binary());
    command.args(["node", "--node-name", node.name(), "--kubeconfig"]).arg(served.kubeconfig());
    command.arg("--config").arg(home.join("settings"));
    served.start_by(node, command);
    served.with_proxy(node, |proxy| proxy.wait_for_line("ready", super::TIMEOUT));
}

/// Source ports of the clients: below those that the kernel selects itself.
const SOURCE_PORTS: u16 = 10_000;

/// Changes from mode to mode under load. Connections that IPVS carries end with it; all others go on.
///
/// No client uses a source port twice. IPVS keeps an entry of a closed connection for 10 s to 2 min, and when the kernel removes
/// the entry it deletes whatever conntrack entry has the same client address and port, also that of a later connection that IPVS
/// does not carry (`ip_vs_conn_drop_conntrack`). No proxy can prevent that; docs/ipvs.md names it.
pub(crate) fn goes_through(modes: &[&str]) {
    let scene = Scene::new(modes[0]);
    let (address, port) = Frontend::NodePort.at(1, Family::V4, &scene.stage.near);
    let (pod, outside) =
        (scene.client.caller().ports_from(SOURCE_PORTS), scene.stage.outside.caller().ports_from(SOURCE_PORTS));
    let mut hammers = vec![
        ("TCP, pod", pod.hammer(Protocol::Tcp, cluster_ip(1, Family::V4), PORT)),
        ("UDP, pod", pod.hammer(Protocol::Udp, cluster_ip(1, Family::V6), PORT)),
        ("TCP, outside", outside.hammer(Protocol::Tcp, address, port)),
    ];
    if !modes.contains(&"ipvs") {
        // Under IPVS the node itself sends from the address of the Service, which is removed with IPVS.
        hammers.push(("TCP, node", scene.stage.near.hammer(Protocol::Tcp, cluster_ip(1, Family::V4), PORT)));
    }
    let (begun, mut changes) = (Instant::now(), Vec::new());
    let mut open: Vec<(&str, Connection)> = Vec::new();
    for pair in modes.windows(2) {
        if pair[0] != "ipvs" {
            open.push((pair[0], scene.connect()));
        }
        let from = begun.elapsed();
        scene.change(pair[1]);
        changes.push((pair[1], from, begun.elapsed()));
        for (from, connection) in &mut open {
            let answer = connection.ask();
            assert!(answer.is_ok(), "opened under {from}, after {pair:?}: {answer:?}");
        }
    }
    for (who, hammer) in hammers {
        let wanted = hammer.so_far().asked + 20;
        assert!(hammer.wait_until(super::TIMEOUT, |tally| tally.asked >= wanted), "{who}");
        let tally = hammer.stop();
        // A datagram that is in IPVS when the mode changes may be lost, and is not retransmitted.
        let lost = if who.starts_with("UDP") && modes.contains(&"ipvs") { changes.len() } else { 0 };
        let log = || scene.stage.served.with_proxy(&scene.stage.near, |proxy| proxy.log());
        assert!(tally.failures.len() <= lost, "{who}: {:?} of {}; {changes:?}; {}", tally.failures, tally.asked, log());
        assert_eq!(tally.names(), ["web-far", "web-near"], "{who}");
    }
}

#[test]
fn s24_a_change_of_modes_costs_no_connection() {
    goes_through(&["nftables", "iptables", "userspace", "nftables", "userspace", "iptables", "nftables"]);
}

#[test]
fn s24_a_program_that_dies_is_followed_by_one_of_another_mode() {
    let scene = Scene::new("nftables");
    let hammer = scene.client.hammer(Protocol::Tcp, cluster_ip(1, Family::V4), PORT);
    for mode in ["iptables", "nftables", "iptables"] {
        let mut open = scene.connect();
        scene.stage.served.kill_proxy(&scene.stage.near);
        write(scene.home.path(), mode);
        start(&scene.stage.served, &scene.stage.near, scene.home.path());
        scene.begun(mode);
        open.ask().expect("it goes on");
    }
    assert_eq!(hammer.stop().all_answered().names(), ["web-far", "web-near"]);
}

#[test]
fn a_mode_that_cannot_be_changes_nothing() {
    let scene = Scene::new("nftables");
    for (mode, why) in [("none", "restart with --proxy-mode none"), ("magic", "invalid value 'magic'")] {
        write(scene.home.path(), mode);
        let near = &scene.stage.near;
        scene.stage.served.with_proxy(near, |proxy: &mut Process| proxy.hang_up());
        scene.stage.served.with_proxy(near, |proxy| proxy.wait_for_line(why, super::TIMEOUT));
    }
    scene.begun("nftables");
    let log = scene.stage.served.with_proxy(&scene.stage.near, |proxy| proxy.log());
    assert!(!log.contains("removed rules of another mode") && !log.contains("changed the proxy's rules"), "{log}");
    scene.connect();
}
