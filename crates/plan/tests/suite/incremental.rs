//! What an update touches: what it must, and nothing else.

use plan::{Role, Update};
use serde_json::json;

use crate::world::{World, ends, ip, names, read_slice, service, simple, slice};

fn gone(name: &str) -> Update {
    Update::ServiceGone(format!("default/{name}"))
}

#[test]
fn a_service_comes_changes_and_goes() {
    let mut world = World::new();
    let touched = world.say(simple("s", "10.96.0.1"));
    assert_eq!(names(&touched), ["default/s/TCP"]);
    assert_eq!(touched.cluster_ips.iter().copied().collect::<Vec<_>>(), [ip("10.96.0.1")]);
    assert!(world.say(simple("s", "10.96.0.1")).is_empty(), "nothing new");
    let touched = world.say(simple("s", "10.96.0.2"));
    assert_eq!(names(&touched), ["default/s/TCP"]);
    assert_eq!(touched.cluster_ips.len(), 2);
    let both = json!({"clusterIP": "10.96.0.2", "ports": [{"port": 80}, {"name": "b", "port": 81}]});
    assert_eq!(names(&world.say(service("s", both))), ["default/s:b/TCP"]);
    assert_eq!(names(&world.say(simple("s", "10.96.0.2"))), ["default/s:b/TCP"]);
    assert_eq!(names(&world.say(gone("s"))), ["default/s/TCP"]);
    assert!(world.say(gone("s")).is_empty());
    let plan = world.0.plan();
    assert!(plan.ports.is_empty() && plan.frontends.is_empty() && plan.cluster_ips.is_empty());
}

#[test]
fn a_slice_comes_changes_and_goes() {
    let mut world = World::new();
    world.say(simple("s", "10.96.0.1"));
    world.say(simple("t", "10.96.0.2"));
    assert_eq!(names(&world.say(slice("x", "s", "1 2"))), ["default/s/TCP"]);
    assert!(world.say(slice("x", "s", "1 2")).is_empty(), "nothing new");
    assert!(world.say(slice("x", "s", "2 1")).is_empty(), "another order is nothing new");
    assert!(world.say(slice("y", "s", "1")).is_empty(), "it is known already");
    assert!(world.say(slice("z", "nobody", "7")).is_empty(), "nobody's slice");
    assert_eq!(names(&world.say(slice("x", "t", "1 2"))), ["default/s/TCP", "default/t/TCP"], "it changes its owner");
    assert_eq!(ends(&world.port("default/s/TCP").cluster), "1");
    assert_eq!(names(&world.say(Update::SliceGone("default/x".to_owned()))), ["default/t/TCP"]);
    assert!(world.say(Update::SliceGone("default/x".to_owned())).is_empty());
}

#[test]
fn slices_may_come_first_and_stay_last() {
    let mut world = World::new();
    world.say(slice("x", "s", "1"));
    world.say(simple("s", "10.96.0.1"));
    assert_eq!(ends(&world.port("default/s/TCP").cluster), "1");
    world.say(gone("s"));
    world.say(simple("s", "10.96.0.3"));
    assert_eq!(ends(&world.port("default/s/TCP").cluster), "1");
}

#[test]
fn slices_that_are_not_for_us() {
    let mut world = World::new();
    world.say(simple("s", "10.96.0.1"));
    for labels in [
        json!({"kubernetes.io/service-name": "s", "service.kubernetes.io/headless": ""}),
        json!({"kubernetes.io/service-name": ""}),
        json!({}),
        json!(null),
    ] {
        let touched = world.say(read_slice(json!({
            "metadata": {"namespace": "default", "name": "x", "labels": labels}, "addressType": "IPv4",
            "ports": [{"name": "", "port": 1}], "endpoints": [{"addresses": ["10.244.0.1"]}],
        })));
        assert!(touched.is_empty(), "{labels}");
    }
    world.say(slice("x", "s", "1"));
    let headless = read_slice(json!({
        "metadata": {"namespace": "default", "name": "x", "labels": {
            "kubernetes.io/service-name": "s", "service.kubernetes.io/headless": ""}},
        "addressType": "IPv4",
    }));
    assert_eq!(names(&world.say(headless)), ["default/s/TCP"], "what it was before is gone");
}

#[test]
fn many_changes_at_once_are_one() {
    let mut world = World::new();
    let touched = world.0.update_all([
        slice("x", "s", "1"),
        simple("s", "10.96.0.1"),
        simple("passing", "10.96.0.2"),
        slice("y", "s", "2"),
        gone("passing"),
    ]);
    assert_eq!(names(&touched), ["default/s/TCP"]);
    assert_eq!(touched.cluster_ips.iter().copied().collect::<Vec<_>>(), [ip("10.96.0.1")], "one came and went");
    assert_eq!(ends(&world.port("default/s/TCP").cluster), "1,2");
}

/// Both the winner and the loser of a frontend must be touched.
#[test]
fn a_contested_frontend_touches_both() {
    let mut world = World::new();
    let external = |name: &str, cluster: &str, address: &str| {
        service(name, json!({"clusterIP": cluster, "externalIPs": [address], "ports": [{"port": 80}]}))
    };
    world.say(external("b", "10.96.0.2", "198.51.100.1"));
    assert_eq!(world.problems(), Vec::<String>::new());
    let touched = world.say(external("a", "10.96.0.1", "198.51.100.1"));
    assert_eq!(names(&touched), ["default/a/TCP", "default/b/TCP"]);
    assert!(touched.problems);
    let taken = "its 198.51.100.1:80/TCP is owned by default/a/TCP, which gets the traffic";
    assert_eq!(world.problems(), [format!("default/b: {taken}")]);
    let contested = &plan::Frontend::Address(ip("198.51.100.1"), plan::Protocol::Tcp, 80);
    assert_eq!(
        world.0.plan().owner(contested).map(|(role, port)| (role, port.cluster_ip)),
        Some((Role::External, Some(ip("10.96.0.1"))))
    );
    let touched = world.say(gone("a"));
    assert_eq!(names(&touched), ["default/a/TCP", "default/b/TCP"]);
    assert!(touched.problems);
    assert_eq!(world.problems(), Vec::<String>::new());
    world.say(external("c", "10.96.0.3", "10.96.0.2"));
    let owner = plan::Frontend::Address(ip("10.96.0.2"), plan::Protocol::Tcp, 80);
    assert_eq!(
        world.0.plan().owner(&owner).map(|(role, _)| role),
        Some(Role::Cluster),
        "nobody takes a cluster IP away"
    );
    assert_eq!(world.problems().len(), 1);
}
