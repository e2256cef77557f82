//! The responses, compared with those of kube-apiserver.

use super::*;
use crate::auth::objects::Referent;
use crate::auth::service_account::{Binding, Grant, ServiceAccounts};
use crate::auth::token_file::TokenFile;
use crate::authz::testing::Granted;

const API_AUDIENCE: &str = "https://kubernetes.default.svc.cluster.local";

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn authn() -> Authenticator {
    let key = rcgen::KeyPair::generate().unwrap().serialize_der();
    let tokens = TokenFile::parse("t,alice,u-1,dev", "f").unwrap();
    let lookup = Box::new(|what: Referent, _: &str, name: &str| match (what, name) {
        (Referent::ServiceAccount, _) => Some(json!({"metadata": {"name": name, "uid": "u-2"}})),
        (Referent::Secret, "s") => Some(json!({"metadata": {"name": "s", "uid": "u-s"}})),
        (Referent::Node, "n1") => Some(json!({"metadata": {"name": "n1", "uid": "u-n"}})),
        (Referent::Pod, "p" | "elsewhere") => {
            let node = if name == "p" { "n1" } else { "n2" };
            let volume = json!({"projected": {"sources": [{"serviceAccountToken": {"audience": "vault"}}]}});
            Some(json!({
                "metadata": {"name": name, "uid": "u-p"},
                "spec": {"serviceAccountName": "robot", "nodeName": node, "volumes": [volume]},
            }))
        }
        _ => None,
    });
    Authenticator::new(tokens, ServiceAccounts::new(&key, "cluster.local").unwrap(), lookup)
}

fn user(name: &str, groups: &[&str]) -> User {
    User { name: name.into(), groups: groups.iter().map(|group| (*group).to_owned()).collect(), ..User::default() }
}

fn authorization(kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec})
}

/// The kind of a review.
fn kind_of(name: &str) -> &'static Kind {
    let groups = ["authorization.k8s.io", "authentication.k8s.io"];
    groups.iter().find_map(|group| api::kinds::find_kind(group, "v1", name)).expect("a review")
}

/// The answer, without the reason.
fn ask(kind: &str, body: &Value, user: &User) -> Result<Value, Status> {
    let granted = Granted::by_default();
    let mut answer =
        review(kind_of(kind), body, &ReviewContext { user, authn: &authn(), authorizer: &granted.authorizer }, now())?;
    if let Some(reason) = answer.drop_path("status.reason") {
        assert!(reason.as_str().is_some_and(|reason| reason.starts_with("RBAC: allowed by ")), "{reason}");
    }
    Ok(answer)
}

#[test]
fn self_access_reviews_are_returned_with_a_status() {
    let spec = json!({"resourceAttributes": {"namespace": "ns", "verb": "list", "resource": "services"}});
    let body = authorization("SelfSubjectAccessReview", &spec);
    let answer = |allowed: bool| {
        json!({
            "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {},
            "spec": spec, "status": {"allowed": allowed},
        })
    };
    assert_eq!(ask("SelfSubjectAccessReview", &body, &user("root", &["system:masters"])), Ok(answer(true)));
    assert_eq!(ask("SelfSubjectAccessReview", &body, &user("nobody", &[])), Ok(answer(false)));
    let body = authorization(
        "SelfSubjectAccessReview",
        &json!({"nonResourceAttributes": {"path": "/healthz", "verb": "get"}}),
    );
    assert_eq!(ask("SelfSubjectAccessReview", &body, &User::anonymous()).unwrap()["status"], json!({"allowed": true}));
}

#[test]
fn malformed_access_reviews_are_refused_without_a_kind() {
    let root = user("root", &["system:masters"]);
    let both = json!({
        "resourceAttributes": {"verb": "get", "resource": "pods"},
        "nonResourceAttributes": {"path": "/", "verb": "get"},
    });
    let refused = ask("SelfSubjectAccessReview", &authorization("SelfSubjectAccessReview", &both), &root).unwrap_err();
    let words = "Invalid value: {\"Path\":\"/\",\"Verb\":\"get\"}: exactly one of nonResourceAttributes or \
                 resourceAttributes must be specified";
    assert_eq!(
        refused.to_value(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Invalid", "code": 422,
            "message": format!(".authorization.k8s.io \"\" is invalid: spec: {words}"),
            "details": {
                "group": "authorization.k8s.io",
                "causes": [{"reason": "FieldValueInvalid", "message": words, "field": "spec"}],
            },
        })
    );
    let neither = ask("SelfSubjectAccessReview", &authorization("SelfSubjectAccessReview", &json!({})), &root);
    assert_eq!(
        neither.unwrap_err().message,
        ".authorization.k8s.io \"\" is invalid: spec: Invalid value: null: exactly one of nonResourceAttributes or \
         resourceAttributes must be specified"
    );
    let mut named =
        authorization("SelfSubjectAccessReview", &json!({"resourceAttributes": {"verb": "get", "resource": "pods"}}));
    named["metadata"] = json!({"creationTimestamp": null, "labels": {}, "managedFields": [{"manager": "m"}]});
    assert!(ask("SelfSubjectAccessReview", &named, &root).is_ok(), "nothing in it counts");
    named["metadata"]["name"] = "x".into();
    let refused = ask("SelfSubjectAccessReview", &named, &root).unwrap_err();
    assert_eq!(
        refused.message,
        ".authorization.k8s.io \"\" is invalid: metadata: Invalid value: {\"name\":\"x\"}: must be empty"
    );
}

#[test]
fn subject_access_reviews_use_the_subject() {
    let root = user("root", &["system:masters"]);
    let attributes = json!({"verb": "get", "resource": "secrets", "namespace": "ns", "name": "s"});
    let about = |groups: &[&str]| {
        authorization("SubjectAccessReview", &json!({"resourceAttributes": attributes, "user": "u", "groups": groups}))
    };
    let allowed = |body: &Value| ask("SubjectAccessReview", body, &root).unwrap()["status"].flag("allowed");
    assert!(allowed(&about(&["system:masters"])));
    assert!(!allowed(&about(&["system:authenticated"])));
    assert!(!allowed(&about(&[])));
    let nobody = authorization("SubjectAccessReview", &json!({"resourceAttributes": attributes}));
    assert_eq!(
        ask("SubjectAccessReview", &nobody, &root).unwrap_err().message,
        ".authorization.k8s.io \"\" is invalid: spec.user: Invalid value: \"\": at least one of user or group must be \
         specified"
    );
}

#[test]
fn local_reviews_stay_in_their_namespace() {
    let root = user("root", &["system:masters"]);
    let local = |namespace: &str, spec: Value| {
        let mut body = authorization("LocalSubjectAccessReview", &spec);
        body["metadata"] = json!({"namespace": namespace});
        ask("LocalSubjectAccessReview", &body, &root)
    };
    let spec = json!({"resourceAttributes": {"namespace": "ns", "verb": "get", "resource": "pods"}, "user": "u"});
    assert_eq!(local("ns", spec.clone()).unwrap()["status"], json!({"allowed": false}));
    assert_eq!(
        local("other", spec).unwrap_err().message,
        ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes.namespace: Invalid value: \"ns\": must match \
         metadata.namespace"
    );
    let path = json!({"nonResourceAttributes": {"path": "/", "verb": "get"}, "user": "u"});
    assert_eq!(
        local("ns", path).unwrap_err().message,
        ".authorization.k8s.io \"\" is invalid: spec.nonResourceAttributes: Invalid value: \
         {\"Path\":\"/\",\"Verb\":\"get\"}: disallowed on this kind of request"
    );
}

#[test]
fn selectors_are_checked_and_change_nothing() {
    let root = user("root", &["system:masters"]);
    let with = |selector: Value| {
        let attributes = json!({"verb": "list", "resource": "pods", "fieldSelector": selector});
        let body = authorization("SelfSubjectAccessReview", &json!({"resourceAttributes": attributes}));
        ask("SelfSubjectAccessReview", &body, &root)
    };
    let refused = with(json!({"rawSelector": "a=b", "requirements": [{"operator": "In"}]})).unwrap_err();
    assert_eq!(
        refused.message,
        ".authorization.k8s.io \"\" is invalid: [spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: \
         \"a=b\": may not specified at the same time as requirements, \
         spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be specified, \
         spec.resourceAttributes.fieldSelector.requirements[0].values: Required value: must be specified when \
         `operator` is 'In' or 'NotIn']"
    );
    assert_eq!(
        with(json!({})).unwrap_err().message,
        ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes.fieldSelector.requirements: Required value: \
         when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required"
    );
    let fine = json!({"key": "spec.nodeName", "operator": "In", "values": ["n"]});
    let odd = json!({"key": "spec.nodeName", "operator": "Gt", "values": ["n"]});
    assert_eq!(with(json!({"requirements": [fine]})).unwrap()["status"], json!({"allowed": true}));
    let answer = with(json!({"requirements": [fine, odd]})).unwrap();
    let partially = "spec.resourceAttributes.fieldSelector partially ignored due to parse error";
    assert_eq!(answer["status"], json!({"allowed": true, "evaluationError": partially}));
    let answer = with(json!({"requirements": [odd]})).unwrap();
    assert_eq!(answer["status"]["evaluationError"], "spec.resourceAttributes.fieldSelector ignored due to parse error");
}

#[test]
fn rules_are_listed() {
    let body = authorization("SelfSubjectRulesReview", &json!({"namespace": "ns"}));
    let all = ask("SelfSubjectRulesReview", &body, &user("root", &["system:masters", "system:authenticated"])).unwrap();
    assert_eq!((&all["metadata"], &all["spec"]), (&json!({}), &json!({})));
    assert_eq!(all["status"]["resourceRules"][0], json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
    assert_eq!(all["status"]["nonResourceRules"][0], json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    assert_eq!(all["status"]["incomplete"], false);

    let node = user("system:node:n1", &["system:nodes", "system:authenticated"]);
    let some = ask("SelfSubjectRulesReview", &body, &node).unwrap();
    assert_eq!(some["status"].items("resourceRules").len(), 2, "what everybody may: {some}");
    assert_eq!(some["status"]["incomplete"], true);
    assert_eq!(some["status"]["evaluationError"], "node authorizer does not support user rule resolution");
    let person = ask("SelfSubjectRulesReview", &body, &user("alice", &["system:authenticated"])).unwrap();
    assert_eq!(person["status"]["incomplete"], false);
    let reviews =
        json!({"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]});
    assert!(person["status"].items("resourceRules").contains(&reviews), "{person}");

    let nothing = ask("SelfSubjectRulesReview", &body, &user("x", &[])).unwrap();
    assert_eq!(nothing["status"], json!({"resourceRules": [], "nonResourceRules": [], "incomplete": false}));
    let nowhere = authorization("SelfSubjectRulesReview", &json!({}));
    let refused = ask("SelfSubjectRulesReview", &nowhere, &node).unwrap_err();
    assert_eq!((refused.code, refused.message.as_str()), (400, "no namespace on request"));
}

#[test]
fn token_reviews_authenticate_tokens() {
    let (authn, root) = (authn(), user("root", &["system:masters"]));
    let ask = |spec: Value| {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
        let granted = Granted::by_default();
        review(
            kind_of("TokenReview"),
            &body,
            &ReviewContext { user: &root, authn: &authn, authorizer: &granted.authorizer },
            now(),
        )
    };
    let refused = ask(json!({})).unwrap_err().to_value();
    assert_eq!(
        refused,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "BadRequest",
            "message": "token is required for TokenReview in authentication", "code": 400,
        })
    );
    let status = json!({
        "authenticated": true, "audiences": [API_AUDIENCE],
        "user": {"username": "alice", "uid": "u-1", "groups": ["dev", "system:authenticated"]},
    });
    assert_eq!(
        ask(json!({"token": "t"})),
        Ok(json!({
            "kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "metadata": {}, "spec": {"token": "t"},
            "status": status,
        }))
    );
    let unknown = json!({"user": {}, "error": "invalid bearer token"});
    assert_eq!(ask(json!({"token": "x"})).unwrap()["status"], unknown);
    assert_eq!(ask(json!({"token": "t", "audiences": ["vault"]})).unwrap()["status"], unknown);

    let bound = Binding::default();
    let grant = Grant { namespace: "ns", name: "robot", uid: "u-2", audiences: &["vault"], seconds: 60, bound };
    let token = authn.accounts().sign(&grant, now()).unwrap();
    let answer = ask(json!({"token": token, "audiences": ["vault", "other"]})).unwrap();
    assert_eq!(answer["status"]["audiences"], json!(["vault"]));
    assert_eq!(answer["status"]["user"]["username"], "system:serviceaccount:ns:robot");
    assert!(
        ask(json!({"token": token})).unwrap()["status"].text("error").contains("is invalid for the target audiences")
    );
}

#[test]
fn self_subject_reviews_return_the_user() {
    let mut asking = user("bob", &["dev", "system:authenticated"]);
    asking.extra.insert("k".into(), vec!["v".into()]);
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    assert_eq!(
        review(
            kind_of("SelfSubjectReview"),
            &body,
            &ReviewContext { user: &asking, authn: &authn(), authorizer: &Granted::by_default().authorizer },
            now()
        ),
        Ok(json!({
            "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"creationTimestamp": "2027-01-15T08:00:00Z"},
            "status": {
                "userInfo": {"username": "bob", "groups": ["dev", "system:authenticated"], "extra": {"k": ["v"]}},
            },
        }))
    );
    assert_eq!(
        review(
            &api::kinds::service::KIND,
            &body,
            &ReviewContext { user: &asking, authn: &authn(), authorizer: &Granted::by_default().authorizer },
            now()
        )
        .unwrap_err()
        .code,
        404
    );
}

#[test]
fn tokens_are_issued_on_request() {
    let authn = authn();
    let account = json!({"metadata": {"name": "robot", "namespace": "ns", "uid": "u-2"}});
    let root = user("root", &["system:masters"]);
    let ask = |body: Value| {
        let request = TokenRequest { body: &body, account: &account, user: &root };
        token_request(&request, &authn, now(), &mut Vec::new())
    };
    let mut answer = ask(json!({"kind": "TokenRequest", "spec": {"expirationSeconds": 600}})).unwrap();
    let token = answer.drop_path("status.token").unwrap();
    assert_eq!(
        answer,
        json!({
            "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": "robot", "namespace": "ns", "uid": "u-2", "creationTimestamp": "2027-01-15T08:00:00Z",
            },
            "spec": {"audiences": [API_AUDIENCE], "expirationSeconds": 600, "boundObjectRef": null},
            "status": {"expirationTimestamp": "2027-01-15T08:10:00Z"},
        })
    );
    let user = authn.token_user(token.as_str().unwrap(), &[API_AUDIENCE], now()).unwrap().user;
    assert_eq!(user.name, "system:serviceaccount:ns:robot");
    assert_eq!(ask(json!({})).unwrap()["spec"]["expirationSeconds"], 3600);

    let says = |body: Value| ask(body).unwrap_err().message;
    assert_eq!(
        says(json!({"spec": {"expirationSeconds": 599}})),
        "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 599: may not \
         specify a duration less than 10 minutes"
    );
    assert!(says(json!({"spec": {"expirationSeconds": i64::MAX}})).ends_with("larger than 2^32 seconds"));
    assert_eq!(
        says(json!({"metadata": {"name": "other"}})),
        "TokenRequest.authentication.k8s.io \"robot\" is invalid: metadata.name: Invalid value: \"other\": must match \
         the service account name if specified"
    );
    assert_eq!(ask(json!({"metadata": {"uid": "u-9"}})).unwrap_err().code, 409);
}

#[test]
fn token_lifetimes_are_limited() {
    let account = json!({"metadata": {"name": "robot", "namespace": "ns", "uid": "u-2"}});
    let (root, body) = (user("root", &["system:masters"]), json!({"spec": {"expirationSeconds": 3_600_000_000_i64}}));
    let request = TokenRequest { body: &body, account: &account, user: &root };
    let mut warnings = Vec::new();
    let plain = authn();
    let mut answer = token_request(&request, &plain, now(), &mut warnings).unwrap();
    assert_eq!((&answer["spec"]["expirationSeconds"], &warnings), (&body["spec"]["expirationSeconds"], &Vec::new()));
    assert_eq!(answer["status"]["expirationTimestamp"], "2027-01-16T08:00:00Z");
    let token = answer.drop_path("status.token").unwrap();
    let late = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
    let good = |at| plain.token_user(token.as_str().unwrap(), &[API_AUDIENCE], at).is_ok();
    assert_eq!((good(late(86_400)), good(late(86_461))), (true, false));

    let key = rcgen::KeyPair::generate().unwrap().serialize_der();
    let accounts = ServiceAccounts::new(&key, "cluster.local").unwrap().with_max_lifetime(7200);
    let set = Authenticator::new(TokenFile::default(), accounts, Box::new(|_, _, _| None));
    let answer = token_request(&request, &set, now(), &mut warnings).unwrap();
    assert_eq!(answer["spec"]["expirationSeconds"], 7200);
    assert_eq!(answer["status"]["expirationTimestamp"], "2027-01-15T10:00:00Z");
    assert_eq!(warnings, ["requested expiration of 3600000000 seconds shortened to 7200 seconds"]);
}

/// The answer of a request for a token of `robot` that is bound to something, to a user.
fn bind(account: &str, user: &User, spec: &Value) -> Result<Value, (u16, String)> {
    let account = json!({"metadata": {"name": account, "namespace": "ns", "uid": "u-2"}});
    let body = json!({"spec": spec});
    let request = TokenRequest { body: &body, account: &account, user };
    token_request(&request, &authn(), now(), &mut Vec::new()).map_err(|status| (status.code, status.message))
}

#[test]
fn tokens_are_bound_to_existing_objects() {
    let root = user("root", &["system:masters"]);
    let to = |kind: &str, name: &str, uid: &str| json!({"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name, "uid": uid}});
    for (kind, name, uid) in [("Pod", "p", "u-p"), ("Secret", "s", "u-s"), ("Node", "n1", "u-n"), ("Pod", "p", "")] {
        let answer = bind("robot", &root, &to(kind, name, uid)).unwrap();
        assert_eq!(answer["spec"]["boundObjectRef"], to(kind, name, uid)["boundObjectRef"], "{kind}");
    }
    let says = |spec: &Value| bind("robot", &root, spec).unwrap_err();
    assert_eq!(says(&to("Pod", "q", "")), (404, "pods \"q\" not found".into()));
    assert_eq!(says(&to("Node", "p", "")), (404, "nodes \"p\" not found".into()));
    let anew = "Operation cannot be fulfilled on Secret \"s\": the UID in the bound object reference (x) does not match \
                the UID in record. The object might have been deleted and then recreated";
    assert_eq!(says(&to("Secret", "s", "x")), (409, anew.into()));
    assert_eq!(
        says(&to("ConfigMap", "x", "")),
        (400, "cannot bind token to object of type /v1, Kind=ConfigMap".into())
    );
    assert_eq!(
        bind("other", &root, &to("Pod", "p", "")).unwrap_err().1,
        "cannot bind token for serviceaccount \"other\" to pod running with different serviceaccount name."
    );
}

#[test]
fn nodes_get_tokens_only_for_their_pods() {
    let node = user("system:node:n1", &["system:nodes"]);
    let of = |name: &str, uid: &str, audience: &str| {
        let pod = json!({"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid});
        json!({"boundObjectRef": pod, "audiences": [audience]})
    };
    assert!(bind("robot", &node, &of("p", "u-p", "vault")).is_ok());
    let secret = json!({"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "s"}});
    let two = json!({"boundObjectRef": of("p", "u-p", "")["boundObjectRef"], "audiences": ["vault", "x"]});
    for (spec, code, why) in [
        (json!({}), 403, "node requested token not bound to a pod"),
        (secret, 403, "node requested token not bound to a pod"),
        (of("p", "", "vault"), 403, "node requested token with a pod binding without a uid"),
        (of("q", "u-p", "vault"), 404, "pods \"q\" not found"),
        (of("p", "x", "vault"), 403, "the UID in the bound object reference (x) does not match the UID in record"),
        (of("elsewhere", "u-p", "vault"), 403, "node requested token bound to a pod scheduled on a different node"),
        (of("p", "u-p", "x"), 403, "system:node:n1 is not authorized to request tokens for audience \"x\""),
        (two, 403, "node may only request 0 or 1 audiences"),
    ] {
        let (refused, message) = bind("robot", &node, &spec).unwrap_err();
        assert!(refused == code && message.contains(why), "{spec}: {refused} {message}");
    }
}

#[test]
fn label_selectors_are_checked_for_syntax() {
    let requirements = json!([{"key": "a b", "operator": "In", "values": ["-"]}]);
    let attributes = json!({"verb": "list", "resource": "pods", "labelSelector": {"requirements": requirements}});
    let body = authorization("SelfSubjectAccessReview", &json!({"resourceAttributes": attributes}));
    let refused = ask("SelfSubjectAccessReview", &body, &user("u", &[])).unwrap_err();
    let fields: Vec<Value> =
        refused.details.unwrap().items("causes").iter().map(|cause| cause["field"].clone()).collect();
    let at = "spec.resourceAttributes.labelSelector.requirements[0]";
    assert_eq!(fields, [json!(format!("{at}.key")), json!(format!("{at}.values[0]"))]);
}
