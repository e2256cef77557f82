use std::collections::{BTreeMap, BTreeSet};

use api::admission::Plugins;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::testing::{Cluster, node};
use crate::write::{WriteError, Writer};

fn cluster(ranges: &[&str], masks: (u8, u8)) -> Cluster {
    let mut cluster = Cluster::new(&[&CONTROLLER]);
    cluster.settings.cluster_cidrs = ranges.iter().map(|text| text.parse().expect("a range")).collect();
    cluster.settings.node_masks = masks;
    cluster
}

fn with_cidrs(name: &str, cidrs: &[&str]) -> Value {
    let mut node = node(name);
    node.put("spec.podCIDR", cidrs[0]);
    node.put("spec.podCIDRs", json!(cidrs));
    node
}

fn cidrs(cluster: &Cluster, name: &str) -> Vec<String> {
    let node = cluster.get("minions", name).expect("a Node");
    let all: Vec<String> = node.texts("spec.podCIDRs").into_iter().map(str::to_owned).collect();
    assert_eq!(node.text("spec.podCIDR"), all.first().map_or("", String::as_str), "the first of the list");
    all
}

#[test]
fn each_node_gets_a_subnet_of_every_cidr() {
    let mut cluster = cluster(&["10.244.0.0/16", "fd00:10:244::/56"], (24, 64));
    for name in ["b", "a"] {
        cluster.put("minions", node(name));
    }
    cluster.converge();
    assert_eq!(cidrs(&cluster, "b"), ["10.244.0.0/24", "fd00:10:244::/64"], "first come, first served");
    assert_eq!(cidrs(&cluster, "a"), ["10.244.1.0/24", "fd00:10:244:1::/64"]);
    assert_eq!(cluster.writes_to("minions"), 2);
    cluster.restart();
    cluster.converge();
    assert_eq!((cluster.writes_to("minions"), cluster.events.len()), (0, 0), "nothing is left to do");
}

#[test]
fn existing_pod_cidrs_are_kept_and_not_assigned_again() {
    let mut cluster = cluster(&["10.244.0.0/16"], (24, 64));
    cluster.put("minions", with_cidrs("large", &["10.244.0.0/23"]));
    cluster.put("minions", with_cidrs("odd", &["10.244.2.64/26"]));
    cluster.put("minions", with_cidrs("outside", &["192.168.0.0/24", "fd00::/64"]));
    cluster.put("minions", node("plain"));
    cluster.converge();
    assert_eq!(cidrs(&cluster, "plain"), ["10.244.3.0/24"]);
    assert_eq!(cidrs(&cluster, "outside"), ["192.168.0.0/24", "fd00::/64"]);
    assert_eq!((cluster.writes_to("minions"), cluster.events.len()), (1, 0));
}

#[test]
fn overlaps_are_reported_to_the_younger_node() {
    let mut cluster = cluster(&["10.244.0.0/16"], (24, 64));
    cluster.put("minions", node("first"));
    cluster.converge();
    cluster.put("minions", with_cidrs("second", &["10.244.0.0/22"]));
    cluster.put("minions", with_cidrs("apart", &["10.244.4.0/24"]));
    let outcome = cluster.reconcile(&CONTROLLER, SINGLETON_KEY);
    let [Write::Object { object: event, .. }] = &outcome.events[..] else { panic!("one Event: {:?}", outcome.events) };
    assert_eq!(event.text("involvedObject.name"), "second");
    assert_eq!(event.text("reason"), "CIDRConflict");
    assert!(event.text("message").contains("10.244.0.0/22 of Node second overlaps 10.244.0.0/24 of Node first"));
    assert_eq!(outcome.transactions, Vec::<Vec<Write>>::new());
}

#[test]
fn exhaustion_is_reported_and_a_freed_subnet_goes_to_the_oldest_node() {
    let mut cluster = cluster(&["10.0.0.0/22", "fd00::/63"], (24, 64));
    for name in ["n0", "n1", "n3", "n2"] {
        cluster.put("minions", node(name));
    }
    cluster.converge();
    assert!(cidrs(&cluster, "n3").is_empty() && cidrs(&cluster, "n2").is_empty());
    let (reasons, messages): (BTreeSet<_>, Vec<_>) = cluster.events.iter().cloned().unzip();
    assert_eq!(reasons, ["CIDRNotAvailable".to_owned()].into());
    assert!(messages[0].contains("Node n3 in --cluster-cidr fd00::/63 (2 pieces of size /64)"), "{messages:?}");
    cluster.remove("minions", "n0");
    cluster.converge();
    assert_eq!(cidrs(&cluster, "n3"), ["10.0.0.0/24", "fd00::/64"]);
    assert!(cidrs(&cluster, "n2").is_empty());
}

#[test]
fn service_cidrs_are_not_assigned_to_nodes() {
    let mut cluster = cluster(&["10.96.0.0/15"], (16, 64));
    for name in ["a", "b"] {
        cluster.put("minions", node(name));
    }
    cluster.converge();
    assert_eq!((cidrs(&cluster, "a"), cidrs(&cluster, "b")), (vec!["10.97.0.0/16".to_owned()], vec![]));
}

#[test]
fn a_node_that_is_being_deleted_gets_nothing() {
    let mut cluster = cluster(&["10.0.0.0/22"], (24, 64));
    let mut leaving = node("leaving");
    leaving.put("metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
    leaving.put("metadata.finalizers", json!(["example.com/wait"]));
    cluster.put("minions", leaving);
    cluster.converge();
    assert_eq!((cluster.writes_to("minions"), cluster.events.len()), (0, 0));
}

#[test]
fn invalid_ranges_assign_nothing() {
    for ranges in [&["10.0.0.0/16"][..], &["10.0.0.0/8", "10.1.0.0/8"], &["10.0.0.0/8", "fd00::/80"]] {
        let mut cluster = cluster(ranges, (12, 64));
        cluster.put("minions", node("a"));
        cluster.converge();
        assert_eq!((cluster.writes_to("minions"), cluster.events.len()), (0, 0), "{ranges:?}");
    }
    let plain = Cluster::new(&[]).settings;
    assert!(!(CONTROLLER.enabled)(&plain), "without ranges it does not run at all");
}

#[test]
fn only_changes_of_addresses_queue_the_key() {
    let mut cluster = cluster(&["10.0.0.0/16"], (24, 64));
    cluster.put("minions", node("a"));
    cluster.converge();
    let mut beating = cluster.get("minions", "a").expect("a Node");
    beating.put("status.conditions", json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": "now"}]));
    cluster.put("minions", beating);
    cluster.deliver_all();
    assert!(cluster.queued.is_empty());
}

#[test]
fn own_writes_are_read_before_they_are_delivered() {
    let mut cluster = cluster(&["10.0.0.0/16"], (24, 64));
    cluster.put("minions", node("a"));
    cluster.run(0, SINGLETON_KEY);
    cluster.put("minions", node("b"));
    cluster.run(0, SINGLETON_KEY);
    assert_eq!(cidrs(&cluster, "a"), ["10.0.0.0/24"]);
    assert_eq!(cidrs(&cluster, "b"), ["10.0.1.0/24"]);
}

#[test]
fn concurrent_runs_conflict() {
    let mut cluster = cluster(&["10.0.0.0/16"], (24, 64));
    for name in ["m", "n"] {
        cluster.put("minions", node(name));
    }
    let late = cluster.reconcile(&CONTROLLER, SINGLETON_KEY).transactions;
    for number in 0..TRANSACTION_SIZE {
        cluster.put("minions", node(&format!("a{number}")));
    }
    cluster.converge();
    let writer = Writer {
        store: &cluster.store,
        ranges: &cluster.settings.ranges,
        now: Timestamp::UNIX_EPOCH,
        checked: true,
        plugins: &Plugins::none(),
        kinds: api::custom::Kinds::fixed(),
    };
    assert!(matches!(writer.transaction(&late[0]), Err(WriteError::Stale(_))));
}

#[test]
fn five_thousand_nodes_at_once() {
    let mut cluster = cluster(&["10.0.0.0/8", "fd00::/48"], (24, 64));
    for number in 0..5000 {
        cluster.put("minions", node(&format!("node{number}")));
    }
    let outcome = cluster.reconcile(&CONTROLLER, SINGLETON_KEY);
    assert!(outcome.transactions.iter().all(|writes| writes.len() <= TRANSACTION_SIZE));
    cluster.run(0, SINGLETON_KEY);
    let given: BTreeSet<_> = (0..5000).map(|number| cidrs(&cluster, &format!("node{number}"))).collect();
    assert_eq!(given.len(), 5000);
    assert_eq!(given.first().map(Vec::len), Some(2));
    assert_eq!(cluster.reconcile(&CONTROLLER, SINGLETON_KEY), Outcome::done());
}

#[test]
fn exhaustion_events_are_rate_limited_and_recorded_once() {
    let mut cluster = cluster(&["10.0.0.0/24"], (24, 64));
    for number in 0..250 {
        cluster.put("minions", node(&format!("node{number}")));
    }
    for left in [true, true, false] {
        let outcome = cluster.reconcile(&CONTROLLER, SINGLETON_KEY);
        assert_eq!(outcome.requeue_after.is_some(), left);
        assert!(outcome.events.len() <= MAX_EVENTS);
        cluster.run(0, SINGLETON_KEY);
        for event in outcome.events {
            let Write::Object { object, .. } = event else { panic!("an Event: {event:?}") };
            cluster.put("events", *object);
        }
    }
    assert_eq!(cluster.all("events").len(), 249);
    assert_eq!(cluster.reconcile(&CONTROLLER, SINGLETON_KEY), Outcome::done());
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8),
    Bring(u8, Vec<IpNet>),
    Remove(u8),
    Deliver(u8),
    Run,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let v4 = (0_u32..2048, 22_u8..=32).prop_map(|(offset, prefix)| {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + offset);
        IpNet::new(address.into(), prefix).expect("a prefix").trunc()
    });
    let v6 = (0_u128..32, 60_u8..=64).prop_map(|(offset, prefix)| {
        let address = std::net::Ipv6Addr::from((0xfd00_u128 << 112) + (offset << 64));
        IpNet::new(address.into(), prefix).expect("a prefix").trunc()
    });
    prop_oneof![
        6 => (0_u8..24).prop_map(Step::Add),
        2 => (0_u8..24, v4.clone()).prop_map(|(node, net)| Step::Bring(node, vec![net])),
        1 => (0_u8..24, v4, v6).prop_map(|(node, v4, v6)| Step::Bring(node, vec![v4, v6])),
        3 => (0_u8..24).prop_map(Step::Remove),
        2 => (0_u8..5).prop_map(Step::Deliver),
        4 => Just(Step::Run),
        1 => Just(Step::Restart),
    ]
}

/// The CIDRs of every Node.
fn stored(cluster: &Cluster) -> BTreeMap<String, Vec<IpNet>> {
    let nets = |node: &Value| node.texts("spec.podCIDRs").into_iter().filter_map(parse).collect();
    let nodes = cluster.all("minions");
    nodes.iter().map(|node| (node.text("metadata.name").to_owned(), nets(node))).collect()
}

fn overlap(a: IpNet, b: IpNet) -> bool {
    a.contains(&b) || b.contains(&a)
}

/// Runs the controller and checks its assignments.
fn run_and_check(cluster: &mut Cluster) -> Result<(), TestCaseError> {
    let before = stored(cluster);
    cluster.run(0, SINGLETON_KEY);
    let mut taken: Vec<IpNet> = before.values().flatten().copied().collect();
    let mut waiting = 0;
    for (name, nets) in stored(cluster) {
        if !before[&name].is_empty() {
            prop_assert_eq!(&nets, &before[&name], "what a Node has stays");
            continue;
        }
        waiting += usize::from(nets.is_empty());
        prop_assert!(nets.is_empty() || nets.len() == 2, "a piece of both ranges: {:?}", nets);
        for net in nets {
            prop_assert!(!taken.iter().any(|other| overlap(net, *other)), "{} is taken", net);
            taken.push(net);
        }
    }
    let pools = pools(&cluster.settings).expect("ranges");
    let free = |pool: &Pool| {
        (0..pool.count)
            .filter(|index| {
                let piece = pool.free(std::iter::empty()).nth(*index as usize).expect("a piece");
                !taken.iter().any(|other| overlap(piece, *other))
            })
            .count()
    };
    prop_assert!(waiting == 0 || pools.iter().any(|pool| free(pool) == 0), "nobody waits without need");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_subnet_is_assigned_twice(steps in proptest::collection::vec(step(), 1..80)) {
        let mut cluster = cluster(&["10.0.0.0/22", "fd00::/60"], (26, 64));
        for step in steps {
            match step {
                Step::Add(number) if cluster.get("minions", &format!("n{number}")).is_none() => {
                    cluster.put("minions", node(&format!("n{number}")));
                }
                Step::Bring(number, nets) if cluster.get("minions", &format!("n{number}")).is_none() => {
                    let texts: Vec<String> = nets.iter().map(ToString::to_string).collect();
                    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                    cluster.put("minions", with_cidrs(&format!("n{number}"), &texts));
                }
                Step::Add(_) | Step::Bring(..) => {}
                Step::Remove(number) => cluster.remove("minions", &format!("n{number}")),
                Step::Deliver(count) => (0..count).for_each(|_| cluster.deliver(Table::named(TABLE))),
                Step::Run => run_and_check(&mut cluster)?,
                Step::Restart => cluster.restart(),
            }
        }
        cluster.converge();
        run_and_check(&mut cluster)?;
    }
}
