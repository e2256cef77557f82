//! Pools: what kubectl shows and refuses, who gets addresses, exhaustion, and what happens when pools change.

use serde_json::Value;
use testbed::session::text;

use super::desk::{Desk, addresses, condition, pool};

#[test]
fn pools_and_peers_are_kinds_like_any_other() {
    let desk = Desk::new();
    let listed = desk.ok("api-resources --api-group=waypost.dev");
    assert!(listed.contains("ippools") && listed.contains("pool") && listed.contains("bgppeers"), "{listed}");
    desk.ok_with("apply -f -", &pool("office", "192.0.2.0/28, 192.0.2.40-192.0.2.60, '2001:db8::/120'", "priority: 3"));
    let peer = "apiVersion: waypost.dev/v1\nkind: BGPPeer\nmetadata: {name: rack}\n\
                spec: {myASN: 64512, peerASN: 64513, peerAddress: 192.0.2.1, communities: ['64512:100']}\n";
    desk.ok_with("apply -f -", peer);
    desk.ok_with("apply --server-side -f -", &peer.replace("rack", "other"));
    let table = desk.ok("get pool");
    let row: Vec<&str> = table.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!(row[..6], ["office", "192.0.2.0/28,192.0.2.40-192.0.2.60,2001:db8::/120", "true", "false", "0", "293"]);
    assert!(desk.ok("get bgppeers").contains("64513"));
    let peer: Value = serde_json::from_str(&desk.ok("get bgppeer rack -o json")).expect("JSON");
    assert_eq!((&peer["spec"]["peerPort"], &peer["spec"]["gracefulRestart"]), (&179.into(), &true.into()));
    for (field, words) in [
        ("ippool.spec.addresses", "Prefixes (192.0.2.0/28), ranges"),
        ("ippool.spec.internal", "internal load balancer"),
        ("bgppeer.spec.password.secretRef.key", "Default: password"),
        ("ippools", "IPPool is a pool of addresses"),
    ] {
        // Lines are broken anywhere.
        let said = desk.ok(&format!("explain {field}")).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(words), "{field}: {said}");
    }
    desk.ok("patch ippool office --type=merge -p '{\"spec\":{\"internal\":true}}'");
    assert!(desk.ok("describe ippool office").contains("Internal:  "));
    desk.ok("delete ippool office");
}

#[test]
fn pools_that_cannot_be_are_refused_with_the_reason() {
    let desk = Desk::new();
    for (addresses, more, words) in [
        ("192.0.2.1/28", "", "write 192.0.2.0/28"),
        ("192.0.2.0/28, 192.0.2.3", "", "must not overlap with 192.0.2.0/28"),
        ("127.0.0.0/8", "", "which is loopback"),
        ("224.1.1.1", "", "which is multicast"),
        ("192.0.2.9-192.0.2.1", "", "must not end before it begins"),
        ("", "", "at least one prefix"),
        ("192.0.2.1", "announce: [arp]", "supported values: \"bgp\", \"l2\""),
        (
            "192.0.2.1",
            "serviceSelector: {matchExpressions: [{key: a, operator: Near}]}",
            "not a valid selector operator",
        ),
    ] {
        let said = desk.fails_with("create -f -", &pool("bad", addresses, more));
        assert!(said.contains(words), "{addresses} {more}: {said}");
    }
    let peer = "apiVersion: waypost.dev/v1\nkind: BGPPeer\nmetadata: {name: bad}\n\
                spec: {myASN: 0, peerASN: 4294967296, peerAddress: router, communities: [x]}\n";
    let said = desk.fails_with("create -f -", peer);
    for words in
        ["spec.myASN: Required value", "spec.peerASN", "spec.peerAddress", "must be two numbers from 0 to 65535"]
    {
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn an_exhausted_pool_is_an_event_and_a_condition_and_what_is_freed_is_given_on_at_once() {
    let mut desk = Desk::with_pools(&pool("tiny", "192.0.2.1", ""));
    desk.balancer("one", "", "");
    assert_eq!(desk.assigned("one"), "192.0.2.1");
    desk.ok("wait service/one --for=condition=LoadBalancerReady --timeout=30s");
    desk.balancer("two", "", "");
    let (reason, message) = desk.pending("two");
    assert_eq!(reason, "Exhausted");
    assert!(message.contains("pool tiny") && message.ends_with("kubectl edit ippool tiny"), "{message}");
    assert_eq!(desk.event("two", "Exhausted"), message);
    assert!(desk.ok("describe service two").contains("Exhausted"));
    desk.ok("delete service one");
    assert_eq!(desk.assigned("two"), "192.0.2.1");
    desk.balancer("three", "", "");
    desk.pending("three");
    desk.ok("patch ippool tiny --type=merge -p '{\"spec\":{\"addresses\":[\"192.0.2.1-192.0.2.2\"]}}'");
    assert_eq!(desk.assigned("three"), "192.0.2.2");
    testbed::net::eventually("the pool counts", || desk.ok("get ippool tiny -o jsonpath={.status.assigned}") == "2");
}

#[test]
fn an_address_that_left_its_pool_is_replaced_and_that_is_told() {
    let mut desk = Desk::with_pools(&pool("office", "192.0.2.1", ""));
    desk.balancer("web", "", "");
    assert_eq!(desk.assigned("web"), "192.0.2.1");
    desk.ok("patch ippool office --type=merge -p '{\"spec\":{\"addresses\":[\"192.0.2.8\"]}}'");
    desk.until("web", "it has another address", |service| addresses(service) == "192.0.2.8");
    let said = desk.event("web", "LoadBalancerAddressChanged");
    assert!(said.contains("was 192.0.2.1 and is 192.0.2.8"), "{said}");
    desk.ok("delete ippool office");
    let (reason, message) = desk.pending("web");
    assert_eq!(reason, "NoPool");
    assert!(message.contains("kubectl apply -f -"), "{message}");
}

#[test]
fn the_command_that_the_reason_names_mends_it() {
    let mut desk = Desk::new();
    desk.balancer("web", "", "");
    let (_, message) = desk.pending("web");
    let command =
        message.rsplit_once("create one: ").expect("a command").1.replace("FIRST-LAST", "192.0.2.1-192.0.2.9");
    let json = command.split('\'').nth(1).expect("what is piped");
    desk.ok_with("apply -f -", json);
    assert_eq!(desk.assigned("web"), "192.0.2.1");
}

#[test]
fn switched_off_it_is_kubernetes_without_a_cloud() {
    let mut desk = Desk::with(&[]);
    desk.ok_with("apply -f -", &pool("office", "192.0.2.0/28", ""));
    desk.balancer("web", "", "");
    // Whatever controllers would do to it they would do to this one first.
    desk.ok_with(
        "apply -f -",
        "apiVersion: v1\nkind: Service\nmetadata: {name: later}\nspec: {selector: {a: b}, ports: [{port: 80}]}\n",
    );
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    testbed::net::eventually("controllers are at work", || {
        desk.session.names(slices).iter().any(|name| name.starts_with("later-"))
    });
    let service = desk.service("web");
    assert_eq!((addresses(&service).as_str(), condition(&service)), ("", &Value::Null), "{service}");
    assert_eq!(service["metadata"]["finalizers"], Value::Null);
    assert_eq!(text(&service, "/metadata/managedFields/1/manager"), "");
    let events = desk.session.items("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=web");
    assert_eq!(events, Vec::<Value>::new());
}

#[test]
fn the_pool_of_the_command_line_is_an_object_that_goes_with_the_flag() {
    let home = testbed::folder();
    let arguments = ["--load-balancer-pool", "192.0.2.7", "--load-balancer-pool", "2001:db8::7/128"];
    let mut desk = Desk::at(&home, &arguments);
    desk.balancer("web", "", "ipFamilyPolicy: RequireDualStack");
    assert_eq!(desk.assigned("web"), "192.0.2.7,2001:db8::7");
    testbed::net::eventually("the pool is an object", || desk.ok("get ippools -o name").contains("/command-line"));
    desk.balancer("more", "", "");
    assert!(desk.pending("more").1.contains("--load-balancer-pool"));
    assert!(desk.server.terminate().success());
    let mut desk = Desk::at(&home, &["--load-balancer", "on"]);
    testbed::net::eventually("the pool is gone", || desk.ok("get ippools -o name").is_empty());
    assert_eq!(desk.pending("web").0, "NoPool");
}
