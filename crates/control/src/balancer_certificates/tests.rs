//! The annotation is updated with Services and Secrets.

use api::balancer_certificate::CLAIM;
use serde_json::json;

use super::*;
use crate::testing::Cluster;

fn balancer(certificate: &str) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "default", "annotations": {SSL_CERT: certificate}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 443, "protocol": "TCP"}], "sessionAffinity": "None"},
    })
}

fn secret(name: &str, claim: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "annotations": {CLAIM: claim}}, "type": TYPE,
        "data": {"tls.crt": "", "tls.key": ""},
    })
}

fn found(cluster: &Cluster) -> String {
    let service = cluster.get(SERVICES, "default/web").expect("the Service");
    service.at("metadata.annotations").get(FOUND).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[test]
fn s48_the_secret_of_an_arn_is_annotated_and_updated() {
    let mut cluster = Cluster::new(&[&CONTROLLER]);
    cluster.put(SERVICES, balancer("arn:x"));
    cluster.put(SECRETS, secret("other", "arn:y"));
    cluster.converge();
    assert_eq!(found(&cluster), "");
    cluster.put(SECRETS, secret("b", "arn:x"));
    cluster.converge();
    assert_eq!(found(&cluster), "b");
    cluster.put(SECRETS, secret("a", "arn:x"));
    cluster.converge();
    assert_eq!(found(&cluster), "a", "as the gateway chooses");
    let _ = cluster.writes_to(SERVICES);
    cluster.restart();
    cluster.converge();
    assert_eq!(cluster.writes_to(SERVICES), 0, "a restart changes nothing");
    cluster.remove(SECRETS, "default/a");
    cluster.put(SECRETS, secret("b", "arn:z"));
    cluster.converge();
    assert_eq!(found(&cluster), "");
}

#[test]
fn the_annotation_is_removed_with_the_arn() {
    for (path, value) in [
        ("metadata.annotations", json!({SSL_CERT: "secret://default/a", FOUND: "a"})),
        ("metadata.annotations", json!({FOUND: "a"})),
        ("spec.type", json!("ClusterIP")),
    ] {
        let mut cluster = Cluster::new(&[&CONTROLLER]);
        cluster.put(SECRETS, secret("a", "arn:x"));
        cluster.put(SERVICES, balancer("arn:x"));
        cluster.converge();
        assert_eq!(found(&cluster), "a");
        let mut service = cluster.get(SERVICES, "default/web").expect("the Service");
        service.put(path, value);
        cluster.put(SERVICES, service);
        cluster.converge();
        assert_eq!(found(&cluster), "", "{path}");
    }
}
