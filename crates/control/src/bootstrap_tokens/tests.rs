use api::bootstrap_token::Token;
use serde_json::json;

use super::*;
use crate::testing::Cluster;

const ID: &str = "kube-system/bootstrap-token-abcdef";

fn token() -> Token {
    Token::parse("abcdef.0123456789abcdef").expect("a token")
}

fn cluster(until: Option<i64>) -> Cluster {
    let mut cluster = Cluster::new(&[&CLEANER, &SIGNER]);
    for name in ["kube-system", "kube-public"] {
        cluster.put("namespaces", json!({"metadata": {"name": name}, "spec": {"finalizers": ["kubernetes"]}}));
    }
    let mut secret = token().keep("", until.map(|second| Timestamp::from_second(second).expect("a time")));
    api::kinds::secret::KIND.rules.default(&mut secret);
    cluster.put("secrets", secret);
    cluster.put(
        "configmaps",
        json!({
            "metadata": {"name": "cluster-info", "namespace": "kube-public"},
            "data": {"kubeconfig": "text", "jws-kubeconfig-gone00": "old", "other": "stays"},
        }),
    );
    cluster
}

#[test]
fn cluster_info_is_signed_with_every_token() {
    let mut cluster = cluster(None);
    cluster.converge();
    let map = cluster.get("configmaps", "kube-public/cluster-info").expect("still there");
    let data = map.map("data").expect("entries");
    assert_eq!(data.keys().collect::<Vec<_>>(), ["jws-kubeconfig-abcdef", "kubeconfig", "other"]);
    assert!(token().signed("text", map.text("data.jws-kubeconfig-abcdef")));
    assert_eq!(cluster.writes_to("configmaps"), 1);

    cluster.remove("secrets", ID);
    cluster.converge();
    let map = cluster.get("configmaps", "kube-public/cluster-info").expect("still there");
    assert!(!map.has("data.jws-kubeconfig-abcdef"));
    cluster.restart();
    cluster.converge();
    assert_eq!(cluster.writes_to("configmaps"), 1, "what is right stays as it is");
}

#[test]
fn an_expired_token_is_deleted() {
    // The clock of these tests is at 0.
    let mut late = cluster(Some(-5));
    late.converge();
    assert_eq!(late.get("secrets", ID), None);
    let map = late.get("configmaps", "kube-public/cluster-info").expect("still there");
    assert!(!map.has("data.jws-kubeconfig-abcdef"), "a token that is over signs nothing");

    let mut early = cluster(Some(60));
    early.converge();
    assert!(early.get("secrets", ID).is_some());
    let again = early.reconcile(&CLEANER, ID).requeue_after.expect("it is looked at again");
    assert!(again > Duration::from_secs(60) && again < Duration::from_secs(61), "{again:?}");
}

#[test]
fn other_secrets_are_unchanged() {
    let mut cluster = cluster(None);
    let mut secret = cluster.get("secrets", ID).expect("the token");
    secret.put("type", "Opaque");
    secret.put("data.expiration", "MjAwMC0wMS0wMVQwMDowMDowMFo=");
    cluster.put("secrets", secret);
    cluster.converge();
    assert!(cluster.get("secrets", ID).is_some());
}

#[test]
fn cluster_info_is_created_with_the_first_token() {
    let mut cluster = Cluster::new(&[&CLEANER, &SIGNER]);
    cluster.settings.cluster_info = Some("text".to_owned());
    for name in ["kube-system", "kube-public"] {
        cluster.put("namespaces", json!({"metadata": {"name": name}, "spec": {"finalizers": ["kubernetes"]}}));
    }
    cluster.converge();
    assert_eq!(cluster.get("configmaps", "kube-public/cluster-info"), None);

    let mut secret = token().keep("", None);
    api::kinds::secret::KIND.rules.default(&mut secret);
    cluster.put("secrets", secret);
    cluster.converge();
    let map = cluster.get("configmaps", "kube-public/cluster-info").expect("somebody may join now");
    assert_eq!(map.text("data.kubeconfig"), "text");
    assert!(token().signed("text", map.text("data.jws-kubeconfig-abcdef")));
}
