//! One Gateway with thousands of ListenerSets: a change costs what depends on it, not what the Gateway has.

use serde_json::json;

use super::world::World;
use crate::cluster::Touched;

/// ListenerSets of the Gateway.
const SETS: usize = 2500;
/// Values that are derived for a set: its listeners, what it brings into the group, its conflicts, its state.
const OF_A_SET: usize = 4;

/// A world with a Gateway that has this many sets.
fn world(sets: usize) -> World {
    let mut world = World::new();
    world.gateway("gw", json!([{ "name": "http", "port": 80, "protocol": "HTTP" }]));
    for number in 0..sets {
        put(&mut world, number, &format!("{number}.test"));
    }
    world
}

fn name(number: usize) -> String {
    format!("set-{number:05}")
}

/// A set with an HTTP listener and an HTTPS listener of this host.
fn put(world: &mut World, number: usize, host: &str) -> Touched {
    let listeners = json!([
        { "name": "http", "port": 80, "protocol": "HTTP", "hostname": host },
        { "name": "https", "port": 443, "protocol": "HTTPS", "hostname": host,
            "tls": { "certificateRefs": [{ "name": "cert" }] } },
    ]);
    let labels = json!({ "generation": 1, "creationTimestamp": format!("2026-01-01T{:02}:00:00Z", number % 24) });
    let spec = json!({ "parentRef": { "name": "gw" }, "listeners": listeners });
    world.put_with("ListenerSet", &name(number), json!({ "metadata": labels, "spec": spec }))
}

/// How many values a change derives.
fn cost(world: &mut World, change: impl FnOnce(&mut World) -> Touched) -> usize {
    let before = world.0.derived;
    let touched = change(world);
    assert!(touched.gateways.len() <= 1, "{touched:?}");
    world.0.derived - before
}

#[test]
fn s52_a_set_that_comes_or_goes_costs_the_same_beside_thousands_of_others() {
    let mut world = world(SETS);
    assert_eq!(world.state("gw").attached_sets, SETS);
    assert!(cost(&mut world, |world| put(world, SETS, "one-more.test")) <= OF_A_SET);
    assert!(cost(&mut world, |world| put(world, SETS, "changed.test")) <= OF_A_SET);
    assert_eq!(world.served("gw").len(), 1 + 2 * (SETS + 1));
    assert!(cost(&mut world, |world| world.delete("ListenerSet", &name(SETS))) <= OF_A_SET);
    assert_eq!(world.state("gw").attached_sets, SETS);
    assert_eq!(world.served("gw").len(), 1 + 2 * SETS);
}

#[test]
fn a_set_in_conflict_costs_those_with_its_hostname() {
    let mut world = world(SETS);
    // Set 1 is one of the older ones: the new set has no listener of its own.
    assert!(cost(&mut world, |world| put(world, SETS + 1, "1.test")) <= OF_A_SET);
    assert_eq!(world.state("gw").attached_sets, SETS);
    assert!(!world.set(&name(SETS + 1)).accepted.holds());
    let touched = world.delete("ListenerSet", &name(1));
    assert!(world.set(&name(SETS + 1)).accepted.holds(), "its hostname is free");
    assert_eq!(touched.sets.len(), 2);
    assert_eq!(touched.listeners.len(), 4);
    assert!(cost(&mut world, |world| put(world, 1, "1.test")) <= 2 * OF_A_SET);
    assert!(!world.set(&name(SETS + 1)).accepted.holds(), "the older one is back");
}

#[test]
fn what_concerns_all_sets_reaches_all_sets() {
    let mut world = world(20);
    let touched = world.address("gw", &[]);
    assert_eq!((touched.gateways.len(), touched.sets.len(), touched.configs.len()), (1, 20, 0));
    // A wildcard overlaps with all HTTPS listeners below it; HTTP listeners do not count.
    let touched = put(&mut world, 20, "*.test");
    assert_eq!((touched.sets.len(), touched.listeners.len()), (21, 2));
    // The port has another protocol now: the HTTP listeners of all sets lose it, the HTTPS listeners stay.
    let touched = world.gateway("gw", json!([{ "name": "tcp", "port": 80, "protocol": "TCP" }]));
    assert_eq!((touched.sets.len(), touched.listeners.len()), (21, 23));
    assert!(
        world
            .0
            .config("infra/gw")
            .expect("a configuration")
            .listeners
            .iter()
            .all(|one| one.port != 80 || &*one.id.name == "tcp")
    );
}

#[test]
fn unchanged_listeners_are_shared_by_configurations() {
    let mut world = world(3);
    let before = world.0.config("infra/gw").expect("a configuration");
    put(&mut world, 3, "3.test");
    let after = world.0.config("infra/gw").expect("a configuration");
    let is_shared =
        |listener: &std::sync::Arc<_>| after.listeners.iter().any(|one| std::sync::Arc::ptr_eq(one, listener));
    assert!(before.listeners.iter().all(is_shared));
    assert!(std::sync::Arc::ptr_eq(&after, &world.0.config("infra/gw").expect("a configuration")));
}
