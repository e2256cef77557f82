//! Which Secrets of Ingresses nodes may read.

#![expect(clippy::needless_pass_by_value, reason = "objects are written where they are used")]

use std::sync::Arc;

use api::object;
use serde_json::{Value, json};
use store::{Embedded, Options, Txn};

use super::*;

/// Whether nodes may read the Secret `shop/web` in a store with these objects.
async fn may_with(served: &ServedIngresses, objects: &[(&str, Value)]) -> bool {
    let dir = tempfile::tempdir().expect("a directory");
    let store =
        Embedded::open(dir.path(), |_: &str, _: &[u8]| Default::default(), Options::default()).expect("a store");
    for (table, object) in objects {
        let metadata = &object["metadata"];
        let own = metadata["name"].as_str().expect("a name");
        let key =
            metadata["namespace"].as_str().map_or_else(|| own.to_owned(), |namespace| format!("{namespace}/{own}"));
        let txn = Txn::new().put(Key::new(Table::named(table), key), object::encode(object), Arc::default());
        store.commit(txn).await.expect("committed");
    }
    served.refer_to(&store, "shop", "web")
}

async fn may(objects: &[(&str, Value)]) -> bool {
    may_with(&ServedIngresses::default(), objects).await
}

fn class(name: &str, controller: &str, is_default: bool) -> (&'static str, Value) {
    let default = json!({"ingressclass.kubernetes.io/is-default-class": is_default.to_string()});
    (CLASSES, json!({"metadata": {"name": name, "annotations": default}, "spec": {"controller": controller}}))
}

fn ours() -> (&'static str, Value) {
    class("waypost", CONTROLLER, false)
}

fn secret(kind: &str) -> (&'static str, Value) {
    (SECRETS, json!({"metadata": {"namespace": "shop", "name": "web"}, "type": kind, "data": {}}))
}

fn ingress(namespace: &str, class: Option<&str>, annotations: Value, tls: Value) -> (&'static str, Value) {
    let metadata = json!({"namespace": namespace, "name": "web-shop", "annotations": annotations});
    (INGRESSES, json!({"metadata": metadata, "spec": {"ingressClassName": class, "tls": tls}}))
}

fn with_tls(namespace: &str, class: Option<&str>) -> (&'static str, Value) {
    ingress(namespace, class, json!({}), json!([{"hosts": ["a.example"], "secretName": "web"}]))
}

fn with_auth(kind: &str, secret: &str) -> (&'static str, Value) {
    let annotation = |key: &str| format!("nginx.ingress.kubernetes.io/{key}");
    let annotations = json!({annotation("auth-type"): kind, annotation("auth-secret"): secret});
    ingress("shop", Some("waypost"), annotations, json!([]))
}

#[tokio::test]
async fn nodes_may_read_certificates_of_ingresses_that_are_served() {
    assert!(may(&[ours(), secret(TLS), with_tls("shop", Some("waypost"))]).await);
    assert!(!may(&[ours(), secret(TLS)]).await, "nothing refers to it");
    assert!(!may(&[ours(), with_tls("shop", Some("waypost"))]).await, "it does not exist: its type is not known");
    assert!(!may(&[ours(), secret("Opaque"), with_tls("shop", Some("waypost"))]).await, "another type");
    assert!(!may(&[ours(), secret(TLS), with_tls("other", Some("waypost"))]).await, "another namespace");
    assert!(!may(&[secret(TLS), with_tls("shop", Some("waypost"))]).await, "no such class");
    let other = class("nginx", "k8s.io/ingress-nginx", false);
    assert!(!may(&[other, secret(TLS), with_tls("shop", Some("nginx"))]).await, "of another controller");
}

#[tokio::test]
async fn ingresses_without_class_belong_to_the_default_class() {
    let unnamed = with_tls("shop", None);
    assert!(may(&[class("waypost", CONTROLLER, true), secret(TLS), unnamed.clone()]).await);
    assert!(!may(&[ours(), secret(TLS), unnamed.clone()]).await, "not the default class");
    let other = class("nginx", "k8s.io/ingress-nginx", true);
    assert!(!may(&[ours(), other, secret(TLS), unnamed]).await, "of another controller");
}

#[tokio::test]
async fn nodes_may_read_passwords_but_no_tokens() {
    for name in ["web", "shop/web"] {
        assert!(may(&[ours(), secret("Opaque"), with_auth("basic", name)]).await, "{name}");
    }
    assert!(!may(&[ours(), secret("Opaque"), with_auth("basic", "other/web")]).await, "another namespace");
    assert!(!may(&[ours(), secret("Opaque"), with_auth("digest", "web")]).await, "it is not used");
    for kind in ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token", TLS] {
        assert!(!may(&[ours(), secret(kind), with_auth("basic", "web")]).await, "{kind}");
    }
}

#[tokio::test]
async fn controllers_that_are_taken_over_and_the_default_certificate_are_settings() {
    let nginx = class("nginx", "k8s.io/ingress-nginx", false);
    let served = ServedIngresses {
        controllers: vec![CONTROLLER.into(), "k8s.io/ingress-nginx".into()],
        default_certificate: Some("shop/web".into()),
    };
    let taken_over = ServedIngresses { default_certificate: None, ..served.clone() };
    assert!(may_with(&taken_over, &[nginx, secret(TLS), with_tls("shop", Some("nginx"))]).await);
    assert!(may_with(&served, &[secret(TLS)]).await);
    assert!(!may_with(&served, &[secret("Opaque")]).await, "no certificate");
}
