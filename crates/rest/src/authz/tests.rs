//! The table, row by row, and the words of refusals.

use super::*;

fn user(name: &str, groups: &[&str]) -> User {
    User { name: name.into(), groups: groups.iter().map(|group| (*group).to_owned()).collect(), ..User::default() }
}

/// `group/resource/sub name` → whether the verb is allowed.
fn may(user: &User, verb: &str, group: &str, resource: &str, name: &str) -> bool {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let asked = Attributes { user, verb, group, resource, subresource, name, namespace: "ns", path: None };
    let decision = authorize(&asked);
    assert_eq!(decision.allowed, require(&asked).is_ok());
    assert!(decision.allowed || decision.reason.is_empty());
    decision.allowed
}

fn may_path(user: &User, verb: &str, path: &str) -> bool {
    authorize(&Attributes::path(user, verb, path)).allowed
}

#[test]
fn masters_may_do_everything() {
    let root = user("root", &["system:masters"]);
    assert!(may(&root, "delete", "", "secrets", "x"));
    assert!(may(&root, "impersonate", "authentication.k8s.io", "userextras/scopes", "x"));
    assert!(may(&root, "*", "*", "*", ""));
    assert!(may(&root, "get", "", "pods/exec", "x"));
    assert!(may_path(&root, "post", "/anything") && may_path(&root, "*", "*"));
}

#[test]
fn everyone_known_may_read_all_but_secrets() {
    let alice = user("alice", &["system:authenticated"]);
    for verb in ["get", "list", "watch"] {
        assert!(may(&alice, verb, "", "services", ""));
        assert!(may(&alice, verb, "example.com", "things", "x"));
        assert!(!may(&alice, verb, "", "secrets", "x"));
    }
    assert!(may(&alice, "get", "", "services/status", "x") && may(&alice, "get", "", "pods/log", "x"));
    for way_in in ["pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy", "nodes/proxy"] {
        assert!(!may(&alice, "get", "", way_in, "x"), "{way_in}");
    }
    for verb in ["create", "update", "patch", "delete", "deletecollection", "impersonate", "*", ""] {
        assert!(!may(&alice, verb, "", "services", "x"), "{verb}");
    }
    // Asking for everything is asking for Secrets too.
    assert!(!may(&alice, "get", "*", "*", "") && !may(&alice, "get", "", "pods/*", ""));
    assert!(may(&alice, "create", "authorization.k8s.io", "selfsubjectaccessreviews", ""));
    assert!(may(&alice, "create", "authorization.k8s.io", "selfsubjectrulesreviews", ""));
    assert!(may(&alice, "create", "authentication.k8s.io", "selfsubjectreviews", ""));
    assert!(!may(&alice, "create", "authorization.k8s.io", "subjectaccessreviews", ""));
    assert!(!may(&alice, "create", "authentication.k8s.io", "tokenreviews", ""));
    assert!(!may(&alice, "create", "", "serviceaccounts/token", "default"));
    for path in ["/api", "/api/v1", "/apis/apps", "/openapi/v3/api/v1", "/readyz/ping", "/version"] {
        assert!(may_path(&alice, "get", path), "{path}");
    }
    assert!(
        !may_path(&alice, "get", "/metrics") && !may_path(&alice, "post", "/api") && !may_path(&alice, "get", "/x")
    );
}

#[test]
fn nodes_write_what_nodes_write() {
    let node = user("system:node:n1", &["system:nodes", "system:authenticated"]);
    assert!(may(&node, "list", "", "services", "") && may(&node, "watch", "discovery.k8s.io", "endpointslices", ""));
    assert!(may(&node, "get", "", "secrets", "tls"));
    assert!(!may(&node, "list", "", "secrets", "") && !may(&node, "watch", "", "secrets", ""));
    assert!(!may(&node, "update", "", "secrets", "tls"));
    for verb in ["create", "patch", "update"] {
        assert!(may(&node, verb, "", "events", "e") && may(&node, verb, "events.k8s.io", "events", "e"));
        assert!(may(&node, verb, "coordination.k8s.io", "leases", "l"));
        assert!(!may(&node, verb, "discovery.k8s.io", "endpointslices", "s"));
        assert!(!may(&node, verb, "", "services", "s"));
    }
    assert!(may(&node, "create", "", "nodes", ""));
    assert!(may(&node, "update", "", "nodes", "n1") && may(&node, "patch", "", "nodes/status", "n1"));
    assert!(!may(&node, "update", "", "nodes", "n2") && !may(&node, "patch", "", "nodes/status", "n2"));
    assert!(!may(&node, "delete", "", "nodes", "n1"));
    assert!(may(&node, "patch", "", "pods/status", "p") && may(&node, "delete", "", "pods", "p"));
    assert!(!may(&node, "update", "", "pods", "p") && !may(&node, "deletecollection", "", "pods", ""));
    let nameless = user("n1", &["system:nodes"]);
    assert!(!may(&nameless, "update", "", "nodes", "n1") && !may(&nameless, "update", "", "nodes", ""));
}

#[test]
fn strangers_see_health_and_version_only() {
    let nobody = User::anonymous();
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert!(may_path(&nobody, "get", path), "{path}");
        assert!(!may_path(&nobody, "post", path), "{path}");
    }
    assert!(!may_path(&nobody, "get", "/api") && !may_path(&nobody, "get", "/healthz/../api"));
    assert!(!may(&nobody, "get", "", "services", "x"));
    assert!(!may(&nobody, "create", "authorization.k8s.io", "selfsubjectaccessreviews", ""));
    assert!(!may_path(&user("no groups", &[]), "get", "/healthz"));
}

#[test]
fn refusals_have_the_words_of_the_original() {
    let bob = user("bob", &[]);
    let base = Attributes {
        user: &bob,
        verb: "list",
        group: "",
        resource: "services",
        subresource: "",
        name: "",
        namespace: "ns",
        path: None,
    };
    let says = |asked: Attributes<'_>| refused(&asked).to_value();
    assert_eq!(
        says(base),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden",
            "message": "services is forbidden: User \"bob\" cannot list resource \"services\" in API group \"\" in the \
                        namespace \"ns\"",
            "details": {"kind": "services"}, "code": 403,
        })
    );
    let named = Attributes {
        verb: "patch",
        group: "discovery.k8s.io",
        resource: "endpointslices",
        subresource: "status",
        name: "x",
        ..base
    };
    assert_eq!(
        says(named)["message"],
        "endpointslices.discovery.k8s.io \"x\" is forbidden: User \"bob\" cannot patch resource \
         \"endpointslices/status\" in API group \"discovery.k8s.io\" in the namespace \"ns\""
    );
    assert_eq!(says(named)["details"], json!({"name": "x", "group": "discovery.k8s.io", "kind": "endpointslices"}));
    assert_eq!(
        says(Attributes { resource: "nodes", namespace: "", ..base })["message"],
        "nodes is forbidden: User \"bob\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"
    );
    let path = says(Attributes::path(&bob, "get", "/x<b>"));
    assert_eq!(path["message"], "forbidden: User \"bob\" cannot get path \"/x&lt;b&gt;\"");
    assert_eq!(path["details"], json!({}));
}
