//! The fake and both variants of iptables agree on refusals and the resulting rules.

use kernel::iptables::fake::Fake;
use kernel::iptables::linux::{Linux, Variant};
use kernel::iptables::{
    Family, Iptables, IptablesError, Match, Name, Rule, Saved, Script, State, Step, Table, Target, Transport,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::namespace::Namespace;

const CHAINS: [&str; 3] = ["A", "B", "C"];
const VARIANTS: [Variant; 2] = [Variant::Nft, Variant::Legacy];

fn open(variant: Variant) -> Linux {
    Linux::of(variant).unwrap_or_else(|error| panic!("{variant:?}: {error}"))
}

/// Every kind of rule.
fn rules(family: Family) -> Vec<Rule> {
    let (range, endpoint) = match family {
        Family::Ip => ("10.96.0.0/16", "10.244.0.3:8080"),
        Family::Ip6 => ("fd00:10:96::/112", "[fd00:10:244::3]:8080"),
    };
    let range = range.parse().expect("a range");
    let to = |target| Rule::new(target).when(Match::Destination { range, not: false });
    let tcp = |not| Match::Protocol { transport: Transport::Tcp, not };
    let list = || Name::from("LIST");
    let dnat = Rule::new(Target::Translate(endpoint.parse().expect("an endpoint")));
    vec![
        Rule::new(Target::Return),
        Rule::new(Target::Nothing).with_comment("a word"),
        Rule::jump("B").with_comment("default/web:http cluster IP -> 10.2.3.4:80"),
        Rule::jump("C").when(Match::Source { range, not: true }).when(Match::Port(Transport::Sctp, 80)),
        to(Target::Accept).when(Match::Port(Transport::Udp, 53)),
        Rule::jump("B").when(Match::Interface { name: "veth+".to_owned(), not: true }),
        Rule::jump("C").when(Match::Interface { name: "eth0".to_owned(), not: false }),
        to(Target::Reset).when(tcp(false)),
        to(Target::Reject).when(tcp(true)),
        to(Target::Drop).when(Match::State(State::New)),
        Rule::new(Target::Accept).when(Match::State(State::Known)),
        Rule::new(Target::Return).when(Match::State(State::Invalid)),
        Rule::new(Target::Accept).when(Match::LocalSource),
        Rule::jump("B").when(Match::LocalDestination).when(Match::Destination { range, not: true }),
        Rule::new(Target::Return).when(Match::Marked { bits: 0x4000, not: true }),
        Rule::new(Target::Accept).when(Match::Marked { bits: 0x4000, not: false }),
        Rule::new(Target::Mark(0x4000)),
        Rule::new(Target::XorMark(0x4000)),
        Rule::jump("B").when(Match::RecentCheck { list: list(), seconds: 10_800 }),
        dnat.clone().when(tcp(false)).when(Match::RecentSet { list: list() }).with_comment("default/web:http"),
        dnat,
        Rule::jump("C").when(Match::OneIn(3)),
        Rule::jump("C").when(Match::OneIn(997)),
        Rule::new(Target::Masquerade),
    ]
}

/// The resulting rules as values; ours can all be parsed.
fn content(saved: &Saved) -> Vec<(Table, String, Vec<Option<Rule>>)> {
    let mut all = Vec::new();
    for table in Table::ALL {
        for chain in saved.chains(table) {
            // An empty table may exist or not.
            let rules: Vec<_> = saved.rules(table, chain).collect();
            if !rules.is_empty() || CHAINS.contains(&&**chain) {
                all.push((table, chain.to_string(), rules));
            }
        }
    }
    all
}

fn script(table: Table, steps: Vec<Step>) -> Script {
    let mut script = Script::default();
    script.section(table, steps);
    script
}

#[test]
fn every_rule_round_trips() {
    for variant in VARIANTS {
        Namespace::new().inside(|| {
            let mut linux = open(variant);
            assert_eq!(linux.families(), Family::ALL);
            for (family, table) in [(Family::Ip, Table::Nat), (Family::Ip6, Table::Nat), (Family::Ip, Table::Filter)] {
                let fake = Fake::default();
                for rule in rules(family) {
                    let begin = CHAINS.map(|chain| Step::Empty(chain.into()));
                    let one = script(table, [&begin[..], &[Step::Append("A".into(), rule.clone())]].concat());
                    let accepted = fake.clone().restore(family, &one).is_ok();
                    let result = linux.restore(family, &one);
                    assert_eq!(result.is_ok(), accepted, "{variant:?} {table} `{rule}`: {result:?}");
                    if accepted {
                        let saved = linux.save(family).expect("readable");
                        let read: Vec<_> = saved.rules(table, "A").collect();
                        assert_eq!(read, [Some(rule.clone())], "{variant:?} {:?}", saved.lines(table, "A").next());
                        assert!(linux.has(family, table, "A", &rule).expect("an answer"), "{variant:?} {rule}");
                        assert!(!linux.has(family, table, "B", &rule).expect("an answer"));
                        assert!(!linux.has(family, table, "MISSING", &rule).expect("an answer"));
                    }
                }
            }
        });
    }
}

fn step() -> impl Strategy<Value = Step> {
    let chain = || prop::sample::select(CHAINS.to_vec()).prop_map(Name::from);
    let rule = || {
        // No RETURN for every packet: only one variant checks for loops after it.
        let back = Rule::new(Target::Return).when(Match::LocalSource);
        let plain = [&CHAINS.map(Rule::jump)[..], &[back, Rule::new(Target::Mark(1))]].concat();
        prop::sample::select(plain)
    };
    prop_oneof![
        2 => chain().prop_map(Step::Empty),
        4 => (chain(), rule()).prop_map(|(chain, rule)| Step::Append(chain, rule)),
        2 => (chain(), rule()).prop_map(|(chain, rule)| Step::Insert(chain, rule)),
        1 => (chain(), rule()).prop_map(|(chain, rule)| Step::Delete(chain, rule)),
        1 => chain().prop_map(Step::Remove),
    ]
}

/// Three empty chains, one of them reachable.
fn begin(side: &mut dyn Iptables) {
    let anchor = Rule::jump("A");
    let mut steps = CHAINS.map(|chain| Step::Empty(chain.into())).to_vec();
    if side.save(Family::Ip).expect("readable").lines(Table::Nat, "PREROUTING").next().is_none() {
        steps.push(Step::Append("PREROUTING".into(), anchor));
    }
    side.restore(Family::Ip, &script(Table::Nat, steps)).expect("accepted");
}

#[test]
fn the_fake_refuses_what_hosts_refuse() {
    for variant in VARIANTS {
        Namespace::new().inside(|| {
            let mut runner = TestRunner::new(Config { cases: 40, failure_persistence: None, ..Config::default() });
            let scripts = prop::collection::vec(prop::collection::vec(step(), 1..6), 1..5);
            let outcome = runner.run(&scripts, |scripts| {
                let (mut linux, mut fake) = (open(variant), Fake::default());
                for side in [&mut linux as &mut dyn Iptables, &mut fake] {
                    begin(side);
                }
                for steps in scripts {
                    let script = script(Table::Nat, steps);
                    let (real, ours) = (linux.restore(Family::Ip, &script), fake.restore(Family::Ip, &script));
                    prop_assert_eq!(real.is_ok(), ours.is_ok(), "{:?} {}: {:?} {:?}", variant, script, real, ours);
                    let saved = linux.save(Family::Ip).expect("readable");
                    prop_assert_eq!(content(&saved), content(&fake.save(Family::Ip).expect("readable")));
                }
                Ok(())
            });
            outcome.unwrap_or_else(|error| panic!("{variant:?}: {error}"));
        });
    }
}

#[test]
fn the_variant_of_other_components_is_used() {
    for variant in VARIANTS {
        Namespace::new().inside(|| {
            let rule = Rule::new(Target::Accept).when(Match::LocalSource);
            let foreign = script(Table::Filter, vec![Step::Append("INPUT".into(), rule)]);
            open(variant).restore(Family::Ip, &foreign).expect("accepted");
            assert_eq!(Linux::open().expect("iptables").variant(), variant);
            // Kubernetes chains count more than many rules.
            let other = VARIANTS.into_iter().find(|other| *other != variant).expect("there are two");
            let hint = script(Table::Mangle, vec![Step::Empty("KUBE-IPTABLES-HINT".into())]);
            open(other).restore(Family::Ip, &hint).expect("accepted");
            assert_eq!(Linux::open().expect("iptables").variant(), other);
        });
    }
}

#[test]
fn a_refusal_names_the_line() {
    for variant in VARIANTS {
        Namespace::new().inside(|| {
            let missing = script(Table::Nat, vec![Step::Append("MISSING".into(), Rule::new(Target::Accept))]);
            let error = open(variant).restore(Family::Ip, &missing).expect_err("refused");
            assert!(matches!(error, IptablesError::Refused { .. }), "{variant:?} {error}");
            assert!(error.to_string().contains("`-A MISSING -j ACCEPT`"), "{variant:?} {error}");
        });
    }
}
