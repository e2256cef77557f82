//! Which rule takes a request: the tables of the Ingress API and of the documentation of ingress-nginx.

mod limits;
mod sharing;

use std::sync::Arc;

use api::view::Ingress;
use serde_json::json;

use super::Change;
use super::testing::{add, cluster, findings, goes, ingress, of_namespace, rule, with, with_tls};
use crate::cluster::SecretState;
use crate::model::Matches;

/// Annotations or headers.
type Pairs = &'static [(&'static str, &'static str)];

/// Paths, request, service or `404`: the examples of the documentation of Ingress.
#[test]
fn paths_match_as_the_ingress_api_says() {
    let cases: &[(&[&str], &str, &str)] = &[
        (&["/ P a"], "/any/path", "a"),
        (&["/foo E a"], "/foo", "a"),
        (&["/foo E a"], "/bar", "404"),
        (&["/foo E a"], "/foo/", "404"),
        (&["/foo/ E a"], "/foo", "404"),
        (&["/foo P a"], "/foo", "a"),
        (&["/foo P a"], "/foo/", "a"),
        (&["/foo/ P a"], "/foo", "a"),
        (&["/foo/ P a"], "/foo/", "a"),
        (&["/aaa/bb P a"], "/aaa/bbb", "404"),
        (&["/aaa/bbb P a"], "/aaa/bbb", "a"),
        (&["/aaa/bbb/ P a"], "/aaa/bbb", "a"),
        (&["/aaa/bbb P a"], "/aaa/bbb/", "a"),
        (&["/aaa/bbb P a"], "/aaa/bbb/ccc", "a"),
        (&["/aaa/bbb P a"], "/aaa/bbbxyz", "404"),
        (&["/ P a", "/aaa P b"], "/aaa/ccc", "b"),
        (&["/ P a", "/aaa P b"], "/ccc", "a"),
        (&["/ P a", "/aaa P b", "/aaa/bbb P c"], "/aaa/bbb", "c"),
        (&["/aaa P a"], "/ccc", "404"),
        (&["/foo P a", "/foo E b"], "/foo", "b"),
        (&["/foo P a", "/foo E b"], "/foo/", "a"),
        (&["/foo I a"], "/foo/x", "a"),
        (&["/foo I a"], "/foox", "404"),
    ];
    for (paths, request, want) in cases {
        let paths: Vec<_> = paths.iter().map(|path| format!("h.example {path}")).collect();
        let paths: Vec<_> = paths.iter().map(String::as_str).collect();
        let all = with([ingress("one", 1, &[], &paths)]);
        assert_eq!(goes(&all, "h.example", request, &[]), *want, "{paths:?} {request}");
    }
}

/// A backend that resolves the path must not receive what another rule protects.
#[test]
fn paths_are_compared_decoded_and_resolved() {
    let cases = [
        ("/%61dmin", "a"),
        ("//admin", "a"),
        ("/x/../admin", "a"),
        ("/x/%2e%2e/admin/x", "a"),
        ("/x%2F..%2Fadmin", "a"),
        ("/admin%2Fx", "a"),
        ("/./admin/.", "a"),
        ("/.well-known/acme-challenge/../../admin", "a"),
        ("/.well-known/acme-challenge/x", "c"),
        ("/admin/../x", "b"),
        ("/%70ublic", "b"),
        ("/a%20b/%5B", "d"),
        ("/../admin", "404"),
        ("/x/..%2f../admin", "404"),
        ("/admin%zz", "404"),
        ("/admin%00", "404"),
    ];
    let paths = ["h.example /admin P a", "h.example /.well-known/acme-challenge P c", "h.example / P b"];
    let all = with([ingress("one", 1, &[], &paths), ingress("two", 2, &[], &["h.example /a%20b/%5b E d"])]);
    for (path, want) in cases {
        assert_eq!(goes(&all, "h.example", path, &[]), want, "{path}");
    }
    let regex = [("use-regex", "true")];
    let paths = ["h.example /admin P a", "h.example /.well-known/acme-challenge P c", "h.example /a\\sb/\\[ I d"];
    let all = with([ingress("one", 1, &regex, &paths), ingress("two", 2, &regex, &["h.example / P b"])]);
    for (path, want) in cases {
        assert_eq!(goes(&all, "h.example", path, &[]), want, "{path} with expressions");
    }
}

#[test]
fn paths_that_no_request_has_are_findings_and_escapes_make_no_difference() {
    let all = with([
        ingress("old", 1, &[], &["h.example /admin P a"]),
        ingress("young", 2, &[], &["h.example /%61dmin P b", "h.example /%zz P b", "h.example /../x I b"]),
    ]);
    assert_eq!(goes(&all, "h.example", "/admin", &[]), "a");
    assert_eq!(
        findings(&all, "young"),
        [
            "PathInvalid: path /%zz has a malformed escape, or leaves the root by `..`",
            "PathInvalid: path /../x has a malformed escape, or leaves the root by `..`",
            "PathConflict: h.example/%61dmin is served by Ingress web/old, which is older or names it first",
        ]
    );
}

#[test]
fn hosts_match_exactly_or_with_one_label() {
    let all = with([ingress("one", 1, &[], &["*.foo.com / P a", "bar.foo.com /x P b", "- / P c"])]);
    let cases = [
        ("baz.foo.com", "/", "a"),
        ("baz.bar.foo.com", "/", "c"),
        ("foo.com", "/", "c"),
        ("bar.foo.com", "/x", "b"),
        // Not the rules of a less specific host.
        ("bar.foo.com", "/", "404"),
        (".foo.com", "/", "c"),
        ("", "/", "c"),
    ];
    for (host, path, want) in cases {
        assert_eq!(goes(&all, host, path, &[]), want, "{host}{path}");
    }
}

#[test]
fn the_default_backend_of_an_ingress_is_for_its_hosts() {
    let default = |mut ingress: Ingress, service: &str| {
        ingress.spec.default_backend =
            serde_json::from_value(json!({"service": {"name": service, "port": {"name": "web"}}})).unwrap();
        ingress
    };
    let all = with([
        default(ingress("young", 2, &[], &["h.example /young P a"]), "b"),
        default(ingress("old", 1, &[], &["h.example /old P a"]), "c"),
        ingress("other", 1, &[], &["other.example /x P a"]),
        default(ingress("all", 3, &[], &[]), "d"),
    ]);
    assert_eq!(goes(&all, "h.example", "/old", &[]), "a");
    assert_eq!(goes(&all, "h.example", "/x", &[]), "c");
    assert_eq!(goes(&all, "other.example", "/y", &[]), "404");
    assert_eq!(goes(&all, "unknown.example", "/y", &[]), "d");
    assert_eq!(findings(&all, "all"), [""; 0]);
}

#[test]
fn the_oldest_ingress_owns_a_path() {
    let mut all = with([
        ingress("young", 2, &[], &["h.example /x P b", "h.example /young P b"]),
        ingress("old", 1, &[], &["h.example /x/ P a", "h.example /old P a"]),
    ]);
    for (path, want) in [("/x", "a"), ("/young", "b"), ("/old", "a")] {
        assert_eq!(goes(&all, "h.example", path, &[]), want);
    }
    assert_eq!(
        findings(&all, "young"),
        ["PathConflict: h.example/x is served by Ingress web/old, which is older or names it first"]
    );
    assert_eq!(findings(&all, "old"), [""; 0]);
    let touched = all.apply(Change::Ingress("web/old".into(), None));
    assert!(touched.ingresses.iter().any(|key| &**key == "web/young"), "{touched:?}");
    assert_eq!((goes(&all, "h.example", "/x", &[]), findings(&all, "young").len()), ("b".to_owned(), 0));
}

#[test]
fn backends_are_resolved() {
    let mut of = ingress("one", 1, &[], &["h.example /number P a", "h.example /missing P zzz"]);
    let path = |path: &str, backend| {
        serde_json::from_value(
            json!({"host": "h.example", "http": {"paths": [{"path": path, "pathType": "Prefix", "backend": backend}]}}),
        )
    };
    let service = |port| json!({"service": {"name": "a", "port": port}});
    of.spec.rules.push(path("/name", service(json!({"name": "web"}))).unwrap());
    of.spec.rules.push(path("/no-port", service(json!({"number": 81}))).unwrap());
    of.spec.rules.push(path("/udp", service(json!({"name": "dns"}))).unwrap());
    of.spec.rules.push(path("/bucket", json!({"resource": {"kind": "Bucket", "name": "b"}})).unwrap());
    let all = with([of]);
    let cases = [
        ("/number", "a"),
        ("/name", "a"),
        ("/missing", "BackendNotFound"),
        ("/no-port", "BackendNotFound"),
        ("/udp", "UnsupportedProtocol"),
        ("/bucket", "InvalidKind"),
    ];
    for (path, want) in cases {
        assert_eq!(goes(&all, "h.example", path, &[]), want, "{path}");
    }
    assert_eq!(
        findings(&all, "one"),
        [
            "BackendInvalid: path /bucket: the backend is Bucket; only a Service can be a backend; its requests fail with 500",
            "BackendInvalid: path /missing: there is no Service web/zzz; its requests fail with 500",
            "BackendInvalid: path /no-port: Service web/a has no port 81; its requests fail with 500",
            "BackendInvalid: path /udp: port `dns` of Service web/a is not TCP; its requests fail with 500",
        ]
    );
}

/// The first example of the page on path matching of ingress-nginx: one rewrite makes all paths of the host expressions.
#[test]
fn one_rewrite_makes_all_paths_of_a_host_expressions() {
    let all = with([
        ingress("test-ingress-1", 1, &[], &["test.com /foo/bar P a", "test.com /foo/bar/ P b"]),
        ingress("test-ingress-2", 2, &[("rewrite-target", "/$1")], &["test.com /foo/bar/(.+) I c"]),
        ingress("other", 3, &[], &["other.com /foo P d"]),
    ]);
    let cases = [
        ("test.com", "/foo/bar/1", "c"),
        ("test.com", "/foo/bar/", "b"),
        ("test.com", "/foo/bar", "a"),
        ("test.com", "/FOO/BAR", "a"),
        ("test.com", "/foo/barbaz", "a"),
        ("test.com", "/x/foo/bar", "404"),
        ("other.com", "/FOO", "404"),
        ("other.com", "/foo/x", "d"),
        ("other.com", "/foox", "404"),
    ];
    for (host, path, want) in cases {
        assert_eq!(goes(&all, host, path, &[]), want, "{host}{path}");
    }
    let Matches::Http(matches) = &rule(&all, "test.com", "/foo/bar", &[]).unwrap().matches else { panic!() };
    assert_eq!(matches[0].path.as_ref().unwrap().value.as_deref(), Some("(?i)(?:/foo/bar).*"));
}

/// The second example: the first expression by length wins, not the longest literal path.
#[test]
fn the_longest_expression_is_tried_first() {
    let regex = [("use-regex", "true")];
    let all = with([ingress(
        "test-ingress-3",
        1,
        &regex,
        &["test.com /foo/bar/bar P a", "test.com /foo/bar/[A-Z0-9]{3} I b"],
    )]);
    assert_eq!(goes(&all, "test.com", "/foo/bar/bar", &[]), "b");
    assert_eq!(goes(&all, "test.com", "/foo/bar/ba", &[]), "404");
    let all = with([ingress(
        "one",
        1,
        &regex,
        &["test.com /foo/.* I a", "test.com /fo+ E b", "test.com foo I c", "test.com /(?!x) I c"],
    )]);
    assert_eq!(goes(&all, "test.com", "/FOO/x", &[]), "a");
    // Exact paths are expressions too.
    assert_eq!(goes(&all, "test.com", "/foooo/x", &[]), "b");
    let found = findings(&all, "one");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("PathInvalid: `/(?!x)` is not a regular expression that can be used"), "{found:?}");
    assert_eq!(found[1], "PathInvalid: path `foo` does not start with /");
}

#[test]
fn rewrites_apply_to_the_path_of_the_rule() {
    let all = with([ingress(
        "rewrite",
        1,
        &[("use-regex", "true"), ("rewrite-target", "/$2")],
        &["rewrite.bar.com /something(/|$)(.*) I a"],
    )]);
    let policy = rule(&all, "rewrite.bar.com", "/something/new", &[]).unwrap().policy.clone().unwrap();
    assert_eq!(policy.rewrite.as_ref().unwrap().pattern.source(), "/something(/|$)(.*)");
    // A target that is the path itself is no rewrite.
    let all = with([ingress("same", 1, &[("rewrite-target", "/app")], &["h.example /app P a"])]);
    assert_eq!(rule(&all, "h.example", "/app", &[]).unwrap().policy.as_ref().unwrap().rewrite, None);
    assert_eq!(goes(&all, "h.example", "/APP", &[]), "404");
}

/// Annotations, host with TLS, path, status of the redirect to https.
#[test]
fn hosts_with_tls_are_redirected_to_it() {
    let cases: &[(Pairs, bool, &str, Option<u16>)] = &[
        (&[], true, "/", Some(308)),
        (&[], false, "/", None),
        (&[("ssl-redirect", "false")], true, "/", None),
        (&[("force-ssl-redirect", "true")], false, "/", Some(308)),
        (&[("force-ssl-redirect", "true"), ("ssl-redirect", "false")], true, "/", Some(308)),
        (&[], true, "/.well-known/acme-challenge/token", None),
        (&[("force-ssl-redirect", "true")], true, "/.well-known/acme-challenge/token", None),
    ];
    for (annotations, has_tls, path, want) in cases {
        let one = ingress("one", 1, annotations, &[&format!("h.example {path} P a")]);
        let all = with([if *has_tls { with_tls(one, &["h.example"]) } else { one }]);
        let policy = rule(&all, "h.example", path, &[]).unwrap().policy.clone().unwrap();
        assert_eq!(policy.require_https, *want, "{annotations:?} {has_tls} {path}");
    }
    // The certificate may be that of another Ingress of the host, or a wildcard.
    let all = with([
        ingress("plain", 1, &[], &["h.example /plain P a", "x.y.example / P a"]),
        with_tls(
            ingress("tls", 2, &[], &["h.example /tls P a", "x.y.example /tls P a"]),
            &["h.example", "*.y.example"],
        ),
    ]);
    for (host, path) in [("h.example", "/plain"), ("x.y.example", "/")] {
        let policy = rule(&all, host, path, &[]).unwrap().policy.clone().unwrap();
        assert_eq!(policy.require_https, Some(308), "{host}");
    }
}

#[test]
fn certificates_are_selected_by_server_name() {
    let mut all = with([
        with_tls(ingress("one", 1, &[], &["h.example / P a"]), &["h.example", "*.w.example"]),
        with_tls(ingress("two", 2, &[], &["*.v.example / P a"]), &[]),
    ]);
    let find =
        |all: &super::Ingresses, name| all.gateway("waypost").unwrap().certificates.find(name).map(ToString::to_string);
    for (name, want) in [
        (Some("h.example"), Some("web/tls")),
        (Some("x.w.example"), Some("web/tls")),
        (Some("x.y.w.example"), None),
        (Some("x.v.example"), Some("web/tls")),
        (Some("other.example"), None),
        (None, None),
    ] {
        assert_eq!(find(&all, name).as_deref(), want, "{name:?}");
    }
    let config = all.gateway("waypost").unwrap().config.clone();
    assert_eq!(config.listeners.iter().map(|listener| listener.port).collect::<Vec<_>>(), [80, 443]);
    assert_eq!(config.listeners[1].certificates, [Arc::from("web/tls")]);
    assert_eq!((&*config.key, &*config.service), (":ingress/waypost", "waypost-system/ingress-waypost"));

    let touched = all.apply(Change::Secret("web/tls".into(), Some(SecretState::Invalid("no key".into()))));
    assert_eq!((touched.classes.len(), touched.ingresses.len()), (1, 2));
    assert_eq!(find(&all, Some("h.example")), None);
    assert_eq!(
        findings(&all, "one"),
        ["CertificateInvalid: Secret web/tls has no certificate: no key; TLS handshakes fail"]
    );
}

/// Annotations of the canary, headers, backends.
#[test]
fn canaries_receive_their_share() {
    const BY_HEADER: (&str, &str) = ("canary-by-header", "X-Canary");
    let cases: &[(Pairs, Pairs, &str)] = &[
        (&[("canary-weight", "30")], &[], "a=70 b=30"),
        (&[("canary-weight", "300"), ("canary-weight-total", "1000")], &[], "a=700 b=300"),
        (&[("canary-weight", "300")], &[], "a=0 b=100"),
        // A total below 100 does not count.
        (&[("canary-weight", "30"), ("canary-weight-total", "50")], &[], "a=70 b=30"),
        (&[], &[], "a=100 b=0"),
        (&[BY_HEADER], &[("x-canary", "always")], "b"),
        (&[BY_HEADER], &[("x-canary", "never")], "a"),
        (&[BY_HEADER, ("canary-weight", "10")], &[("x-canary", "perhaps")], "a=90 b=10"),
        (&[BY_HEADER, ("canary-by-header-value", "blue")], &[("x-canary", "blue")], "b"),
        (&[BY_HEADER, ("canary-by-header-value", "blue")], &[("x-canary", "always")], "a=100 b=0"),
        (&[BY_HEADER, ("canary-by-header-pattern", "^b.*e$")], &[("x-canary", "blue")], "b"),
        (&[BY_HEADER, ("canary-by-header-pattern", "lu")], &[("x-canary", "blue")], "b"),
        (&[BY_HEADER, ("canary-by-header-pattern", "LU")], &[("x-canary", "blue")], "a=100 b=0"),
        (
            &[BY_HEADER, ("canary-by-header-value", "x"), ("canary-by-header-pattern", "lu")],
            &[("x-canary", "blue")],
            "a=100 b=0",
        ),
        (&[("canary-by-cookie", "try")], &[("cookie", "x=1; try=always")], "b"),
        (&[("canary-by-cookie", "try"), ("canary-weight", "50")], &[("cookie", "try=never")], "a"),
        (&[("canary-by-cookie", "try")], &[("cookie", "retry=always")], "a=100 b=0"),
        // The header precedes the cookie.
        (&[BY_HEADER, ("canary-by-cookie", "try")], &[("cookie", "try=always"), ("x-canary", "never")], "a"),
    ];
    for (annotations, request, want) in cases {
        let annotations: Vec<_> = annotations.iter().copied().chain([("canary", "true")]).collect();
        let all = with([
            ingress("stable", 2, &[], &["h.example /x P a", "h.example /y P a"]),
            ingress("canary", 1, &annotations, &["h.example /x P b"]),
        ]);
        assert_eq!(goes(&all, "h.example", "/x", request), *want, "{annotations:?} {request:?}");
        assert_eq!(goes(&all, "h.example", "/y", request), "a");
        assert_eq!(findings(&all, "canary"), [""; 0]);
    }
}

#[test]
fn canaries_without_a_rule_to_join_are_findings() {
    let canary = [("canary", "true"), ("canary-weight", "50")];
    let all = with([
        ingress("stable", 1, &[("proxy-body-size", "8m")], &["h.example /x P a"]),
        ingress("first", 2, &canary, &["h.example /x P b"]),
        ingress("second", 3, &canary, &["h.example /x P c"]),
        ingress("type", 4, &canary, &["h.example /x E c"]),
        ingress("alone", 5, &canary, &["alone.example / P c"]),
    ]);
    assert_eq!(goes(&all, "h.example", "/x", &[]), "a=50 b=50");
    assert_eq!(goes(&all, "alone.example", "/", &[]), "404");
    let policy = rule(&all, "h.example", "/x", &[]).unwrap().policy.clone().unwrap();
    assert_eq!(policy.body_limit, Some(8 << 20));
    assert_eq!(findings(&all, "first"), [""; 0]);
    assert!(
        findings(&all, "second")[0].contains("Ingress web/first is the canary of h.example/x of Ingress web/stable")
    );
    assert!(
        findings(&all, "type")[0].contains("no other Ingress of namespace web has h.example/x with pathType Exact")
    );
    assert!(
        findings(&all, "alone")[0].starts_with("CanaryIgnored: the canary receives no requests: no other Ingress of")
    );
}

#[test]
fn a_canary_of_another_namespace_receives_nothing() {
    let canary = [("canary", "true"), ("canary-weight", "100"), ("canary-by-header", "X-Canary")];
    let foreign = of_namespace("thief", ingress("canary", 2, &canary, &["h.example /x P b"]));
    let all = with([ingress("stable", 1, &[], &["h.example /x P a"]), foreign]);
    for headers in [&[][..], &[("x-canary", "always")]] {
        assert_eq!(goes(&all, "h.example", "/x", headers), "a");
    }
    let found = &all.state("thief/canary").unwrap().findings;
    assert_eq!(
        found[0].message,
        "the canary receives no requests: no other Ingress of namespace thief has h.example/x with pathType Prefix"
    );
    // One of its own namespace is not kept out by it.
    let own = ingress("own", 3, &canary[..2], &["h.example /x P c"]);
    let foreign = of_namespace("thief", ingress("canary", 2, &canary, &["h.example /x P b"]));
    let all = with([ingress("stable", 1, &[], &["h.example /x P a"]), foreign, own]);
    assert_eq!(goes(&all, "h.example", "/x", &[]), "a=0 c=100");
}

#[test]
fn aliases_and_www_forms_are_further_hosts() {
    let mut all = with([
        ingress("one", 1, &[("server-alias", "alias.example, taken.example,*.any.example")], &["h.example /x P a"]),
        ingress("www", 2, &[("from-to-www-redirect", "true")], &["shop.example / P b", "www.bar.example / P b"]),
        ingress("taken", 3, &[], &["taken.example / P c"]),
    ]);
    for (host, path, want) in [
        ("alias.example", "/x", "a"),
        ("alias.example", "/", "404"),
        ("z.any.example", "/x", "a"),
        ("taken.example", "/x", "c"),
        ("shop.example", "/", "b"),
    ] {
        assert_eq!(goes(&all, host, path, &[]), want, "{host}{path}");
    }
    assert_eq!(findings(&all, "one"), ["AliasIgnored: taken.example has rules of its own, or of an older Ingress"]);
    for (host, to) in [("www.shop.example", "shop.example"), ("bar.example", "www.bar.example")] {
        let policy = rule(&all, host, "/any", &[]).unwrap().policy.clone().unwrap();
        let redirect = policy.redirect.as_ref().unwrap();
        assert_eq!(redirect.status, 308);
        assert_eq!(
            format!("{:?}", redirect.location),
            format!("{:?}", crate::policy::Template::url(&format!("$scheme://{to}$request_uri")).unwrap())
        );
    }
    // An alias follows the rules of its host, whoever changes them, and ends with them.
    add(&mut all, ingress("more", 4, &[], &["h.example /more P d"]));
    assert_eq!(goes(&all, "alias.example", "/more", &[]), "d");
    all.apply(Change::Ingress("web/one".into(), None));
    assert_eq!(goes(&all, "alias.example", "/more", &[]), "404");
    all.apply(Change::Ingress("web/taken".into(), None));
    assert_eq!(goes(&all, "taken.example", "/", &[]), "404");
}

#[test]
fn the_root_is_redirected_to_the_application() {
    let root = [("app-root", "/app1")];
    for (paths, annotations) in
        [(["h.example / P a"], &root[..]), (["h.example / I a"], &[root[0], ("use-regex", "true")])]
    {
        let all = with([ingress("one", 1, annotations, &paths)]);
        let policy = rule(&all, "h.example", "/", &[]).unwrap().policy.clone().unwrap();
        assert_eq!(policy.redirect.as_ref().unwrap().status, 302);
        assert_eq!(rule(&all, "h.example", "/app1", &[]).unwrap().policy.as_ref().unwrap().redirect, None);
    }
    // Only where the Ingress serves the root.
    let all = with([ingress("one", 1, &root, &["h.example /x P a"]), ingress("two", 2, &[], &["h.example / P b"])]);
    assert_eq!(rule(&all, "h.example", "/", &[]).unwrap().policy.as_ref().unwrap().redirect, None);
}

#[test]
fn other_classes_are_left_alone() {
    let mut other = ingress("one", 1, &[("configuration-snippet", "x")], &["h.example / P a"]);
    other.spec.ingress_class_name = Some("other".into());
    let mut all = cluster();
    add(&mut all, other);
    assert_eq!(goes(&all, "h.example", "/", &[]), "404");
    assert_eq!(all.state("web/one"), Some(super::IngressState::default()));
    assert_eq!(all.state("web/none"), None);
    // The class appears.
    let class = json!({"metadata": {"name": "other"}, "spec": {"controller": super::CONTROLLER}});
    let touched = all.apply(Change::Class("other".into(), Some(Arc::new(serde_json::from_value(class).unwrap()))));
    assert_eq!(touched.ingresses.iter().map(|key| &**key).collect::<Vec<_>>(), ["web/one"]);
    assert_eq!(touched.classes.iter().map(|key| &**key).collect::<Vec<_>>(), ["other"]);
    assert_eq!(all.state("web/one").unwrap().findings.len(), 1);
    assert_eq!(all.of_class("other").count(), 1);
}

#[test]
fn the_server_for_authentication_is_at_the_host_of_the_rule_and_at_none_that_clients_choose() {
    let annotations = [("auth-url", "https://$host/oauth2/auth")];
    let paths = ["h.example / P a", "*.wild.example / P a", "- / P a"];
    let all = with([ingress("one", 1, &annotations, &paths)]);
    let policy = |host| rule(&all, host, "/", &[]).unwrap().policy.clone().unwrap();
    let exact = policy("h.example");
    assert_eq!(exact.external_auth.as_ref().unwrap().url.source(), "https://h.example/oauth2/auth");
    assert_eq!(exact.refuse, None);
    for host in ["x.wild.example", "other.example"] {
        assert_eq!(policy(host).refuse, Some(503), "{host}");
    }
    let findings = findings(&all, "one");
    assert!(findings.iter().all(|finding| finding.starts_with("AccessRefused: annotation auth-url")), "{findings:?}");
    assert_eq!(findings.len(), 2);
}
