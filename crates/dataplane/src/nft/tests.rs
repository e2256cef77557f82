//! For any plan: rules implement the oracle, and incremental syncs equal a full resync.

use kernel::nft::Nft as _;
use kernel::nft::fake::Fake;
use plan::{Plan, Policy};
use proptest::prelude::*;

use super::TABLE;
use super::shapes::Shape;
use super::{Program, TableKind, kernel_family};
use crate::nftables::Nftables;
use crate::testing::{self, ServiceSpec, follow, history, node_ips, options, planner, service_spec, updates};
use crate::{Backend as _, SyncScope};

fn kernel() -> Fake {
    let kernel = Fake::default();
    kernel.set_local(node_ips());
    kernel
}

/// Compares the kernel with the oracle.
fn check(kernel: &Fake, plan: &Plan) {
    testing::check(plan, |packet, way, _| {
        // Expire clients of earlier packets, so that affinity does not decide.
        kernel.advance(100_000);
        kernel.evaluate(packet, &mut |below| way % below)
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s20_rules_do_what_the_oracle_says(
        specs in prop::collection::vec(service_spec(), 1..4),
        local in 0..5usize,
        masquerade_all in prop::bool::weighted(0.2),
    ) {
        let mut planner = planner(options(local, masquerade_all));
        for update in specs.iter().flat_map(updates) {
            planner.update(update);
        }
        let kernel = kernel();
        let mut backend = Nftables::new(kernel.clone());
        backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
        check(&kernel, planner.plan());
    }

    #[test]
    fn incremental_syncs_equal_a_full_resync(
        history in history(12),
    ) {
        let mut planner = planner(options(1, false));
        let kernel = kernel();
        let mut backend = Nftables::new(kernel.clone());
        backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
        follow(&mut backend, &mut planner, history.into_iter().flatten());
        for (family, wanted) in Program::build(TableKind::Nftables, planner.plan()).1 {
            let have = kernel.table(kernel_family(family), TABLE).expect("a table");
            let (left, mut used) = (have.chains.clone(), have.chains);
            used.retain(|name, _| wanted.chains.contains_key(name));
            prop_assert_eq!(&used, &wanted.chains);
            prop_assert!(left.keys().all(|name| used.contains_key(name) || Shape::kept_from_name(name).is_some()));
            let mut sets = wanted.sets;
            for (name, elements) in wanted.elements {
                sets.get_mut(name).expect("a set that is always there").elements.extend(elements);
            }
            prop_assert_eq!(&have.sets, &sets);
        }
        let written = kernel.changes();
        backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
        prop_assert_eq!(kernel.changes(), written, "a correct state is not rewritten");
    }
}

#[test]
fn s54_a_cluster_ip_at_layer_7_leads_to_the_listener_and_its_node_port_to_endpoints() {
    let kernel = kernel();
    testing::check_layer7(&mut Nftables::new(kernel.clone()), |packet| kernel.evaluate(packet, &mut |_| 0));
}

#[test]
fn a_failed_sync_changes_nothing_and_is_retried() {
    let mut planner = planner(options(1, false));
    let mut kernel = kernel();
    let mut backend = Nftables::new(kernel.clone());
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    let spec = ServiceSpec {
        number: 0,
        kind: 1,
        dual: true,
        protocol: 0,
        internal_local: false,
        external_local: false,
        affinity: false,
        external_ip: false,
        lb_ip: false,
        ranges: 0,
        gateway: false,
        policy: Policy::Random,
        endpoints: vec![(2, 0), (9, 0)],
    };
    let mut touched = plan::Touched::default();
    for update in updates(&spec) {
        touched.absorb(planner.update(update));
    }
    let before = kernel.table(kernel::nft::Family::Ip, TABLE);
    kernel.fail_next(kernel::Errno::NOMEM);
    let error = backend.sync(planner.plan(), &SyncScope::Changed(touched)).expect_err("refused");
    assert!(error.message.contains("applying"), "{error}");
    assert_eq!(kernel.table(kernel::nft::Family::Ip, TABLE), before);
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    check(&kernel, planner.plan());
    kernel.flush_ruleset();
    assert!(kernel.dump(kernel::nft::Family::Ip, TABLE).expect("readable").is_none());
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    check(&kernel, planner.plan());
}

/// A Service with a cluster IP, this policy and so many endpoints.
fn balanced(policy: Policy, count: u8) -> ServiceSpec {
    ServiceSpec {
        number: 0,
        kind: 0,
        dual: false,
        protocol: 0,
        internal_local: false,
        external_local: false,
        affinity: false,
        external_ip: false,
        lb_ip: false,
        ranges: 0,
        gateway: false,
        policy,
        endpoints: (1..=count).map(|place| (place, 0)).collect(),
    }
}

#[test]
fn s53_a_change_of_an_endpoint_writes_the_slots_that_change() {
    for (policy, most) in [(Policy::Maglev, 2 * 2039 / 10), (Policy::RoundRobin, 16), (Policy::Weighted, 16)] {
        let mut planner = planner(options(1, false));
        let kernel = kernel();
        let mut backend = Nftables::new(kernel.clone());
        updates(&balanced(policy, 15)).into_iter().for_each(|update| drop(planner.update(update)));
        backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
        let before = kernel.changes();
        follow(&mut backend, &mut planner, updates(&balanced(policy, 14)));
        let changed = kernel.changes() - before;
        check(&kernel, planner.plan());
        assert!((1..=most).contains(&changed), "{policy}: {changed}");
    }
}

#[test]
fn s53_rules_of_policies_are_shown_in_the_syntax_of_nft() {
    for (policy, draws) in [
        (
            Policy::Maglev,
            "dnat ip to meta l4proto . th dport . jhash ip saddr mod 2039 seed 0x77617970 map @maglev-s0-",
        ),
        (Policy::RoundRobin, "th dport . numgen inc mod 2 map @round-robin-s0-"),
        (Policy::Weighted, "th dport . numgen random mod 5 map @weighted-s0-"),
        (Policy::LeastConnections, "numgen random mod 2 map @endpoints"),
    ] {
        let mut planner = planner(options(1, false));
        updates(&balanced(policy, 2)).into_iter().for_each(|update| drop(planner.update(update)));
        let port = planner.plan().ports.values().next().expect("a port");
        let text = super::of_port(TableKind::Nftables, planner.plan(), port);
        assert!(text.contains(draws), "{policy}: {text}");
    }
}
