//! Both variants of the host's iptables accept and list generated programs. Needs root, and Debian's `iptables` and
//! `iproute2`.

use kernel::Family;
use kernel::iptables::linux::{Linux, Variant};
use kernel::iptables::{Iptables as _, Table};
use plan::{Plan, Update};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::super::{Iptables, cleanup};
use crate::testing::namespace::Namespace;
use crate::testing::{ServiceSpec, options, planner, service_spec, updates};
use crate::{Backend as _, SyncScope};

fn open(variant: Variant) -> Linux {
    Linux::of(variant).unwrap_or_else(|error| panic!("{variant:?}: {error}"))
}

/// A new backend finds nothing to change.
fn check_settled(variant: Variant, plan: &Plan) -> Result<(), TestCaseError> {
    let stats = Iptables::new(open(variant), true).sync(plan, &SyncScope::FullResync).expect("accepted");
    prop_assert_eq!(stats.changes, 0, "{:?}", variant);
    Ok(())
}

fn check_programs(variant: Variant, local: usize, specs: &[(ServiceSpec, bool)]) -> Result<(), TestCaseError> {
    let mut planner = planner(options(local, false));
    let mut backend = Iptables::new(open(variant), true);
    let (first, rest) = specs.split_at(specs.len() / 2);
    for update in first.iter().flat_map(|(spec, _)| updates(spec)) {
        planner.update(update);
    }
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    check_settled(variant, planner.plan())?;
    for (spec, gone) in rest {
        let all = match gone {
            true => vec![Update::ServiceGone(format!("default/s{}", spec.number))],
            false => updates(spec),
        };
        for update in all {
            let touched = planner.update(update);
            backend.sync(planner.plan(), &SyncScope::Changed(touched)).expect("accepted");
        }
    }
    check_settled(variant, planner.plan())
}

fn holds_generated_programs(variant: Variant) {
    Namespace::new().inside(|| {
        let mut runner = TestRunner::new(Config { cases: 12, failure_persistence: None, ..Config::default() });
        let cases = (0..5usize, prop::collection::vec((service_spec(), prop::bool::weighted(0.2)), 2..7));
        let outcome = runner.run(&cases, |(local, specs)| check_programs(variant, local, &specs));
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
fn s22_legacy_iptables_holds_generated_programs() {
    holds_generated_programs(Variant::Legacy);
}

#[test]
fn s22_iptables_nft_holds_generated_programs() {
    holds_generated_programs(Variant::Nft);
}
