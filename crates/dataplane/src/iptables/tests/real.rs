//! Both variants of the host's iptables take what is written for generated plans, and give it back. Needs root, and Debian's
//! `iptables` and `iproute2`.

use kernel::Family;
use kernel::iptables::linux::{Linux, Variant};
use kernel::iptables::{Iptables as _, Table};
use plan::{Plan, Update};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::super::{Iptables, cleanup};
use crate::testing::namespace::Namespace;
use crate::testing::{Wish, options, planner, updates, wish};
use crate::{Backend as _, Since};

fn open(variant: Variant) -> Linux {
    Linux::of(variant).unwrap_or_else(|error| panic!("{variant:?}: {error}"))
}

/// Whoever comes anew finds nothing to do.
fn check_settled(variant: Variant, plan: &Plan) -> Result<(), TestCaseError> {
    let brought = Iptables::new(open(variant), true).bring(plan, &Since::Ever).expect("accepted");
    prop_assert_eq!(brought.changes, 0, "{:?}", variant);
    Ok(())
}

fn try_out(variant: Variant, local: usize, wishes: &[(Wish, bool)]) -> Result<(), TestCaseError> {
    let mut planner = planner(options(local, false));
    let mut backend = Iptables::new(open(variant), true);
    let (first, rest) = wishes.split_at(wishes.len() / 2);
    for update in first.iter().flat_map(|(wish, _)| updates(wish)) {
        planner.update(update);
    }
    backend.bring(planner.plan(), &Since::Ever).expect("accepted");
    check_settled(variant, planner.plan())?;
    for (wish, gone) in rest {
        let all = match gone {
            true => vec![Update::ServiceGone(format!("default/s{}", wish.number))],
            false => updates(wish),
        };
        for update in all {
            let touched = planner.update(update);
            backend.bring(planner.plan(), &Since::Last(touched)).expect("accepted");
        }
    }
    check_settled(variant, planner.plan())
}

fn holds_generated_programs(variant: Variant) {
    Namespace::new().inside(|| {
        let mut runner = TestRunner::new(Config { cases: 12, failure_persistence: None, ..Config::default() });
        let cases = (0..5usize, prop::collection::vec((wish(), prop::bool::weighted(0.2)), 2..7));
        let outcome = runner.run(&cases, |(local, wishes)| try_out(variant, local, &wishes));
        outcome.unwrap_or_else(|error| panic!("{variant:?}: {error}"));
        assert!(cleanup(&mut open(variant)).expect("removed"));
        for family in Family::ALL {
            let saved = open(variant).save(family).expect("readable");
            assert_eq!(saved.count(), 0);
            assert!(variant == Variant::Legacy || saved.chains(Table::Nat).next().is_none(), "an empty table stays");
        }
    });
}

#[test]
fn s22_the_older_iptables_holds_generated_programs() {
    holds_generated_programs(Variant::Legacy);
}

#[test]
fn s22_iptables_in_terms_of_nftables_holds_generated_programs() {
    holds_generated_programs(Variant::Nft);
}
