//! The same questions to CoreDNS and to ours with its habits switched on: whatever differs and is not on the list fails.

use std::path::PathBuf;
use std::process::Command;

use testbed::net::{Served, eventually};

use super::{Block, ZONES};
use crate::golden::golden;
use crate::python_client::interpreter;

/// CoreDNS: in `$WAYPOST_PEERS`, or on PATH.
fn coredns() -> PathBuf {
    let beside = std::env::var_os("WAYPOST_PEERS").map(|folder| PathBuf::from(folder).join("coredns"));
    beside.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from("coredns"))
}

#[test]
#[ignore = "compares with CoreDNS, which Debian does not package; ./scripts/test peers runs it"]
fn s34_ours_answers_as_coredns_does_when_it_is_told_to() {
    let served = Served::new();
    let node = served.node("n1");
    let home = testbed::folder();
    let mut load = Command::new(interpreter());
    load.args(["-B", "-s"]).arg(golden("dns/replay")).args(["--load", "--kubeconfig"]).arg(served.kubeconfig());
    let _ = node.run(load).success();
    let kubeconfig = format!("kubeconfig {}", served.kubeconfig().display());
    let told = ["pods insecure", "ttl 30"];
    let theirs = Block {
        port: 5401,
        zones: ZONES,
        kubernetes: &[&told[..], &[&kubeconfig]].concat(),
        rest: &["bind 127.0.0.1"],
    };
    let file = home.path().join("Corefile");
    std::fs::write(&file, theirs.corefile()).expect("written");
    let mut command = Command::new(coredns());
    command.arg("-conf").arg(&file);
    let _coredns = node.spawn(command);
    let mut ours = super::node(&served, &[]);
    std::fs::write(
        home.path().join("Ours"),
        Block { port: 5301, zones: ZONES, kubernetes: &told, rest: &["bind 127.0.0.1"] }.corefile(),
    )
    .expect("written");
    ours.args(["--dns-quirks", "coredns", "--corefile"]).arg(home.path().join("Ours"));
    let ours = node.spawn(ours);
    ours.wait_for_line("ready", crate::proxy::TIMEOUT);
    eventually("CoreDNS knows its names", || {
        let last = "dig +short +tries=1 +time=1 -p 5401 @127.0.0.1 svc1.testns.svc.cluster.local";
        node.run(last).out.contains("10.96.0.100")
    });
    let mut ask = Command::new(interpreter());
    ask.args(["-B", "-s", "beside_coredns.py"]).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/python"));
    ask.args([golden("dns/replay"), golden("dns/objects.json"), golden("dns/cases.json")]);
    ask.args(["127.0.0.1:5301", "127.0.0.1:5401", "7"]);
    let said = node.run(ask).success();
    assert!(said.lines().last().is_some_and(|line| line.ends_with(", 0 differ")), "{said}");
}
