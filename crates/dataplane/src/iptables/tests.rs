//! Whatever the plan: what the rules do to a packet is what the oracle says must happen, rules that were followed are those that
//! are computed anew, and what others have stays.

use std::sync::mpsc::channel;
use std::time::Duration;

use kernel::Family;
use kernel::iptables::fake::Fake;
use kernel::iptables::{Iptables as _, IptablesError, Table};
use plan::{NodePortAddresses, Options, Plan, Planner, Touched, Update};
use proptest::prelude::*;

mod real;

use super::program::LARGE;
use super::{Iptables, cleanup, names};
use crate::testing::{self, Wish, node_ips, options, planner, story, updates, wish};
use crate::{Backend as _, Since};

/// Rules of others, around which ours must find their place.
const FOREIGN: &str = "*filter\n:MINE - [0:0]\n-A MINE -s 203.0.113.0/24 -j RETURN\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n\
    -A FORWARD -j MINE\nCOMMIT\n*nat\n:KUBE-MARK-MASQ - [0:0]\n:CNI - [0:0]\n-A CNI -p tcp -m tcp --dport 9 -j KUBE-MARK-MASQ\n\
    -A POSTROUTING -j CNI\nCOMMIT\n*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n";

fn kernel() -> Fake {
    let kernel = Fake::default();
    kernel.set_local(node_ips());
    kernel
}

fn check(kernel: &Fake, plan: &Plan) {
    testing::check(plan, |packet, way, ways| {
        // Clients of earlier packets are forgotten, so that affinity does not choose for us.
        kernel.advance(100_000);
        kernel.evaluate(packet, &mut |left| ways - left == way)
    });
}

fn listings(kernel: &Fake) -> [String; 2] {
    Family::ALL.map(|family| kernel.listing(family))
}

/// A Service of every kind, with an endpoint here and one elsewhere.
fn everything(number: u8) -> Wish {
    Wish {
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
        endpoints: vec![(2, 0), (9, 0)],
    }
}

fn follow(planner: &mut Planner, wish: &Wish) -> Touched {
    let mut touched = Touched::default();
    for update in updates(wish) {
        touched.absorb(planner.update(update));
    }
    touched
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s22_rules_do_what_the_oracle_says(
        wishes in prop::collection::vec(wish(), 1..4),
        local in 0..5usize,
        masquerade_all in prop::bool::weighted(0.2),
        everywhere in any::<bool>(),
    ) {
        let node_port_addresses = if everywhere { NodePortAddresses::All } else { NodePortAddresses::Primary };
        let mut planner = planner(Options { node_port_addresses, ..options(local, masquerade_all) });
        for wish in &wishes {
            follow(&mut planner, wish);
        }
        let kernel = kernel();
        let mut backend = Iptables::new(kernel.clone(), true);
        backend.bring(planner.plan(), &Since::Ever).expect("accepted");
        check(&kernel, planner.plan());
    }

    #[test]
    fn rules_that_were_followed_are_those_computed_anew(
        story in story(12),
    ) {
        let mut planner = planner(options(1, false));
        let mut kernel = kernel();
        kernel.foreign(Family::Ip, FOREIGN).expect("accepted");
        let before = listings(&kernel);
        let mut backend = Iptables::new(kernel.clone(), true);
        backend.bring(planner.plan(), &Since::Ever).expect("accepted");
        testing::follow(&mut backend, &mut planner, story.into_iter().flatten());
        let written = kernel.restores();
        let mut next = Iptables::new(kernel.clone(), true);
        next.bring(planner.plan(), &Since::Ever).expect("accepted");
        prop_assert_eq!(kernel.restores(), written, "what is right is not written again");
        check(&kernel, planner.plan());
        prop_assert!(cleanup(&mut kernel).expect("accepted"));
        let rest = listings(&kernel);
        prop_assert_eq!(&rest[0], &before[0]);
        prop_assert!(!rest[1].contains("KUBE"), "{}", rest[1]);
        prop_assert!(!cleanup(&mut kernel).expect("accepted"));
    }
}

#[test]
fn a_refused_script_is_made_up_for() {
    let mut planner = planner(options(1, false));
    let kernel = kernel();
    let mut backend = Iptables::new(kernel.clone(), true);
    backend.bring(planner.plan(), &Since::Ever).expect("accepted");
    let touched = follow(&mut planner, &everything(0));
    let before = listings(&kernel);
    kernel.fail_next(IptablesError::Busy { program: "iptables-restore".to_owned() });
    let error = backend.bring(planner.plan(), &Since::Last(touched)).expect_err("refused");
    assert!(error.what.contains("lock"), "{error}");
    assert_eq!(listings(&kernel), before);
    backend.bring(planner.plan(), &Since::Ever).expect("accepted");
    check(&kernel, planner.plan());
    kernel.flush();
    backend.bring(planner.plan(), &Since::Tampered).expect("accepted");
    check(&kernel, planner.plan());
}

#[test]
fn a_change_of_one_service_is_small() {
    let mut planner = planner(options(1, false));
    let mut backend = Iptables::new(kernel(), true);
    for number in 0..4 {
        follow(&mut planner, &everything(number));
    }
    backend.bring(planner.plan(), &Since::Ever).expect("accepted");
    let same = follow(&mut planner, &everything(1));
    assert_eq!(backend.bring(planner.plan(), &Since::Last(same)).expect("accepted").changes, 0);
    let other = Wish { endpoints: vec![(2, 0), (9, 0), (10, 0)], ..everything(1) };
    let touched = follow(&mut planner, &other);
    // Per family the chain of the new endpoint and its rule, and that which chooses, with a rule to forget and one to draw.
    let brought = backend.bring(planner.plan(), &Since::Last(touched)).expect("accepted");
    assert_eq!(brought.changes, 2 * (2 + 1 + 1 + 2 * 3));
}

#[test]
fn very_many_endpoints_leave_no_room_for_words() {
    let mut planner = planner(options(1, false));
    let kernel = kernel();
    let mut backend = Iptables::new(kernel.clone(), true);
    backend.bring(planner.plan(), &Since::Ever).expect("accepted");
    let words = || kernel.listing(Family::Ip).matches("default/s0").count();
    let small = follow(&mut planner, &everything(0));
    backend.bring(planner.plan(), &Since::Last(small)).expect("accepted");
    assert!(words() > 5, "{}", kernel.listing(Family::Ip));
    let (service, slices) = many(LARGE + 1);
    let mut touched = planner.update(service);
    for slice in slices {
        touched.absorb(planner.update(slice));
    }
    backend.bring(planner.plan(), &Since::Last(touched)).expect("accepted");
    assert_eq!(words(), 0);
    let written = kernel.restores();
    backend.bring(planner.plan(), &Since::Ever).expect("accepted");
    assert_eq!(kernel.restores(), written);
    let touched = planner.update(Update::ServiceGone("default/many".to_owned()));
    backend.bring(planner.plan(), &Since::Last(touched)).expect("accepted");
    assert!(words() > 5);
}

/// A Service with so many endpoints.
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
fn cluster_ips_outside_every_range_are_refused_one_by_one() {
    let mut planner = planner(options(1, false));
    let kernel = kernel();
    let mut backend = Iptables::new(kernel.clone(), true);
    follow(&mut planner, &everything(0));
    backend.bring(planner.plan(), &Since::Ever).expect("accepted");
    let touched = planner.update(Update::CidrGone("kubernetes".to_owned()));
    backend.bring(planner.plan(), &Since::Last(touched)).expect("accepted");
    let local = Wish { internal_local: true, endpoints: vec![(9, 0)], ..everything(1) };
    for update in updates(&local).into_iter().chain([Update::ServiceGone("default/s0".to_owned())]) {
        let touched = planner.update(update);
        backend.bring(planner.plan(), &Since::Last(touched)).expect("accepted");
        check(&kernel, planner.plan());
    }
    let written = kernel.restores();
    backend.bring(planner.plan(), &Since::Ever).expect("accepted");
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
    // But they are taken over by whoever is told to serve in this mode.
    let planner = planner(options(1, false));
    Iptables::new(kernel.clone(), true).bring(planner.plan(), &Since::Ever).expect("accepted");
    let saved = kernel.save(Family::Ip).expect("readable");
    assert_eq!(saved.lines(Table::Nat, "PREROUTING").count(), 1);
    assert!(cleanup(&mut kernel).expect("accepted"));
    assert!(!kernel.listing(Family::Ip).contains("KUBE"));
}

#[test]
fn what_is_missing_is_noticed() {
    let planner = planner(options(1, false));
    let mut kernel = kernel();
    let mut backend = Iptables::new(kernel.clone(), false).guarded_every(Duration::from_millis(1));
    backend.bring(planner.plan(), &Since::Ever).expect("accepted");
    let (tell, told) = channel();
    let tampered = Box::new(move || tell.send(()).is_ok());
    backend.guard(tampered).expect("a thread");
    let heard = || while told.try_recv().is_ok() {};
    let script = "*nat\n-D PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\nCOMMIT\n";
    kernel.foreign(Family::Ip, script).expect("it was there");
    told.recv().expect("noticed");
    backend.bring(planner.plan(), &Since::Tampered).expect("accepted");
    heard();
    kernel.flush();
    told.recv().expect("noticed");
    backend.bring(planner.plan(), &Since::Tampered).expect("accepted");
    drop(backend);
    // The guard goes with the backend: its end of the channel is gone.
    while told.recv().is_ok() {}
    assert!(kernel.save(Family::Ip).expect("readable").has_chain(Table::Mangle, names::CANARY));
}

#[test]
fn what_people_read_is_what_is_written() {
    let mut planner = planner(options(1, false));
    follow(&mut planner, &everything(1));
    let kernel = kernel();
    let mut backend = Iptables::new(kernel.clone(), true);
    backend.bring(planner.plan(), &Since::Ever).expect("accepted");
    for port in planner.plan().ports.values() {
        let listing = kernel.listing(crate::nft::kernel_family(port.key.family));
        let text = backend.rules(planner.plan(), port);
        let rules: Vec<&str> =
            text.lines().filter_map(|line| Some(line.strip_prefix("-t ")?.split_once(' ')?.1)).collect();
        assert!(rules.len() > 5, "{text}");
        assert!(rules.iter().all(|rule| listing.contains(rule)), "{text}\nis not in\n{listing}");
    }
}
