//! The permissions of the default roles, row by row, and the messages of denials.

use std::sync::LazyLock;

use api::rbac::defaults::DEFAULTS;
use api::value::ValueExt as _;

use super::*;

/// What every cluster grants.
static GRANTS: LazyLock<Grants> = LazyLock::new(|| {
    let mut grants = Grants::default();
    for default in DEFAULTS.iter() {
        let (namespace, name) = (default.object.text("metadata.namespace"), default.object.text("metadata.name"));
        grants.change(default.kind, namespace, name, Some(&default.object));
    }
    grants
});

fn authorize(asked: &Attributes<'_>, relations: &dyn Relations) -> Decision {
    decide(asked, &GRANTS, relations)
}

fn user(name: &str, groups: &[&str]) -> User {
    User { name: name.into(), groups: groups.iter().map(|group| (*group).to_owned()).collect(), ..User::default() }
}

/// `group/resource/sub name` → whether the verb is allowed.
fn may(user: &User, verb: &str, group: &str, resource: &str, name: &str) -> bool {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let asked = Attributes { user, verb, group, resource, subresource, name, namespace: "ns", fields: &[], path: None };
    authorize(&asked, &Nothing).allowed
}

fn may_path(user: &User, verb: &str, path: &str) -> bool {
    authorize(&Attributes::path(user, verb, path), &Nothing).allowed
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
fn authenticated_users_may_review_their_access_and_read_discovery() {
    let alice = user("alice", &["system:authenticated"]);
    for verb in ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate", "*"]
    {
        for resource in ["services", "secrets", "pods/log", "pods/exec", "nodes/proxy", "configmaps"] {
            assert!(!may(&alice, verb, "", resource, "x"), "{verb} {resource}");
        }
    }
    assert!(may(&alice, "create", "authorization.k8s.io", "selfsubjectaccessreviews", ""));
    assert!(may(&alice, "create", "authorization.k8s.io", "selfsubjectrulesreviews", ""));
    assert!(may(&alice, "create", "authentication.k8s.io", "selfsubjectreviews", ""));
    assert!(!may(&alice, "create", "authorization.k8s.io", "subjectaccessreviews", ""));
    assert!(!may(&alice, "create", "authentication.k8s.io", "tokenreviews", ""));
    assert!(!may(&alice, "create", "", "serviceaccounts/token", "default"));
    for path in ["/api", "/api/v1", "/apis/apps", "/openapi/v3/api/v1", "/readyz", "/version"] {
        assert!(may_path(&alice, "get", path), "{path}");
    }
    assert!(
        !may_path(&alice, "get", "/metrics") && !may_path(&alice, "post", "/api") && !may_path(&alice, "get", "/x")
    );
}

#[test]
fn a_decision_names_the_binding() {
    let alice = user("alice", &["system:authenticated"]);
    let decision = authorize(&Attributes::path(&alice, "get", "/api"), &Nothing);
    let reason = "RBAC: allowed by ClusterRoleBinding \"system:discovery\" of ClusterRole \"system:discovery\" to Group \
                  \"system:authenticated\"";
    assert_eq!(decision, Decision { allowed: true, reason: reason.to_owned() });
}

/// Pods `ns/own` of node n1, which uses the Secret `tls`, and `ns/other` of n2, which uses `theirs`; all use the account `default`.
struct World;

impl Relations for World {
    fn node_of(&self, namespace: &str, pod: &str) -> Option<String> {
        [("own", "n1"), ("other", "n2")]
            .iter()
            .find(|(name, _)| (namespace, *name) == ("ns", pod))
            .map(|(_, node)| (*node).into())
    }

    fn uses(&self, node: &str, namespace: &str, what: node::Referenced, name: &str) -> bool {
        let used = match what {
            node::Referenced::Secret => [("n1", "tls"), ("n2", "theirs")].contains(&(node, name)),
            node::Referenced::ConfigMap => name == "kube-root-ca.crt",
            node::Referenced::Claim => (node, name) == ("n1", "disk"),
            node::Referenced::ServiceAccount => name == "default",
            node::Referenced::Lease => name == "leader",
        };
        used && namespace == "ns"
    }
}

/// The decision on a request of a kubelet; the error is the reason of the refusal.
fn node_may(verb: &str, group: &str, resource: &str, name: &str) -> Result<(), String> {
    decision(&user("system:node:n1", &["system:nodes", "system:authenticated"]), verb, group, resource, name)
}

/// The same for a machine with the client certificate of a node.
fn machine_may(verb: &str, group: &str, resource: &str, name: &str) -> Result<(), String> {
    let groups = ["system:nodes", "system:waypost:nodes", "system:authenticated"];
    decision(&user("system:node:n1", &groups), verb, group, resource, name)
}

fn decision(node: &User, verb: &str, group: &str, resource: &str, name: &str) -> Result<(), String> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let base =
        Attributes { user: node, verb, group, resource, subresource, name, namespace: "ns", fields: &[], path: None };
    let asked = if resource == "leases" { Attributes { namespace: "kube-node-lease", ..base } } else { base };
    let decision = authorize(&asked, &World);
    if decision.allowed { Ok(()) } else { Err(decision.reason) }
}

#[test]
fn nodes_read_what_proxies_and_their_pods_need() {
    for verb in ["get", "list", "watch"] {
        for (group, resource) in [
            ("", "nodes"),
            ("", "namespaces"),
            ("discovery.k8s.io", "endpointslices"),
            ("networking.k8s.io", "servicecidrs"),
            ("waypost.dev", "ippools"),
        ] {
            assert_eq!(machine_may(verb, group, resource, "x"), Ok(()), "{verb} {resource}");
            assert!(node_may(verb, group, resource, "x").is_err(), "{verb} {resource}: not by impersonation");
        }
        for (group, resource) in [("", "services"), ("certificates.k8s.io", "certificatesigningrequests")] {
            assert_eq!(node_may(verb, group, resource, "x"), Ok(()), "{verb} {resource}");
        }
        assert_eq!(node_may(verb, "apps", "deployments", "x"), Err(String::new()));
        assert_eq!(node_may(verb, "", "secrets", "tls"), Ok(()));
        assert_eq!(node_may(verb, "", "configmaps", "kube-root-ca.crt"), Ok(()));
    }
    let unrelated = Err("node: no relationship found between node 'n1' and this object".to_owned());
    assert_eq!(node_may("get", "", "configmaps", "cluster-info"), unrelated, "that of another namespace");
    assert_eq!(node_may("get", "", "serviceaccounts", "default"), Ok(()));
    assert_eq!(node_may("get", "", "serviceaccounts", "other"), unrelated);
    assert_eq!(node_may("get", "", "secrets", "theirs"), unrelated);
    assert_eq!(node_may("get", "", "pods", "own"), Ok(()));
    assert_eq!(node_may("get", "", "pods", "other"), unrelated);
    assert_eq!(node_may("get", "", "pods", "nobody"), unrelated);
    assert_eq!(node_may("list", "", "secrets", ""), Err("node: No Object name found".to_owned()));
    assert_eq!(node_may("get", "", "nodes", "n1"), Ok(()));
    assert_eq!(
        node_may("get", "", "nodes", "n2"),
        Err("node: node 'n1' cannot read 'n2', only its own Node object".to_owned())
    );
    assert_eq!(node_may("get", "", "pods/log", "own"), Err(String::new()));
    assert_eq!(node_may("get", "", "pods/exec", "own"), Err(String::new()));
}

#[test]
fn nodes_use_their_own_csi_node_and_the_claims_of_their_pods() {
    let unrelated = Err("node: no relationship found between node 'n1' and this object".to_owned());
    assert_eq!(node_may("get", "", "persistentvolumeclaims", "disk"), Ok(()));
    assert_eq!(node_may("get", "", "persistentvolumeclaims", "theirs"), unrelated);
    for verb in ["update", "patch"] {
        assert!(node_may(verb, "", "persistentvolumeclaims/status", "disk").is_err(), "nothing expands volumes here");
    }
    assert_eq!(node_may("get", "", "persistentvolumes", "pv"), unrelated);
    assert_eq!(node_may("get", "storage.k8s.io", "volumeattachments", "a"), unrelated);
    let other = "node: can only access CSINode with the same name as the requesting node";
    for verb in ["get", "update", "patch", "delete"] {
        assert_eq!(node_may(verb, "storage.k8s.io", "csinodes", "n1"), Ok(()));
        assert_eq!(node_may(verb, "storage.k8s.io", "csinodes", "n2"), Err(other.to_owned()));
    }
    assert_eq!(
        node_may("create", "storage.k8s.io", "csinodes", ""),
        Ok(()),
        "its name is checked with the object in hand"
    );
    assert!(node_may("list", "storage.k8s.io", "csinodes", "").is_err());
    assert_eq!(node_may("list", "storage.k8s.io", "csidrivers", ""), Ok(()));
}

#[test]
fn nodes_write_announcer_leases_and_no_others() {
    let node = user("system:node:n1", &["system:nodes", "system:waypost:nodes", "system:authenticated"]);
    let may = |verb: &str, namespace: &str, name: &str| {
        let base = Attributes::path(&node, verb, "");
        let asked =
            Attributes { group: "coordination.k8s.io", resource: "leases", namespace, name, path: None, ..base };
        authorize(&asked, &World).allowed
    };
    for verb in ["get", "update", "delete"] {
        assert!(
            may(verb, "kube-system", "waypost-address-192.0.2.7") && may(verb, "kube-system", "waypost-announcer-n2")
        );
    }
    assert!(may("create", "kube-system", "") && may("list", "kube-system", "") && may("watch", "kube-system", ""));
    assert!(!may("update", "kube-system", "waypost-controllers") && !may("list", "ns", "") && !may("list", "", ""));
    assert!(!may("update", "ns", "waypost-address-192.0.2.7") && !may("create", "ns", ""));
}

#[test]
fn s53_nodes_read_the_lease_of_a_leader_and_write_none() {
    let node = user("system:node:n1", &["system:nodes", "system:authenticated"]);
    let may = |verb: &str, namespace: &str, name: &str| {
        let base = Attributes::path(&node, verb, "");
        let asked =
            Attributes { group: "coordination.k8s.io", resource: "leases", namespace, name, path: None, ..base };
        authorize(&asked, &World).allowed
    };
    for verb in ["get", "list", "watch"] {
        assert!(may(verb, "ns", "leader"), "{verb}");
        assert!(!may(verb, "ns", "another") && !may(verb, "other", "leader") && !may(verb, "ns", ""), "{verb}");
    }
    assert!(["create", "update", "patch", "delete"].iter().all(|verb| !may(verb, "ns", "leader")));
}

#[test]
fn nodes_select_their_own_pods() {
    let node = user("system:node:n1", &["system:nodes", "system:authenticated"]);
    let ask = |fields: &[(String, bool, String)], resource: &str, name: &str| {
        let asked = Attributes {
            user: &node,
            verb: "watch",
            group: "",
            resource,
            subresource: "",
            name,
            namespace: "ns",
            fields,
            path: None,
        };
        authorize(&asked, &World).allowed
    };
    let term = |field: &str, equal: bool, value: &str| (field.to_owned(), equal, value.to_owned());
    assert!(ask(&[term("spec.nodeName", true, "n1")], "pods", ""));
    // A request that selects one name has it.
    assert!(ask(&[], "pods", "own") && ask(&[], "secrets", "tls"));
    assert!(!ask(&[term("spec.nodeName", false, "n1")], "pods", ""));
    assert!(!ask(&[term("spec.nodeName", true, "n2")], "pods", ""));
    assert!(!ask(&[], "secrets", "theirs") && !ask(&[], "secrets", "") && !ask(&[], "pods", ""));
}

#[test]
fn nodes_write_their_node_status_pods_and_events() {
    for verb in ["create", "patch", "update"] {
        assert_eq!(node_may(verb, "", "events", "e"), Ok(()));
        assert_eq!(node_may(verb, "events.k8s.io", "events", "e"), Ok(()));
        assert_eq!(node_may(verb, "coordination.k8s.io", "leases", "n1"), Ok(()));
        assert!(node_may(verb, "discovery.k8s.io", "endpointslices", "s").is_err());
        assert!(node_may(verb, "", "services", "s").is_err() && node_may(verb, "", "secrets", "tls").is_err());
    }
    assert!(node_may("update", "coordination.k8s.io", "leases", "n2").is_err());
    assert!(node_may("list", "coordination.k8s.io", "leases", "").is_err());
    assert_eq!(node_may("create", "", "nodes", ""), Ok(()));
    for part in ["nodes", "nodes/status"] {
        assert_eq!(node_may("patch", "", part, "n1"), Ok(()));
        assert_eq!(node_may("patch", "", part, "n2"), Ok(()), "refused with the object in hand, as in the original");
    }
    assert!(node_may("delete", "", "nodes", "n1").is_err());
    assert_eq!(node_may("patch", "", "pods/status", "own"), Ok(()));
    assert_eq!(node_may("delete", "", "pods", "own"), Ok(()));
    assert_eq!(node_may("delete", "", "pods", "gone"), Ok(()), "the verb says that it is gone");
    for (verb, part) in
        [("patch", "pods/status"), ("update", "pods/status"), ("delete", "pods"), ("create", "pods/eviction")]
    {
        assert_eq!(node_may(verb, "", part, "other"), Ok(()), "whose Pod it is, is decided in the transaction");
    }
    assert!(node_may("update", "", "pods", "own").is_err() && node_may("deletecollection", "", "pods", "").is_err());
    assert_eq!(node_may("create", "", "pods", ""), Ok(()), "which ones, is said with the object in hand");
    assert_eq!(node_may("create", "", "serviceaccounts/token", "default"), Ok(()));
    assert!(node_may("create", "", "serviceaccounts/token", "other").is_err());
    assert!(node_may("create", "", "serviceaccounts", "").is_err());
}

#[test]
fn a_node_user_without_a_name_is_denied() {
    let nameless = user("system:node:", &["system:nodes", "system:authenticated"]);
    let asked = Attributes { verb: "get", group: "", resource: "nodes", ..Attributes::path(&nameless, "", "") };
    let decision = authorize(&Attributes { path: None, ..asked }, &World);
    assert_eq!(
        decision,
        Decision { allowed: false, reason: "node: unknown node for user \"system:node:\"".to_owned() }
    );
    // Nor does the name make one.
    let pretender = user("system:node:n1", &["system:authenticated"]);
    assert!(!may(&pretender, "get", "", "secrets", "tls") && !may(&pretender, "update", "", "nodes", "n1"));
}

#[test]
fn bootstrap_tokens_may_only_request_certificates() {
    let groups = ["system:bootstrappers", api::bootstrap_token::NODE_GROUP, "system:authenticated"];
    let new = user("system:bootstrap:abcdef", &groups);
    for verb in ["create", "get", "list", "watch"] {
        assert!(may(&new, verb, "certificates.k8s.io", "certificatesigningrequests", ""));
        assert!(!may(&new, verb, "", "pods", "") && !may(&new, verb, "", "services", ""));
    }
    assert!(!may(&new, "update", "certificates.k8s.io", "certificatesigningrequests/approval", "x"));
    assert!(may_path(&new, "get", "/api"));
}

#[test]
fn everyone_may_read_cluster_info() {
    for someone in
        [User::anonymous(), user("system:bootstrap:abcdef", &["system:authenticated", "system:bootstrappers"])]
    {
        let ask = |namespace: &str, name: &str, verb: &str| {
            let asked = Attributes {
                user: &someone,
                verb,
                group: "",
                resource: "configmaps",
                subresource: "",
                name,
                namespace,
                fields: &[],
                path: None,
            };
            authorize(&asked, &Nothing).allowed
        };
        assert!(ask("kube-public", "cluster-info", "get"));
        assert!(!ask("kube-public", "cluster-info", "list") && !ask("kube-public", "", "get"));
        assert!(!ask("default", "cluster-info", "get") && !ask("kube-public", "other", "get"));
    }
}

#[test]
fn nodes_read_answers_to_acme_challenges_and_nothing_else_of_kube_system() {
    let node = user("system:node:n1", &["system:nodes", "system:authenticated"]);
    let (namespace, name) = api::acme::ANSWERS;
    let ask = |namespace: &str, name: &str, resource: &str, verb: &str| {
        let (group, subresource, fields, path) = ("", "", &[][..], None);
        let asked = Attributes { user: &node, verb, group, resource, subresource, name, namespace, fields, path };
        authorize(&asked, &Nothing).allowed
    };
    for verb in ["get", "list", "watch"] {
        assert!(ask(namespace, name, "configmaps", verb), "{verb}");
        assert!(!ask(namespace, "", "configmaps", verb) && !ask("default", name, "configmaps", verb), "{verb}");
        assert!(!ask(namespace, "waypost-acme-orders", "configmaps", verb), "{verb}");
        assert!(!ask(namespace, "waypost-acme-account", "secrets", verb), "{verb}");
    }
    for verb in ["create", "update", "patch", "delete", "deletecollection"] {
        assert!(!ask(namespace, name, "configmaps", verb), "{verb}");
    }
}

#[test]
fn anonymous_users_read_health_and_version_only() {
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
fn refusals_have_the_messages_of_kube_apiserver() {
    let bob = user("bob", &[]);
    let base = Attributes {
        user: &bob,
        verb: "list",
        group: "",
        resource: "services",
        subresource: "",
        name: "",
        namespace: "ns",
        fields: &[],
        path: None,
    };
    let says = |asked: Attributes<'_>| refused(&asked, "").to_value();
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
    assert_eq!(
        refused(&base, "because").message,
        "services is forbidden: User \"bob\" cannot list resource \"services\" in API group \"\" in the namespace \"ns\": because"
    );
    let path = says(Attributes::path(&bob, "get", "/x<b>"));
    assert_eq!(path["message"], "forbidden: User \"bob\" cannot get path \"/x&lt;b&gt;\"");
    assert_eq!(path["details"], json!({}));
}
