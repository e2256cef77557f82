//! Constructed packets, and rules that stop them, may stop them, or do not.

use super::*;
use crate::nft::foreign::{Entry, TableFamily};

const TABLE: &str = "filter";

fn packet() -> Packet {
    let source = Some(IpAddr::from([10, 244, 0, 9]));
    Packet { source, destination: [10, 244, 0, 2].into(), protocol: 6, port: 8080 }
}

fn dport(port: u16) -> Vec<Step> {
    vec![Step::Load(0, Header::Transport, 2, 2), Step::Compare(0, Comparison::Equal, port.to_be_bytes().to_vec())]
}

fn rules(drops: bool, rules: Vec<Vec<Step>>, called: Vec<Vec<Step>>) -> Ruleset {
    let numbered =
        |rules: Vec<Vec<Step>>| (1..).zip(rules).map(|(handle, steps)| ForeignRule { handle, steps }).collect();
    let table: TableName = (TableFamily::Inet, TABLE.into());
    let entry = Some(Entry { hook: Hook::Forward, priority: 0, translates: false, drops });
    let chains = [("forward", entry, rules), ("called", None, called)];
    let chains = chains
        .map(|(name, entry, rules)| ((table.clone(), name.into()), ForeignChain { entry, rules: numbered(rules) }));
    Ruleset { tables: vec![table], chains: chains.into(), ..Ruleset::default() }
}

fn stops(rules: &Ruleset) -> Vec<(String, Option<u64>, bool)> {
    let found = judge(rules, &packet(), Hook::Forward, -100..i32::MAX, |_| false);
    found.into_iter().map(|stop| (stop.chain.to_string(), stop.rule, stop.certain)).collect()
}

fn with(mut steps: Vec<Step>, last: Step) -> Vec<Step> {
    steps.push(last);
    steps
}

const DROP: Step = Step::Go(Verdict::Drop);
const ACCEPT: Step = Step::Go(Verdict::Accept);

#[test]
fn only_a_matching_rule_stops() {
    let ruleset = rules(false, vec![with(dport(80), DROP), with(dport(8080), Step::Reject)], vec![]);
    assert_eq!(stops(&ruleset), [("forward".to_owned(), Some(2), true)]);
    assert_eq!(stops(&rules(false, vec![with(dport(80), DROP)], vec![])), []);
    assert_eq!(judge(&ruleset, &packet(), Hook::Input, -100..100, |_| false), []);
    assert_eq!(judge(&ruleset, &packet(), Hook::Forward, 1..100, |_| false), []);
    assert_eq!(judge(&ruleset, &packet(), Hook::Forward, -100..100, |(_, name)| &**name == TABLE), []);
}

#[test]
fn a_rule_can_accept_before_the_policy_drops() {
    assert_eq!(stops(&rules(true, vec![], vec![])), [("forward".to_owned(), None, true)]);
    assert_eq!(stops(&rules(true, vec![with(dport(8080), ACCEPT)], vec![])), []);
    let unclear = vec![Step::Unclear("limit".to_owned()), ACCEPT];
    assert_eq!(stops(&rules(true, vec![unclear], vec![])), [("forward".to_owned(), None, false)]);
}

#[test]
fn established_connections_are_not_the_first_packet() {
    let established = |mask: u32| {
        let none = vec![0; 4];
        let mask = mask.to_ne_bytes().to_vec();
        vec![Step::Connection(0, 0), Step::Mask(0, 0, mask, none.clone()), Step::Compare(0, Comparison::Unequal, none)]
    };
    assert_eq!(stops(&rules(true, vec![with(established(6), ACCEPT)], vec![])).len(), 1);
    assert_eq!(stops(&rules(true, vec![with(established(8), ACCEPT)], vec![])), []);
    assert_eq!(stops(&rules(true, vec![vec![Step::State(6, false), ACCEPT]], vec![])).len(), 1);
}

#[test]
fn jumps_and_returns_are_followed() {
    let jump = Step::Go(Verdict::Jump("called".into()));
    let called = vec![with(dport(80), DROP), with(dport(8080), Step::Go(Verdict::Return)), vec![DROP]];
    assert_eq!(stops(&rules(false, vec![vec![jump.clone()]], called)), []);
    assert_eq!(
        stops(&rules(false, vec![vec![jump.clone()]], vec![vec![DROP]])),
        [("called".to_owned(), Some(1), true)]
    );
    let perhaps = vec![Step::Meta(0, 6), Step::Compare(0, Comparison::Equal, b"eth0\0".to_vec()), jump];
    assert_eq!(stops(&rules(false, vec![perhaps], vec![vec![DROP]])), [("called".to_owned(), Some(1), false)]);
}

#[test]
fn interval_sets_and_verdict_maps_are_evaluated() {
    let mut ruleset = rules(false, vec![], vec![]);
    let table: TableName = (TableFamily::Inet, TABLE.into());
    let port = |port: u16| Box::from(port.to_be_bytes());
    let elements = vec![(port(8000), Some(None)), (port(9000), None)];
    let ranges = ForeignSet { length: 2, elements, interval: true, opaque: false };
    let elements = vec![(port(8080), Some(Some(Verdict::Drop)))];
    let verdicts = ForeignSet { length: 2, elements, interval: false, opaque: false };
    ruleset.sets =
        [("ranges", ranges), ("verdicts", verdicts)].map(|(name, set)| ((table.clone(), name.into()), set)).into();
    let lookup = |set: &str, negate, verdict| Step::Lookup { from: 0, set: set.into(), negate, verdict };
    let load = Step::Load(0, Header::Transport, 2, 2);
    for (steps, stopped) in [
        (vec![load.clone(), lookup("ranges", false, false), DROP], true),
        (vec![load.clone(), lookup("ranges", true, false), DROP], false),
        (vec![load, lookup("verdicts", false, true)], true),
        (vec![Step::Load(0, Header::Transport, 0, 2), lookup("verdicts", false, true)], false),
    ] {
        let chain = ruleset.chains.get_mut(&(table.clone(), "forward".into())).expect("a chain");
        chain.rules = vec![ForeignRule { handle: 1, steps: steps.clone() }];
        assert_eq!(!stops(&ruleset).is_empty(), stopped, "{steps:?}");
    }
}

#[test]
fn interface_rules_do_not_match_local_output() {
    let mut ruleset = rules(false, vec![], vec![]);
    let by_name = vec![Step::Meta(0, 6), Step::Compare(0, Comparison::Unequal, b"eth0\0".to_vec()), DROP];
    for chain in ruleset.chains.values_mut().filter(|chain| chain.entry.is_some()) {
        chain.entry = Some(Entry { hook: Hook::Output, priority: 0, translates: false, drops: false });
        chain.rules = vec![ForeignRule { handle: 1, steps: by_name.clone() }];
    }
    assert_eq!(judge(&ruleset, &packet(), Hook::Output, -100..100, |_| false), []);
}
