//! For any plan: rules treat packets as the oracle requires, incremental syncs equal a full resync, and rules of
//! other programs stay.

use std::sync::mpsc::channel;
use std::time::Duration;

use kernel::Family;
use kernel::iptables::fake::Fake;
use kernel::iptables::{Iptables as _, IptablesError, Table};
use plan::{DataPlane, NodePortAddresses, Options, Plan, Planner, Policy, Touched, Update};
use proptest::prelude::*;

mod real;

use super::program::MAX_ENDPOINTS_WITH_COMMENTS;
use super::{Iptables, cleanup, names};
use crate::testing::{self, ServiceSpec, history, node_ips, options, service_spec, updates};
use crate::{Backend as _, SyncScope};

/// Rules of another program.
const FOREIGN: &str = "*filter\n:MINE - [0:0]\n-A MINE -s 203.0.113.0/24 -j RETURN\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n\
    -A FORWARD -j MINE\nCOMMIT\n*nat\n:KUBE-MARK-MASQ - [0:0]\n:CNI - [0:0]\n-A CNI -p tcp -m tcp --dport 9 -j KUBE-MARK-MASQ\n\
    -A POSTROUTING -j CNI\nCOMMIT\n*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n";

fn kernel() -> Fake {
    let kernel = Fake::default();
    kernel.set_local(node_ips());
    kernel
}

fn planner(options: Options) -> Planner {
    testing::planner(Options { data_plane: DataPlane::Iptables, ..options })
}

fn check(kernel: &Fake, plan: &Plan) {
    testing::check(plan, |packet, way, ways| {
        // Expire clients of earlier packets, so that affinity does not decide.
        kernel.advance(100_000);
        // The slot as a number between 0 and 1, and what the rules so far have left of that range.
        let (slot, mut left, mut passed) = ((f64::from(way) + 0.5) / f64::from(ways), 1.0, 0.0);
        kernel.evaluate(packet, &mut |chance| {
            let part = left * chance;
            let is_it = slot < passed + part;
            if !is_it {
                passed += part;
                left -= part;
            }
            is_it
        })
    });
}

fn listings(kernel: &Fake) -> [String; 2] {
    Family::ALL.map(|family| kernel.listing(family))
}

/// A Service of every kind, with a local and a remote endpoint.
fn everything(number: u8) -> ServiceSpec {
    ServiceSpec {
        number,
        kind: 2,
        dual: true,
        protocol: 0,
        internal_local: false,
        external_local: true,
        affinity: true,
        external_ip: true,
        lb_ip: true,
        ranges: 2,
        gateway: false,
        policy: Policy::Random,
        endpoints: vec![(2, 0), (9, 0)],
    }
}

fn update(planner: &mut Planner, spec: &ServiceSpec) -> Touched {
    let mut touched = Touched::default();
    for update in updates(spec) {
        touched.absorb(planner.update(update));
    }
    touched
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s22_rules_do_what_the_oracle_says(
        specs in prop::collection::vec(service_spec(), 1..4),
        local in 0..5usize,
        masquerade_all in prop::bool::weighted(0.2),
        everywhere in any::<bool>(),
    ) {
        let node_port_addresses = if everywhere { NodePortAddresses::All } else { NodePortAddresses::Primary };
        let mut planner = planner(Options { node_port_addresses, ..options(local, masquerade_all) });
        for spec in &specs {
            update(&mut planner, spec);
        }
        let kernel = kernel();
        let mut backend = Iptables::new(kernel.clone(), true);
        backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
        check(&kernel, planner.plan());
    }

    #[test]
    fn incremental_syncs_equal_a_full_resync(
        history in history(12),
    ) {
        let mut planner = planner(options(1, false));
        let mut kernel = kernel();
        kernel.foreign(Family::Ip, FOREIGN).expect("accepted");
        let before = listings(&kernel);
        let mut backend = Iptables::new(kernel.clone(), true);
        backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
        testing::follow(&mut backend, &mut planner, history.into_iter().flatten());
        let written = kernel.restores();
        let mut next = Iptables::new(kernel.clone(), true);
        next.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
        prop_assert_eq!(kernel.restores(), written, "a correct state is not rewritten");
        check(&kernel, planner.plan());
        prop_assert!(cleanup(&mut kernel).expect("accepted"));
        let rest = listings(&kernel);
        prop_assert_eq!(&rest[0], &before[0]);
        prop_assert!(!rest[1].contains("KUBE"), "{}", rest[1]);
        prop_assert!(!cleanup(&mut kernel).expect("accepted"));
    }
}

#[test]
fn s54_a_cluster_ip_at_layer_7_leads_to_the_listener_and_its_node_port_to_endpoints() {
    let kernel = kernel();
    testing::check_layer7(&mut Iptables::new(kernel.clone(), true), |packet| kernel.evaluate(packet, &mut |_| true));
}

#[test]
fn a_failed_restore_is_retried() {
    let mut planner = planner(options(1, false));
    let kernel = kernel();
    let mut backend = Iptables::new(kernel.clone(), true);
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    let touched = update(&mut planner, &everything(0));
    let before = listings(&kernel);
    kernel.fail_next(IptablesError::Busy { program: "iptables-restore".to_owned() });
    let error = backend.sync(planner.plan(), &SyncScope::Changed(touched)).expect_err("refused");
    assert!(error.message.contains("lock"), "{error}");
    assert_eq!(listings(&kernel), before);
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    check(&kernel, planner.plan());
    kernel.flush();
    backend.sync(planner.plan(), &SyncScope::Tampered).expect("accepted");
    check(&kernel, planner.plan());
}

#[test]
fn a_change_of_one_service_is_small() {
    let mut planner = planner(options(1, false));
    let mut backend = Iptables::new(kernel(), true);
    for number in 0..4 {
        update(&mut planner, &everything(number));
    }
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    let same = update(&mut planner, &everything(1));
    assert_eq!(backend.sync(planner.plan(), &SyncScope::Changed(same)).expect("accepted").changes, 0);
    let other = ServiceSpec { endpoints: vec![(2, 0), (9, 0), (10, 0)], ..everything(1) };
    let touched = update(&mut planner, &other);
    // Per family: the chain and rule of the new endpoint, and the choosing chain with its flush and its rules.
    let stats = backend.sync(planner.plan(), &SyncScope::Changed(touched)).expect("accepted");
    assert_eq!(stats.changes, 2 * (2 + 1 + 1 + 2 * 3));
}

#[test]
fn very_many_endpoints_disable_comments() {
    let mut planner = planner(options(1, false));
    let kernel = kernel();
    let mut backend = Iptables::new(kernel.clone(), true);
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    let words = || kernel.listing(Family::Ip).matches("default/s0").count();
    let small = update(&mut planner, &everything(0));
    backend.sync(planner.plan(), &SyncScope::Changed(small)).expect("accepted");
    assert!(words() > 5, "{}", kernel.listing(Family::Ip));
    let (service, slices) = many(MAX_ENDPOINTS_WITH_COMMENTS + 1);
    let mut touched = planner.update(service);
    for slice in slices {
        touched.absorb(planner.update(slice));
    }
    backend.sync(planner.plan(), &SyncScope::Changed(touched)).expect("accepted");
    assert_eq!(words(), 0);
    let written = kernel.restores();
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    assert_eq!(kernel.restores(), written);
    let touched = planner.update(Update::ServiceGone("default/many".to_owned()));
    backend.sync(planner.plan(), &SyncScope::Changed(touched)).expect("accepted");
    assert!(words() > 5);
}

/// A Service with this many endpoints.
fn many(count: usize) -> (Update, Vec<Update>) {
    let read = |value| serde_json::from_value(value).expect("an object of ours");
    let service = read(serde_json::json!({
        "metadata": {"namespace": "default", "name": "many", "uid": "u"},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.9.9", "clusterIPs": ["10.96.9.9"], "ipFamilies": ["IPv4"],
                 "ports": [{"port": 80, "protocol": "TCP"}]},
    }));
    let slices = (0..count).map(|n| format!("10.244.{}.{}", n / 250 + 1, n % 250 + 1)).collect::<Vec<_>>();
    let slices = slices.chunks(100).enumerate().map(|(number, ips)| {
        let endpoints: Vec<_> = ips.iter().map(|ip| serde_json::json!({"addresses": [ip]})).collect();
        let slice = serde_json::json!({
            "metadata": {"namespace": "default", "name": format!("many-{number}"),
                         "labels": {"kubernetes.io/service-name": "many"}},
            "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        });
        Update::Slice(serde_json::from_value(slice).expect("an object of ours"))
    });
    (Update::Service(Box::new(service)), slices.collect())
}

#[test]
fn cluster_ips_outside_all_ranges_are_rejected_one_by_one() {
    let mut planner = planner(options(1, false));
    let kernel = kernel();
    let mut backend = Iptables::new(kernel.clone(), true);
    update(&mut planner, &everything(0));
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    let touched = planner.update(Update::CidrGone("kubernetes".to_owned()));
    backend.sync(planner.plan(), &SyncScope::Changed(touched)).expect("accepted");
    let local = ServiceSpec { internal_local: true, endpoints: vec![(9, 0)], ..everything(1) };
    for update in updates(&local).into_iter().chain([Update::ServiceGone("default/s0".to_owned())]) {
        let touched = planner.update(update);
        backend.sync(planner.plan(), &SyncScope::Changed(touched)).expect("accepted");
        check(&kernel, planner.plan());
    }
    let written = kernel.restores();
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    assert_eq!(kernel.restores(), written);
}

#[test]
fn rules_of_another_program_with_the_same_names_are_not_cleaned_up() {
    let mut kernel = kernel();
    let other = "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-PROXY-CANARY - [0:0]\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n";
    kernel.foreign(Family::Ip, other).expect("accepted");
    let before = listings(&kernel);
    assert!(!cleanup(&mut kernel).expect("accepted"));
    assert_eq!(listings(&kernel), before);
    // Another program's rules of the same names are replaced in this mode.
    let planner = planner(options(1, false));
    Iptables::new(kernel.clone(), true).sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    let saved = kernel.save(Family::Ip).expect("readable");
    assert_eq!(saved.lines(Table::Nat, "PREROUTING").count(), 1);
    assert!(cleanup(&mut kernel).expect("accepted"));
    assert!(!kernel.listing(Family::Ip).contains("KUBE"));
}

#[test]
fn missing_jumps_are_detected() {
    let planner = planner(options(1, false));
    let mut kernel = kernel();
    let mut backend = Iptables::new(kernel.clone(), false).with_check_interval(Duration::from_millis(1));
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    let (sender, detected) = channel();
    let on_tampering = Box::new(move || sender.send(()).is_ok());
    backend.watch_tampering(on_tampering).expect("a thread");
    let drain = || while detected.try_recv().is_ok() {};
    let script = "*nat\n-D PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\nCOMMIT\n";
    kernel.foreign(Family::Ip, script).expect("it was there");
    detected.recv().expect("noticed");
    backend.sync(planner.plan(), &SyncScope::Tampered).expect("accepted");
    drain();
    kernel.flush();
    detected.recv().expect("noticed");
    backend.sync(planner.plan(), &SyncScope::Tampered).expect("accepted");
    drop(backend);
    // The watcher stops with the backend and drops its sender.
    while detected.recv().is_ok() {}
    assert!(kernel.save(Family::Ip).expect("readable").has_chain(Table::Mangle, names::CANARY));
}

#[test]
fn the_rules_text_equals_the_written_rules() {
    let mut planner = planner(options(1, false));
    update(&mut planner, &everything(1));
    let kernel = kernel();
    let mut backend = Iptables::new(kernel.clone(), true);
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    for port in planner.plan().ports.values() {
        let listing = kernel.listing(crate::nft::kernel_family(port.key.family));
        let text = backend.rules(planner.plan(), port);
        let rules: Vec<&str> =
            text.lines().filter_map(|line| Some(line.strip_prefix("-t ")?.split_once(' ')?.1)).collect();
        assert!(rules.len() > 5, "{text}");
        assert!(rules.iter().all(|rule| listing.contains(rule)), "{text}\nis not in\n{listing}");
    }
}
