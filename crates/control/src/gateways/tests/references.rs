//! Secrets and Services that are referred to, and what is not read.

use super::*;
use crate::testing::service as backend;

fn secret(namespace: &str, text: &str) -> Value {
    json!({"metadata": {"name": "cert", "namespace": namespace}, "type": "kubernetes.io/tls", "data": {"tls.crt": text}})
}

fn https(reference: Value) -> Value {
    json!({"name": "https", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [reference]}})
}

fn listener_status(cluster: &Cluster) -> Value {
    status(cluster).items("listeners")[0].clone()
}

#[test]
fn s52_a_certificate_is_judged_when_it_changes() {
    let mut cluster = cluster();
    put_gateway(&mut cluster, &[https(json!({"name": "cert"}))]);
    converge(&mut cluster);
    assert_condition(&listener_status(&cluster), "ResolvedRefs=False/InvalidCertificateRef");
    cluster.put("secrets", secret("default", "bad"));
    converge(&mut cluster);
    assert_condition(&listener_status(&cluster), "ResolvedRefs=False/InvalidCertificateRef");
    let message = condition(&listener_status(&cluster), "ResolvedRefs");
    assert!(message.text("message").contains("good certificate"), "{message}");
    cluster.put("secrets", secret("default", "good"));
    converge(&mut cluster);
    assert_condition(&listener_status(&cluster), "ResolvedRefs=True/ResolvedRefs");
    assert_condition(&listener_status(&cluster), "Programmed=True/Programmed");
    cluster.remove("secrets", "default/cert");
    converge(&mut cluster);
    assert_condition(&listener_status(&cluster), "ResolvedRefs=False/InvalidCertificateRef");
}

#[test]
fn s52_a_certificate_of_another_namespace_needs_a_grant() {
    let mut cluster = cluster();
    cluster.put("namespaces", json!({"metadata": {"name": "certs"}, "spec": {"finalizers": ["kubernetes"]}}));
    cluster.put("secrets", secret("certs", "good"));
    put_gateway(&mut cluster, &[https(json!({"name": "cert", "namespace": "certs"}))]);
    converge(&mut cluster);
    assert_condition(&listener_status(&cluster), "ResolvedRefs=False/RefNotPermitted");
    let grant = json!({
        "apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
        "metadata": {"name": "g", "namespace": "certs"},
        "spec": {"from": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "default"}],
                 "to": [{"group": "", "kind": "Secret"}]},
    });
    cluster.put(GRANTS, grant);
    converge(&mut cluster);
    assert_condition(&listener_status(&cluster), "ResolvedRefs=True/ResolvedRefs");
}

#[test]
fn s52_backends_are_found_when_they_are_made() {
    let mut cluster = cluster();
    put_gateway(&mut cluster, &[listener("http", 80, "HTTP")]);
    put_route(&mut cluster, "r");
    converge(&mut cluster);
    let parent =
        |cluster: &Cluster| cluster.get(HTTP_ROUTES, "default/r").expect("a route").items("status.parents")[0].clone();
    assert_condition(&parent(&cluster), "ResolvedRefs=False/BackendNotFound");
    cluster.put(service::TABLE, backend("web", "web"));
    converge(&mut cluster);
    assert_condition(&parent(&cluster), "ResolvedRefs=True/ResolvedRefs");
    cluster.remove(service::TABLE, "default/web");
    converge(&mut cluster);
    assert_condition(&parent(&cluster), "ResolvedRefs=False/BackendNotFound");
}

/// Fails when it is used.
struct Never;

impl CheckCertificates for Never {
    fn certificate(&self, secret: &Secret) -> Result<(), String> {
        panic!("{secret:?} was read")
    }

    fn authorities(&self, pem: &str) -> Result<(), String> {
        panic!("{pem} was read")
    }
}

#[test]
fn s52_what_nothing_refers_to_is_not_read() {
    let mut cluster = without_pool();
    cluster.settings.certificate_checks = CertificateChecks(Some(Arc::new(Never)));
    cluster.settings.gateway_class = false;
    cluster.restart();
    let fill = |cluster: &mut Cluster| {
        cluster.put("secrets", secret("default", "good"));
        cluster.put("configmaps", json!({"metadata": {"name": "ca", "namespace": "default"}, "data": {"ca.crt": "x"}}));
        cluster.put(service::TABLE, backend("web", "web"));
        cluster.put("namespaces", json!({"metadata": {"name": "more"}, "spec": {"finalizers": ["kubernetes"]}}));
        cluster.deliver_all();
    };
    fill(&mut cluster);
    assert!(!format!("{:?}", cluster.cache.gateways).contains("default/web"), "an idle cluster keeps nothing");
    put_gateway(&mut cluster, &[listener("http", 80, "HTTP")]);
    fill(&mut cluster);
    assert!(!format!("{:?}", cluster.cache.gateways).contains("default/web"), "only what is referred to is kept");
}
