//! How the nftables mode does it: what is in the kernel, who may touch it, and how soon damage is made good.

use std::time::{Duration, Instant};

use testbed::net::{Family, Host, Node, Pod, Protocol, eventually};

use super::stage::{PORT, Stage, TARGET, cluster_ip};

/// The time within which damage must be made good, on a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(1);

/// The tokens of the ruleset without counters and handles, sorted: the order of elements is the kernel's.
pub(super) fn rules(node: &Node) -> Vec<String> {
    let text = node.run("nft -s list ruleset").success();
    let mut words: Vec<String> = text.split_whitespace().map(|word| word.trim_matches(',').to_owned()).collect();
    words.sort();
    words
}

/// A Service with an endpoint, a client, and what the kernel then has.
struct Scene {
    stage: Stage,
    client: Pod,
    rules: Vec<String>,
}

impl Scene {
    fn new() -> Self {
        let stage = Stage::new();
        let (web, client) = (stage.near.pod("web"), stage.near.pod("pod"));
        web.echo(TARGET);
        stage.served.put(&stage.published("web", 1).json());
        stage.served.put(&stage.published("empty", 2).json());
        stage.served.put(&stage.internal("sticky", 3).affinity(60).json());
        for service in ["web", "sticky"] {
            stage.endpoints(service, |slice| slice.endpoint(&web));
        }
        stage.served.settle();
        let rules = rules(&stage.near);
        Self { stage, client, rules }
    }

    /// Does damage and waits until the client is served again, and until the rules are as they were.
    #[track_caller]
    fn heals(&self, damage: &str) {
        let begun = Instant::now();
        let run = self.stage.near.run(damage);
        assert!(run.ok, "{damage}: {}", run.err);
        let caller = self.client.caller().timeout(Duration::from_millis(50));
        for family in Family::BOTH {
            eventually(damage, || caller.ask(Protocol::Tcp, cluster_ip(1, family), PORT).is_ok());
        }
        let took = begun.elapsed();
        eventually("the rules are as they were", || rules(&self.stage.near) == self.rules);
        eprintln!("{damage}: served again after {took:?}");
        assert!(took < SOON, "{damage}: {took:?}");
    }
}

#[test]
fn s24_damage_by_another_hand_is_made_good() {
    let scene = Scene::new();
    scene.heals("nft flush ruleset");
    scene.heals("nft delete table ip waypost");
    scene.heals("nft delete table ip6 waypost");
    scene.heals("nft flush chain ip waypost services");
    scene.heals("nft flush map ip6 waypost frontends");
    scene.heals("nft delete element ip waypost frontends { 10.96.0.101 . tcp . 80 }");
    scene.heals("nft add element ip waypost cluster-ips { 192.0.2.77 }");
    scene.heals("nft add rule ip waypost services drop");
    scene.heals("nft add chain ip waypost stranger");
    // All of it once more at once, and the second hand comes before the first damage is made good.
    for _ in 0..10 {
        let _ = scene.stage.near.run("nft flush ruleset");
    }
    scene.heals("nft flush ruleset");
    scene.stage.served.settle();
}

#[test]
fn s24_a_restart_with_unchanged_objects_writes_nothing() {
    let scene = Scene::new();
    let (served, near) = (&scene.stage.served, &scene.stage.near);
    served.kill_proxy(near);
    let monitor = near.spawn("nft monitor");
    // Until the monitor hears, there is nothing to wait for but its own answer to a probe.
    eventually("the monitor listens", || {
        near.nft("add table ip probe\ndelete table ip probe\n");
        monitor.log().contains("probe")
    });
    served.serve(near, &[]);
    eventually("everything was read", || reads(near) > 0);
    near.nft("add table ip end-of-test\n");
    monitor.wait_for_line("end-of-test", super::TIMEOUT);
    assert!(!monitor.log().contains("waypost"), "{}", monitor.log());
    served.settle();
}

/// How often a proxy has read all rules and set them right.
fn reads(node: &Host) -> u64 {
    let page = node.page("127.0.0.1", 10_249, "/metrics").map(|page| page.body).unwrap_or_default();
    let name = "kubeproxy_sync_full_proxy_rules_duration_seconds_count";
    let counts = page.lines().filter_map(|line| line.strip_prefix(name)?.split(' ').next_back()?.parse::<u64>().ok());
    counts.sum()
}

#[test]
fn tables_of_others_are_never_touched() {
    let stage = Stage::new();
    let foreign = "table inet other {\n set marks { type mark; elements = { 1, 2 };\n }\n chain filter {\n \
                   type filter hook forward priority 10; policy accept;\n meta mark @marks counter accept\n }\n}\n\
                   table ip kube-proxy {\n chain services {\n }\n}\n";
    stage.near.nft(foreign);
    let listed = || {
        let of = |table: &str| stage.near.run(format!("nft -a list table {table}").as_str()).success();
        of("inet other") + &of("ip kube-proxy")
    };
    let before = listed();
    let web = stage.near.pod("web");
    web.echo(TARGET);
    stage.served.put(&stage.published("web", 1).json());
    stage.endpoints("web", |slice| slice.endpoint(&web));
    stage.served.settle();
    stage.served.kill_proxy(&stage.near);
    stage.served.serve(&stage.near, &[]);
    let _ = stage.near.run("nft delete table ip waypost").success();
    stage.served.settle();
    stage.served.kill_proxy(&stage.near);
    let mut cleanup = std::process::Command::new(testbed::binary());
    cleanup.arg("cleanup");
    let _ = stage.near.run(cleanup).success();
    assert_eq!(listed(), before);
}

/// A listing whose counters are all zero.
fn without_counts(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let counted = |at: usize| at > 0 && matches!(words[at - 1], "packets" | "bytes");
    let plain = words.iter().enumerate().map(|(at, word)| if counted(at) { "0" } else { word });
    plain.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_ruleset_can_be_listed_and_read_back() {
    let scene = Scene::new();
    let text = scene.stage.near.ruleset();
    for word in ["10.96.0.101 . tcp . 80", "fd00:10:96::a1 . udp . 80", "10.96.0.102 . sctp . 80"] {
        assert!(text.contains(word), "{word} is not in\n{text}");
    }
    // As at the boot of a machine that keeps its rules in a file.
    let empty = scene.stage.near.pod("empty");
    let run = empty.run_with("nft -f -", &text);
    assert!(run.ok, "{}", run.err);
    assert_eq!(without_counts(&empty.ruleset()), without_counts(&text));
}
