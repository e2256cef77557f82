//! An agent that is killed repeatedly while its Pods start: each container runs once, none is lost, no restart is counted.

use std::time::Duration;

use serde_json::json;
use testbed::net::eventually;

use super::machine::{Machine, container};
use super::oci;

/// How often it is killed.
const ROUNDS: u64 = 10;
/// How many Pods start each time; the last of them is from an image.
const PODS: usize = 5;
/// The latest moment of its death after Pods were made; the rounds are spread over this.
const SPAN: u64 = 600;

/// How many processes have this string in their command line.
fn processes(word: &str) -> usize {
    let all = std::fs::read_dir("/proc").expect("processes").flatten();
    let line = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
    all.map(line).filter(|line| line.split(|byte| *byte == 0).any(|own| own == word.as_bytes())).count()
}

#[test]
fn s25_an_agent_that_is_killed_while_pods_begin_neither_doubles_nor_loses_them() {
    let mut machine = Machine::new();
    let folder = testbed::folder();
    oci::root(folder.path());
    oci::import(&machine, &folder.path().join("root"), "tool:v1");
    let mut words = Vec::new();
    for round in 0..ROUNDS {
        for number in 0..PODS {
            let name = format!("p{round}-{number}");
            let word = format!("{name}-{}", std::process::id());
            let one = match number + 1 == PODS {
                true => json!({"name": "c", "image": "tool:v1", "command": ["/bin/tool", word]}),
                false => {
                    json!({"name": "c", "image": "host", "command": ["sh", "-c", "while :; do sleep 1; done", word]})
                }
            };
            machine.pod(&name, json!({"containers": [one], "terminationGracePeriodSeconds": 0}));
            words.push((name, word));
        }
        // Not a wait for something: the moments at which it dies are to be different ones.
        std::thread::sleep(Duration::from_millis(round * SPAN / ROUNDS));
        machine.kill();
        machine.start();
    }
    for (name, word) in &words {
        let pod = machine.until_ready(name);
        assert_eq!(container(&pod, "c")["restartCount"], 0, "{name} was begun again");
        assert_eq!(processes(word), 1, "{name} runs once");
    }
    for (name, _) in &words {
        let _ = machine.delete(name, "").success();
    }
    eventually("nothing of them runs", || words.iter().all(|(_, word)| processes(word) == 0));
}
