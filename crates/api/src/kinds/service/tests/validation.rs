//! Every check with its message, one invalid field at a time.

use serde_json::{Value, json};

use super::{Cluster, complaint, service};
use crate::value::ValueExt as _;

/// Complaints of a Service that is fine but for this.
fn refusal(fault: &Value) -> String {
    let mut object = service(&json!({"ports": [{"name": "a", "port": 80}]}));
    super::cluster::merge(&mut object, fault);
    complaint(&Cluster::dual().create(object))
}

fn check(rows: &[(Value, &str)]) {
    for (fault, want) in rows {
        assert_eq!(refusal(&json!({ "spec": fault })), *want, "{fault}");
    }
}

#[test]
fn ports() {
    let range = "must be between 1 and 65535, inclusive";
    check(&[
        (json!({"ports": null}), "spec.ports: Required value"),
        (
            json!({"ports": [{"port": 1}, {"port": 2}]}),
            "[spec.ports[0].name: Required value, spec.ports[1].name: Required value]",
        ),
        (
            json!({"ports": [{"port": 70000}]}),
            &format!(
                "[spec.ports[0].port: Invalid value: 70000: {range}, spec.ports[0].targetPort: Invalid value: 70000: {range}]"
            ),
        ),
        (
            json!({"ports": [{"port": 1, "protocol": "tcp"}]}),
            "spec.ports[0].protocol: Unsupported value: \"tcp\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
        ),
        (
            json!({"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}),
            "spec.ports[1].name: Duplicate value: \"a\"",
        ),
        (
            json!({"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 1}]}),
            "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":1,\
             \"TargetPort\":0,\"NodePort\":0}",
        ),
        (
            json!({"ports": [{"port": 1, "targetPort": "-a"}]}),
            "spec.ports[0].targetPort: Invalid value: \"-a\": must not begin or end with a hyphen",
        ),
        (
            json!({"ports": [{"port": 1, "appProtocol": "/x"}]}),
            "spec.ports[0].appProtocol: Invalid value: \"/x\": prefix part must be non-empty",
        ),
        (
            json!({"ports": [{"port": 1, "nodePort": 30001}]}),
            "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        ),
    ]);
}

#[test]
fn words() {
    check(&[
        (
            json!({"type": "Foo"}),
            "spec.type: Unsupported value: \"Foo\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \
             \"NodePort\"",
        ),
        (
            json!({"sessionAffinity": "x"}),
            "spec.sessionAffinity: Unsupported value: \"x\": supported values: \"ClientIP\", \"None\"",
        ),
        (
            json!({"internalTrafficPolicy": ""}),
            "spec.internalTrafficPolicy: Unsupported value: \"\": supported values: \"Cluster\", \"Local\"",
        ),
        (
            json!({"trafficDistribution": "x"}),
            "spec.trafficDistribution: Unsupported value: \"x\": supported values: \"PreferClose\", \"PreferSameZone\", \
             \"PreferSameNode\"",
        ),
        (
            json!({"type": "NodePort", "externalTrafficPolicy": "x"}),
            "spec.externalTrafficPolicy: Unsupported value: \"x\": supported values: \"Cluster\", \"Local\"",
        ),
        (
            json!({"ipFamilyPolicy": "x"}),
            "spec.ipFamilyPolicy: Unsupported value: \"x\": supported values: \"PreferDualStack\", \"RequireDualStack\", \
             \"SingleStack\"",
        ),
        (
            json!({"ipFamilies": ["IPv5", "IPv5"]}),
            "[spec.ipFamilies[0]: Unsupported value: \"IPv5\": supported values: \"IPv4\", \"IPv6\", spec.ipFamilies[1]: \
             Unsupported value: \"IPv5\": supported values: \"IPv4\", \"IPv6\", spec.ipFamilies[1]: Duplicate value: \"IPv5\"]",
        ),
        (
            json!({"healthCheckNodePort": 30001}),
            "spec.healthCheckNodePort: Invalid value: 30001: may only be set when `type` is 'LoadBalancer' and \
             `externalTrafficPolicy` is 'Local'",
        ),
    ]);
}

#[test]
fn affinity_seconds() {
    let with = |seconds: i64| {
        let config = json!({"clientIP": {"timeoutSeconds": seconds}});
        refusal(&json!({"spec": {"sessionAffinity": "ClientIP", "sessionAffinityConfig": config}}))
    };
    assert_eq!(with(86_400), "", "although the words say less");
    for seconds in [0, 86_401] {
        assert_eq!(
            with(seconds),
            format!(
                "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: {seconds}: \
                 must be greater than 0 and less than 86400"
            )
        );
    }
}

#[test]
fn addresses() {
    check(&[
        (
            json!({"clusterIPs": ["10.96.0.1"]}),
            "spec.clusterIPs: Invalid value: [\"10.96.0.1\"]: must be empty when `clusterIP` is not specified",
        ),
        (
            json!({"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.2"]}),
            "spec.clusterIPs: Invalid value: [\"10.96.0.2\"]: first value must match `clusterIP`",
        ),
        (
            json!({"clusterIP": "None", "clusterIPs": ["None", "10.96.0.2"]}),
            "spec.clusterIPs: Invalid value: [\"None\",\"10.96.0.2\"]: 'None' must be the first and only value",
        ),
        (
            json!({"clusterIP": "x"}),
            "spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
        (
            json!({"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "10.96.0.2", "10.96.0.3"]}),
            "[spec.clusterIPs: Invalid value: [\"10.96.0.1\",\"10.96.0.2\",\"10.96.0.3\"]: may only hold up to 2 values, \
             spec.clusterIPs: Invalid value: [\"10.96.0.1\",\"10.96.0.2\",\"10.96.0.3\"]: may specify no more than one IP \
             for each IP family]",
        ),
        (
            json!({"externalIPs": ["::1", "0x1"]}),
            "[spec.externalIPs[0]: Invalid value: \"::1\": may not be in the loopback range (127.0.0.0/8, ::1/128), \
             spec.externalIPs[1]: Invalid value: \"0x1\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)]",
        ),
    ]);
}

#[test]
fn external_names() {
    let name = |spec: Value| {
        let mut spec = spec;
        spec.put("type", "ExternalName");
        refusal(&json!({ "spec": spec }))
    };
    assert_eq!(name(json!({})), "spec.externalName: Required value");
    assert_eq!(name(json!({"externalName": "."})), "spec.externalName: Required value");
    assert_eq!(name(json!({"externalName": "192.0.2.1"})), "");
    assert_eq!(
        name(
            json!({"externalName": "a.b", "clusterIP": "None", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"})
        ),
        "[spec.clusterIPs: Forbidden: may not be set for ExternalName services, spec.ipFamilies: Forbidden: may not be set \
         for ExternalName services, spec.ipFamilyPolicy: Forbidden: may not be set for ExternalName services]"
    );
}

#[test]
fn load_balancers() {
    let only = "may only be used when `type` is 'LoadBalancer'";
    let cidr = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    let annotation = "service.beta.kubernetes.io/load-balancer-source-ranges";
    check(&[
        (json!({"loadBalancerClass": "a"}), &format!("spec.loadBalancerClass: Forbidden: {only}")),
        (
            json!({"type": "LoadBalancer", "loadBalancerSourceRanges": [" 10.0.0.0/8 ", "x"]}),
            &format!("spec.LoadBalancerSourceRanges[1]: Invalid value: \"x\": {cidr}"),
        ),
    ]);
    let with = |kind: &str| {
        refusal(&json!({"metadata": {"annotations": {annotation: "10.0.0.0/8, x"}}, "spec": {"type": kind}}))
    };
    assert_eq!(with("LoadBalancer"), format!("metadata.annotations[{annotation}]: Invalid value: \"x\": {cidr}"));
    assert_eq!(
        with("ClusterIP"),
        format!(
            "[metadata.annotations[{annotation}]: Forbidden: {only}, metadata.annotations[{annotation}]: Invalid value: \
             \"x\": {cidr}]"
        )
    );
}

#[test]
fn annotations_must_agree() {
    let (mode, hints) = ("service.kubernetes.io/topology-mode", "service.kubernetes.io/topology-aware-hints");
    assert_eq!(
        refusal(&json!({"metadata": {"annotations": {mode: "Auto", hints: "Disabled"}}})),
        format!(
            "metadata.annotations[{mode}]: Invalid value: \"Auto\": must match annotations[{hints}] when both are specified"
        )
    );
}

#[test]
fn names_are_labels() {
    assert_eq!(refusal(&json!({"metadata": {"name": "123-abc"}})), "");
    assert!(
        refusal(&json!({"metadata": {"name": "my.web"}}))
            .ends_with("metadata.name: Invalid value: \"my.web\": must not contain dots")
    );
}

#[test]
fn warnings() {
    let warn = |spec: Value| {
        let mut spec = spec;
        spec.put("ports", json!([{"port": 80}]));
        Cluster::dual().create(service(&spec)).expect("accepted").1
    };
    assert_eq!(warn(json!({})), Vec::<String>::new());
    assert_eq!(
        warn(json!({"clusterIP": "None", "sessionAffinity": "ClientIP", "externalIPs": ["203.0.113.1"]})),
        ["spec.externalIPs is ignored for headless services", "spec.SessionAffinity is ignored for headless services"]
    );
    assert_eq!(
        warn(json!({"externalIPs": ["2001:DB8::1"], "externalName": "a.b", "trafficDistribution": "PreferClose"})),
        [
            "spec.externalIPs[0]: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")",
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
            "spec.externalName is ignored when spec.type is not \"ExternalName\"",
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
        ]
    );
    assert_eq!(
        warn(json!({"type": "ExternalName", "externalName": "a.b", "externalIPs": ["203.0.113.1"]})),
        ["spec.externalIPs is ignored when spec.type is \"ExternalName\""]
    );
}
