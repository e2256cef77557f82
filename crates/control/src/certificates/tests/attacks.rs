//! Certificate requests that escalate privileges. Each of them was signed or approved by an earlier version.

use std::net::IpAddr;

use super::*;
use crate::certificates::reserved::serving;
use crate::settings::ServerNames;

const NODE_OF_MASTERS: &str = include_str!("../testdata/node-masters.csr.b64");
const SERVER_AS_CLIENT: &str = include_str!("../testdata/server-client.csr.b64");
const KUBERNETES_CLIENT: &str = include_str!("../testdata/kubernetes-client.csr.b64");
const KUBERNETES_SERVING: &str = include_str!("../testdata/kubernetes-serving.csr.b64");

/// A request with these bytes that was approved manually.
fn approved(name: &str, signer: &str, csr: &str) -> Value {
    let mut asked = request(name, signer, "mallory", &["system:authenticated"]);
    asked.put("spec.request", csr.trim());
    with_condition(&asked, APPROVED, "KubectlApprove", "by hand", "1970-01-01T00:00:00Z")
}

/// The failure message of a request without a certificate.
#[track_caller]
fn failure(cluster: &Cluster, name: &str) -> String {
    let request = cluster.get(KIND.table, name).expect("a request");
    assert_eq!(request.text("status.certificate"), "", "{name} was signed");
    let failed = request.items("status.conditions").iter().find(|condition| condition.text("type") == FAILED);
    let failed = failed.unwrap_or_else(|| panic!("{name} has not failed: {request}"));
    assert_eq!(failed.text("reason"), "SignerValidationFailure");
    failed.text("message").to_owned()
}

#[test]
fn an_approved_request_for_administrators_or_the_server_is_not_signed() {
    let mut cluster = cluster();
    cluster.put(KIND.table, approved("a", NODE_CLIENT, NODE_OF_MASTERS));
    cluster.put(KIND.table, approved("b", API_CLIENT, NODE_OF_MASTERS));
    cluster.put(KIND.table, approved("c", API_CLIENT, SERVER_AS_CLIENT));
    // A node's subject from the signer for users would bypass the rules for nodes.
    cluster.put(KIND.table, approved("d", API_CLIENT, CLIENT));
    cluster.converge();
    assert_eq!(failure(&cluster, "a"), "subject organization is not system:nodes");
    assert!(failure(&cluster, "b").contains("\"system:masters\" is a group of the cluster itself"));
    assert!(failure(&cluster, "c").contains("\"waypost:api-servers\" is a group of the cluster itself"));
    assert!(failure(&cluster, "d").contains("\"system:nodes\" is a group of the cluster itself"));
}

#[test]
fn a_node_cannot_join_with_a_name_of_the_server() {
    let mut cluster = cluster();
    let mut asked = request("join", NODE_CLIENT, "system:bootstrap:abcdef", BOOTSTRAPPERS);
    asked.put("spec.request", KUBERNETES_CLIENT.trim());
    cluster.put(KIND.table, asked);
    cluster.put(KIND.table, approved("joined", NODE_CLIENT, KUBERNETES_CLIENT));
    // A request that was approved before this check existed.
    cluster.put("minions", node("kubernetes.default.svc", &["kubernetes.default.svc"]));
    let mut asked = request("serve", NODE_SERVING, "system:node:kubernetes.default.svc", NODES);
    asked.put("spec.request", KUBERNETES_SERVING.trim());
    cluster.put(KIND.table, asked);
    cluster.put(KIND.table, approved("served", NODE_SERVING, KUBERNETES_SERVING));
    let mut asked = request("admin", NODE_SERVING, "waypost-admin", &["system:masters"]);
    asked.put("spec.request", KUBERNETES_SERVING.trim());
    cluster.put(KIND.table, asked);
    cluster.converge();
    for name in ["join", "serve", "admin"] {
        assert_eq!(state(&cluster, name), (false, false), "{name}");
    }
    for name in ["joined", "served"] {
        assert!(failure(&cluster, name).contains("a name of the API server"), "{name}");
    }
    let told = cluster.events.iter().filter(|(reason, message)| {
        reason == "ApprovalRequired" && message.contains("CN=system:node:kubernetes.default.svc")
    });
    assert_eq!(told.count(), 2, "one for clients, one for serving: {:?}", cluster.events);
}

/// A server at these names, with a Service, a load balancer and another Node.
fn surroundings() -> Cluster {
    let mut cluster = cluster();
    let addresses = ["198.51.100.1", "2001:db8::1"].map(|text| text.parse().expect("an address"));
    cluster.settings.server_names = ServerNames {
        dns: ["api.example.com", "*.apis.example.com", "head"].map(str::to_owned).into(),
        ips: addresses.into(),
        domain: "cluster.local".into(),
    };
    cluster.put(
        "services/specs",
        json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "externalIPs": ["203.0.113.4"]},
            "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.5"}, {"hostname": "lb.example.com"}]}},
        }),
    );
    let slice = json!({
        "metadata": {"name": "kubernetes", "namespace": "default"}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["198.51.100.9"]}],
    });
    cluster.put("endpointslices", slice);
    cluster.put("minions", node("n1", &["192.0.2.7", "n1"]));
    cluster.put("minions", node("n2", &["192.0.2.8", "n2"]));
    cluster
}

#[test]
fn serving_certificates_for_foreign_names_and_addresses_are_not_signed() {
    let cluster = surroundings();
    let context = CheckContext { store: &cluster.store, settings: &cluster.settings };
    let named = |name: &str| serving(&Request { dns: vec![name.to_owned()], ..Request::default() }, "n1", &context);
    for name in ["n1", "n1.example.com", "web.shop.example.com", "web", "kubernetes-1"] {
        assert_eq!(named(name), Ok(()), "{name}");
    }
    for name in [
        "kubernetes",
        "KUBERNETES.default",
        "kubernetes.default.svc.cluster.local",
        "localhost",
        "api.example.com",
        "API.example.com.",
        "one.apis.example.com",
        "head",
        "cluster.local",
        "n1.cluster.local",
        "web.shop",
        "web.shop.svc",
        "web.shop.svc.example.com",
        "none.such.svc",
        "lb.example.com",
        "*.example.com",
        "192.0.2.7",
        "",
    ] {
        let said = named(name).expect_err(name).to_string();
        assert!(said.contains("no agent serves under it"), "{said}");
    }
    let at = |text: &str| {
        let ip: IpAddr = text.parse().expect("an address");
        serving(&Request { ips: vec![ip], ..Request::default() }, "n1", &context)
    };
    for ip in ["192.0.2.7", "2001:db8::7", "::ffff:192.0.2.7"] {
        assert_eq!(at(ip), Ok(()), "{ip}");
    }
    for (ip, whose) in [
        ("198.51.100.1", "the API server"),
        ("::ffff:198.51.100.1", "the API server"),
        ("2001:db8::1", "the API server"),
        ("198.51.100.9", "the API server"),
        ("10.96.0.9", "cluster IPs"),
        ("10.96.200.200", "cluster IPs"),
        ("203.0.113.4", "Service shop/web"),
        ("203.0.113.5", "Service shop/web"),
        ("192.0.2.8", "Node n2"),
        ("127.0.0.1", "not the address of one machine"),
        ("::ffff:127.0.0.1", "not the address of one machine"),
        ("::1", "not the address of one machine"),
        ("0.0.0.0", "not the address of one machine"),
        ("224.0.0.1", "not the address of one machine"),
        ("ff02::1", "not the address of one machine"),
    ] {
        let said = at(ip).expect_err(ip).to_string();
        assert!(said.contains(whose), "{said}");
    }
}

#[test]
fn requests_that_cannot_be_signed_are_not_approved() {
    let mut cluster = surroundings();
    cluster.settings.server_names.ips.push([192, 0, 2, 7].into());
    cluster.put(KIND.table, request("own", NODE_SERVING, NODE, NODES));
    cluster.put(KIND.table, approved("approved", NODE_SERVING, SERVING));
    cluster.converge();
    assert_eq!(state(&cluster, "own"), (false, false));
    assert_eq!(failure(&cluster, "approved"), "192.0.2.7 is an address of the API server: no agent serves under it");
}

fn lease(name: &str, renewed: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": {"holderIdentity": name, "renewTime": renewed}})
}

#[test]
fn a_token_cannot_take_over_a_running_node() {
    let mut cluster = cluster();
    cluster.put("minions", node("n1", &["192.0.2.7", "n1"]));
    cluster.put("leases", lease("n1", "1970-01-01T00:00:00.000000Z"));
    cluster.converge();
    cluster.put(KIND.table, request("boot", NODE_CLIENT, "system:bootstrap:abcdef", BOOTSTRAPPERS));
    cluster.put(KIND.table, request("renewal", NODE_CLIENT, NODE, NODES));
    cluster.converge();
    assert_eq!(state(&cluster, "boot"), (false, false), "the node is running");
    assert_eq!(state(&cluster, "renewal"), (true, true), "a node may renew its own certificate");
    assert!(cluster.events.iter().any(|(_, message)| message.contains("a token cannot take over a running node")));

    // It is reconciled again when the Node counts as stopped. The clock of the controller counts, not the time in the Lease.
    let again = |cluster: &Cluster| cluster.reconcile(&APPROVER, "boot").requeue_after;
    assert_eq!(again(&cluster), Some(Duration::from_secs(300)));
    cluster.advance(Duration::from_secs(200));
    cluster.put("leases", lease("n1", "1969-01-01T00:00:00.000000Z"));
    cluster.converge();
    assert_eq!(again(&cluster), Some(Duration::from_secs(300)));
    cluster.advance(Duration::from_secs(299));
    assert_eq!(again(&cluster), Some(Duration::from_secs(1)));
    cluster.advance(Duration::from_secs(1));
    cluster.queued.insert((0, "boot".to_owned()));
    cluster.converge();
    assert_eq!(state(&cluster, "boot"), (true, true), "the node has stopped");
}

#[test]
fn a_token_can_take_over_a_node_without_heartbeats() {
    let mut cluster = cluster();
    cluster.put("minions", node("n1", &[]));
    cluster.put(KIND.table, request("boot", NODE_CLIENT, "system:bootstrap:abcdef", BOOTSTRAPPERS));
    cluster.converge();
    assert_eq!(state(&cluster, "boot"), (true, true));
}
