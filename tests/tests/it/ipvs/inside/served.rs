//! The whole mode: Services served by IPVS, on nodes with pods and clients outside.

use std::time::Duration;

use kernel::ipvs::{Ipvs as _, linux};
use testbed::net::{Family, Kind, Node, Pod, Protocol, eventually};

use crate::proxy::stage::{Frontend, PORT, Stage, cluster_ip};

/// How many virtual servers a node has.
fn servers(node: &Node) -> usize {
    node.in_namespace(|| linux::Linux::open().expect("IPVS").servers()).expect("listed").len()
}

/// Pods that answer, some on each node, as the endpoints of a published Service.
fn web(stage: &Stage) -> Vec<Pod> {
    let pods = vec![stage.near.pod("web-1"), stage.near.pod("web-2"), stage.far.pod("web-3")];
    stage.web(&pods.iter().collect::<Vec<_>>());
    pods
}

#[test]
#[ignore = "runs inside the virtual machine that the tests of ipvs.rs boot"]
fn every_frontend_answers_by_every_protocol_from_everywhere_in_turn() {
    let stage = Stage::new();
    let _pods = web(&stage);
    let client = stage.near.pod("client");
    for (protocol, family) in stage.ways() {
        for frontend in Frontend::ALL {
            let (address, port) = frontend.at(1, family, &stage.near);
            for host in [&*client, &*stage.outside, &*stage.near] {
                let tally = host.ask_many(3, protocol, address, port).all_answered();
                let way = format!("{} {frontend:?} {protocol:?} {family:?}", host.name());
                assert_eq!(tally.names().len(), 3, "{way}: {:?}", tally.answers);
            }
        }
    }
    assert!(servers(&stage.near) > 0, "by IPVS and nothing else");
}

#[test]
#[ignore = "runs inside the virtual machine that the tests of ipvs.rs boot"]
fn a_connection_outlives_its_endpoint_and_its_service_and_nobody_new_gets_there() {
    let stage = Stage::new();
    let pods = web(&stage);
    let client = stage.near.pod("client");
    let address = cluster_ip(1, Family::V4);
    let mut open: Vec<_> =
        (0..3).map(|_| client.connect(Protocol::Tcp, address, PORT).expect("a connection")).collect();
    let names: Vec<String> = open.iter_mut().map(|one| one.ask().expect("an answer").name).collect();
    stage.endpoints("web", |slice| slice.endpoint(&pods[0]));
    stage.served.settle();
    let tally = client.ask_many(6, Protocol::Tcp, address, PORT).all_answered();
    assert_eq!(tally.names(), ["web-1"]);
    stage.served.remove(&stage.published("web", 1).json());
    stage.served.settle();
    for (one, name) in open.iter_mut().zip(&names) {
        assert_eq!(&one.ask().expect("still an answer").name, name);
    }
    let refused = client.ask(Protocol::Tcp, address, PORT).expect_err("nobody new");
    assert_eq!(refused.kind, Kind::Refused);
}

#[test]
#[ignore = "runs inside the virtual machine that the tests of ipvs.rs boot"]
fn ports_of_the_node_are_not_reached_through_the_addresses_of_services() {
    let stage = Stage::new();
    let _pods = web(&stage);
    let _listener = stage.near.in_namespace(|| std::net::TcpListener::bind("[::]:2222")).expect("a server of the node");
    let client = stage.near.pod("client");
    for family in Family::BOTH {
        for frontend in [Frontend::ClusterIp, Frontend::ExternalIp, Frontend::LoadBalancer] {
            let (address, _) = frontend.at(1, family, &stage.near);
            for host in [&*client, &*stage.outside, &*stage.near] {
                let failure = host.ask(Protocol::Tcp, address, 2222).expect_err("no Service has it");
                assert_eq!(failure.kind, Kind::Refused, "{} {frontend:?} {family:?}", host.name());
            }
        }
    }
}

#[test]
#[ignore = "runs inside the virtual machine that the tests of ipvs.rs boot"]
fn whatever_others_take_away_is_put_back() {
    let stage = Stage::with(&["--ipvs-sync-period", "1"]);
    let _pods = web(&stage);
    let client = stage.near.pod("client");
    let all = servers(&stage.near);
    let flush = || {
        let mut ipvs = linux::Linux::open().expect("IPVS");
        let all = ipvs.servers().expect("listed").into_keys().map(kernel::ipvs::Change::DeleteServer);
        ipvs.apply(&all.collect::<Vec<_>>()).expect("deleted");
    };
    stage.near.in_namespace(flush);
    eventually("all servers are there again", || servers(&stage.near) == all);
    stage.near.ip("link delete waypost-ipvs0");
    let caller = client.caller().timeout(Duration::from_millis(500));
    eventually("the addresses are there again", || caller.ask(Protocol::Tcp, cluster_ip(1, Family::V6), PORT).is_ok());
    stage.near.nft("delete table ip waypost-ipvs");
    let outside = stage.outside.caller().timeout(Duration::from_millis(500));
    let (address, port) = Frontend::LoadBalancer.at(1, Family::V4, &stage.near);
    eventually("the table is there again", || stage.near.ruleset().contains("table ip waypost-ipvs"));
    eventually("outside clients are served", || outside.ask(Protocol::Tcp, address, port).is_ok());
}

#[test]
#[ignore = "runs inside the virtual machine that the tests of ipvs.rs boot"]
fn a_start_with_unchanged_objects_changes_nothing_and_cleanup_leaves_nothing() {
    let stage = Stage::new();
    let _pods = web(&stage);
    assert_eq!(stage.near.run("cat /proc/sys/net/ipv4/vs/conntrack").success().trim(), "1");
    let state = || (stage.near.ruleset(), stage.near.run("ip address show dev waypost-ipvs0").success());
    let (before, count) = (state(), servers(&stage.near));
    stage.served.kill_proxy(&stage.near);
    let client = stage.near.pod("client");
    client.ask(Protocol::Tcp, cluster_ip(1, Family::V4), PORT).expect("served while the program is away");
    stage.served.serve(&stage.near, &[]);
    assert_eq!((state(), servers(&stage.near)), (before, count));
    stage.served.kill_proxy(&stage.near);
    let mut cleanup = std::process::Command::new(testbed::binary());
    cleanup.arg("cleanup");
    let run = stage.near.run(cleanup);
    assert!(run.ok, "{}", run.err);
    assert_eq!((stage.near.ruleset().as_str(), servers(&stage.near)), ("", 0));
    assert_eq!(stage.near.run("cat /proc/sys/net/ipv4/vs/conntrack").success().trim(), "0", "as it was");
    assert!(!stage.near.run("ip link show waypost-ipvs0").ok);
}

#[test]
#[ignore = "runs inside the virtual machine that the tests of ipvs.rs boot"]
fn a_machine_without_the_scheduler_serves_otherwise_and_says_so() {
    let stage = Stage::with(&["--ipvs-scheduler", "lblcr"]);
    let _pods = web(&stage);
    stage.served.with_proxy(&stage.near, |proxy| proxy.wait_for_line("modprobe ip_vs_lblcr", Duration::from_secs(5)));
    let client = stage.near.pod("client");
    client.ask(Protocol::Tcp, cluster_ip(1, Family::V4), PORT).expect("an answer");
    assert_eq!(servers(&stage.near), 0);
}
