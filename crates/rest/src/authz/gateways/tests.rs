use std::sync::Arc;

use api::object;
use serde_json::{Value, json};
use store::{Embedded, Options, Txn};

use super::*;

const GRANT_FROM: &str = "edge";

/// Puts objects into the tables of a new store.
async fn refers(objects: &[(&str, Value)], what: Referenced, name: &str) -> bool {
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
    refer_to(&store, what, "shop", name)
}

fn class(controller: &str) -> (&'static str, Value) {
    (CLASSES, json!({"metadata": {"name": "waypost"}, "spec": {"controllerName": controller}}))
}

fn ours() -> (&'static str, Value) {
    class("waypost.dev/gateway-controller")
}

fn secret(kind: &str) -> (&'static str, Value) {
    (SECRETS, json!({"metadata": {"namespace": "shop", "name": "web"}, "type": kind, "data": {}}))
}

fn gateway(namespace: &str) -> (&'static str, Value) {
    let tls = json!({"certificateRefs": [{"namespace": "shop", "name": "web"}]});
    let listeners = json!([{"name": "https", "port": 443, "protocol": "HTTPS", "tls": tls}]);
    let metadata = json!({"namespace": namespace, "name": "public"});
    (GATEWAYS, json!({"metadata": metadata, "spec": {"gatewayClassName": "waypost", "listeners": listeners}}))
}

fn grant() -> (&'static str, Value) {
    let from = json!([{"group": GROUP, "kind": "Gateway", "namespace": GRANT_FROM}]);
    let spec = json!({"from": from, "to": [{"group": "", "kind": "Secret"}]});
    (GRANTS, json!({"metadata": {"namespace": "shop", "name": "edge"}, "spec": spec}))
}

#[tokio::test]
async fn nodes_may_read_certificates_of_gateways_of_ours() {
    let may = async |objects: &[(&'static str, Value)]| refers(objects, Referenced::Secret, "web").await;
    assert!(may(&[ours(), secret(TLS), gateway("shop")]).await);
    assert!(!may(&[ours(), secret("Opaque"), gateway("shop")]).await, "another type");
    assert!(!may(&[class("example.com/other"), secret(TLS), gateway("shop")]).await, "of another controller");
    assert!(!may(&[ours(), secret(TLS)]).await, "nothing refers to it");
    assert!(!may(&[ours(), secret(TLS), gateway(GRANT_FROM)]).await, "another namespace");
    assert!(may(&[ours(), secret(TLS), gateway(GRANT_FROM), grant()]).await);
    assert!(!may(&[ours(), secret(TLS), gateway("third"), grant()]).await, "not the namespace of the grant");
}

#[tokio::test]
async fn nodes_may_read_cas_of_policies() {
    let refs = json!([{"group": "", "kind": "ConfigMap", "name": "ca"}]);
    let spec = json!({"targetRefs": [], "validation": {"caCertificateRefs": refs, "hostname": "web"}});
    let policy = (POLICIES, json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": spec}));
    assert!(refers(std::slice::from_ref(&policy), Referenced::ConfigMap, "ca").await);
    assert!(!refers(std::slice::from_ref(&policy), Referenced::ConfigMap, "other").await);
    assert!(!refers(&[policy], Referenced::Secret, "ca").await);
}

#[tokio::test]
async fn nodes_may_read_the_passwords_of_policies() {
    let passwords = |kind: &str, key: &str| {
        let metadata = json!({"namespace": "shop", "name": "web"});
        (SECRETS, json!({"metadata": metadata, "type": kind, "data": {key: "YTpi"}}))
    };
    let policy = |namespace: &str, secret: &str| {
        let spec = json!({"targetRefs": [{"group": GROUP, "kind": "Gateway", "name": "public"}],
            "authentication": {"basic": {"secretName": secret, "realm": "web"}}});
        (TRAFFIC_POLICIES, json!({"metadata": {"namespace": namespace, "name": "p"}, "spec": spec}))
    };
    let may = async |objects: &[(&'static str, Value)]| refers(objects, Referenced::Secret, "web").await;
    assert!(may(&[passwords("Opaque", "auth"), policy("shop", "web")]).await);
    assert!(!may(&[passwords("Opaque", "auth"), policy("other", "web")]).await, "a policy of another namespace");
    assert!(!may(&[passwords("Opaque", "auth"), policy("shop", "other")]).await, "the name is that of the realm only");
    assert!(!may(&[passwords("Opaque", "token"), policy("shop", "web")]).await, "no passwords");
    assert!(!may(&[passwords("kubernetes.io/service-account-token", "auth"), policy("shop", "web")]).await);
    assert!(!may(&[secret(TLS), policy("shop", "web")]).await, "certificates are for Gateways");
    assert!(!may(&[passwords("Opaque", "auth")]).await, "nothing refers to it");
}
