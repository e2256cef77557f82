//! TrafficPolicies: which fields hold at which rule, what nobody can loosen, and statuses.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::world::{World, key, short};
use crate::cluster::{SecretState, Touched};
use crate::model::{ListenerId, RouteKind, Rule};
use crate::policy::{Balancing, BalancingMethod, Policy, RateLimit};

/// A Gateway with listeners `l` and `m`, a ListenerSet of `apps` with a listener `s`, and a route with rules `one` and `two`
/// that is attached to all of them.
fn world() -> World {
    let mut world = World::new();
    let http = |name: &str, host: &str| {
        json!({ "name": name, "port": 80, "protocol": "HTTP", "hostname": host,
            "allowedRoutes": { "namespaces": { "from": "All" } } })
    };
    world.gateway("gw", json!([http("l", "l.test"), http("m", "m.test")]));
    let parent = json!({ "name": "gw", "namespace": "infra" });
    world.put("ListenerSet", "apps/set", json!({ "parentRef": parent, "listeners": [http("s", "s.test")] }));
    world.put(
        "Service",
        "apps/web",
        json!({ "ports": [{ "name": "http", "port": 80 }, { "name": "alt", "port": 81 }] }),
    );
    let set = json!({ "kind": "ListenerSet", "name": "set" });
    let rule = |name: &str| json!({ "name": name, "backendRefs": [{ "name": "web", "port": 80 }, { "name": "web", "port": 81 }] });
    world.put("HTTPRoute", "apps/r", json!({ "parentRefs": [parent, set], "rules": [rule("one"), rule("two")] }));
    world
}

fn listener(name: &str) -> ListenerId {
    let set = (name == "s").then(|| "apps/set".into());
    ListenerId { gateway: "infra/gw".into(), set, name: name.into() }
}

fn put(world: &mut World, name: &str, target: Value, fields: Value) -> Touched {
    put_aged(world, name, &json!([target]), fields, 1)
}

fn put_aged(world: &mut World, name: &str, targets: &Value, fields: Value, day: u8) -> Touched {
    let mut spec = fields;
    spec["targetRefs"] = targets.clone();
    let metadata = json!({ "creationTimestamp": format!("2026-01-0{day}T00:00:00Z"), "generation": 4 });
    world.put_with("TrafficPolicy", name, json!({ "metadata": metadata, "spec": spec }))
}

fn target(kind: &str, name: &str, section: Option<&str>) -> Value {
    let group = if kind == "Service" { "" } else { api::view::gateway_api::GROUP };
    json!({ "group": group, "kind": kind, "name": name, "sectionName": section })
}

/// A rule of the route at a listener.
fn rule(world: &World, name: &str, index: usize) -> Arc<Rule> {
    Arc::clone(&world.at(&listener(name), RouteKind::Http, "apps/r").rules[index])
}

fn policy(world: &World, name: &str, index: usize) -> Policy {
    rule(world, name, index).policy.as_deref().cloned().unwrap_or_default()
}

fn read(seconds: u64) -> Value {
    json!({ "timeouts": { "read": format!("{seconds}s") } })
}

/// The read timeout of both rules at a listener, in seconds.
fn timeouts(world: &World, name: &str) -> [Option<u64>; 2] {
    [0, 1].map(|index| policy(world, name, index).read_timeout.map(|timeout| timeout.as_secs()))
}

fn admits(policy: &Policy, client: &str) -> bool {
    policy.admits(client.parse().expect("an address"))
}

#[test]
fn the_most_specific_target_of_a_setting_wins() {
    let mut world = world();
    assert_eq!(timeouts(&world, "l"), [None, None]);
    put(&mut world, "gateway", target("Gateway", "gw", None), read(1));
    assert_eq!(["l", "m", "s"].map(|name| timeouts(&world, name)), [[Some(1); 2]; 3]);
    put(&mut world, "listener", target("Gateway", "gw", Some("l")), read(2));
    assert_eq!(["l", "m", "s"].map(|name| timeouts(&world, name)), [[Some(2); 2], [Some(1); 2], [Some(1); 2]]);
    put(&mut world, "apps/set", target("ListenerSet", "set", None), read(3));
    put(&mut world, "apps/section", target("ListenerSet", "set", Some("s")), read(4));
    assert_eq!(["l", "m", "s"].map(|name| timeouts(&world, name)), [[Some(2); 2], [Some(1); 2], [Some(4); 2]]);
    put(&mut world, "apps/route", target("HTTPRoute", "r", None), read(5));
    put(&mut world, "apps/rule", target("HTTPRoute", "r", Some("two")), read(6));
    assert_eq!(["l", "m", "s"].map(|name| timeouts(&world, name)), [[Some(5), Some(6)]; 3]);
    for name in ["gateway", "listener", "apps/set", "apps/section", "apps/route", "apps/rule"] {
        world.delete("TrafficPolicy", name);
    }
    assert_eq!(
        world
            .0
            .with_policies(&listener("l").into(), &crate::model::RouteId { kind: RouteKind::Http, key: key("apps/r") }),
        None
    );
}

#[test]
fn policies_for_listeners_that_do_not_exist_and_policies_that_are_replaced_leave_nothing_behind() {
    let mut world = world();
    let listener_policy = |section: &str| json!([target("Gateway", "gw", Some(section))]);
    put_aged(&mut world, "missing", &listener_policy("none"), read(9), 1);
    assert_eq!(timeouts(&world, "l"), [None, None]);
    put_aged(&mut world, "one", &listener_policy("l"), read(1), 5);
    put_aged(&mut world, "two", &listener_policy("l"), read(2), 3);
    assert_eq!(timeouts(&world, "l"), [Some(2), Some(2)]);
    // Deleted and created again, of which only the result is seen: it has another age.
    put_aged(&mut world, "two", &listener_policy("l"), read(2), 6);
    assert_eq!(timeouts(&world, "l"), [Some(1), Some(1)]);
    put_aged(&mut world, "one", &listener_policy("m"), read(1), 5);
    assert_eq!((timeouts(&world, "l"), timeouts(&world, "m")), ([Some(2), Some(2)], [Some(1), Some(1)]));
    for name in ["one", "two", "missing"] {
        world.delete("TrafficPolicy", name);
    }
    assert_eq!([timeouts(&world, "l"), timeouts(&world, "m")], [[None, None]; 2]);
}

#[test]
fn a_field_wins_as_a_whole_and_other_fields_stay() {
    let mut world = world();
    let fields = json!({ "timeouts": { "connect": "1s", "read": "2s" }, "slowStart": { "window": "9s" } });
    put(&mut world, "gateway", target("Gateway", "gw", None), fields);
    put(&mut world, "apps/route", target("HTTPRoute", "r", None), read(5));
    let found = policy(&world, "l", 0);
    assert_eq!((found.connect_timeout, found.read_timeout), (None, Some(Duration::from_secs(5))));
    assert!(found.balancing.is_some_and(|balancing| balancing.slow_start.is_some()));
}

#[test]
fn ranges_of_ipv4_mapped_addresses_are_those_of_ipv4() {
    let mut world = world();
    let deny = |range: &str| json!({ "sourceRanges": { "deny": [range] } });
    put(&mut world, "gateway", target("Gateway", "gw", None), deny("::ffff:192.0.2.0/120"));
    assert!(!admits(&policy(&world, "l", 0), "192.0.2.7") && admits(&policy(&world, "l", 0), "192.0.3.7"));
    // It holds other addresses too: the policy closes its targets.
    put(&mut world, "gateway", target("Gateway", "gw", None), deny("::ffff:192.0.2.0/64"));
    assert_eq!(policy(&world, "l", 0).refuse, Some(503));
}

#[test]
fn restrictions_of_a_gateway_hold_in_addition_to_those_of_a_route() {
    let mut world = world();
    let ranges = |allow: &str| json!({ "sourceRanges": { "allow": [allow] }, "requestBody": { "maxSize": "1Ki" } });
    put(&mut world, "gateway", target("Gateway", "gw", None), ranges("10.0.0.0/8"));
    put(&mut world, "apps/set", target("ListenerSet", "set", None), ranges("10.1.0.0/16"));
    let all = json!({ "sourceRanges": { "allow": ["0.0.0.0/0"] }, "requestBody": { "maxSize": "1Gi" } });
    put(&mut world, "apps/route", target("HTTPRoute", "r", None), all);
    let (own, set) = (policy(&world, "l", 0), policy(&world, "s", 0));
    assert_eq!([&own, &set].map(|policy| (policy.outer.is_some(), policy.body_limit)), [(false, Some(1 << 10)); 2]);
    for (client, at_own, at_set) in [("10.1.0.1", true, true), ("10.2.0.1", true, false), ("192.0.2.1", false, false)] {
        assert_eq!((admits(&own, client), admits(&set, client)), (at_own, at_set), "{client}");
    }
}

#[test]
fn the_owner_of_a_gateway_may_loosen_a_restriction_for_a_listener() {
    let mut world = world();
    let ranges = |allow: &str| json!({ "sourceRanges": { "allow": [allow] } });
    put(&mut world, "gateway", target("Gateway", "gw", None), ranges("10.0.0.0/8"));
    put(&mut world, "listener", target("Gateway", "gw", Some("l")), ranges("192.0.2.0/24"));
    let admitted = |name| ["10.0.0.1", "192.0.2.1"].map(|client| admits(&policy(&world, name, 0), client));
    assert_eq!((admitted("l"), admitted("m")), ([false, true], [true, false]));
}

#[test]
fn address_ranges_of_two_owners_are_intersected() {
    for (gateway, route, admitted) in [
        (&["10.0.0.0/8", "192.0.2.0/24"][..], &["10.1.0.0/16", "192.0.0.0/16"][..], [true, false, true, false]),
        (&["10.0.0.0/8"], &["10.0.0.0/8"], [true, true, false, false]),
        (&["10.1.0.0/16"], &["192.0.2.0/24"], [false; 4]),
        (&["10.1.0.0/16"], &["2001:db8::/32"], [false; 4]),
    ] {
        let mut world = world();
        let ranges = |allow: &[&str]| json!({ "sourceRanges": { "allow": allow } });
        put(&mut world, "gateway", target("Gateway", "gw", None), ranges(gateway));
        put(&mut world, "apps/route", target("HTTPRoute", "r", None), ranges(route));
        let found = policy(&world, "l", 0);
        let clients = ["10.1.0.1", "10.2.0.1", "192.0.2.1", "2001:db8::1"];
        assert_eq!(clients.map(|client| admits(&found, client)), admitted, "{gateway:?} {route:?}");
    }
}

#[test]
fn limits_of_two_owners_are_counted_both() {
    let mut world = world();
    let limit = |requests: u32| json!({ "rateLimits": [{ "requests": requests, "per": "Second" }], "maxConcurrentRequests": { "limit": requests } });
    put(&mut world, "gateway", target("Gateway", "gw", None), limit(5));
    put(&mut world, "apps/route", target("HTTPRoute", "r", None), limit(50));
    let found = policy(&world, "l", 0);
    assert_eq!(found.rate_limits.iter().map(|limit| limit.requests).collect::<Vec<_>>(), [5, 50]);
    let concurrent = found.layers().map(|layer| layer.connection_limit.as_ref().map(|limit| limit.limit));
    assert_eq!(concurrent.collect::<Vec<_>>(), [Some(50), Some(5)]);
}

#[test]
fn ways_of_authentication_of_two_owners_are_one_policy() {
    let mut world = world();
    let external = json!({ "authentication": { "external": { "url": "http://auth.test/" } } });
    put(&mut world, "gateway", target("Gateway", "gw", None), external);
    let basic = json!({ "authentication": { "basic": { "secretName": "team", "realm": "r" } } });
    put(&mut world, "apps/route", target("HTTPRoute", "r", None), basic);
    let found = policy(&world, "l", 0);
    assert!(found.basic_auth.is_some() && found.external_auth.is_some() && found.outer.is_none());
}

#[test]
fn all_ways_of_authentication_must_admit_a_request() {
    let mut world = world();
    let basic = |secret: &str| json!({ "authentication": { "basic": { "secretName": secret, "realm": "r" } } });
    put(&mut world, "gateway", target("Gateway", "gw", None), basic("users"));
    put(&mut world, "apps/route", target("HTTPRoute", "r", None), basic("team"));
    let found = policy(&world, "l", 0);
    let secrets: Vec<_> =
        found.layers().filter_map(|layer| layer.basic_auth.as_ref()).map(|auth| &*auth.secret).collect();
    assert_eq!(secrets, ["apps/team", "infra/users"]);
}

#[test]
fn requests_are_counted_for_each_target() {
    let mut world = world();
    let limit = || {
        json!({ "rateLimits": [{ "requests": 5, "per": "Minute" }, { "requests": 5, "per": "Minute",
        "key": { "type": "Header", "header": "X-Key" } }], "maxConcurrentRequests": { "limit": 2 } })
    };
    let both = json!([target("Gateway", "gw", Some("l")), target("Gateway", "gw", Some("m"))]);
    put_aged(&mut world, "limits", &both, limit(), 1);
    let zones =
        |name| policy(&world, name, 0).rate_limits.iter().map(|limit| limit.zone.to_string()).collect::<Vec<_>>();
    assert_eq!(zones("l"), ["infra/limits/Gateway/infra/gw/l/0", "infra/limits/Gateway/infra/gw/l/1"]);
    assert_eq!(zones("m"), ["infra/limits/Gateway/infra/gw/m/0", "infra/limits/Gateway/infra/gw/m/1"]);
    let found = policy(&world, "l", 0);
    let RateLimit { requests, per, burst, status, .. } = &found.rate_limits[0];
    assert_eq!((*requests, *per, *burst, *status), (5, Duration::from_secs(60), 5, 429));
    assert_eq!(found.connection_limit.map(|limit| limit.limit), Some(2));
}

#[test]
fn settings_of_a_service_hold_towards_its_port_only() {
    let mut world = world();
    put(
        &mut world,
        "apps/route",
        target("HTTPRoute", "r", None),
        json!({ "timeouts": { "read": "5s" }, "requireHTTPS": true }),
    );
    let balancing = json!({ "timeouts": { "read": "7s" }, "loadBalancing": { "type": "RoundRobin" } });
    let touched = put(&mut world, "apps/service", target("Service", "web", None), balancing);
    assert_eq!(touched.route_changes.len(), 3, "the route at each of its listeners");
    put(
        &mut world,
        "apps/port",
        target("Service", "web", Some("alt")),
        json!({ "loadBalancing": { "type": "Random" } }),
    );
    let rule = rule(&world, "l", 0);
    assert_eq!(policy(&world, "l", 0).read_timeout, Some(Duration::from_secs(5)));
    let towards: Vec<Policy> =
        rule.backends.iter().map(|backend| backend.policy.as_deref().cloned().expect("a policy")).collect();
    assert_eq!(towards.iter().map(|policy| policy.read_timeout).collect::<Vec<_>>(), [Some(Duration::from_secs(7)); 2]);
    let method = |policy: &Policy| policy.balancing.as_ref().map(|Balancing { method, .. }| method.clone());
    assert_eq!(
        towards.iter().map(method).collect::<Vec<_>>(),
        [Some(BalancingMethod::RoundRobin), Some(BalancingMethod::Random)]
    );
    assert_eq!(towards[0].require_https, None, "restrictions are those of the rule");
}

#[test]
fn the_older_policy_of_a_target_holds() {
    let mut world = world();
    let route = json!([target("HTTPRoute", "r", None)]);
    put_aged(&mut world, "apps/b", &route, read(2), 2);
    put_aged(&mut world, "apps/c", &route, read(1), 1);
    assert_eq!(timeouts(&world, "l"), [Some(1), Some(1)]);
    assert_eq!(short(&world.traffic_policy("apps/b").accepted), "False/Conflicted");
    assert_eq!(short(&world.traffic_policy("apps/c").accepted), "True/Accepted");
    put_aged(
        &mut world,
        "apps/b",
        &json!([target("HTTPRoute", "r", None), target("HTTPRoute", "r", Some("two"))]),
        read(2),
        2,
    );
    assert_eq!(timeouts(&world, "l"), [Some(1), Some(2)]);
    let accepted = &world.traffic_policy("apps/b").accepted;
    assert_eq!(short(accepted), "True/Accepted", "for one of its targets");
    assert!(accepted.message.contains("policy \"apps/c\" holds for HTTPRoute \"apps/r\""), "{}", accepted.message);
    let touched = world.delete("TrafficPolicy", "apps/c");
    assert_eq!(touched.traffic_policies.len(), 2);
    assert_eq!(world.traffic_policy("apps/b").accepted.message, "The policy is accepted");
}

#[test]
fn ancestors_are_the_gateways_that_traffic_comes_from() {
    let mut world = world();
    for (name, target) in [
        ("gateway", target("Gateway", "gw", Some("l"))),
        ("apps/set", target("ListenerSet", "set", Some("s"))),
        ("apps/route", target("HTTPRoute", "r", Some("one"))),
        ("apps/service", target("Service", "web", Some("http"))),
    ] {
        put(&mut world, name, target, read(1));
        let state = world.traffic_policy(name);
        let ancestors: Vec<_> = state.ancestors.iter().map(|one| (one.kind, &*one.key)).collect();
        assert_eq!((ancestors, state.generation), (vec![("Gateway", "infra/gw")], 4), "{name}");
        assert_eq!(
            (short(&state.accepted), short(&state.resolved_refs)),
            ("True/Accepted".into(), "True/ResolvedRefs".into())
        );
    }
    let touched = world.delete("HTTPRoute", "apps/r");
    assert_eq!(touched.traffic_policies, ["apps/route".into(), "apps/service".into()].into_iter().collect());
    let state = world.traffic_policy("apps/route");
    assert_eq!(short(&state.accepted), "False/TargetNotFound");
    assert_eq!((state.ancestors[0].kind, &*state.ancestors[0].key), ("HTTPRoute", "apps/r"));
    let state = world.traffic_policy("apps/service");
    assert_eq!(state.accepted.message, "The policy is accepted; no traffic of a Gateway reaches the targets");
    assert_eq!(state.ancestors[0].kind, "Service");
}

#[test]
fn targets_and_their_sections_must_exist() {
    let mut world = world();
    for (name, missing) in [
        ("p", target("Gateway", "other", None)),
        ("p", target("Gateway", "gw", Some("x"))),
        ("p", target("ListenerSet", "set", None)),
        ("apps/p", target("ListenerSet", "set", Some("l"))),
        ("apps/p", target("HTTPRoute", "r", Some("three"))),
        ("apps/p", target("GRPCRoute", "r", None)),
        ("apps/p", target("Service", "web", Some("x"))),
    ] {
        put(&mut world, name, missing.clone(), read(1));
        assert_eq!(short(&world.traffic_policy(name).accepted), "False/TargetNotFound", "{missing}");
        assert_eq!(timeouts(&world, "l"), [None, None], "a policy has no effect in other namespaces: {missing}");
        world.delete("TrafficPolicy", name);
    }
    put(&mut world, "p", target("Gateway", "later", None), read(1));
    world.gateway("later", json!([{ "name": "l", "port": 80, "protocol": "HTTP" }]));
    assert_eq!(short(&world.traffic_policy("p").accepted), "True/Accepted");
}

#[test]
fn a_restriction_that_is_not_understood_closes_its_target() {
    let mut world = world();
    let external = json!({ "authentication": { "external": { "url": "http://auth.test/?x=$odd" } } });
    put(&mut world, "gateway", target("Gateway", "gw", None), external);
    let open = json!({ "sourceRanges": { "allow": ["0.0.0.0/0"] } });
    put(&mut world, "apps/route", target("HTTPRoute", "r", None), open);
    assert_eq!(policy(&world, "l", 0).refuse, Some(503));
    let accepted = &world.traffic_policy("gateway").accepted;
    assert_eq!(short(accepted), "False/Invalid");
    assert!(
        accepted.message.contains("the variable `$odd` is not supported; all requests are refused"),
        "{}",
        accepted.message
    );
    put(
        &mut world,
        "gateway",
        target("Gateway", "gw", None),
        json!({ "loadBalancing": { "type": "Later" }, "requireHTTPS": true }),
    );
    let found = policy(&world, "l", 0);
    assert_eq!((found.refuse, found.require_https), (None, Some(308)), "a setting that is not understood is left out");
    assert_eq!(short(&world.traffic_policy("gateway").accepted), "False/Invalid");
}

#[test]
fn the_secret_with_passwords_must_exist() {
    let mut world = world();
    let basic = json!({ "authentication": { "basic": { "secretName": "users" } } });
    put(&mut world, "p", target("Gateway", "gw", None), basic);
    let resolved = |world: &World| short(&world.traffic_policy("p").resolved_refs);
    assert_eq!(resolved(&world), "False/InvalidSecretRef");
    for (state, expected) in [
        (SecretState::Certificate, "False/InvalidSecretRef"),
        (SecretState::Invalid("odd".to_owned()), "False/InvalidSecretRef"),
        (SecretState::Passwords, "True/ResolvedRefs"),
    ] {
        world.secret("users", Some(state));
        assert_eq!(resolved(&world), expected);
        assert!(policy(&world, "l", 0).basic_auth.is_some(), "requests need credentials in any case");
    }
}

#[test]
fn address_ranges_hold_for_connections_too() {
    let mut world = world();
    world.gateway("tcp", json!([{ "name": "l", "port": 90, "protocol": "TCP" }]));
    world.put(
        "TCPRoute",
        "t",
        json!({ "parentRefs": [{ "name": "tcp" }], "rules": [{ "backendRefs": [{ "name": "web", "port": 80 }] }] }),
    );
    let fields = json!({ "sourceRanges": { "deny": ["192.0.2.0/24"] }, "timeouts": { "read": "1s" } });
    put(&mut world, "p", target("Gateway", "tcp", None), fields);
    let at = ListenerId { gateway: "infra/tcp".into(), set: None, name: "l".into() };
    let stream = world.at(&at, RouteKind::Tcp, "t").stream.expect("a rule");
    let found = stream.policy.as_deref().expect("a policy");
    assert_eq!([admits(found, "192.0.2.1"), admits(found, "198.51.100.1")], [false, true]);
}

#[test]
fn routes_share_what_holds_for_their_listener() {
    let mut world = world();
    put(
        &mut world,
        "gateway",
        target("Gateway", "gw", None),
        json!({ "requireHTTPS": true, "timeouts": { "read": "1s" } }),
    );
    let (one, two) = (rule(&world, "l", 0).policy.clone(), rule(&world, "m", 1).policy.clone());
    assert!(Arc::ptr_eq(&one.expect("a policy"), &two.expect("a policy")));
}
