//! What only the userspace mode does: it tries another endpoint, and it ends with the program.

use testbed::net::{Family, Kind, Mode, Protocol};

use super::TIMEOUT;
use super::stage::{PORT, Stage, TARGET, cluster_ip, node_port};

/// The stage, if this mode is under test.
fn stage() -> Option<Stage> {
    (Mode::under_test().name == "userspace").then(Stage::new)
}

/// An unused address in the pod range.
const NOBODY: &str = "10.244.200.200";

#[test]
fn s21_a_silent_and_a_refusing_endpoint_cost_no_request() {
    let Some(stage) = stage() else { return };
    let (good, refusing, client) = (stage.near.pod("good"), stage.far.pod("refusing"), stage.near.pod("pod"));
    good.echo(TARGET);
    stage.served.put(&stage.internal("web", 1).json());
    // The third is silent: whatever is sent there is lost.
    stage.near.nft(&format!(
        "table ip silence {{ chain out {{ type filter hook output priority 0; ip daddr {NOBODY} drop; }}; }}"
    ));
    stage.endpoints("web", |slice| {
        let slice = slice.endpoint(&good).endpoint(&refusing);
        if slice.clone().json()["addressType"] == "IPv4" { slice.address(NOBODY) } else { slice }
    });
    stage.served.settle();
    let ask = || {
        let caller = client.caller().timeout(TIMEOUT);
        caller.ask_many(50, Protocol::Tcp, cluster_ip(1, Family::V4), PORT).all_answered().of("good")
    };
    let answered: usize = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..20).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|one| one.join().expect("asked")).sum()
    });
    assert_eq!(answered, 1000);
}

#[test]
fn s21_services_end_with_the_program_and_it_says_so() {
    let Some(stage) = stage() else { return };
    let web = stage.far.pod("web");
    stage.web(&[&web]);
    let log = stage.served.with_proxy(&stage.near, |proxy| proxy.log());
    assert!(log.contains("Services stop when it does"), "{log}");
    let listed = stage.near.ruleset();
    assert!(listed.contains("redirect to :ip daddr . meta l4proto . tcp dport map @doors-anywhere"), "{listed}");
    // As at the boot of a machine that keeps its rules in a file.
    let read = stage.near.pod("empty").run_with("nft -f -", &listed);
    assert!(read.ok, "{}", read.err);
    stage.served.kill_proxy(&stage.near);
    let failure = stage.near.ask(Protocol::Tcp, cluster_ip(1, Family::V4), PORT).expect_err("nobody serves it");
    assert_eq!(failure.kind, Kind::Refused, "{failure}");
}

#[test]
fn s21_the_relays_own_ports_are_closed_to_strangers() {
    let Some(stage) = stage() else { return };
    let web = stage.far.pod("web");
    stage.web(&[&web]);
    let listed = stage.near.run("nft list map ip waypost-userspace node-port-doors-anywhere").success();
    let entry = format!("tcp . {} : ", node_port(1));
    let door = listed.split(&entry).nth(1).and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    let door: u16 = door.and_then(|door| door.parse().ok()).unwrap_or_else(|| panic!("no door: {listed}"));
    let failure = stage.outside.ask(Protocol::Tcp, stage.near.v4(), door).expect_err("not a way in");
    assert_eq!(failure.kind, Kind::Refused, "{failure}");
    assert!(stage.outside.ask(Protocol::Tcp, stage.near.v4(), node_port(1)).is_ok());
}
