//! Killed programs and rebooting machines while Pods serve: containers continue, lost ones restart.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testbed::net::Protocol::Tcp;
use testbed::net::{Fleet, Hammer, MODES, Node, Tally, backend, eventually, objects};

const VIP: &str = "10.96.0.80";
const NODE_PORT: u16 = 30080;

/// Three Pods on three machines behind a Service.
fn fleet() -> Fleet {
    let fleet = Fleet::new(MODES[0], &["n1", "n2", "n3"]);
    let service =
        objects::service("web").selector("app", "web").cluster_ip(VIP).port(80).target("http").node_port(NODE_PORT);
    fleet.put(&service.json());
    fleet.deploy("web", 3, &backend(8080));
    for name in ["n1", "n2", "n3"] {
        let machine = fleet.machine(name);
        eventually("the Service is served", || machine.ask(Tcp, VIP, 80).is_ok());
    }
    fleet
}

/// What of a Pod must not change: its identity, its node, the instance of its container and its start time.
fn identities(fleet: &Fleet) -> Vec<Value> {
    let mut all: Vec<Value> = fleet
        .pods("web")
        .iter()
        .map(|pod| {
            let (metadata, status) = (&pod["metadata"], &pod["status"]);
            let container = &status["containerStatuses"][0];
            json!([
                metadata["uid"],
                status["podIPs"],
                container["restartCount"],
                container["containerID"],
                container["state"]["running"]["startedAt"],
            ])
        })
        .collect();
    all.sort_by_key(ToString::to_string);
    all
}

fn a_hundred_more(hammer: &Hammer) {
    let before = hammer.so_far().asked;
    assert!(hammer.wait_until(Duration::from_secs(30), |tally: &Tally| tally.asked > before + 100));
}

#[test]
fn s25_traffic_goes_on_while_programs_are_killed() {
    let fleet = fleet();
    let before = identities(&fleet);
    let outside = fleet.cluster().outside("client");
    let pace = Duration::from_millis(5);
    let (n1, n2) = (fleet.machine("n1"), fleet.machine("n2"));
    let hammers =
        [outside.caller().pace(pace).hammer(Tcp, n1.v4(), NODE_PORT), n2.caller().pace(pace).hammer(Tcp, VIP, 80)];
    for name in ["n1", "n2", "n3"] {
        let machine = fleet.machine(name);
        fleet.kill_proxy(machine);
        hammers.iter().for_each(a_hundred_more);
        fleet.start(machine);
        hammers.iter().for_each(a_hundred_more);
    }
    fleet.kill_server();
    hammers.iter().for_each(a_hundred_more);
    fleet.start_server();
    hammers.iter().for_each(a_hundred_more);
    for hammer in hammers {
        assert_eq!(hammer.stop().all_answered().names().len(), 3, "all three Pods serve");
    }
    assert_eq!(identities(&fleet), before);
}

#[test]
fn s25_after_a_start_of_the_machine_its_pods_are_begun_again() {
    let fleet = Fleet::new(MODES[0], &["n1"]);
    let machine = fleet.machine("n1");
    fleet.put(&objects::service("web").selector("app", "web").cluster_ip(VIP).port(80).target("http").json());
    fleet.deploy("web", 3, &backend(8080));
    eventually("the Service is served", || machine.ask(Tcp, VIP, 80).is_ok());
    let addresses = |fleet: &Fleet| {
        let mut all: Vec<String> = fleet
            .pods("web")
            .iter()
            .map(|pod| format!("{} {}", pod["metadata"]["uid"], pod["status"]["podIPs"]))
            .collect();
        all.sort();
        all
    };
    let before = addresses(&fleet);
    fleet.kill_proxy(machine);
    cut_power(&fleet, machine);
    assert!(machine.ask(Tcp, VIP, 80).is_err(), "nothing serves on a machine that was switched off");
    fleet.start(machine);
    for pod in fleet.pods("web") {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        fleet.until(name, "begun again", |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1);
        fleet.until_ready(name, true);
    }
    assert_eq!(addresses(&fleet), before, "the same Pods at the same addresses");
    eventually("all serve again", || machine.ask_many(30, Tcp, VIP, 80).names().len() == 3);
}

/// Takes from a machine all that a start of it takes: processes, mounts, links, rules, control groups. Files stay.
fn cut_power(fleet: &Fleet, machine: &Node) {
    let home = fleet.home(machine);
    let pods: Vec<PathBuf> =
        std::fs::read_dir(home.join("agent/pods")).expect("Pods").flatten().map(|pod| pod.path()).collect();
    let groups: Vec<PathBuf> = pods.iter().flat_map(|pod| control_groups(pod.file_name().expect("a uid"))).collect();
    eventually("no process is left", || {
        let mut left = processes_of(home);
        left.extend(groups.iter().flat_map(|group| members(group)));
        for pid in left.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            let _ = kill_process(pid, Signal::KILL);
        }
        left.is_empty()
    });
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let points =
        mounts.lines().filter_map(|line| line.split(' ').nth(4)).filter(|point| Path::new(point).starts_with(home));
    for point in points.collect::<Vec<_>>().into_iter().rev() {
        rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
    }
    for group in groups.iter().rev() {
        eventually("the control group is gone", || std::fs::remove_dir(group).is_ok() || !group.exists());
    }
    machine.ip("link del waypost0\n");
    let _ = machine.run("nft flush ruleset").success();
    for pod in pods {
        let file = pod.join("sandbox.json");
        let mut kept: Value = serde_json::from_slice(&std::fs::read(&file).expect("a sandbox")).expect("JSON");
        kept["boot"] = "another".into();
        std::fs::write(&file, kept.to_string()).expect("written");
    }
}

/// The control groups of a Pod, those within others last.
fn control_groups(uid: &OsStr) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut look: Vec<PathBuf> = std::fs::read_dir("/sys/fs/cgroup")
        .expect("control groups")
        .flatten()
        .map(|root| root.path().join("waypost").join(uid))
        .collect();
    while let Some(folder) = look.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        look.extend(entries.flatten().filter(|entry| entry.path().is_dir()).map(|entry| entry.path()));
        found.push(folder);
    }
    found
}

fn members(group: &Path) -> Vec<i32> {
    let text = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Processes whose command names this folder: the supervisors of containers.
fn processes_of(home: &Path) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").expect("processes").flatten();
    let ours = |entry: &std::fs::DirEntry| {
        let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        line.contains(&*home.to_string_lossy())
    };
    all.filter(ours).filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
