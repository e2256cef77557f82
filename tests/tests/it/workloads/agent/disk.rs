//! A full disk: the Pod reports why it does not start, the agent continues, and the Pod starts when there is room.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::machine::{Machine, container, script};

/// A small disk; gone when this is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn at(path: &Path, bytes: u64) -> Self {
        kernel::mounts::memory(path, Some(bytes), 0o700).expect("mounted; this test needs root");
        Self(path.to_owned())
    }

    /// Takes all the room that is left.
    fn fill(&self) {
        use std::io::Write as _;
        let mut file = std::fs::File::create(self.0.join("filler")).expect("made");
        while file.write_all(&[0; 512]).is_ok() {}
    }

    fn remove(&self) {
        kernel::mounts::detach_below(&self.0).expect("unmounted");
    }

    fn empty(&self) {
        std::fs::remove_file(self.0.join("filler")).expect("removed");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = kernel::mounts::detach_below(&self.0);
    }
}

fn says_no_space(pod: &Value, events: &[Value]) -> bool {
    let waiting = container(pod, "c")["state"]["waiting"]["message"].as_str().unwrap_or_default().to_owned();
    let told = events.iter().filter(|event| event["involvedObject"]["name"] == pod["metadata"]["name"]);
    let mut told = told.filter_map(|event| event["message"].as_str());
    waiting.contains("No space left on device") || told.any(|message| message.contains("No space left on device"))
}

#[test]
fn a_full_disk_is_said_and_a_pod_begins_when_there_is_room() {
    // It goes after the machine, however this ends: Pods are ended by what is written on it.
    let disk;
    let mut machine = Machine::new();
    machine.pod("before", json!({"containers": [script("c", "exec sleep 1000")]}));
    machine.until_ready("before");
    let _ = machine.delete("before", "?gracePeriodSeconds=0").success();
    let pods = machine.data_dir().join("agent/pods");
    testbed::net::eventually("its folder is gone", || std::fs::read_dir(&pods).expect("a folder").next().is_none());
    machine.kill();
    disk = SmallDisk::at(&pods, 256 << 10);
    machine.start();
    disk.fill();
    machine.pod("p", json!({"containers": [script("c", "exec sleep 1000")]}));
    testbed::net::eventually("the Pod says why", || {
        let events = machine.api(|session| session.items("/api/v1/namespaces/default/events"));
        says_no_space(&machine.get("p"), &events)
    });
    disk.empty();
    let pod = machine.until_ready("p");
    assert_eq!(container(&pod, "c")["restartCount"], 0);
    let _ = machine.delete("p", "?gracePeriodSeconds=0").success();
    testbed::net::eventually("its folder is gone", || std::fs::read_dir(&pods).expect("a folder").next().is_none());
    machine.kill();
    disk.remove();
}
