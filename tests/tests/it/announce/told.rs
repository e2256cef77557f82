//! `waypost doctor` and `waypost explain` report who announces an address, or why none does.

use std::process::Command;

use serde_json::{Value, json};
use testbed::net::{Family, eventually};
use testbed::session::text;

use super::stage::{Stage, vip};
use crate::doctor::clinic::Said;

/// The output of `waypost explain` for the address of this number.
fn explained(stage: &Stage, number: u8) -> Value {
    let mut command = Command::new(testbed::binary());
    command.env("KUBECONFIG", stage.served.kubeconfig());
    command.args(["explain", "svc/web", "--node", "n1", "-o", "json"]);
    let run = stage.nodes[0].run(command);
    let told: Value = serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{error}: {run:?}"));
    let all = told["announced"].as_array().expect("addresses");
    let ip = vip(number, Family::V4).to_string();
    all.iter().find(|one| one["address"] == ip).unwrap_or_else(|| panic!("{ip} is not in {told}")).clone()
}

fn doctor(stage: &Stage) -> Said {
    Said::by(&stage.nodes[0], &stage.served.kubeconfig(), "web --node-name n1")
}

/// What the doctor found about announcing.
fn found(said: &Said) -> (String, String) {
    let findings = said.whole["services"][0]["findings"].as_array().expect("findings").clone();
    let one = findings.iter().find(|finding| finding["check"] == "announced").expect("the check");
    (text(one, "/outcome").to_owned(), text(one, "/saw").to_owned())
}

#[test]
fn s43_who_answers_is_told_and_who_could_not_is_told_why() {
    let stage = Stage::new(&["n1", "n2"]);
    stage.web(20);
    let ip = vip(20, Family::V4);
    stage.reached(ip);
    let owner = stage.owner(ip).name().to_owned();
    let told = explained(&stage, 20);
    assert_eq!((&told["verdict"], &told["node"]), (&json!("announced"), &json!(owner)), "{told}");
    assert!(text(&told, "/why").starts_with(&format!("node {owner} announces it by ARP since 20")), "{told}");
    let (outcome, saw) = found(&doctor(&stage));
    assert_eq!(outcome, "proved", "{saw}");
    assert!(saw.contains(&format!("{ip}: node {owner} announces it")), "{saw}");

    // The policy requires endpoints that do not exist.
    let local = stage.service("web", 20).spec("externalTrafficPolicy", "Local");
    stage.served.put(&local.json());
    stage.endpoints("web", &[]);
    eventually("nobody may announce it, and that is said", || {
        let told = explained(&stage, 20);
        told["verdict"] == "not announced"
            && text(&told, "/why").contains("externalTrafficPolicy is Local, and no node has")
    });
    stage.served.put(&stage.service("web", 20).json());

    // Both programs die: no node is left to respond.
    stage.nodes.iter().for_each(|node| stage.served.kill_proxy(node));
    let (outcome, saw) = found(&doctor(&stage));
    assert_eq!(outcome, "disproved", "{saw}");
    assert!(saw.starts_with(&format!("{ip} is not announced: ")), "{saw}");
}

#[test]
fn s43_an_address_of_another_machine_is_told_with_that_machine() {
    let stage = Stage::new(&["n1"]);
    let squatter = stage.served.cluster().outside("squatter");
    let ip = vip(21, Family::V4);
    squatter.ip(&format!("addr add {ip}/32 dev eth0\n"));
    stage.served.put(&stage.service("web", 21).json());
    let mac = super::wire::mac_of(&squatter).to_string();
    eventually("it is said who has it", || {
        let told = explained(&stage, 21);
        told["verdict"] == "not announced" && text(&told, "/why").contains(&mac)
    });
}
