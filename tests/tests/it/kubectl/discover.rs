//! Discovery: versions, kinds, schemas, health.

use serde_json::Value;

use super::{Bed, MINOR, cells};

#[test]
fn s01_version_shows_both_sides() {
    let bed = Bed::start();
    let version: Value = serde_json::from_str(&bed.ok("version -o json")).expect("JSON");
    let server = &version["serverVersion"];
    assert_eq!(server["major"], "1");
    assert!(server["gitVersion"].as_str().is_some_and(|version| version.starts_with("v1.")), "{version}");
    let out = bed.ok("cluster-info");
    assert!(out.contains("running at") && out.contains(&bed.server.address), "{out}");
}

#[test]
fn s01_api_versions_and_resources_list_every_kind() {
    let bed = Bed::start();
    let versions = bed.ok("api-versions");
    for wanted in ["v1", "discovery.k8s.io/v1", "networking.k8s.io/v1", "events.k8s.io/v1", "coordination.k8s.io/v1"] {
        assert!(versions.lines().any(|line| line == wanted), "{wanted} in\n{versions}");
    }
    let out = bed.ok("api-resources");
    assert_eq!(cells(&out)[0], ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]);
    for wanted in [
        "services svc v1 true Service",
        "endpoints ep v1 true Endpoints",
        "namespaces ns v1 false Namespace",
        "pods po v1 true Pod",
        "nodes no v1 false Node",
        "configmaps cm v1 true ConfigMap",
        "secrets v1 true Secret",
        "serviceaccounts sa v1 true ServiceAccount",
        "events ev v1 true Event",
        "events ev events.k8s.io/v1 true Event",
        "endpointslices discovery.k8s.io/v1 true EndpointSlice",
        "servicecidrs networking.k8s.io/v1 false ServiceCIDR",
        "ipaddresses ip networking.k8s.io/v1 false IPAddress",
        "ingresses ing networking.k8s.io/v1 true Ingress",
        "ingressclasses networking.k8s.io/v1 false IngressClass",
        "certificatesigningrequests csr certificates.k8s.io/v1 false CertificateSigningRequest",
        "leases coordination.k8s.io/v1 true Lease",
        "selfsubjectaccessreviews authorization.k8s.io/v1 false SelfSubjectAccessReview",
        "subjectaccessreviews authorization.k8s.io/v1 false SubjectAccessReview",
        "tokenreviews authentication.k8s.io/v1 false TokenReview",
    ] {
        assert!(cells(&out).iter().any(|row| row.join(" ") == wanted), "{wanted} in\n{out}");
    }
}

#[test]
fn s01_api_resources_can_be_filtered_and_say_their_verbs() {
    let bed = Bed::start();
    let cluster = bed.ok("api-resources --namespaced=false -o name");
    assert!(cluster.contains("nodes\n") && !cluster.contains("services\n"), "{cluster}");
    let group = bed.ok("api-resources --api-group=networking.k8s.io -o name");
    assert_eq!(group.lines().count(), 5, "{group}");
    let watched = bed.ok("api-resources --verbs=list,watch,patch,deletecollection -o name");
    assert!(watched.contains("services\n") && !watched.contains("reviews"), "{watched}");
    let wide = bed.ok("api-resources --api-group= -o wide");
    let services = wide.lines().find(|line| line.starts_with("services ")).expect("services");
    for verb in ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"] {
        assert!(services.contains(verb), "{verb} in {services}");
    }
}

#[test]
fn s01_explain_knows_the_fields_of_a_service() {
    let bed = Bed::start();
    let out = bed.ok("explain service.spec.ports");
    assert!(out.contains("Service") && out.contains("The list of ports that are exposed by this service."), "{out}");
    let field = |name: &str| out.lines().any(|line| line.trim_start().starts_with(&format!("{name}\t<")));
    for name in ["appProtocol", "name", "nodePort", "port", "protocol", "targetPort"] {
        assert!(field(name), "{name} in\n{out}");
    }
    assert!(out.contains("port\t<integer> -required-"), "{out}");

    let out = bed.ok("explain service --recursive");
    for (name, kind) in [("clusterIPs", "[]string"), ("selector", "map[string]string"), ("timeoutSeconds", "integer")] {
        assert!(out.contains(&format!("{name}\t<{kind}>")), "{name} in\n{out}");
    }
    for kind in
        ["endpointslices", "ingress.spec.rules", "pods.spec.containers.readinessProbe", "servicecidrs", "leases"]
    {
        assert!(bed.ok(&format!("explain {kind}")).contains("DESCRIPTION"), "{kind}");
    }
    let wrong = bed.fails("explain service.spec.nothing");
    assert!(wrong.contains(r#"field "nothing" does not exist"#), "{wrong}");
}

#[test]
fn s01_both_openapi_documents_are_there() {
    let bed = Bed::start();
    let index: Value = serde_json::from_str(&bed.ok("get --raw /openapi/v3")).expect("JSON");
    let url = index["paths"]["api/v1"]["serverRelativeURL"].as_str().expect("a link");
    let document: Value = serde_json::from_str(&bed.ok(&format!("get --raw {url}"))).expect("JSON");
    let schema = &document["components"]["schemas"]["io.k8s.api.core.v1.ServiceSpec"];
    assert_eq!(schema["properties"]["ports"]["x-kubernetes-patch-merge-key"], "port", "{schema}");
    let document: Value = serde_json::from_str(&bed.ok("get --raw /openapi/v2")).expect("JSON");
    assert!(document["definitions"]["io.k8s.api.core.v1.Service"].is_object());
    if *MINOR >= 27 {
        assert!(bed.ok("explain service.spec.clusterIP --output=plaintext-openapiv2").contains("clusterIP"));
    }
}

#[test]
fn s01_health_and_metrics_can_be_read() {
    let bed = Bed::start();
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(bed.ok(&format!("get --raw {path}")), "ok");
    }
    assert!(bed.ok("get --raw /readyz?verbose").ends_with("readyz check passed\n"));
    assert!(bed.ok("get --raw /metrics").contains("apiserver_request_total"));
}
