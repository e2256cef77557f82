mod attacks;

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::testing::Cluster;

/// A request for `system:node:n1` of `system:nodes`, for the name `n1` and the address 192.0.2.7.
const SERVING: &str = include_str!("../../../api/src/kinds/certificatesigningrequest/testdata/n1.csr.b64");
/// The same without names.
const CLIENT: &str = include_str!("testdata/client.csr.b64");
/// Any certificate.
const ISSUED: &str = include_str!("testdata/issued.pem");

fn request(name: &str, signer: &str, user: &str, groups: &[&str]) -> Value {
    let (text, usage) = if signer == NODE_SERVING { (SERVING, "server auth") } else { (CLIENT, "client auth") };
    json!({
        "metadata": {"name": name, "creationTimestamp": "1970-01-01T00:00:00Z"},
        "spec": {
            "request": text.trim(), "signerName": signer, "usages": ["digital signature", usage],
            "username": user, "groups": groups,
        },
        "status": {},
    })
}

fn node(name: &str, addresses: &[&str]) -> Value {
    let addresses: Vec<Value> =
        addresses.iter().map(|address| json!({"type": "InternalIP", "address": address})).collect();
    json!({"metadata": {"name": name}, "status": {"addresses": addresses}})
}

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(&[&APPROVER, &ISSUER, &CLEANER]);
    cluster.settings.signer = Some(Signer::new(|order| {
        assert_eq!(order.lifetime, Duration::from_secs(365 * 86_400));
        let wanted = if order.signer == API_CLIENT { "alice" } else { "system:node:n1" };
        assert_eq!(order.request.common_name, wanted);
        Ok(ISSUED.to_owned())
    }));
    cluster
}

fn state(cluster: &Cluster, name: &str) -> (bool, bool) {
    let request = cluster.get(KIND.table, name).expect("a request");
    (has_condition(&request, APPROVED), !request.text("status.certificate").is_empty())
}

const NODE: &str = "system:node:n1";
const NODES: &[&str] = &["system:nodes", "system:authenticated"];
const BOOTSTRAPPERS: &[&str] = &["system:bootstrappers", "system:authenticated"];

#[test]
fn a_machine_with_a_token_becomes_a_node() {
    let mut cluster = cluster();
    cluster.put(KIND.table, request("boot", NODE_CLIENT, "system:bootstrap:abcdef", BOOTSTRAPPERS));
    cluster.put(KIND.table, request("renewal", NODE_CLIENT, NODE, NODES));
    cluster.put(KIND.table, request("other", NODE_CLIENT, "system:node:n2", NODES));
    cluster.put(KIND.table, request("stranger", NODE_CLIENT, "alice", &["system:authenticated"]));
    cluster.put(KIND.table, request("person", API_CLIENT, NODE, NODES));
    cluster.converge();
    assert_eq!(state(&cluster, "boot"), (true, true));
    assert_eq!(state(&cluster, "renewal"), (true, true));
    for name in ["other", "stranger", "person"] {
        assert_eq!(state(&cluster, name), (false, false), "{name}");
    }
}

#[test]
fn wrong_usages_and_names_are_not_approved_automatically() {
    let mut cluster = cluster();
    let mut served = request("a", NODE_CLIENT, NODE, NODES);
    served.put("spec.usages", json!(["digital signature", "server auth"]));
    cluster.put(KIND.table, served);
    let mut named = request("b", NODE_CLIENT, NODE, NODES);
    named.put("spec.request", SERVING.trim());
    cluster.put(KIND.table, named);
    cluster.converge();
    assert_eq!((state(&cluster, "a"), state(&cluster, "b")), ((false, false), (false, false)));
}

#[test]
fn a_serving_certificate_for_own_addresses_is_approved() {
    let mut cluster = cluster();
    cluster.put(KIND.table, request("a", NODE_SERVING, NODE, NODES));
    cluster.converge();
    assert_eq!(state(&cluster, "a"), (false, false), "there is no Node");
    cluster.put("minions", node("n1", &["192.0.2.8", "n1"]));
    cluster.converge();
    assert_eq!(state(&cluster, "a"), (false, false), "that is not its address");
    assert_eq!(cluster.events, [], "a machine that joins bothers nobody");
    cluster.put("minions", node("n1", &["192.0.2.7", "n1"]));
    cluster.converge();
    assert_eq!(state(&cluster, "a"), (true, true));
}

#[test]
fn a_serving_certificate_for_other_addresses_is_not_approved() {
    let slice = json!({
        "metadata": {"name": "kubernetes", "namespace": "default"}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.7"]}],
    });
    let service = json!({
        "metadata": {"name": "s", "namespace": "default"}, "spec": {"clusterIP": "192.0.2.7", "clusterIPs": ["192.0.2.7"]},
    });
    for (table, other) in
        [("endpointslices", slice), ("services/specs", service), ("minions", node("n2", &["192.0.2.7"]))]
    {
        let mut cluster = cluster();
        cluster.put(table, other);
        cluster.put("minions", node("n1", &["192.0.2.7", "n1"]));
        cluster.put(KIND.table, request("a", NODE_SERVING, NODE, NODES));
        cluster.converge();
        assert_eq!(state(&cluster, "a"), (false, false), "{table}");
    }
}

#[test]
fn manual_decisions_are_respected() {
    let mut cluster = cluster();
    let mut asked = request("person", API_CLIENT, "alice", &[]);
    asked.put("spec.request", include_str!("testdata/alice.csr.b64").trim());
    cluster.put(KIND.table, with_condition(&asked, APPROVED, "KubectlApprove", "by hand", "1970-01-01T00:00:00Z"));
    let asked = request("refused", NODE_CLIENT, "system:bootstrap:abcdef", BOOTSTRAPPERS);
    cluster.put(KIND.table, with_condition(&asked, DENIED, "KubectlDeny", "by hand", "1970-01-01T00:00:00Z"));
    let asked = request("elsewhere", "example.com/signer", "alice", &[]);
    cluster.put(KIND.table, with_condition(&asked, APPROVED, "KubectlApprove", "by hand", "1970-01-01T00:00:00Z"));
    cluster.converge();
    assert_eq!(state(&cluster, "person"), (true, true));
    assert_eq!(state(&cluster, "refused"), (false, false));
    assert_eq!(state(&cluster, "elsewhere"), (true, false), "that is not our signer");
}

#[test]
fn signing_errors_are_reported_once() {
    let mut cluster = cluster();
    cluster.settings.signer = Some(Signer::new(|_| Err("no key".into())));
    cluster.put(KIND.table, request("a", NODE_CLIENT, NODE, NODES));
    cluster.converge();
    let request = cluster.get(KIND.table, "a").expect("a request");
    let failed = request.items("status.conditions").iter().find(|condition| condition.text("type") == FAILED);
    assert_eq!(failed.map(|condition| condition.text("message")), Some("no key"));
}

#[test]
fn old_requests_are_deleted() {
    let cluster = {
        let mut cluster = cluster();
        cluster.put(KIND.table, request("pending", NODE_CLIENT, "alice", &[]));
        cluster.put(KIND.table, request("done", NODE_CLIENT, NODE, NODES));
        cluster.converge();
        Arc::new(cluster)
    };
    let after = |seconds: i64, name: &str| {
        let view = View { now: Timestamp::from_second(seconds).expect("a time"), ..cluster.view(None) };
        !clean(&view, name).transactions.is_empty()
    };
    assert!(!after(3599, "done") && after(3600, "done"));
    assert!(!after(3600, "pending") && !after(86_399, "pending") && after(86_400, "pending"));
}
