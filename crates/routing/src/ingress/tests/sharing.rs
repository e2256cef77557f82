//! What Ingresses of different namespaces on one host can do to each other. Services of the namespace `other` do not exist.

use serde_json::json;

use super::super::testing::{CLASS, add, cluster, goes, ingress, of_namespace, rule, with, with_tls};
use super::super::{Change, Ingresses};
use crate::cluster::SecretState;

const OTHER: &str = "BackendNotFound";
const REGEX: (&str, &str) = ("use-regex", "true");

/// Requests for `h.example` and where they go: the paths of `web`, which are literal and created in the minute 1, with those
/// of `other`, which are expressions.
fn check(minute: u32, paths: &[&str], cases: &[(&str, &str)]) {
    let own = ingress("own", 1, &[], &["h.example /admin P a", "h.example /exact E d", "h.example / P b"]);
    let paths: Vec<_> = paths.iter().map(|path| format!("h.example {path} I c")).collect();
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    let all = with([own, of_namespace("other", ingress("regex", minute, &[REGEX], &paths))]);
    for (path, want) in cases {
        assert_eq!(goes(&all, "h.example", path, &[]), *want, "{paths:?} {path}");
    }
}

#[test]
fn expressions_of_one_namespace_leave_the_paths_of_others_as_they_are() {
    let cases = [
        ("/ADMIN", "b"),
        ("/adminx", "b"),
        ("/admin/x", "a"),
        ("/exact", "d"),
        ("/exact/x", "b"),
        ("/zz9", OTHER),
        ("/ZZ9", OTHER),
        ("/zz", "b"),
    ];
    check(2, &["/zz[0-9]"], &cases);
}

#[test]
fn an_expression_takes_no_more_of_another_namespace_than_a_prefix_would() {
    let catch_all = format!("/({})?", "x".repeat(90));
    check(2, &[&catch_all], &[("/", "b"), ("/any", "b"), ("/admin", "a"), ("/exact", "d")]);
    check(2, &["/adminadmin|.*"], &[("/", "b"), ("/any", "b"), ("/admin", "a"), ("/adminadmin", OTHER)]);
    check(2, &["/admin.*"], &[("/admin", "a"), ("/admin/x", "a"), ("/adminx", OTHER)]);
    check(2, &["/admin/x.*"], &[("/admin", "a"), ("/admin/x", OTHER), ("/admin/y", "a")]);
    // Of equal ones the older Ingress has precedence.
    check(0, &["/admin.*"], &[("/admin", OTHER), ("/admin/x", OTHER), ("/any", "b")]);
    check(0, &["/.*"], &[("/any", OTHER), ("/admin", "a")]);
}

#[test]
fn a_default_backend_takes_nothing_from_expressions_of_another_namespace() {
    let mut default = of_namespace("other", ingress("default", 0, &[], &["h.example /zz P c"]));
    default.spec.default_backend =
        serde_json::from_value(json!({"service": {"name": "c", "port": {"number": 80}}})).unwrap();
    let all = with([default, ingress("own", 1, &[REGEX], &["h.example /x.+ I a"])]);
    for (path, want) in [("/xy", "a"), ("/y", OTHER), ("/zz", OTHER)] {
        assert_eq!(goes(&all, "h.example", path, &[]), want, "{path}");
    }
}

fn certificate(all: &Ingresses, host: &str) -> Option<String> {
    all.gateway(CLASS).unwrap().certificates.find(Some(host)).map(ToString::to_string)
}

#[test]
fn a_certificate_is_that_of_the_namespace_of_the_oldest_ingress_of_the_host() {
    let mut all = cluster();
    all.apply(Change::Secret("other/tls".into(), Some(SecretState::Certificate)));
    let hosts = ["h.example", "a.wild.example", "alias.example", "own.example"];
    let thief = ingress("thief", 2, &[], &["h.example /thief P c", "own.example / P c"]);
    add(&mut all, of_namespace("other", with_tls(thief, &hosts)));
    for host in hosts {
        assert_eq!(certificate(&all, host).as_deref(), Some("other/tls"), "{host}");
    }
    // Older Ingresses of another namespace appear.
    let alias = ("server-alias", "alias.example");
    add(&mut all, ingress("old", 1, &[alias], &["h.example / P a", "*.wild.example / P a"]));
    for host in &hosts[..3] {
        assert_eq!(certificate(&all, host), None, "{host}");
    }
    assert_eq!(certificate(&all, "own.example").as_deref(), Some("other/tls"));
    let policy = rule(&all, "h.example", "/", &[]).unwrap().policy.clone().unwrap();
    assert_eq!(policy.require_https, None, "the host of others is not redirected to https");
    let found = all.state("other/thief").unwrap().findings;
    assert_eq!(found.iter().filter(|one| one.reason.as_str() == "CertificateInvalid").count(), 3);
    let message = "the certificate of Secret other/tls is not shown for h.example, which belongs to the namespace of \
                   Ingress web/old";
    assert!(found.iter().any(|one| one.message == message), "{found:?}");
    // They disappear.
    all.apply(Change::Ingress("web/old".into(), None));
    assert_eq!(certificate(&all, "h.example").as_deref(), Some("other/tls"));
}

#[test]
fn the_certificate_of_a_wildcard_is_not_shown_for_hosts_of_another_namespace() {
    let mut all = with([ingress("plain", 2, &[], &["h.example / P a"])]);
    all.apply(Change::Secret("other/tls".into(), Some(SecretState::Certificate)));
    let wildcard = of_namespace("other", with_tls(ingress("wild", 1, &[], &["x.example / P a"]), &["*.example"]));
    add(&mut all, wildcard);
    assert_eq!(certificate(&all, "h.example"), None);
    assert_eq!(certificate(&all, "x.example").as_deref(), Some("other/tls"));
    assert_eq!(certificate(&all, "nobody.example").as_deref(), Some("other/tls"));
    add(&mut all, with_tls(ingress("plain", 2, &[], &["h.example / P a"]), &["h.example"]));
    assert_eq!(certificate(&all, "h.example").as_deref(), Some("web/tls"));
}
