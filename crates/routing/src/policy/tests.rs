use std::net::IpAddr;
use std::time::Duration;

use http::HeaderMap;
use jiff::Timestamp;

use super::*;

fn values<'a>(path: &'a str, query: Option<&'a str>, headers: &'a HeaderMap) -> RequestValues<'a> {
    RequestValues {
        scheme: "https",
        authority: "shop.example:8443",
        method: "GET",
        path,
        query,
        headers,
        client: IpAddr::from([10, 0, 0, 7]),
        port: 443,
        captures: &[],
    }
}

#[test]
fn deny_beats_allow() {
    let range = |text: &str| text.parse::<IpNet>().unwrap();
    let policy = Policy { allow: vec![range("10.0.0.0/8")], deny: vec![range("10.1.0.0/16")], ..Policy::default() };
    let cases = [
        ("10.2.3.4", true),
        ("10.1.3.4", false),
        ("192.0.2.1", false),
        ("::ffff:10.2.3.4", true),
        ("2001:db8::1", false),
    ];
    for (client, admitted) in cases {
        assert_eq!(policy.admits(client.parse().unwrap()), admitted, "{client}");
    }
    assert!(Policy::default().admits(IpAddr::from([192, 0, 2, 1])));
    let only_deny = Policy { deny: vec![range("2001:db8::/32")], ..Policy::default() };
    assert!(only_deny.admits("192.0.2.1".parse().unwrap()) && !only_deny.admits("2001:db8::1".parse().unwrap()));
}

#[test]
fn a_policy_cannot_admit_what_those_around_it_refuse() {
    let within = |allow: &str, outer: Option<Policy>| {
        let outer = outer.map(Arc::new);
        Policy { outer, allow: vec![allow.parse().unwrap()], ..Policy::default() }
    };
    let policy = within("10.1.0.0/16", Some(within("10.0.0.0/8", Some(within("10.1.2.0/24", None)))));
    for (client, admitted) in [("10.1.2.3", true), ("10.1.3.3", false), ("10.2.2.3", false), ("192.0.2.1", false)] {
        assert_eq!(policy.admits(client.parse().unwrap()), admitted, "{client}");
    }
    assert_eq!(policy.layers().count(), 3);
}

#[test]
fn templates_have_the_values_of_the_request() {
    let mut headers = HeaderMap::new();
    headers.insert("x-team", "blue".parse().unwrap());
    let cases = [
        ("https://$host$request_uri", "https://shop.example/a/b?c=d%20e&f"),
        ("$scheme://$http_host/x", "https://shop.example:8443/x"),
        ("http://auth.example${uri}$is_args$args", "http://auth.example/a/b?c=d%20e&f"),
        ("https://a.example/?rd=$escaped_request_uri", "https://a.example/?rd=%2Fa%2Fb%3Fc%3Dd%2520e%26f"),
        ("https://$http_x_team.example/$arg_C/$request_method", "https://blue.example/d%20e/GET"),
        ("https://a.example:$server_port/$remote_addr", "https://a.example:443/10.0.0.7"),
    ];
    for (text, want) in cases {
        let template = Template::url(text).unwrap();
        assert_eq!(template.render(&values("/a/b", Some("c=d%20e&f"), &headers)), want, "{text}");
        assert_eq!(template.as_text(), None);
    }
    assert_eq!(Template::parse("/plain").unwrap().as_text(), Some("/plain"));
}

#[test]
fn templates_with_unknown_variables_are_rejected() {
    assert_eq!(Template::parse("/$ssl_client_cert"), Err(TemplateError::Unknown("ssl_client_cert".into())));
    assert_eq!(Template::parse("cost: $"), Err(TemplateError::Unknown("".into())));
    assert_eq!(Template::parse("a\r\nb"), Err(TemplateError::Control));
    for text in ["ftp://a.example", "/path", "https://", "https:///x", "$host/x"] {
        assert!(matches!(Template::url(text), Err(TemplateError::NotUrl(_))), "{text}");
    }
}

#[test]
fn rewrites_replace_the_whole_path() {
    let headers = HeaderMap::new();
    // Expression, target, path, query, result.
    let cases = [
        ("/something(/|$)(.*)", "/$2", "/something", None, Some("/")),
        ("/something(/|$)(.*)", "/$2", "/something/", None, Some("/")),
        ("/something(/|$)(.*)", "/$2", "/something/new", Some("a=1"), Some("/new?a=1")),
        ("/SomeThing(/|$)(.*)", "/$2", "/something/new", None, Some("/new")),
        ("/app", "/", "/app/deep/path", None, Some("/")),
        ("/app", "/new?x=1", "/app", Some("a=1"), Some("/new?x=1&a=1")),
        ("/app", "/new?", "/app", Some("a=1"), Some("/new")),
        ("/app", "new", "/app", None, Some("/new")),
        ("/app", "/", "/other", None, None),
        // The expression sees the path decoded and resolved; captures are encoded again.
        ("/app/(.*)", "/$1", "/x/%2e%2e/%61pp//a%20b%3Fc%252F/+&=", None, Some("/a%20b%3Fc%252F/+&=")),
        ("/app/(.*)", "/$1", "/app/../admin", None, None),
        ("/app/(.*)", "/x?of=$1", "/app/a%26admin=1%23", None, Some("/x?of=a%26admin%3D1%23")),
        ("/app/(.)", "/$1", "/app/\u{e9}", None, Some("/%C3")),
    ];
    for (pattern, target, path, query, want) in cases {
        let rewrite = PathRewrite { pattern: Pattern::new(pattern).unwrap(), target: Template::parse(target).unwrap() };
        assert_eq!(rewrite.apply(&values(path, query, &headers)).as_deref(), want, "{pattern} {target} {path}");
    }
}

#[test]
fn expressions_without_an_equivalent_are_rejected() {
    for source in ["/(?!api)", r"/(a)\1", "/(", "/(x{1000}){1000}"] {
        let error = Pattern::new(source).unwrap_err();
        assert_eq!(&*error.pattern, source);
        assert!(!error.reason.is_empty());
    }
    assert!(Pattern::at_start("/foo/.*").unwrap().is_match("/FOO/x"));
    assert!(!Pattern::at_start("/foo/.*").unwrap().is_match("/a/foo/x"));
}

#[test]
fn the_literal_start_of_an_expression_covers_what_it_matches() {
    // Expression, its text, paths that begin as it does.
    let cases: &[(&str, &str, &[&str])] = &[
        ("/a.b/c", "/a.b/c", &["/a", "/axb/c"]),
        ("/ab*", "/a", &["/a", "/A/x"]),
        ("/ab{0}", "/a", &["/a"]),
        ("/a\u{e9}?", "/a", &["/a"]),
        ("/a.*", "/a", &["/a"]),
        ("/a(b|c)|", "/a", &["/", ""]),
        ("/a[|]", "/a", &["/a"]),
        (r"/a\(|/b", "/a", &["/b"]),
        ("*", "", &["/"]),
    ];
    for (source, text, paths) in cases {
        assert_eq!(Pattern::text_before(source), *text);
        let start = Pattern::literal_start(source).unwrap();
        assert_eq!(start.source(), *source);
        for path in *paths {
            assert!(start.is_match(path), "{source} {path}");
        }
        assert_eq!(start.is_match("/x/a"), source.contains("|") && !source.contains('[') || *source == "*", "{source}");
    }
    let long = Pattern::literal_start(&"/\u{e9}".repeat(100_000)).unwrap();
    assert!(long.is_match("/\u{e9}".repeat(100)));
}

#[test]
fn sign_in_pages_get_the_page_to_return_to() {
    let page = |url, parameter| ExternalAuth::signin_page(url, parameter).unwrap();
    let headers = HeaderMap::new();
    let back = "https://shop.example:8443%2Fcart";
    let cases = [
        ("https://a.example/start", None, format!("https://a.example/start?rd={back}")),
        ("https://a.example/start?x=1", None, format!("https://a.example/start?x=1&rd={back}")),
        ("https://a.example/start?", Some("next"), format!("https://a.example/start?next={back}")),
        ("https://a.example/start?rd=/home", None, "https://a.example/start?rd=/home".to_owned()),
        ("https://a.example/start?rdx=1", None, format!("https://a.example/start?rdx=1&rd={back}")),
    ];
    for (url, parameter, want) in cases {
        assert_eq!(page(url, parameter).render(&values("/cart", None, &headers)), want);
    }
}

#[test]
fn cookies_have_their_attributes() {
    let now: Timestamp = "2026-03-01T10:00:00Z".parse().unwrap();
    let mut cookie = CookieAffinity::new("route");
    assert_eq!(cookie.set_cookie("v", false, now), "route=v; Path=/; HttpOnly");
    assert_eq!(cookie.set_cookie("v", true, now), "route=v; Path=/; Secure; HttpOnly");
    cookie.secure = Some(true);
    cookie.path = Some("/shop".into());
    cookie.domain = Some("example".into());
    cookie.max_age = Some(Duration::from_secs(60));
    cookie.expires = Some(Duration::from_secs(3600));
    cookie.same_site = Some(SameSite::Lax);
    let want = "route=v; Expires=Sun, 01 Mar 2026 11:00:00 GMT; Max-Age=60; Domain=example; Path=/shop; SameSite=Lax; Secure; HttpOnly";
    assert_eq!(cookie.set_cookie("v", false, now), want);
}

#[test]
fn rates_have_an_interval_and_exemptions() {
    let limit = RateLimit {
        zone: "web/shop".into(),
        requests: 120,
        per: Duration::from_secs(60),
        burst: 600,
        key: RateKey::Client,
        exempt: vec!["10.0.0.0/24".parse().unwrap()],
        status: 503,
    };
    assert_eq!(limit.interval(), Duration::from_millis(500));
    assert!(limit.exempts("::ffff:10.0.0.9".parse().unwrap()) && !limit.exempts("10.0.1.9".parse().unwrap()));
}
