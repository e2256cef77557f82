//! Manually created Endpoints and EndpointSlices: what is accepted, and what is rejected.

use super::Bed;

/// An Endpoints object with these addresses.
fn legacy(addresses: &[String]) -> String {
    let addresses: Vec<_> = addresses.iter().map(|address| format!("{{ip: '{address}'}}")).collect();
    let subset = format!("[{{addresses: [{}], ports: [{{port: 80}}]}}]", addresses.join(", "));
    format!("apiVersion: v1\nkind: Endpoints\nmetadata:\n  name: web\nsubsets: {subset}\n")
}

/// An EndpointSlice with this address.
fn slice(address: &str) -> String {
    let family = if address.contains(':') { "IPv6" } else { "IPv4" };
    let rest = format!("addressType: {family}\nports: [{{port: 80}}]\nendpoints: [{{addresses: ['{address}']}}]");
    format!("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: web\n{rest}\n")
}

#[test]
fn s13_addresses_that_never_leave_a_machine_are_refused() {
    let bed = Bed::start();
    let loopback = "may not be in the loopback range (127.0.0.0/8, ::1/128)";
    let local = "may not be in the link-local range (169.254.0.0/16, fe80::/10)";
    let multicast = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
    for (address, why) in [
        ("127.0.0.1", loopback),
        ("127.200.3.4", loopback),
        ("::1", loopback),
        ("169.254.169.254", local),
        ("fe80::1", local),
        ("224.0.0.251", multicast),
        ("ff02::1", multicast),
    ] {
        let said = bed.fails_with("create -f -", &legacy(&[address.to_owned()]));
        let wanted =
            format!("The Endpoints \"web\" is invalid: subsets[0].addresses[0].ip: Invalid value: {address:?}: {why}");
        assert!(said.contains(&wanted), "{said}");
        let said = bed.fails_with("create -f -", &slice(address));
        let wanted = format!(
            "The EndpointSlice \"web\" is invalid: endpoints[0].addresses[0]: Invalid value: {address:?}: {why}"
        );
        assert!(said.contains(&wanted), "{said}");
    }
    for address in ["10.0.0.1", "224.0.1.1", "fd00::1"] {
        bed.ok_with("apply -f -", &legacy(&[address.to_owned()]));
    }
    bed.ok_with("apply -f -", &slice("10.0.0.1"));
}

#[test]
fn s14_an_endpoint_that_is_a_cluster_ip_is_reported() {
    let bed = Bed::start();
    bed.service("target", "{clusterIP: 10.96.0.20, ports: [{port: 80}]}");
    let warning = |place: &str, address: &str, name: &str| {
        let what = format!("{address} is the cluster IP of Service default/{name}");
        format!("Warning: {place}: {what}; it will not be used as an endpoint\n")
    };
    let said = |line: &str, manifest: &str| {
        let run = bed.run(line, manifest);
        assert!(run.ok, "{run:?}");
        run.err
    };
    let addresses = ["10.0.0.1".to_owned(), "10.96.0.20".to_owned()];
    let wanted = warning("subsets[0].addresses[1].ip", "10.96.0.20", "target");
    let created = said("create -f -", &legacy(&addresses));
    assert!(created.contains(&wanted), "{created}");
    // What was reported once is not repeated with every other change; a patch and an apply are changes as well.
    let labelled = said("label endpoints web a=b", "");
    assert!(!labelled.contains("cluster IP"), "{labelled}");
    let patch = r#"[{"op":"add","path":"/subsets/0/addresses/0","value":{"ip":"10.96.0.1"}}]"#;
    let patched = said(&format!("patch endpoints web --type json -p '{patch}'"), "");
    assert!(patched.contains(&warning("subsets[0].addresses[0].ip", "10.96.0.1", "kubernetes")), "{patched}");
    assert!(!patched.contains("10.96.0.20"), "{patched}");

    let wanted = warning("endpoints[0].addresses[0]", "10.96.0.20", "target");
    let applied = said("apply --server-side -f -", &slice("10.96.0.20"));
    assert!(applied.contains(&wanted), "{applied}");
    // An address that no Service has any more is an address like any other.
    bed.ok("delete endpointslice web");
    bed.ok("delete service target");
    let free = said("create -f -", &slice("10.96.0.20"));
    assert_eq!(free, "");
}

#[test]
fn s17_a_hand_made_endpoints_object_holds_a_thousand_addresses_and_no_more() {
    let bed = Bed::start();
    let addresses: Vec<_> = (0..1001).map(|i| format!("10.1.{}.{}", i / 250, i % 250 + 1)).collect();
    let said = bed.fails_with("create -f -", &legacy(&addresses));
    assert!(
        said.contains("The Endpoints \"web\" is invalid: subsets: Too many: 1001: must have at most 1000 items"),
        "{said}"
    );
    bed.ok_with("create -f -", &legacy(&addresses[..1000]));
    let said = bed.fails_with("replace -f -", &legacy(&addresses));
    assert!(said.contains("must have at most 1000 items"), "{said}");
    let shown = bed.ok("get endpoints web --no-headers");
    assert!(shown.contains("10.1.0.1:80,10.1.0.2:80,10.1.0.3:80 + 997 more..."), "{shown}");
}

#[test]
fn s09_an_app_protocol_is_kept_in_endpoints_and_slices() {
    let bed = Bed::start();
    let named = |manifest: String| manifest.replace("{port: 80}", "{port: 80, appProtocol: kubernetes.io/ws}");
    bed.ok_with("create -f -", &named(legacy(&["10.0.0.1".to_owned()])));
    bed.ok_with("create -f -", &named(slice("10.0.0.1")));
    assert_eq!(bed.field("endpoints/web", ".subsets[0].ports[0].appProtocol"), "kubernetes.io/ws");
    assert_eq!(bed.field("endpointslices/web", ".ports[0].appProtocol"), "kubernetes.io/ws");
}

#[test]
fn s38_the_api_itself_has_endpoints_that_clients_can_find() {
    let bed = Bed::start();
    let (host, port) = bed.server.address.rsplit_once(':').expect("an address");
    assert_eq!(bed.field("endpoints/kubernetes", ".subsets[0].addresses[0].ip"), host);
    assert_eq!(bed.field("endpoints/kubernetes", ".subsets[0].ports[0].port"), port);
    let slices = "get endpointslices -l kubernetes.io/service-name=kubernetes";
    let found =
        bed.ok(&format!("{slices} -o 'jsonpath={{.items[*].endpoints[*].addresses[0]}} {{.items[*].ports[*].port}}'"));
    assert_eq!(found, format!("{host} {port}"));
}
