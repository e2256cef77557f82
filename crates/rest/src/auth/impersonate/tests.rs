use serde_json::json;

use super::*;
use crate::authz::testing::Granted;

fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
    let mut out = HeaderMap::new();
    for (name, value) in list {
        out.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    out
}

fn user(name: &str, groups: &[&str]) -> User {
    User { name: name.into(), groups: groups.iter().map(|group| (*group).to_owned()).collect(), ..User::default() }
}

/// The impersonated user of a request that lists Services.
fn act(granted: &Granted, user: &User, list: &[(&'static str, &str)]) -> Result<Option<User>, Status> {
    let asked = Attributes {
        user,
        verb: "list",
        group: "",
        resource: "services",
        subresource: "",
        name: "",
        namespace: "ns",
        fields: &[],
        path: None,
    };
    let acting = Impersonation::default().resolve(&granted.authorizer, &headers(list), &asked)?;
    Ok(acting.map(|(user, _)| user))
}

#[test]
fn masters_may_impersonate() {
    let (granted, root) = (Granted::by_default(), user("root", &["system:masters"]));
    let act = |list: &[(&'static str, &str)]| act(&granted, &root, list);
    assert_eq!(act(&[]), Ok(None));
    let bob = act(&[
        ("impersonate-user", "bob"),
        ("impersonate-uid", "u-9"),
        ("impersonate-group", "dev"),
        ("impersonate-group", "ops"),
        ("impersonate-extra-acme.com%2fproject", "p1"),
        ("impersonate-extra-acme.com%2fproject", "p2"),
    ]);
    let bob = bob.unwrap().unwrap();
    assert_eq!((bob.name.as_str(), bob.uid.as_str()), ("bob", "u-9"));
    assert_eq!(bob.groups, ["dev", "ops", "system:authenticated"]);
    assert_eq!(bob.extra["acme.com/project"], ["p1", "p2"]);
    let robot = act(&[("impersonate-user", "system:serviceaccount:ns:robot")]).unwrap().unwrap();
    assert_eq!(robot.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]);
    assert_eq!(act(&[("impersonate-user", ANONYMOUS)]), Ok(Some(User::anonymous())));
    let marked = act(&[("impersonate-user", "x"), ("impersonate-group", UNAUTHENTICATED)]).unwrap().unwrap();
    assert_eq!(marked.groups, [UNAUTHENTICATED]);
    let master = act(&[("impersonate-user", "x"), ("impersonate-group", MASTERS)]).unwrap().unwrap();
    assert_eq!(master.groups, [MASTERS, AUTHENTICATED], "by the verb impersonate, not by a constrained mode");
}

#[test]
fn headers_must_name_a_user_once() {
    let (granted, root) = (Granted::by_default(), user("root", &["system:masters"]));
    let refused = |list: &[(&'static str, &str)]| act(&granted, &root, list).unwrap_err();
    assert_eq!(
        refused(&[("impersonate-group", "dev")]).message,
        "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"dev\"}, Extra:map[string][]string(nil)} \
         without impersonating a user name"
    );
    assert_eq!(refused(&[("impersonate-extra-a", "b")]).code, 400);
    assert_eq!(refused(&[("impersonate-user", "a"), ("impersonate-user", "b")]).code, 401);
    let mut binary = HeaderMap::new();
    binary.insert("impersonate-user", HeaderValue::from_bytes(b"\xff").unwrap());
    assert_eq!(wanted(&binary).unwrap_err().code, 401);
}

#[test]
fn impersonation_needs_permission() {
    let (granted, alice) = (Granted::by_default(), user("alice", &["system:authenticated"]));
    let bob: &[(&'static str, &str)] = &[("impersonate-user", "bob"), ("impersonate-group", "dev")];
    assert_eq!(
        act(&granted, &alice, bob).unwrap_err().message,
        "services is forbidden: User \"alice\" cannot impersonate-on:user-info:list resource \"services\" in API group \"\" in \
         the namespace \"ns\""
    );
    let grant = |rules: serde_json::Value| {
        let role = json!({"metadata": {"name": "r"}, "rules": rules});
        let binding = json!({
            "metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"},
            "subjects": [{"kind": "User", "name": "alice"}],
        });
        use api::kinds::{role, rolebinding};
        let objects = [(&role::CLUSTER_ROLE, &role), (&rolebinding::CLUSTER_ROLE_BINDING, &binding)];
        granted.put(objects.into_iter());
    };
    grant(json!([{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"]}]));
    assert_eq!(act(&granted, &alice, bob).unwrap_err().code, 403, "not the group");
    assert!(act(&granted, &alice, &bob[..1]).is_ok());
    // Constrained: this user, and only for listing Services.
    grant(json!([
        {"verbs": ["impersonate:user-info"], "apiGroups": ["authentication.k8s.io"], "resources": ["users"], "resourceNames": ["bob"]},
        {"verbs": ["impersonate-on:user-info:list"], "apiGroups": [""], "resources": ["services"]},
    ]));
    assert!(act(&granted, &alice, &bob[..1]).is_ok());
    assert_eq!(act(&granted, &alice, &[("impersonate-user", "carol")]).unwrap_err().code, 403);
    assert_eq!(act(&granted, &User::anonymous(), &bob[..1]).unwrap_err().code, 403);
}

#[test]
fn a_pod_may_be_allowed_to_impersonate_only_its_node() {
    let granted = Granted::by_default();
    let role = json!({"metadata": {"name": "r"}, "rules": [
        {"verbs": ["impersonate:associated-node"], "apiGroups": ["authentication.k8s.io"], "resources": ["nodes"]},
        {"verbs": ["impersonate-on:associated-node:list"], "apiGroups": [""], "resources": ["services"]},
    ]});
    let binding = json!({
        "metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "ns", "name": "agent"}],
    });
    use api::kinds::{role, rolebinding};
    granted.put([(&role::CLUSTER_ROLE, &role), (&rolebinding::CLUSTER_ROLE_BINDING, &binding)].into_iter());
    let mut agent = user("system:serviceaccount:ns:agent", &[]);
    agent.extra.insert(NODE_NAME.to_owned(), vec!["n1".to_owned()]);
    let own = act(&granted, &agent, &[("impersonate-user", "system:node:n1")]).unwrap().unwrap();
    assert_eq!(own.groups, [NODES, AUTHENTICATED]);
    assert_eq!(act(&granted, &agent, &[("impersonate-user", "system:node:n2")]).unwrap_err().code, 403);
}

#[test]
fn extra_keys_are_unescaped() {
    assert_eq!(unescape("acme.com%2fproject"), "acme.com/project");
    for odd in ["50%", "%zz", "%2", "%+1", "%ff"] {
        assert_eq!(unescape(odd), odd);
    }
}
