//! A Pod that forges the addresses of others: real frames from one Pod, and who hears them in another and on the machine.

use std::process::Command;

use serde_json::{Value, json};
use testbed::net::eventually;

use super::machine::{Machine, script};

/// Honest frames, as a listener prints them.
const HONEST: &str = "ok-advert ok-arp ok-behind ok-end ok-free ok-link ok-v4 ok-v6";
/// With all that is forged.
const ALL: &str = "advert advert-behind arp arp-gateway arp-mac mac ok-advert ok-arp ok-behind ok-end ok-free ok-link ok-v4 ok-v6 \
                   other redirect router tagged v4 v4-gateway v4-nobody v4-world v6 v6-link v6-nobody v6-world";

/// A machine with a Pod that forges, one that listens, and one whose addresses are forged.
struct Stage {
    machine: Machine,
    folder: tempfile::TempDir,
    /// How often the listener has received the last frame.
    rounds: usize,
}

impl Stage {
    fn new() -> Self {
        let folder = testbed::folder();
        std::fs::write(folder.path().join("forge.py"), include_str!("forge.py")).expect("written");
        let mut stage = Self { machine: Machine::new(), folder, rounds: 0 };
        let program = stage.program();
        let raw = json!({"capabilities": {"add": ["NET_RAW", "NET_ADMIN"]}});
        let mut hears = script("c", &format!("exec python3 {program} listen"));
        let mut forges = script("c", "exec sleep 1000");
        hears["securityContext"] = raw.clone();
        forges["securityContext"] = raw;
        stage.machine.pod("hears", json!({"containers": [hears]}));
        stage.machine.pod("evil", json!({"containers": [forges], "terminationGracePeriodSeconds": 0}));
        stage.machine.pod("victim", json!({"containers": [script("c", "exec sleep 1000")]}));
        for name in ["hears", "evil", "victim"] {
            stage.machine.until_ready(name);
        }
        eventually("it listens", || stage.machine.log("hears", "c", 0).contains("listening\n"));
        stage
    }

    fn program(&self) -> String {
        self.folder.path().join("forge.py").display().to_string()
    }

    fn addresses(&mut self, pod: &str) -> [String; 2] {
        let pod = self.machine.get(pod);
        let ip = |place: usize| pod["status"]["podIPs"][place]["ip"].as_str().expect("an address").to_owned();
        [ip(0), ip(1)]
    }

    /// Has the one Pod send everything; returns what the other has received of it, and the hardware address of the
    /// sender.
    #[track_caller]
    fn forge(&mut self) -> (String, String) {
        let ([own, own6], [victim, victim6]) = (self.addresses("evil"), self.addresses("victim"));
        let gateway = self.machine.exec("evil", "c", "ip route show default | cut -d' ' -f3").trim().to_owned();
        let line = format!("python3 {} send {own} {own6} {victim} {victim6} {gateway}", self.program());
        let hardware = self.machine.exec("evil", "c", &line).trim().to_owned();
        self.rounds += 1;
        let rounds = self.rounds;
        let heard = |machine: &mut Machine| -> Vec<String> {
            let log = machine.log("hears", "c", 0);
            log.lines().filter_map(|line| line.strip_prefix("heard ")).map(str::to_owned).collect()
        };
        eventually("the last frame has come", || heard(&mut self.machine).len() == rounds);
        (heard(&mut self.machine).pop().expect("a line"), hardware)
    }

    /// The table of the bridge, without what was counted.
    fn table(&self) -> String {
        self.machine.node.run("nft --stateless list table bridge waypost-pods").success()
    }
}

fn wire(machine: &mut Machine, pod: &str) -> String {
    let uid = machine.get(pod)["metadata"]["uid"].as_str().expect("a uid").to_owned();
    agent::sandbox::veth_name(&uid)
}

#[test]
fn a_pod_sends_with_its_own_addresses_only() {
    let mut stage = Stage::new();
    let [victim, victim6] = stage.addresses("victim");
    // The machine knows where the victim is: it has been there, and was refused.
    for at in [victim.clone(), format!("[{victim6}]")] {
        let reach = format!("curl -s -m 5 -o /dev/null http://{at}:9/");
        assert_eq!(stage.machine.node.run(reach.as_str()).code, Some(7), "{at}");
    }
    let (heard, hardware) = stage.forge();
    assert_eq!(heard, HONEST);
    let neighbours = stage.machine.node.run("ip neigh show dev waypost0").success();
    let of =
        |ip: &str| neighbours.lines().find(|line| line.split(' ').next() == Some(ip)).unwrap_or_default().to_owned();
    for ip in [&victim, &victim6] {
        assert!(of(ip).contains("lladdr") && !of(ip).contains(&hardware), "{neighbours}");
    }
    // A Pod that may change its own network does not get further by that.
    let lines =
        format!("ip address add {victim}/32 dev eth0; ip -6 address add {victim6}/128 dev eth0 nodad; echo added");
    assert_eq!(stage.machine.exec("evil", "c", &lines), "added\n");
    assert_eq!(stage.forge().0, HONEST);
    // Without the rules all of it would have come: the frames are good.
    let _ = stage.machine.node.run("nft delete table bridge waypost-pods").success();
    assert_eq!(stage.forge().0, ALL);
    // The table was deleted; with the next Pod it is restored, and has all the others.
    stage.machine.pod("late", json!({"containers": [script("c", "exec sleep 1000")]}));
    stage.machine.until_ready("late");
    assert_eq!(stage.forge().0, HONEST);
}

#[test]
fn rules_against_forged_senders_come_and_go_with_pods_and_outlive_the_agent() {
    let mut stage = Stage::new();
    let before = stage.table();
    let names = ["evil", "hears", "victim"].map(|name| wire(&mut stage.machine, name));
    for name in &names {
        // Its port, its frames, its address, and those of IPv6: its own and that of its link.
        assert_eq!(before.matches(name.as_str()).count(), 5, "{name} in\n{before}");
    }
    // An agent that was killed finds it as it was; also one that has newly learned to note hardware addresses.
    stage.machine.kill();
    for pod in std::fs::read_dir(stage.machine.data_dir().join("agent/pods")).expect("Pods").flatten() {
        let file = pod.path().join("sandbox.json");
        let mut kept: Value = serde_json::from_slice(&std::fs::read(&file).expect("read")).expect("JSON");
        let removed = kept.as_object_mut().expect("an object").remove("hardware");
        assert!(removed.is_some_and(|hardware| hardware.is_array()), "{kept}");
        std::fs::write(&file, kept.to_string()).expect("written");
    }
    assert_eq!(stage.table(), before, "rules stay when the agent ends");
    stage.machine.start();
    let sorted = |text: &str| {
        let mut words: Vec<String> =
            text.split([' ', ',', '\n', '\t', '}']).map(str::to_owned).filter(|word| !word.is_empty()).collect();
        words.sort();
        words
    };
    assert_eq!(sorted(&stage.table()), sorted(&before));
    assert_eq!(stage.forge().0, HONEST);
    let _ = stage.machine.delete("evil", "").success();
    stage.machine.until_gone("evil");
    eventually("its rules are gone", || !stage.table().contains(&names[0]));
    assert!(stage.table().contains(&names[1]) && stage.table().contains(&names[2]));
    let mut command = Command::new("nft");
    command.args(["list", "tables"]);
    assert!(stage.machine.node.run(command).success().contains("bridge waypost-pods"));
    stage.machine.clean();
    assert!(!stage.machine.node.run("nft list tables").success().contains("waypost-pods"));
}
