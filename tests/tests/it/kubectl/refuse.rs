//! Errors that users see when the server rejects a request: Kubernetes' messages, with the field.

use super::{Bed, MINOR, service};

/// The error about a Service, without the text that kubectl adds.
#[track_caller]
fn complaint(bed: &Bed, spec: &str) -> String {
    let said = bed.no_service("web", spec);
    let said = said.trim_end().strip_prefix("The Service \"web\" is invalid: ");
    said.expect("an invalid Service").trim_start().to_owned()
}

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
                     validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

#[test]
fn s07_names_of_services_are_labels() {
    let bed = Bed::start();
    let spec = "{clusterIP: None}";
    for name in ["web", "my-service", "a1", "9lives"] {
        bed.ok_with("create -f -", &service(name, spec));
    }
    for (name, why) in [
        ("Web", LABEL),
        ("my_service", LABEL),
        ("-web", LABEL),
        ("web-", LABEL),
        ("web.shop", "must not contain dots"),
        (&"a".repeat(64), "must be no more than 63 characters"),
    ] {
        let said = bed.no_service(name, spec);
        let wanted = format!("The Service {name:?} is invalid: metadata.name: Invalid value: {name:?}: {why}");
        assert!(said.contains(&wanted), "{name}: {said}");
    }
    let nameless = service("x", spec).replace("name: x", "labels: {}");
    let said = bed.fails_with("create -f -", &nameless);
    assert!(
        said.contains("resource name may not be empty") || said.contains("name or generateName is required"),
        "{said}"
    );
}

#[test]
fn s08_several_ports_have_names_and_names_are_labels() {
    let bed = Bed::start();
    let said = complaint(&bed, "{ports: [{port: 80}, {port: 443}]}");
    assert_eq!(said, "* spec.ports[0].name: Required value\n* spec.ports[1].name: Required value");
    let said = complaint(&bed, "{ports: [{name: 123_abc, port: 80}, {name: -web, port: 443}]}");
    let of = |index: u32, name: &str| format!("* spec.ports[{index}].name: Invalid value: {name:?}: {LABEL}");
    assert_eq!(said, [of(0, "123_abc"), of(1, "-web")].join("\n"));
    let said = complaint(&bed, "{ports: [{name: a, port: 80}, {name: a, port: 443}]}");
    assert_eq!(said, "spec.ports[1].name: Duplicate value: \"a\"");
    bed.service("web", "{ports: [{name: 123-abc, port: 80}, {name: web, port: 443}]}");
}

#[test]
fn s29_a_chosen_cluster_ip_must_be_one_in_range_and_free() {
    let bed = Bed::start();
    bed.service("first", "{clusterIP: 10.96.0.20, ports: [{port: 80}]}");
    let valid = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    for (address, why) in [("nonsense", valid), ("10.96.0.300", valid), ("10.96.0.020", "must not have leading 0s")] {
        let said = complaint(&bed, &format!("{{clusterIP: '{address}', ports: [{{port: 80}}]}}"));
        assert_eq!(said, format!("spec.clusterIPs[0]: Invalid value: {address:?}: {why}"));
    }
    let outside = "the provided network does not match the current range";
    let taken = "provided IP is already allocated";
    for (address, why) in [("1.2.3.4", outside), ("10.97.0.1", outside), ("10.96.0.20", taken), ("10.96.0.1", taken)] {
        let said = complaint(&bed, &format!("{{clusterIP: {address}, ports: [{{port: 80}}]}}"));
        let wanted = format!("spec.clusterIPs: Invalid value: [{address:?}]: failed to allocate IP {address}: {why}");
        assert_eq!(said, wanted);
    }
    bed.ok("delete service first");
    bed.service("second", "{clusterIP: 10.96.0.20, ports: [{port: 80}]}");
}

#[test]
fn s29_a_cluster_ip_does_not_change_once_set() {
    let bed = Bed::start();
    bed.service("web", "{clusterIP: 10.96.0.20, ports: [{port: 80}]}");
    let wanted = "The Service \"web\" is invalid: spec.clusterIPs[0]: Invalid value: [\"10.96.0.21\"]: may not \
                  change once set\n";
    assert_eq!(bed.fails_with("apply -f -", &service("web", "{clusterIP: 10.96.0.21, ports: [{port: 80}]}")), wanted);
    assert_eq!(bed.fails(r#"patch service web -p '{"spec":{"clusterIP":"10.96.0.21"}}'"#), wanted);
    let said = bed.fails(r#"patch service web -p '{"spec":{"clusterIP":"None"}}'"#);
    assert!(said.contains("may not change once set"), "{said}");
}

#[test]
fn s40_a_chosen_node_port_must_be_in_range_free_and_asked_for() {
    let bed = Bed::start();
    bed.service("first", "{type: NodePort, ports: [{port: 80, nodePort: 30080}]}");
    let node = |port: u32| format!("{{type: NodePort, ports: [{{port: 80, nodePort: {port}}}]}}");
    let taken = "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated";
    assert_eq!(complaint(&bed, &node(30080)), taken);
    let udp = complaint(&bed, "{type: NodePort, ports: [{port: 53, protocol: UDP, nodePort: 30080}]}");
    assert_eq!(udp, taken, "not even for another protocol");
    let range = "provided port is not in the valid range. The range of valid ports is 30000-32767";
    for port in [80, 29999, 32768] {
        assert_eq!(complaint(&bed, &node(port)), format!("spec.ports[0].nodePort: Invalid value: {port}: {range}"));
    }
    let said = complaint(&bed, "{ports: [{port: 80, nodePort: 30081}]}");
    assert_eq!(said, "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'");
    bed.ok("delete service first");
    bed.service("second", &node(30080));
}

#[test]
fn s40_the_range_of_node_ports_is_a_flag() {
    let bed = Bed::start_with(&["--service-node-port-range", "20000-20001"]);
    bed.service("one", "{type: NodePort, ports: [{port: 80}]}");
    bed.service("two", "{type: NodePort, ports: [{port: 80}]}");
    let mut ports =
        [bed.field("service/one", ".spec.ports[0].nodePort"), bed.field("service/two", ".spec.ports[0].nodePort")];
    ports.sort_unstable();
    assert_eq!(ports, ["20000", "20001"]);
    let full = bed.no_service("three", "{type: NodePort, ports: [{port: 80}]}");
    assert!(full.contains("failed to allocate a nodePort: range is full"), "{full}");
    assert!(complaint(&bed, "{type: NodePort, ports: [{port: 80, nodePort: 30080}]}").ends_with("20000-20001"));
}

#[test]
fn s06_ports_protocols_and_targets_are_checked() {
    let bed = Bed::start();
    let range = "must be between 1 and 65535, inclusive";
    let supported = r#"supported values: "SCTP", "TCP", "UDP""#;
    let letters = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)";
    for (port, wanted) in [
        ("{port: 0, targetPort: 1}", format!("port: Invalid value: 0: {range}")),
        ("{port: 70000, targetPort: 1}", format!("port: Invalid value: 70000: {range}")),
        ("{port: 1, protocol: ICMP}", format!("protocol: Unsupported value: \"ICMP\": {supported}")),
        ("{port: 1, targetPort: 99999}", format!("targetPort: Invalid value: 99999: {range}")),
        ("{port: 1, targetPort: a_b}", format!("targetPort: Invalid value: \"a_b\": {letters}")),
    ] {
        assert_eq!(complaint(&bed, &format!("{{ports: [{port}]}}")), format!("spec.ports[0].{wanted}"), "{port}");
    }
    assert_eq!(complaint(&bed, "{selector: {a: b}}"), "spec.ports: Required value");
    let said = complaint(&bed, "{ports: [{port: 80}], type: Sideways}");
    let types = r#""ClusterIP", "ExternalName", "LoadBalancer", "NodePort""#;
    assert_eq!(said, format!("spec.type: Unsupported value: \"Sideways\": supported values: {types}"));
}

#[test]
fn s09_an_app_protocol_is_a_qualified_name() {
    let bed = Bed::start();
    let said = complaint(&bed, "{ports: [{port: 80, appProtocol: 'not a name'}]}");
    assert!(
        said.starts_with("spec.ports[0].appProtocol: Invalid value: \"not a name\": name part must consist of"),
        "{said}"
    );
    bed.service("web", "{ports: [{port: 80, appProtocol: kubernetes.io/h2c}]}");
    assert_eq!(bed.field("service/web", ".spec.ports[0].appProtocol"), "kubernetes.io/h2c");
}

#[test]
fn s01_an_unknown_field_is_refused_or_warned_of_as_asked() {
    let bed = Bed::start();
    let manifest = service("web", "{ports: [{port: 80}], frobnicate: true}");
    // An older kubectl validates against the OpenAPI document, a newer one has the server validate.
    let strict = if *MINOR >= 25 { "--validate=strict" } else { "--validate=true" };
    for line in ["apply -f -", "create -f -", &format!("create {strict} -f -")] {
        let said = bed.fails_with(line, &manifest);
        assert!(said.contains("unknown field") && said.contains("frobnicate"), "{line}: {said}");
    }
    let lax = if *MINOR >= 25 { "--validate=warn" } else { "--validate=false" };
    let run = bed.run(&format!("create {lax} -f -"), &manifest);
    assert!(run.ok && run.err.contains("Warning: unknown field \"spec.frobnicate\""), "{run:?}");
    let wrong = bed.fails_with("create --validate=false -f -", &service("other", "{ports: [{port: eighty}]}"));
    assert!(wrong.contains("(BadRequest)") && wrong.contains("spec.ports"), "{wrong}");
}
