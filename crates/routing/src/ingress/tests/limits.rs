//! What is not served, because it is too much or cannot be understood; and that nobody else serves it if access is restricted.

use std::sync::Arc;

use super::super::Ingresses;
use super::super::testing::{CLASS, findings, goes, ingress, rule, with};

const REGEX: (&str, &str) = ("use-regex", "true");
const OFFICE: (&str, &str) = ("allowlist-source-range", "192.0.2.0/24");

/// Whether requests for a path of `h.example` fail with 503.
fn is_closed(all: &Ingresses, path: &str) -> bool {
    rule(all, "h.example", path, &[]).is_some_and(|rule| {
        let refuse = rule.policy.as_ref().and_then(|policy| policy.refuse);
        refuse == Some(503)
    })
}

/// An open Ingress for all paths.
fn open() -> api::view::Ingress {
    ingress("open", 1, &[REGEX], &["h.example / P b"])
}

#[test]
fn a_restricted_path_whose_expression_cannot_be_used_is_closed() {
    // Expression, paths that are closed, paths that are not.
    let cases: &[(&str, &[&str], &[&str])] = &[
        ("/admin/(?!public)", &["/admin/", "/admin/x", "/ADMIN/public"], &["/", "/admin", "/other"]),
        ("/admin?(?!x)", &["/admin", "/admi"], &["/adm"]),
        ("/v1.0/(", &["/v1.0/", "/v1x0/"], &["/v2"]),
        ("/a|/(?!b)", &["/a", "/c", "/"], &[]),
        ("/a(b|c)(?!b)", &["/a", "/ab"], &["/c"]),
    ];
    for (path, closed, others) in cases {
        let path = format!("h.example {path} I a");
        let all = with([ingress("restricted", 2, &[REGEX, OFFICE], &[&path]), open()]);
        for path in *closed {
            assert!(is_closed(&all, path), "{path}");
        }
        for path in *others {
            assert_eq!(goes(&all, "h.example", path, &[]), "b", "{path}");
        }
        let found = findings(&all, "restricted");
        assert!(found[0].starts_with("PathInvalid") && found[0].ends_with("its requests fail with 503"), "{found:?}");
        // Without a restriction, others may serve it.
        let all = with([ingress("unrestricted", 2, &[REGEX], &[&path]), open()]);
        assert!(closed.iter().all(|path| goes(&all, "h.example", path, &[]) == "b"));
    }
}

#[test]
fn a_closed_expression_keeps_its_precedence() {
    let paths = ["h.example /admin/(?!public)x I a", "h.example /admin/.* I b", "h.example /admin/very/long/.* I c"];
    let all = with([ingress("one", 1, &[REGEX, OFFICE], &paths)]);
    assert!(is_closed(&all, "/admin/x"));
    assert_eq!(goes(&all, "h.example", "/admin/very/long/x", &[]), "c");
}

#[test]
fn expressions_are_limited_in_length_and_number() {
    let long = format!("h.example /{}+ I a", "x".repeat(1023));
    let all = with([ingress("one", 1, &[REGEX], &[&long])]);
    let found = findings(&all, "one");
    assert!(found.len() == 1 && found[0].contains("it is longer than 1024 bytes") && found[0].len() < 300, "{found:?}");

    let paths = |text: &str| (0..300).map(|place| format!("h.example /p{place}/{text} I a")).collect::<Vec<_>>();
    let of = |paths: &[String], annotations: &[_]| {
        let paths: Vec<_> = paths.iter().map(String::as_str).collect();
        with([ingress("many", 2, annotations, &paths), open()])
    };
    let all = of(&paths("[a-z]"), &[REGEX]);
    assert_eq!((goes(&all, "h.example", "/p255/x", &[]), findings(&all, "many").len()), ("a".to_owned(), 44));
    assert_eq!(goes(&all, "h.example", "/p256/x", &[]), "b");
    let all = of(&paths("[a-z]"), &[REGEX, OFFICE]);
    assert!(!is_closed(&all, "/p255/x") && is_closed(&all, "/p256/x"));
    // Literal text costs little.
    assert_eq!(findings(&of(&paths("x"), &[REGEX]), "many"), [""; 0]);
    let long = format!("{}+", "x".repeat(900));
    let all = of(&paths(&long), &[REGEX]);
    assert_eq!(findings(&all, "many").len(), 264, "32 KiB are 36 of 905 to 908 bytes");
}

#[test]
fn paths_beyond_the_limit_are_not_served() {
    let paths: Vec<_> = (0..1010).map(|place| format!("h.example /p/{place} P a")).collect();
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    for (annotations, is_restricted) in [(&[][..], false), (&[OFFICE][..], true)] {
        let all = with([ingress("many", 2, annotations, &paths), ingress("open", 1, &[], &["h.example / P b"])]);
        assert_eq!(
            (goes(&all, "h.example", "/p/999", &[]), goes(&all, "h.example", "/q", &[])),
            ("a".into(), "b".into())
        );
        assert_eq!(is_closed(&all, "/p/1009"), is_restricted);
        let found = findings(&all, "many");
        assert_eq!(found.len(), 2, "{found:?}");
        let message = "PathInvalid: 10 paths of h.example are beyond the limit of 1000 paths of an Ingress";
        assert!(found[0].starts_with(message), "{found:?}");
        let hosts = "PathInvalid: the hosts of the rules after the first 1000 are not served";
        let outcome = if is_restricted { "; because access is restricted, they are closed" } else { "" };
        assert_eq!(found[1], format!("{hosts}{outcome}"));
    }
}

/// Whether requests for a path of a host fail with 503.
fn fails(all: &Ingresses, host: &str, path: &str) -> bool {
    let policy = rule(all, host, path, &[]).and_then(|rule| rule.policy.clone());
    policy.is_some_and(|policy| policy.refuse == Some(503))
}

#[test]
fn restricted_hosts_beyond_the_limit_are_closed() {
    let rules: Vec<_> = (0..1010).map(|place| format!("h{place}.example /admin P a")).collect();
    let rules: Vec<_> = rules.iter().map(String::as_str).collect();
    let wildcard =
        || ingress("open", 1, &[], &["*.example / P b", "h1005.example / P b", "h1006.example /admin/x P b"]);
    let all = with([ingress("many", 2, &[], &rules), wildcard()]);
    assert_eq!(
        (goes(&all, "h999.example", "/admin", &[]), goes(&all, "h1009.example", "/admin", &[])),
        ("a".into(), "b".into())
    );
    let all = with([ingress("many", 2, &[OFFICE], &rules), wildcard()]);
    assert_eq!(goes(&all, "h999.example", "/admin", &[]), "a");
    for host in ["h1000.example", "h1005.example", "h1009.example"] {
        assert!(fails(&all, host, "/admin") && fails(&all, host, "/admin/x"), "{host}");
    }
    assert_eq!(goes(&all, "h1009.example", "/other", &[]), "404", "neither that of the wildcard");
    assert_eq!(goes(&all, "h1005.example", "/other", &[]), "b", "the rule of another Ingress of the host");
    assert!(fails(&all, "h1006.example", "/admin") && goes(&all, "h1006.example", "/admin/x", &[]) == "b");
    assert_eq!(goes(&all, "other.example", "/admin", &[]), "b");
}

#[test]
fn restricted_hosts_beyond_the_limit_are_closed_whatever_their_rules_are() {
    let mut rules: Vec<_> = (0..1000).map(|place| format!("h{place}.example / P a")).collect();
    rules.extend(
        ["exact.example /a E a", "two.example /a P a", "two.example /b P a", "regex.example /a[0-9] I a"]
            .map(str::to_owned),
    );
    rules.push("- /a P a".to_owned());
    let rules: Vec<_> = rules.iter().map(String::as_str).collect();
    let open = || ingress("open", 1, &[], &["*.example / P b", "two.example / P b"]);
    let all = with([ingress("many", 2, &[OFFICE], &rules), open()]);
    assert!(fails(&all, "exact.example", "/a") && goes(&all, "exact.example", "/a/x", &[]) == "404");
    assert!(fails(&all, "two.example", "/a/x") && fails(&all, "two.example", "/b"));
    assert_eq!(goes(&all, "two.example", "/c", &[]), "b");
    assert!(fails(&all, "unknown.test", "/a"));
    let all = with([ingress("many", 2, &[OFFICE, REGEX], &rules), open()]);
    assert!(fails(&all, "regex.example", "/a7"), "what an expression begins with");
    // A rule without paths has the default backend, with its restrictions.
    let mut ingress = ingress("many", 2, &[OFFICE], &rules);
    ingress.spec.rules.push(serde_json::from_value(serde_json::json!({"host": "bare.example"})).unwrap());
    ingress.spec.default_backend =
        serde_json::from_value(serde_json::json!({"service": {"name": "c", "port": {"number": 80}}})).unwrap();
    let all = with([ingress, open()]);
    let bare = rule(&all, "bare.example", "/", &[]).expect("a rule");
    assert_eq!(goes(&all, "bare.example", "/", &[]), "c");
    assert!(bare.policy.as_ref().is_some_and(|policy| !policy.allow.is_empty()));
}

#[test]
fn restricted_aliases_are_not_limited() {
    let aliases: Vec<_> = (0..70).map(|place| format!("a{place}.example")).collect();
    let alias = ("server-alias", &*aliases.join(","));
    let all = with([
        ingress("one", 2, &[alias, OFFICE], &["h.example / P a"]),
        ingress("open", 1, &[], &["*.example / P b"]),
    ]);
    assert_eq!(goes(&all, "a69.example", "/", &[]), "a");
    assert_eq!(findings(&all, "one"), [""; 0]);
}

#[test]
fn aliases_share_the_rules_of_their_host_and_are_limited() {
    let aliases: Vec<_> = (0..70).map(|place| format!("a{place}.example")).collect();
    let hosts: Vec<_> = (0..20).map(|place| format!("h{place}.example / P a")).collect();
    let hosts: Vec<_> = hosts.iter().map(String::as_str).collect();
    let all = with([ingress("one", 1, &[("server-alias", &aliases.join(","))], &hosts)]);
    let rules = ["h0.example", "a0.example", "a63.example"].map(|host| rule(&all, host, "/x", &[]).unwrap());
    assert!(Arc::ptr_eq(&rules[0], &rules[1]) && Arc::ptr_eq(&rules[0], &rules[2]));
    assert_eq!(goes(&all, "a64.example", "/x", &[]), "404");
    assert_eq!(all.gateway(CLASS).unwrap().table.hosts().count(), 84);
    assert_eq!(
        findings(&all, "one"),
        ["AliasIgnored: annotation server-alias: those after the first 64 hosts are ignored"]
    );
}
