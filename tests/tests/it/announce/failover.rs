//! One machine at a time answers for an address: when nodes die, leave, or cannot reach the API.

use std::time::{Duration, Instant};

use testbed::net::{Family, Node, Protocol, eventually};

use super::stage::{PORT, Stage, vip};
use super::wire::Watcher;

/// Far more than it takes; how long it takes is measured in `bench`.
const GENEROUS: Duration = Duration::from_secs(30);

/// Waits until the client reaches an address again; how long that took.
fn until_reached(stage: &Stage, family: Family) -> Duration {
    let begun = Instant::now();
    let caller = stage.outside.caller().timeout(Duration::from_millis(200));
    eventually("the client reaches it again", || caller.ask(Protocol::Tcp, vip(1, family), PORT).is_ok());
    begun.elapsed()
}

/// The node cannot be reached any more, and nothing runs on it.
fn die(stage: &Stage, node: &Node) {
    node.ip("link set eth0 down\n");
    stage.served.kill_proxy(node);
}

#[test]
fn a_node_that_dies_is_replaced_within_seconds() {
    for family in Family::BOTH {
        let stage = Stage::new(&["n1", "n2", "n3"]);
        let pods = stage.web(1);
        stage.reached(vip(1, family));
        let dead = stage.owner(vip(1, family)).clone();
        // The pods of the others alone: a connection to a dead pod would not be about the address.
        let left: Vec<_> = pods.iter().filter(|pod| pod.node_name() != dead.name()).collect();
        stage.endpoints("web", &left);
        stage.served.settle();
        die(&stage, &dead);
        let took = until_reached(&stage, family);
        eprintln!("{family:?}: reached again after {took:?}");
        assert!(took < GENEROUS, "{took:?}");
        assert_ne!(stage.owner(vip(1, family)).name(), dead.name());
    }
}

#[test]
fn a_node_that_stops_hands_over_at_once() {
    let stage = Stage::new(&["n1", "n2"]);
    stage.web(1);
    let ip = vip(1, Family::V4);
    stage.reached(ip);
    let (watcher, mac) = Watcher::start(&stage.outside, ip);
    let first = stage.node_of(mac).clone();
    stage.served.with_proxy(&first, |proxy| assert!(proxy.terminate().success()));
    eventually("another answers", || watcher.has_heard(|other| other != mac));
    let runs = watcher.end();
    let [(_, left, old), (taken, _, new)] = runs[..] else { panic!("one after the other: {runs:?}") };
    assert!(old == mac && new != mac, "{runs:?}");
    let gap = taken.duration_since(left);
    eprintln!("silent for {gap:?}");
    assert!(gap < GENEROUS, "{gap:?}");
}

#[test]
fn who_cannot_reach_the_api_falls_silent_before_another_answers() {
    let stage = Stage::new(&["n1", "n2"]);
    stage.web(1);
    let ip = vip(1, Family::V4);
    stage.reached(ip);
    let api = stage.served.api().v4();
    let (watcher, mac) = Watcher::start(&stage.outside, ip);
    let first = stage.node_of(mac).clone();
    first.ip(&format!("route add blackhole {api}/32\n"));
    eventually("another answers", || watcher.has_heard(|other| other != mac));
    first.ip(&format!("route del blackhole {api}/32\n"));
    until_it_lives(&stage, &first);
    let runs = watcher.end();
    let [(_, left, old), (taken, _, new), ..] = runs[..] else { panic!("one after the other: {runs:?}") };
    assert!(old == mac && new != mac, "{runs:?}");
    eprintln!("silent for {:?}", taken.duration_since(left));
}

/// Waits until a node keeps its Lease again.
fn until_it_lives(stage: &Stage, node: &Node) {
    let name = format!("waypost-announcer-{}", node.name());
    eventually("it lives again", || {
        stage.leases().iter().any(|(lease, holder)| *lease == name && holder == node.name())
    });
}

/// Whether the thread that answers neighbours sleeps: then it waits for a frame.
fn waits_for_frames(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let status = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
    let mut of_announcer = threads.flatten().map(status).filter(|status| status.starts_with("Name:\tannounce\n"));
    of_announcer.any(|status| status.contains("State:\tS "))
}

#[test]
fn a_process_that_stands_still_does_not_answer_when_it_goes_on() {
    let stage = Stage::new(&["n1", "n2"]);
    stage.web(1);
    let ip = vip(1, Family::V4);
    stage.reached(ip);
    let (watcher, mac) = Watcher::start(&stage.outside, ip);
    let first = stage.node_of(mac).clone();
    let pid = stage.served.with_proxy(&first, |proxy| proxy.pid());
    // Not between the check of its claims and the next frame: that one frame could not be taken back.
    watcher.pause(|| {
        eventually("it waits for frames", || waits_for_frames(pid));
        let _ = first.run(format!("kill -STOP {pid}").as_str());
    });
    eventually("another answers", || watcher.has_heard(|other| other != mac));
    let _ = first.run(format!("kill -CONT {pid}").as_str());
    // It continues, finds its Lease expired, and acquires it again.
    until_it_lives(&stage, &first);
    let runs = watcher.end();
    assert!(runs.len() >= 2 && runs[0].2 == mac && runs[1].2 != mac, "{runs:?}");
}
