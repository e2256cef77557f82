//! How the iptables mode does it: where its rules are, who else has some there, and what becomes of damage.

use testbed::net::{Family, Mode, Node, Pod, Protocol, eventually};

use super::stage::{PORT, Stage, cluster_ip};

/// By this chain tools of Kubernetes tell each other which of the two programs a host uses.
const HINT: &str = "-t mangle -N KUBE-IPTABLES-HINT";

/// A Service with an endpoint and a client, if this mode is under test; both nodes were prepared before anything was served.
fn scene(prepare: impl Fn(&Node)) -> Option<(Stage, Pod, Pod)> {
    if Mode::under_test().name != "iptables" {
        return None;
    }
    let stage = Stage::prepare(|served, node| {
        prepare(node);
        served.serve(node, &[]);
    });
    let (web, client) = (stage.far.pod("web"), stage.near.pod("pod"));
    stage.web(&[&web]);
    Some((stage, web, client))
}

fn saved(node: &Node, program: &str) -> String {
    node.run(program).success()
}

#[test]
fn s22_rules_are_where_those_of_the_host_are() {
    let families = ["iptables-legacy", "ip6tables-legacy"];
    let hint =
        |node: &Node| families.iter().for_each(|program| drop(node.run(&*format!("{program} {HINT}")).success()));
    let Some((stage, _web, client)) = scene(hint) else { return };
    for (protocol, family) in stage.ways() {
        let answer = client.ask(protocol, cluster_ip(1, family), PORT);
        assert!(answer.is_ok(), "{protocol:?} {family:?}: {answer:?}");
    }
    for family in families {
        assert!(saved(&stage.near, &format!("{family}-save")).contains(":KUBE-SERVICES "), "{family}");
    }
    assert!(!saved(&stage.near, "iptables-nft-save").contains("KUBE-SERVICES"));
    let mut cleanup = std::process::Command::new(testbed::binary());
    cleanup.arg("cleanup");
    stage.served.kill_proxy(&stage.near);
    let _ = stage.near.run(cleanup).success();
    let left = saved(&stage.near, "iptables-legacy-save");
    assert!(left.contains("KUBE-IPTABLES-HINT") && !left.contains("KUBE-SERVICES"), "{left}");
}

#[test]
fn s22_rules_of_others_are_left_alone() {
    let rules =
        ["-t nat -N MINE", "-t nat -A MINE -j RETURN", "-t nat -A PREROUTING -j MINE", "-A FORWARD -p gre -j DROP"];
    let mine = |node: &Node| rules.iter().for_each(|rule| drop(node.run(&*format!("iptables {rule}")).success()));
    let Some((stage, web, client)) = scene(mine) else { return };
    stage.endpoints("web", |slice| slice);
    stage.served.settle();
    stage.endpoints("web", |slice| slice.endpoint(&web));
    stage.served.settle();
    assert!(client.ask(Protocol::Tcp, cluster_ip(1, Family::V4), PORT).is_ok());
    let is_whole = |saved: &str| {
        ["-A MINE -j RETURN", "-A PREROUTING -j MINE", "-A FORWARD -p gre -j DROP"]
            .iter()
            .all(|rule| saved.contains(rule))
    };
    let before = saved(&stage.near, "iptables-save");
    assert!(is_whole(&before), "{before}");
    stage.served.kill_proxy(&stage.near);
    let mut cleanup = std::process::Command::new(testbed::binary());
    cleanup.arg("cleanup");
    let _ = stage.near.run(cleanup).success();
    let after = saved(&stage.near, "iptables-save");
    assert!(is_whole(&after) && !after.contains("KUBE-"), "{after}");
}

#[test]
fn s22_what_others_flush_is_put_back() {
    let Some((stage, _web, client)) = scene(|_| {}) else { return };
    let is_served = || client.ask(Protocol::Tcp, cluster_ip(1, Family::V4), PORT).is_ok();
    for flush in ["-t nat -F", "-F", "-t mangle -F", "-t nat -D PREROUTING 1"] {
        let _ = stage.near.run(&*format!("iptables {flush}")).success();
        eventually("the rules are there again", || {
            let saved = saved(&stage.near, "iptables-save");
            saved.contains("-A PREROUTING")
                && saved.contains("KUBE-SVC-")
                && saved.contains("-A FORWARD")
                && is_served()
        });
    }
}
