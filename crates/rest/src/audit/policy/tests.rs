use proptest::prelude::*;

use super::*;
use crate::auth::User;

fn policy(rules: &str) -> Policy {
    let (policy, warnings) = read(rules).unwrap_or_else(|problem| panic!("{problem}"));
    assert_eq!(warnings, [] as [&str; 0]);
    policy
}

fn read(rest: &str) -> Result<(Policy, Vec<String>), String> {
    let policy = Policy::parse(format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rest}").as_bytes());
    policy.map_err(|error| error.to_string())
}

fn alice() -> User {
    User { name: "alice".into(), groups: vec!["dev".into(), "system:authenticated".into()], ..User::default() }
}

/// The level for `VERB GROUP RESOURCE[/SUBRESOURCE] NAMESPACE NAME`, `-` for what is empty, or for `VERB /path`.
fn level(policy: &Policy, user: &User, request: &str) -> Level {
    let words: Vec<&str> = request.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
    let attributes = match words[..] {
        [verb, path] => Attributes::path(user, verb, path),
        [verb, group, resource, namespace, name] => {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            Attributes { user, verb, group, resource, subresource, name, namespace, fields: &[], path: None }
        }
        _ => panic!("{request}"),
    };
    policy.evaluate(&attributes).level
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = "
rules:
- {level: None, users: [kube], verbs: [watch]}
- {level: Metadata, userGroups: [ops, dev], verbs: [get, list]}
- {level: Request, namespaces: ['', prod]}
- {level: RequestResponse, nonResourceURLs: [/metrics, '/healthz*', /logs/*]}
";
    let policy = policy(rules);
    let (alice, kube, nobody) = (alice(), User { name: "kube".into(), ..User::default() }, User::default());
    for (user, request, wanted) in [
        (&alice, "get - pods a x", Level::Metadata),
        (&alice, "get /metrics", Level::Metadata),
        (&alice, "create - pods a x", Level::None),
        (&alice, "create - pods prod x", Level::Request),
        (&alice, "create - nodes - x", Level::Request),
        (&alice, "post /metrics", Level::RequestResponse),
        (&alice, "post /metrics/x", Level::None),
        (&alice, "post /healthz/ping", Level::RequestResponse),
        (&alice, "post /logs/", Level::RequestResponse),
        (&alice, "post /logs", Level::None),
        (&kube, "watch - pods prod -", Level::None),
        (&kube, "list - pods prod -", Level::Request),
        (&nobody, "get - pods prod x", Level::Request),
    ] {
        assert_eq!(level(&policy, user, request), wanted, "{} {request}", user.name);
    }
}

#[test]
fn rules_about_users_do_not_match_requests_without_one() {
    let policy = policy("rules: [{level: Metadata, users: ['']}, {level: Request, userGroups: ['']}, {level: None}]");
    assert_eq!(level(&policy, &User::default(), "get - pods a x"), Level::None);
}

#[test]
fn resources_by_group_subresource_and_name() {
    let resource = |resources: &str, request: &str| {
        let policy = policy(&format!("rules: [{{level: Metadata, resources: [{resources}]}}]"));
        level(&policy, &alice(), request) == Level::Metadata
    };
    for (resources, request, wanted) in [
        ("{group: ''}", "get - pods/log a x", true),
        ("{group: ''}", "get apps deployments a x", false),
        ("{group: '*', resources: [pods]}", "get apps pods a x", true),
        ("{resources: [pods]}", "get - pods a x", true),
        ("{resources: [pods]}", "get - pods/status a x", false),
        ("{resources: [pods/status]}", "get - pods/status a x", true),
        ("{resources: [pods/status]}", "get - pods a x", false),
        ("{resources: ['pods/*']}", "get - pods/status a x", true),
        ("{resources: ['pods/*']}", "get - pods a x", true),
        ("{resources: ['pods/*']}", "get - services/status a x", false),
        ("{resources: ['*/status']}", "get - services/status a x", true),
        ("{resources: ['*/status']}", "get - services a x", false),
        ("{resources: ['*/*']}", "get - services/status a x", false),
        ("{resources: ['*']}", "get - services/status a x", true),
        ("{resources: [pods], resourceNames: [z, x]}", "get - pods a x", true),
        ("{resources: [pods], resourceNames: [z]}", "get - pods a x", false),
        ("{resources: [secrets]}, {group: apps}", "get apps deployments a x", true),
        ("{resources: ['*']}", "get /metrics", false),
    ] {
        assert_eq!(resource(resources, request), wanted, "{resources} {request}");
    }
}

#[test]
fn stages_add_up_and_managed_fields_are_overridden() {
    let policy = policy(
        "
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: Metadata, verbs: [get], omitStages: [Panic], omitManagedFields: false}
- {level: Metadata, verbs: [list]}
",
    );
    let verdict = |verb| policy.evaluate(&Attributes::path(&alice(), verb, "/"));
    let stages = |list: &[Stage]| list.iter().copied().collect::<Stages>();
    let get = verdict("get");
    assert_eq!(get.omit_stages, stages(&[Stage::RequestReceived, Stage::Panic]));
    assert!(!get.omit_managed_fields && get.records(Stage::ResponseComplete) && !get.records(Stage::Panic));
    assert_eq!(verdict("list").omit_stages, stages(&[Stage::RequestReceived]));
    assert!(verdict("list").omit_managed_fields);
    let none = verdict("watch");
    assert!(none.level == Level::None && none.omit_managed_fields && !none.records(Stage::ResponseComplete));
}

#[test]
fn all_problems_are_reported_with_their_fields() {
    let problem = read(
        "
rules:
- level: Foo
- {}
- level: Metadata
  nonResourceURLs: ['x', '/a*b', '*', '']
  namespaces: [a]
  resources: [{group: 'A/b', resourceNames: [x]}]
  omitStages: [Foo]
omitStages: [Bar]
",
    );
    // The messages of kube-apiserver 1.36.
    let wanted = "[omitStages[0]: Invalid value: \"Bar\": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic, \
         rules[0].level: Unsupported value: \"Foo\": supported values: \"None\", \"Metadata\", \"Request\", \"RequestResponse\", \
         rules[1].level: Required value, \
         rules[2].nonResourceURLs[0]: Invalid value: \"x\": non-resource URL rules must begin with a '/' character, \
         rules[2].nonResourceURLs[1]: Invalid value: \"/a*b\": non-resource URL wildcards '*' must be the final character of the rule, \
         rules[2].nonResourceURLs[3]: Invalid value: \"\": non-resource URL rules must begin with a '/' character, \
         rules[2].resources.group: Invalid value: \"A/b\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
         characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'), \
         rules[2].resources.resourceNames: Invalid value: [\"x\"]: using resourceNames requires at least one resource, \
         rules[2].omitStages[0]: Invalid value: \"Foo\": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic, \
         rules[2].nonResourceURLs: Invalid value: [\"x\",\"/a*b\",\"*\",\"\"]: rules cannot apply to both regular resources and \
         non-resource URLs]";
    assert_eq!(problem.unwrap_err(), wanted);
}

#[test]
fn documents_that_are_no_policy_are_refused() {
    let refused = |text: &str| Policy::parse(text.as_bytes()).unwrap_err().to_string();
    assert!(refused("apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]").contains("v1beta1"));
    assert!(refused("kind: Policy\nrules: [{level: None}]").contains("apiVersion \"\""));
    assert!(refused("apiVersion: audit.k8s.io/v1\nkind: Event").contains("kind \"Event\""));
    for text in ["", "[]", "x: ["] {
        assert!(refused(text).starts_with("failed decoding: "), "{text}");
    }
    assert_eq!(read("rules: []").unwrap_err(), "loaded illegal policy with 0 rules");
    assert_eq!(read("rules: [null]").unwrap_err(), "rules[0].level: Required value");
    assert_eq!(read("rules: [x]").unwrap_err(), "rules[0]: Invalid value: \"x\": must be an object");
    let wrong = "rules[0].users: Invalid value: \"x\": must be a list";
    assert_eq!(read("rules: [{level: None, users: x}]").unwrap_err(), wrong);
}

#[test]
fn unknown_fields_are_warnings() {
    let (policy, warnings) = read("rules: [{level: None, usres: [x], users: null}]\nfoo: 1").unwrap();
    assert_eq!(policy.rules.len(), 1);
    assert_eq!(warnings, ["unknown field \"foo\"", "unknown field \"rules[0].usres\""]);
}

#[test]
fn errors_name_the_file() {
    let scratch = crate::pki::scratch::Scratch::new();
    let path = scratch.path().join("policy.yaml");
    assert!(matches!(Policy::load(&path), Err(PolicyError::Read { .. })));
    std::fs::write(&path, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{}]").unwrap();
    let error = Policy::load(&path).unwrap_err().to_string();
    assert_eq!(error, format!("rules[0].level: Required value: from file {}", path.display()));
    std::fs::write(&path, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]").unwrap();
    assert_eq!(Policy::load(&path).unwrap(), policy("rules: [{level: Metadata}]"));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), rest in "[ -~\n]{0,80}") {
        let _ = Policy::parse(&bytes);
        if let Ok((policy, _)) = read(&rest) {
            prop_assert!(!policy.rules.is_empty());
        }
    }
}
