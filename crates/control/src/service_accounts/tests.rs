use super::*;
use crate::signers::TokenSigner;
use crate::testing::Cluster;

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(&[&ACCOUNTS, &ROOT_CAS, &TOKENS]);
    cluster.settings.root_ca = Some("pem".to_owned());
    let sign = |order: &TokenRequest<'_>| Ok(format!("{}/{}/{}", order.namespace, order.account.0, order.secret));
    cluster.settings.token_signer = Some(TokenSigner::new(sign, |token| token != "old"));
    cluster.put("namespaces", json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}}));
    cluster.converge();
    cluster
}

#[test]
fn account_and_root_ca_are_created_and_restored() {
    let mut cluster = cluster();
    let find = |cluster: &Cluster| {
        let map = cluster.get("configmaps", "a/kube-root-ca.crt").map(|map| map.at("data").clone());
        (cluster.get("serviceaccounts", "a/default").is_some(), map)
    };
    let there = (true, Some(json!({"ca.crt": "pem"})));
    assert_eq!(find(&cluster), there);
    cluster.remove("serviceaccounts", "a/default");
    cluster.remove("configmaps", "a/kube-root-ca.crt");
    cluster.converge();
    assert_eq!(find(&cluster), there);
    let mut changed = cluster.get("configmaps", "a/kube-root-ca.crt").expect("a map");
    changed.put("data", json!({"ca.crt": "another", "x": "y"}));
    cluster.put("configmaps", changed);
    cluster.converge();
    assert_eq!(find(&cluster), there);
    assert!(cluster.writes_to("configmaps") > 0 && cluster.writes_to("serviceaccounts") > 0);
    cluster.restart();
    cluster.converge();
    assert_eq!((cluster.writes_to("configmaps"), cluster.writes_to("serviceaccounts")), (0, 0));
}

#[test]
fn a_token_secret_is_filled_and_deleted_with_its_account() {
    let mut cluster = cluster();
    let secret = |name: &str, account: &str| {
        json!({
            "metadata": {"name": name, "namespace": "a", "annotations": {SERVICE_ACCOUNT_NAME: account}},
            "type": TOKEN_TYPE,
        })
    };
    cluster.put("secrets", secret("s", "default"));
    cluster.put("secrets", secret("lost", "nobody"));
    cluster.converge();
    assert_eq!(cluster.get("secrets", "a/lost"), None);
    let filled = cluster.get("secrets", "a/s").expect("a Secret");
    let data =
        |name: &str| String::from_utf8(STANDARD.decode(filled.at("data")[name].as_str().unwrap()).unwrap()).unwrap();
    assert_eq!((data("token"), data("namespace"), data("ca.crt")), ("a/default/s".into(), "a".into(), "pem".into()));
    // A token whose key is no longer accepted is replaced.
    let mut outdated = filled.clone();
    outdated.put("data.token", STANDARD.encode("old"));
    cluster.put("secrets", outdated);
    cluster.converge();
    assert_eq!(cluster.get("secrets", "a/s").expect("a Secret").at("data"), filled.at("data"));
    cluster.remove("serviceaccounts", "a/default");
    cluster.converge();
    assert_eq!(cluster.get("secrets", "a/s"), None, "the account that came back is another");
}
