//! What a Service may ask for: an address, a pool, a family, to share with others.

use super::desk::{Desk, addresses, pool};

fn office() -> Desk {
    Desk::with_pools(&pool("office", "192.0.2.0/28, '2001:db8::/124'", ""))
}

#[test]
fn s43_load_balancer_ip_is_honoured_when_possible_and_ephemeral_otherwise() {
    let mut desk = office();
    desk.balancer("wish", "", "loadBalancerIP: 192.0.2.9");
    assert_eq!(desk.assigned("wish"), "192.0.2.9");
    desk.balancer("late", "", "loadBalancerIP: 192.0.2.9");
    assert_eq!(desk.assigned("late"), "192.0.2.0");
    let said = desk.event("late", "LoadBalancerIPIgnored");
    assert!(said.contains("192.0.2.9 is used by Service default/wish"), "{said}");
    // The address in the documentation is in no pool.
    desk.balancer("far", "", "loadBalancerIP: 78.11.24.19");
    assert_eq!(desk.assigned("far"), "192.0.2.1");
    assert!(desk.event("far", "LoadBalancerIPIgnored").contains("78.11.24.19 is not in pool office"));
    desk.ok("patch service far --type=merge -p '{\"spec\":{\"loadBalancerIP\":\"192.0.2.12\"}}'");
    desk.until("far", "it follows a changed wish", |service| addresses(service) == "192.0.2.12");
}

#[test]
fn s43_the_annotation_names_addresses_of_both_families_or_none() {
    let mut desk = office();
    let both = "waypost.dev/load-balancer-ips: '192.0.2.5,2001:db8::5'";
    desk.balancer("both", both, "ipFamilyPolicy: RequireDualStack");
    assert_eq!(desk.assigned("both"), "192.0.2.5,2001:db8::5");
    desk.balancer("metallb", "metallb.io/loadBalancerIPs: 192.0.2.6", "");
    assert_eq!(desk.assigned("metallb"), "192.0.2.6");
    desk.balancer("taken", "waypost.dev/load-balancer-ips: 192.0.2.5", "");
    assert!(desk.pending("taken").1.contains("192.0.2.5 is used by Service default/both"));
    desk.balancer("torn", "waypost.dev/load-balancer-ips: 192.0.2.7", "loadBalancerIP: 192.0.2.8");
    let (reason, message) = desk.pending("torn");
    assert_eq!(reason, "AddressRefused");
    assert!(
        message.contains("spec.loadBalancerIP is 192.0.2.8") && message.contains("remove one of them"),
        "{message}"
    );
    desk.ok("annotate service torn waypost.dev/load-balancer-ips-");
    assert_eq!(desk.assigned("torn"), "192.0.2.8");
}

#[test]
fn addresses_are_shared_under_one_key_and_never_a_port_twice() {
    let mut desk = office();
    let key = "waypost.dev/sharing-key: dns";
    desk.balancer("tcp", key, "ports: [{port: 53, protocol: TCP}]");
    assert_eq!(desk.assigned("tcp"), "192.0.2.0");
    desk.balancer("udp", "metallb.io/allow-shared-ip: dns", "ports: [{port: 53, protocol: UDP}]");
    assert_eq!(desk.assigned("udp"), "192.0.2.0");
    desk.balancer("again", key, "ports: [{port: 53, protocol: UDP}]");
    assert_eq!(desk.assigned("again"), "192.0.2.1");
    desk.balancer("local", key, "externalTrafficPolicy: Local, selector: {app: x}, ports: [{port: 80}]");
    assert_ne!(desk.assigned("local"), "192.0.2.0", "who stays local shares only with those who select the same");
    desk.ok("delete service tcp");
    desk.until("udp", "it keeps the address", |service| addresses(service) == "192.0.2.0");
    desk.balancer("wants", "waypost.dev/load-balancer-ips: 192.0.2.0", "ports: [{port: 8053}]");
    assert!(desk.pending("wants").1.contains("waypost.dev/sharing-key"));
    desk.ok("delete service udp");
    assert_eq!(desk.assigned("wants"), "192.0.2.0");
}

#[test]
fn both_families_come_as_the_policy_says() {
    let mut desk = Desk::with_pools(&pool("four", "192.0.2.0/28", ""));
    desk.balancer("must", "", "ipFamilyPolicy: RequireDualStack");
    assert!(desk.pending("must").1.contains("pool four has no IPv6 addresses"));
    desk.balancer("would", "", "ipFamilyPolicy: PreferDualStack");
    assert!(desk.assigned("would").starts_with("192.0.2."));
    desk.balancer("six", "", "ipFamilies: [IPv6]");
    assert!(desk.pending("six").1.contains("no IPv6"));
    desk.ok_with("apply -f -", &pool("six", "'2001:db8::/126'", ""));
    for name in ["must", "would"] {
        desk.until(name, "it has both", |service| addresses(service).contains(",2001:db8::"));
    }
    assert!(desk.assigned("six").starts_with("2001:db8::"));
    // Only one family is requested: the second address is released.
    let patch = "{\"spec\":{\"ipFamilyPolicy\":\"SingleStack\",\"ipFamilies\":[\"IPv4\"],\"clusterIPs\":null}}";
    let ip = desk.ok("get service must -o jsonpath={.spec.clusterIP}");
    desk.ok(&format!("patch service must --type=merge -p '{}'", patch.replace("null", &format!("[\"{ip}\"]"))));
    desk.until("must", "it has one", |service| !addresses(service).contains(',') && !addresses(service).is_empty());
}

#[test]
fn pools_are_chosen_by_name_namespace_label_and_priority() {
    let mut desk = Desk::with_pools(
        &[
            pool("any", "192.0.2.0/28", "priority: 10"),
            pool("web", "198.51.100.0/28", "serviceSelector: {matchLabels: {tier: web}}"),
            pool("other", "198.51.100.16/28", "namespaces: [kube-system]"),
            pool("hand", "203.0.113.0/28", "autoAssign: false"),
        ]
        .concat(),
    );
    desk.balancer("plain", "", "");
    assert_eq!(desk.assigned("plain"), "192.0.2.0");
    desk.balancer("named", "waypost.dev/pool: hand", "");
    assert_eq!(desk.assigned("named"), "203.0.113.0");
    desk.balancer("theirs", "metallb.universe.tf/address-pool: other", "");
    assert!(desk.pending("theirs").1.contains("not for Services like this one in namespace default"));
    desk.ok("label service theirs tier=web");
    desk.ok("annotate service theirs metallb.universe.tf/address-pool-");
    assert_eq!(desk.assigned("theirs"), "198.51.100.0");
    let elsewhere = super::desk::balancer("web", "", "").replace("name: web", "name: web\n  namespace: kube-system");
    desk.ok_with("apply -f -", &elsewhere);
    testbed::net::eventually("the pool of the namespace", || {
        desk.ok("get service web -n kube-system -o jsonpath={.status.loadBalancer.ingress[*].ip}") == "198.51.100.16"
    });
}
