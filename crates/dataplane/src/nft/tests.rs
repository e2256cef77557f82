//! Whatever the plan: what the rules do to a packet is what the oracle says must happen, and rules that were followed are those
//! that are computed anew.

use kernel::nft::Nft as _;
use kernel::nft::fake::Fake;
use plan::Plan;
use proptest::prelude::*;

use super::TABLE;
use super::shapes::Shape;
use super::{Program, Style, kernel_family};
use crate::nftables::Nftables;
use crate::testing::{self, Wish, follow, node_ips, options, planner, story, updates, wish};
use crate::{Backend as _, Since};

fn kernel() -> Fake {
    let kernel = Fake::default();
    kernel.set_local(node_ips());
    kernel
}

/// Holds what the kernel would do against what must happen.
fn check(kernel: &Fake, plan: &Plan) {
    testing::check(plan, |packet, way, _| {
        // Clients of earlier packets are forgotten, so that affinity does not choose for us.
        kernel.advance(100_000);
        kernel.evaluate(packet, &mut |below| way % below)
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s20_rules_do_what_the_oracle_says(
        wishes in prop::collection::vec(wish(), 1..4),
        local in 0..5usize,
        masquerade_all in prop::bool::weighted(0.2),
    ) {
        let mut planner = planner(options(local, masquerade_all));
        for update in wishes.iter().flat_map(updates) {
            planner.update(update);
        }
        let kernel = kernel();
        let mut backend = Nftables::new(kernel.clone());
        backend.bring(planner.plan(), &Since::Ever).expect("accepted");
        check(&kernel, planner.plan());
    }

    #[test]
    fn rules_that_were_followed_are_those_computed_anew(
        story in story(12),
    ) {
        let mut planner = planner(options(1, false));
        let kernel = kernel();
        let mut backend = Nftables::new(kernel.clone());
        backend.bring(planner.plan(), &Since::Ever).expect("accepted");
        follow(&mut backend, &mut planner, story.into_iter().flatten());
        for (family, wanted) in Program::start(Style::Alone, planner.plan()).1 {
            let have = kernel.table(kernel_family(family), TABLE).expect("a table");
            let (left, mut used) = (have.chains.clone(), have.chains);
            used.retain(|name, _| wanted.chains.contains_key(name));
            prop_assert_eq!(&used, &wanted.chains);
            prop_assert!(left.keys().all(|name| used.contains_key(name) || Shape::staying(name).is_some()));
            let mut sets = wanted.sets;
            for (name, elements) in wanted.elements {
                sets.get_mut(name).expect("a set that is always there").elements.extend(elements);
            }
            prop_assert_eq!(&have.sets, &sets);
        }
        let written = kernel.changes();
        backend.bring(planner.plan(), &Since::Ever).expect("accepted");
        prop_assert_eq!(kernel.changes(), written, "what is right is not written again");
    }
}

#[test]
fn a_refused_change_leaves_everything_and_is_made_up_for() {
    let mut planner = planner(options(1, false));
    let mut kernel = kernel();
    let mut backend = Nftables::new(kernel.clone());
    backend.bring(planner.plan(), &Since::Ever).expect("accepted");
    let wish = Wish {
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
        endpoints: vec![(2, 0), (9, 0)],
    };
    let mut touched = plan::Touched::default();
    for update in updates(&wish) {
        touched.absorb(planner.update(update));
    }
    let before = kernel.table(kernel::nft::Family::Ip, TABLE);
    kernel.fail_next(kernel::Errno::NOMEM);
    let error = backend.bring(planner.plan(), &Since::Last(touched)).expect_err("refused");
    assert!(error.what.contains("applying"), "{error}");
    assert_eq!(kernel.table(kernel::nft::Family::Ip, TABLE), before);
    backend.bring(planner.plan(), &Since::Ever).expect("accepted");
    check(&kernel, planner.plan());
    kernel.flush_ruleset();
    assert!(kernel.dump(kernel::nft::Family::Ip, TABLE).expect("readable").is_none());
    backend.bring(planner.plan(), &Since::Ever).expect("accepted");
    check(&kernel, planner.plan());
}
