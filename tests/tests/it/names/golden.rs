//! The recorded corpus of questions and answers, by its own replay program, against the program that people run: its API server with
//! its controllers, and a server of names for each profile.

use std::process::Command;

use serde_json::Value;
use testbed::net::{Node, Served};

use super::{Block, Names, node, pages};
use crate::golden::golden;
use crate::python_client::interpreter;

/// The address of the stand-in for all upstreams.
const STUB: &str = "127.0.0.1:5399";
/// The address of the server that the recorded Service of the DNS leads to.
const KNOWN_AS: &str = "10.244.0.53";

fn replay(served: &Served) -> Command {
    let mut command = Command::new(interpreter());
    command.args(["-B", "-s"]).arg(golden("dns/replay")).arg("--kubeconfig").arg(served.kubeconfig());
    command
}

/// A cluster with the recorded objects, and a machine for servers of names. The stand-in for others ends with what is returned.
fn stage() -> (Served, Node, testbed::net::Process) {
    let served = Served::new();
    let machine = served.node("n1");
    let mut load = replay(&served);
    load.arg("--load");
    let said = machine.run(load).success();
    assert!(said.contains(" 0 refused"), "{said}");
    let mut stub = Command::new(interpreter());
    stub.args(["-B", "-s"]).arg(golden("dns/replay")).args(["--stub", STUB]);
    let stub = machine.spawn(stub);
    testbed::net::eventually("the stand-in answers", || {
        machine.run("dig +short +tries=1 +time=1 -p 5399 @127.0.0.1 example.net").out.contains("13.14.15.16")
    });
    (served, machine, stub)
}

fn cases() -> Value {
    let text = std::fs::read_to_string(golden("dns/cases.json")).expect("the cases");
    serde_json::from_str(&text).expect("JSON")
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().map(|text| text.as_str().expect("a text")).collect()
}

/// Nothing may have failed, nothing been left out, and this many been played.
#[track_caller]
fn assert_all(out: &str, count: usize) {
    assert_eq!(out.trim(), format!("{count} passed, 0 failed"), "{out}");
}

#[test]
fn s34_every_recorded_name_is_answered_in_every_profile_and_follows_every_change() {
    let (served, machine, _stub) = stage();
    machine.ip(&format!("addr add {KNOWN_AS}/32 dev lo\n"));
    let cases = cases();
    let (mut names, mut run) = (Vec::<Names>::new(), replay(&served));
    for (port, (profile, told)) in (5301..).zip(cases["profiles"].as_object().expect("profiles")) {
        let (zones, kubernetes) = (texts(&told["zones"]).join(" "), texts(&told["kubernetes"]));
        let forward = format!("forward . {STUB}");
        let mut rest = Vec::new();
        if told["forward_to_stub"] == Value::Bool(true) {
            rest.push(forward.as_str());
        }
        // This one finds out by itself by which address it is known.
        if profile != "ns" {
            rest.push("bind 127.0.0.1");
        }
        let block = Block { port, zones: &zones, kubernetes: &kubernetes, rest: &rest };
        names.push(block.start(&served, &machine));
        run.arg("--server").arg(format!("{profile}=127.0.0.1:{port}"));
    }
    run.arg("--controllers");
    let count = |key: &str| cases[key].as_array().expect("cases").len();
    assert_all(&machine.run(run).success(), count("cases") + count("dynamic"));
}

#[test]
fn s34_flags_say_the_same_as_the_corefile_of_a_cluster() {
    let (served, machine, _stub) = stage();
    let told = ["--dns-listen", "127.0.0.1:5301", "--dns-upstream", STUB].map(str::to_owned);
    let names = machine.spawn(node(&served, &[&told[..], &pages(5301)].concat()));
    names.wait_for_line("ready", crate::proxy::TIMEOUT);
    let mut run = replay(&served);
    run.args(["--controllers", "--server", "127.0.0.1:5301"]);
    let said = machine.run(run).success();
    let last = said.lines().last().unwrap_or_default();
    let base = |case: &&Value| case["profile"].as_str().unwrap_or("base") == "base";
    let count = |key: &str| cases()[key].as_array().expect("cases").iter().filter(base).count();
    assert_all(last, count("cases") + count("dynamic"));
}
