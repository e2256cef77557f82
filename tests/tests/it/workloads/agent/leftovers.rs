//! What is left when everything was stopped: nothing.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;

use super::machine::{Machine, script};

/// What a machine has of the things that Pods are made of.
#[derive(Debug, PartialEq, Eq)]
struct Inventory {
    links: BTreeSet<String>,
    routes: String,
    rules: String,
    mounts: BTreeSet<String>,
    groups: BTreeSet<String>,
}

fn inventory(machine: &Machine, uids: &[String]) -> Inventory {
    let links = machine.node.run("ip -brief link").success();
    let ours = |text: &str| {
        uids.iter().any(|uid| text.contains(uid)) || text.contains(&machine.data_dir().display().to_string())
    };
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let mut groups = BTreeSet::new();
    for controller in std::fs::read_dir("/sys/fs/cgroup").expect("control groups").flatten() {
        for uid in uids {
            let group = controller.path().join("waypost").join(uid);
            if group.exists() {
                groups.insert(group.display().to_string());
            }
        }
    }
    Inventory {
        links: links.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect(),
        routes: machine.node.run("ip route").success() + &machine.node.run("ip -6 route").success(),
        rules: machine.node.run("nft list ruleset").success(),
        mounts: mounts.lines().filter(|line| ours(line)).map(str::to_owned).collect(),
        groups,
    }
}

/// Processes whose command names the data directory.
fn processes(data_dir: &Path) -> Vec<String> {
    let wanted = data_dir.display().to_string();
    let all = std::fs::read_dir("/proc").expect("processes").flatten();
    let line = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
    all.map(line).filter(|line| line.contains(&wanted)).collect()
}

#[test]
fn cleanup_leaves_nothing_behind() {
    let mut machine = Machine::with(&["--proxy-mode", "none"]);
    machine.clean();
    let before = inventory(&machine, &[]);
    machine.start();
    let mut c = script("c", "exec sleep 1000");
    c["volumeMounts"] = json!([{"name": "m", "mountPath": "/memory"}]);
    let volumes = json!([{"name": "m", "emptyDir": {"medium": "Memory"}}]);
    let mut uids = Vec::new();
    for name in ["one", "two", "three"] {
        machine.pod(name, json!({"containers": [c], "volumes": volumes}));
    }
    for name in ["one", "two", "three"] {
        uids.push(machine.until_ready(name)["metadata"]["uid"].as_str().expect("a uid").to_owned());
    }
    let during = inventory(&machine, &uids);
    assert!(
        during.links.len() == before.links.len() + 4 && during.mounts.len() >= 6 && during.groups.len() >= 3,
        "{during:?}"
    );
    machine.clean();
    assert_eq!(inventory(&machine, &uids), before);
    assert_eq!(processes(machine.data_dir()), Vec::<String>::new());
    assert!(!machine.data_dir().join("agent").exists());
}
