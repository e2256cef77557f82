//! Load-balancing policies: which endpoints a packet may select, where a policy is refused, and what is said about it.

use std::collections::{BTreeMap, BTreeSet};

use api::ip::Family;
use api::view::Pod;
use plan::oracle::{Outcome, RejectReason};
use plan::why::Subject;
use plan::why::trace::trace;
use plan::{Balancing, DataPlane, Options, Policy, Update};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world::{NODE, POD, STRANGER, World, ends, names, options, packet, read_service, read_slice};

const VIP: &str = "10.96.0.1";

/// The Service `default/web` with these annotations, without their prefix.
fn service(annotations: &[(&str, &str)], spec: &Value) -> Update {
    let annotations: BTreeMap<String, &str> =
        annotations.iter().map(|(key, value)| (format!("waypost.dev/{key}"), *value)).collect();
    let mut object = json!({
        "metadata": {"namespace": "default", "name": "web", "annotations": annotations},
        "spec": {"type": "NodePort", "clusterIP": VIP, "clusterIPs": [VIP], "ports": [{"port": 80, "nodePort": 30080}]},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    read_service(object)
}

/// Endpoints `10.244.X.Y` of Pods `p0`, `p1`, … on this node and another in turn, the first ones in zone `a`.
fn slice(count: usize, in_zone_a: usize) -> Update {
    let endpoint = |number: usize| {
        json!({
            "addresses": [format!("10.244.{}.{}", 2 + number / 200, number % 200 + 1)],
            "zone": if number < in_zone_a { "a" } else { "b" },
            "nodeName": if number % 2 == 0 { "here" } else { "there" },
            "targetRef": {"kind": "Pod", "name": format!("p{number}")},
        })
    };
    read_slice(json!({
        "metadata": {"namespace": "default", "name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"name": "", "port": 8080}],
        "endpoints": (0..count).map(endpoint).collect::<Vec<_>>(),
    }))
}

fn leader(holder: Option<&str>) -> Update {
    Update::Leader("default/lock".into(), holder.map(Into::into))
}

fn world(annotations: &[(&str, &str)], data_plane: DataPlane, endpoints: usize) -> World {
    let mut world = World::with(Options { data_plane, ..options() });
    world.say(service(annotations, &json!({})));
    world.say(slice(endpoints, 1));
    world
}

fn led() -> World {
    world(&[("traffic-policy", "leader"), ("leader-lease", "lock")], DataPlane::Nftables, 4)
}

fn policy(world: &World) -> Policy {
    world.port("default/web/TCP").balancing.policy()
}

#[test]
fn s53_policies_are_applied_where_the_data_plane_can_and_refused_with_a_reason() {
    use Policy::{Leader, LeastConnections, Maglev, Random, RoundRobin, Weighted};
    let planes = DataPlane::of_mode;
    let old = DataPlane::Ipvs { missing: BTreeSet::from([Maglev]) };
    for (data_plane, refused) in [
        (planes("nftables"), vec![LeastConnections]),
        (planes("iptables"), vec![LeastConnections, Maglev]),
        (planes("ipvs"), vec![]),
        (old, vec![Maglev]),
        (planes("userspace"), vec![]),
    ] {
        for wanted in [Random, RoundRobin, LeastConnections, Weighted, Maglev, Leader] {
            let annotations = [("traffic-policy", wanted.name()), ("leader-lease", "lock"), ("zone-weights", "a=3")];
            let world = world(&annotations, data_plane.clone(), 3);
            if refused.contains(&wanted) {
                assert_eq!(policy(&world), Random, "{data_plane:?} {wanted}");
                let problems = world.problems();
                assert_eq!(problems.len(), 1, "once for all ports: {problems:?}");
                let said = format!("its traffic policy `{wanted}` is not applied: ");
                assert!(problems[0].contains(&said) && problems[0].ends_with("at random"), "{problems:?}");
            } else {
                assert_eq!((policy(&world), world.problems()), (wanted, vec![]), "{data_plane:?} {wanted}");
            }
        }
    }
}

#[test]
fn s53_another_data_plane_changes_only_services_with_policies() {
    let mut world = world(&[("traffic-policy", "maglev")], DataPlane::Nftables, 3);
    world.say(crate::world::simple("plain", "10.96.0.2"));
    let touched = world.say(Update::DataPlane(DataPlane::Iptables));
    assert_eq!(names(&touched), ["default/web/TCP"]);
    assert!(touched.problems);
    assert_eq!(policy(&world), Policy::Random);
    world.say(Update::DataPlane(DataPlane::Userspace));
    assert_eq!((policy(&world), world.problems()), (Policy::Maglev, vec![]));
}

#[test]
fn s53_values_that_are_not_understood_are_problems() {
    for (annotations, applied, said) in [
        (
            &[("traffic-policy", "fastest")][..],
            Policy::Random,
            "has the unknown value `fastest`, known are random, round-robin",
        ),
        (&[("traffic-policy", "leader")][..], Policy::Leader, "needs the annotation waypost.dev/leader-lease"),
        (&[("traffic-policy", "leader"), ("leader-lease", "Not/A Name")][..], Policy::Leader, "needs the annotation"),
        (&[("traffic-policy", "weighted")][..], Policy::Weighted, "needs the annotation waypost.dev/zone-weights"),
        (
            &[("traffic-policy", "weighted"), ("zone-weights", "a=2,b=0")][..],
            Policy::Weighted,
            "is ignored from `b=0` on",
        ),
        (
            &[("traffic-policy", "weighted"), ("zone-weights", "a=2,b=999")][..],
            Policy::Weighted,
            "is ignored from `b=999` on",
        ),
    ] {
        let world = world(annotations, DataPlane::Nftables, 3);
        assert_eq!(policy(&world), applied, "{annotations:?}");
        let problems = world.problems();
        assert!(problems.len() == 1 && problems[0].contains(said), "{problems:?}");
    }
}

#[test]
fn s53_one_of_a_hundred_endpoints_takes_at_most_two_percent_of_maglev_flows_with_it() {
    let sources = || (0..4000u32).map(|number| format!("203.{}.{}.{}", number % 7, number / 250 % 250, number % 250));
    let choices = |world: &World| -> Vec<String> {
        let chosen = |source: String| {
            let forward = world.forward(&source, VIP, 80);
            assert_eq!(forward.possible().len(), 1, "the address of the client decides");
            forward.possible()[0].ip.to_string()
        };
        sources().map(chosen).collect()
    };
    let mut world = world(&[("traffic-policy", "maglev")], DataPlane::Nftables, 100);
    let before = choices(&world);
    assert!(before.iter().collect::<BTreeSet<_>>().len() >= 95, "clients are spread");
    world.say(slice(99, 1));
    let after = choices(&world);
    let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    assert!(moved * 50 <= before.len(), "{moved} of {}", before.len());
    let ipvs = self::world(&[("traffic-policy", "maglev")], DataPlane::of_mode("ipvs"), 3);
    assert_eq!(ipvs.forward(STRANGER, VIP, 80).possible().len(), 3, "its hash is not known");
}

#[test]
fn s53_maglev_is_refused_beyond_as_many_endpoints_as_slots() {
    assert_eq!(policy(&world(&[("traffic-policy", "maglev")], DataPlane::Nftables, 2039)), Policy::Maglev);
    let world = world(&[("traffic-policy", "maglev")], DataPlane::Nftables, 2040);
    assert_eq!(policy(&world), Policy::Random);
    assert!(world.problems()[0].contains("more than 2039 endpoints"), "{:?}", world.problems());
}

#[test]
fn s53_weights_of_zones_are_shares_of_connections() {
    let world = world(&[("traffic-policy", "weighted"), ("zone-weights", "a=6, b=2")], DataPlane::Nftables, 3);
    let forward = world.forward(POD, VIP, 80);
    let shares: Vec<_> = forward.backends.iter().map(|one| forward.share(one)).collect();
    assert_eq!(shares, [(3, 5), (1, 5), (1, 5)], "in lowest terms");
    let port = world.port("default/web/TCP");
    assert_eq!(ends(&port.slots(plan::Scope::Cluster)), "1,1,1,2,3");
}

#[test]
fn s53_only_the_holder_of_the_lease_gets_connections() {
    let mut world = led();
    assert_eq!(world.0.leases().iter().map(|lease| &**lease).collect::<Vec<_>>(), ["default/lock"]);
    let key = world.port("default/web/TCP").key.clone();
    let nobody = Outcome::Refuse(RejectReason::NoLeader(key));
    assert!(!world.0.knows_leases());
    assert_eq!(world.judge(POD, VIP, 80), nobody, "before it is known");
    for (holder, endpoint) in [("p1", "2"), ("p2_uuid", "3"), ("p0", "1")] {
        let touched = world.say(leader(Some(holder)));
        assert_eq!(names(&touched), ["default/web/TCP"]);
        for (source, to, port) in [(POD, VIP, 80), (STRANGER, NODE, 30080)] {
            assert_eq!(ends(&world.forward(source, to, port).backends), endpoint, "{holder}");
        }
        let port = world.port("default/web/TCP");
        assert_eq!((ends(&port.serving), port.balancing.is_exclusive()), (endpoint.to_owned(), true));
    }
    for holder in [None, Some(""), Some("p"), Some("another"), Some("p11")] {
        world.say(leader(holder));
        assert_eq!(world.judge(POD, VIP, 80), nobody, "{holder:?}");
    }
    assert!(world.0.knows_leases());
    assert!(
        world.say(leader(Some("p1"))).ports.len() == 1 && world.say(leader(Some("p1"))).is_empty(),
        "a renewal is none"
    );
}

#[test]
fn s53_traffic_policies_hold_for_leaders_too() {
    let mut world = led();
    let annotations = [("traffic-policy", "leader"), ("leader-lease", "lock")];
    world.say(service(&annotations, &json!({"internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local"})));
    world.say(leader(Some("p0")));
    assert_eq!(ends(&world.forward(POD, VIP, 80).backends), "1");
    world.say(leader(Some("p1")));
    assert!(matches!(world.judge(POD, VIP, 80), Outcome::Drop(RejectReason::NoLocalEndpoints(_))), "on another node");
    assert_eq!(world.find("default/web/TCP", Family::V4).map(|port| port.local_ready), Some(0));
    // Without the annotation all endpoints serve, and no Lease is needed.
    world.say(service(&[], &json!({})));
    assert_eq!(ends(&world.forward(POD, VIP, 80).backends), "1,2,3,4");
    assert!(world.0.leases().is_empty());
    // What was known of it is not used any more.
    world.say(service(&annotations, &json!({})));
    assert!(matches!(world.judge(POD, VIP, 80), Outcome::Refuse(RejectReason::NoLeader(_))));
}

#[test]
fn s53_explanations_and_traces_name_the_policy() {
    let said = |world: &World| {
        let steps = trace(world.0.plan(), &packet(POD, VIP, 80)).steps;
        steps.into_iter().map(|step| format!("{}: {}", step.at, step.says)).collect::<Vec<_>>().join("\n")
    };
    let text = said(&world(&[("traffic-policy", "round-robin")], DataPlane::Nftables, 3));
    assert!(text.contains("load balancing: round-robin: each endpoint in turn"), "{text}");
    let text = said(&world(&[("traffic-policy", "weighted"), ("zone-weights", "a=3")], DataPlane::Nftables, 2));
    assert!(
        text.contains("weighted: any endpoint, by weight: 10.244.2.1:8080 gets 3 of 4, 10.244.2.2:8080 gets 1 of 4"),
        "{text}"
    );
    let text = said(&world(&[("traffic-policy", "maglev")], DataPlane::Nftables, 3));
    assert!(text.contains("maglev: the address of the sender selects 10.244.2."), "{text}");
    let mut world = led();
    let text = said(&world);
    assert!(text.contains("the traffic policy of default/web/TCP is `leader`, and no endpoint"), "{text}");
    world.say(leader(Some("p1")));
    let object = service(&[("traffic-policy", "leader")], &json!({}));
    let Update::Service(service) = object else { panic!("a Service") };
    let pods: Vec<Pod> = Vec::new();
    let explanation = world.0.why(&Subject { service: &service, slices: &[], pods: &pods });
    let summary = explanation.summary();
    assert!(
        summary.contains("1 of 4 endpoints get traffic; 10.244.2.1:8080 does not: its Pod does not hold"),
        "{summary}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens, and in whatever order: one endpoint at most, and that of the last known holder.
    #[test]
    fn s53_there_are_never_two_leaders(changes in prop::collection::vec((0..3u8, 0..5usize), 1..30)) {
        let mut world = led();
        let (mut holder, mut count) = (None, 4);
        for (kind, number) in changes {
            match kind {
                0 => holder = Some(number),
                1 => holder = None,
                _ => count = number,
            }
            world.say(leader(holder.map(|number| format!("p{number}_x")).as_deref()));
            world.say(slice(count, 1));
            let wanted = holder.filter(|holder| *holder < count).map(|number| (number + 1).to_string());
            let port = world.port("default/web/TCP");
            prop_assert_eq!(&port.balancing, &Balancing::Leader);
            prop_assert_eq!(ends(&port.cluster), wanted.clone().unwrap_or_default());
            prop_assert_eq!(ends(&port.serving), wanted.unwrap_or_default());
        }
    }
}
