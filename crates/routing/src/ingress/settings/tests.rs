//! What each annotation says, by the values that the documentation of ingress-nginx gives.

use std::time::Duration;

use super::*;
use crate::ingress::testing::ingress;
use crate::policy::{PasswordFormat, SameSite, Template};

fn read(annotations: &[(&str, &str)]) -> (Settings, Vec<String>) {
    let (settings, findings) = Settings::read(&ingress("one", 1, annotations, &[]), &Defaults::default());
    (
        settings,
        findings.into_iter().map(|finding| format!("{}: {}", finding.reason.as_str(), finding.message)).collect(),
    )
}

/// Settings without findings.
fn good(annotations: &[(&str, &str)]) -> Settings {
    let (settings, findings) = read(annotations);
    assert_eq!(findings, [""; 0], "{annotations:?}");
    settings
}

/// The only finding.
fn bad(annotations: &[(&str, &str)]) -> String {
    let (_, findings) = read(annotations);
    assert_eq!(findings.len(), 1, "{annotations:?}: {findings:?}");
    findings.into_iter().next().unwrap()
}

#[test]
fn defaults_are_those_of_nginx() {
    let settings = good(&[]);
    assert!(settings.ssl_redirect && !settings.force_ssl_redirect && !settings.use_regex && !settings.www_redirect);
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let want = Policy {
        body_limit: Some(1_048_576),
        connect_timeout: seconds(5),
        read_timeout: seconds(60),
        send_timeout: seconds(60),
        ..Policy::default()
    };
    assert_eq!(settings.policy, want);
    assert_eq!((settings.filters.len(), settings.retry, settings.protocol), (0, None, None));
}

#[test]
fn body_size() {
    for (text, want) in [("8m", Some(8 << 20)), ("0", None), ("500k", Some(512_000)), ("10", Some(10))] {
        assert_eq!(good(&[("proxy-body-size", text)]).policy.body_limit, want, "{text}");
    }
    let finding = bad(&[("proxy-body-size", "8mb")]);
    assert_eq!(
        finding,
        "AnnotationInvalid: annotation proxy-body-size: the value must be a size such as 1048576, 1024k, 8m or 1g, not `8mb`; it is ignored"
    );
}

#[test]
fn timeouts() {
    let policy =
        good(&[("proxy-connect-timeout", "7"), ("proxy-read-timeout", "3600"), ("proxy-send-timeout", "120")]).policy;
    let seconds = [policy.connect_timeout, policy.read_timeout, policy.send_timeout].map(|one| one.unwrap().as_secs());
    assert_eq!(seconds, [7, 3600, 120]);
    assert!(bad(&[("proxy-read-timeout", "60s")]).contains("a number of seconds"));
    assert!(bad(&[("proxy-read-timeout", "0")]).contains("of at least 1"));
}

#[test]
fn protocols() {
    let of = |text| good(&[("backend-protocol", text)]).protocol;
    let cases = [("HTTP", false, false), ("https", false, true), ("GRPC", true, false), ("GRPCS", true, true)];
    for (text, is_http2, is_tls) in cases {
        assert_eq!(of(text), Some(Protocol { is_http2, is_tls }), "{text}");
    }
    assert!(bad(&[("backend-protocol", "AUTO_HTTP")]).contains("the protocol cannot depend on the client"));
    assert!(bad(&[("backend-protocol", "AJP")]).contains("must be HTTP, HTTPS, GRPC or GRPCS"));
    let (settings, findings) = read(&[("backend-protocol", "FCGI")]);
    assert!(settings.broken.is_some() && findings[0].starts_with("BackendInvalid"));
}

#[test]
fn cross_origin_requests() {
    let of = |annotations: &[(&str, &str)]| {
        let all: Vec<_> = annotations.iter().copied().chain([("enable-cors", "true")]).collect();
        good(&all).filters.remove(0).cors.unwrap()
    };
    let cors = of(&[]);
    assert_eq!((cors.allow_origins, cors.allow_credentials), (vec!["*".into()], Some(false)));
    assert_eq!((cors.allow_methods.len(), cors.allow_headers.len(), cors.max_age), (6, 9, Some(1_728_000)));
    let cors = of(&[
        ("cors-allow-origin", "https://origin-site.com:4443, http://*.origin-site.com"),
        ("cors-allow-methods", "PUT, GET, POST, OPTIONS"),
        ("cors-allow-headers", "X-Forwarded-For, X-app123-XPTO"),
        ("cors-expose-headers", "*, X-CustomResponseHeader"),
        ("cors-max-age", "600"),
    ]);
    assert_eq!(cors.allow_origins, ["https://origin-site.com:4443".into(), "http://*.origin-site.com".into()]);
    assert_eq!((cors.allow_credentials, cors.max_age, cors.expose_headers.len()), (Some(true), Some(600), 2));
    assert_eq!((cors.allow_methods.len(), &*cors.allow_headers[1]), (4, "X-app123-XPTO"));
    assert_eq!(
        of(&[("cors-allow-origin", "https://a.example"), ("cors-allow-credentials", "false")]).allow_credentials,
        Some(false)
    );
    assert!(bad(&[("enable-cors", "true"), ("cors-allow-origin", "a.example")]).contains("must be origins"));
    assert_eq!(good(&[("enable-cors", "false"), ("cors-max-age", "1")]).filters.len(), 0);
}

#[test]
fn external_authorisation() {
    let auth = good(&[
        ("auth-url", "$scheme://oauth.web.svc/oauth2/auth?for=$host"),
        ("auth-signin", "https://$host/oauth2/start?rd=$escaped_request_uri"),
        ("auth-method", "POST"),
        ("auth-response-headers", "X-Auth-Request-User, X-Auth-Request-Email"),
        ("auth-always-set-cookie", "true"),
    ])
    .policy
    .external_auth
    .unwrap();
    assert_eq!(auth.url, Template::url("$scheme://oauth.web.svc/oauth2/auth?for=$host").unwrap());
    assert_eq!(auth.signin, Some(Template::url("https://$host/oauth2/start?rd=$escaped_request_uri").unwrap()));
    assert_eq!((auth.method.as_deref(), auth.response_headers.len(), auth.always_set_cookie), (Some("POST"), 2, true));
    assert_eq!(auth.request_redirect, Template::request_uri());
    let chosen_by_clients = ["https://$http_host/oauth2/auth", "http://a.$host?x", "http://a.example:$server_port/"];
    for url in ["oauth2-proxy/auth"].into_iter().chain(chosen_by_clients) {
        let (settings, findings) = read(&[("auth-url", url)]);
        assert_eq!((settings.policy.refuse, findings.len()), (Some(503), 1), "{url}");
        assert!(
            findings[0].starts_with("AccessRefused: annotation auth-url")
                && findings[0].ends_with("all requests fail with 503")
        );
    }
    for (key, value) in [("auth-method", "a b"), ("auth-response-headers", "a b")] {
        let (settings, _) = read(&[("auth-url", "http://a.example"), (key, value)]);
        assert_eq!(settings.policy.refuse, Some(503), "{key}");
    }
    assert!(bad(&[("auth-url", "http://a.example"), ("auth-signin", "/start")]).contains("auth-signin"));
}

#[test]
fn passwords() {
    let basic =
        [("auth-type", "basic"), ("auth-secret", "basic-auth"), ("auth-realm", "Authentication Required - \"foo\"")];
    let auth = good(&basic).policy.basic_auth.unwrap();
    assert_eq!((&*auth.secret, &*auth.realm), ("web/basic-auth", "Authentication Required - foo"));
    assert_eq!(auth.format, PasswordFormat::File);
    let map = good(&[("auth-type", "basic"), ("auth-secret", "web/x"), ("auth-secret-type", "auth-map")])
        .policy
        .basic_auth
        .unwrap();
    assert_eq!((&*map.secret, map.format), ("web/x", PasswordFormat::Map));
    let refused: [&[(&str, &str)]; 4] = [
        &[("auth-type", "digest"), ("auth-secret", "x")],
        &[("auth-type", "basic")],
        &[("auth-type", "basic"), ("auth-secret", "other/x")],
        &[("auth-type", "basic"), ("auth-secret", "x"), ("auth-secret-type", "file")],
    ];
    for annotations in refused {
        let (settings, findings) = read(annotations);
        assert_eq!((settings.policy.refuse, findings.len()), (Some(503), 1), "{annotations:?}");
    }
}

#[test]
fn address_ranges() {
    for key in ["whitelist-source-range", "allowlist-source-range"] {
        let policy = good(&[(key, "10.0.0.0/24,172.10.0.1"), ("denylist-source-range", "10.0.0.9")]).policy;
        let admits =
            ["10.0.0.1", "10.0.0.9", "172.10.0.1", "172.10.0.2"].map(|text| policy.admits(text.parse().unwrap()));
        assert_eq!(admits, [true, false, true, false], "{key}");
    }
    for key in ["whitelist-source-range", "denylist-source-range"] {
        for value in ["10.0.0.0/24,office", ",", " , "] {
            let (settings, findings) = read(&[(key, value)]);
            assert_eq!((settings.policy.refuse, findings.len()), (Some(503), 1), "{key} {value}");
        }
    }
    let policy = good(&[("allowlist-source-range", "::ffff:192.0.2.0/120")]).policy;
    assert!(policy.admits("192.0.2.9".parse().unwrap()) && !policy.admits("192.0.3.9".parse().unwrap()));
}

#[test]
fn client_certificates_close_the_rules() {
    let secret = ("auth-tls-secret", "web/ca");
    let (settings, _) = read(&[secret]);
    assert_eq!(settings.policy.refuse, Some(503));
    let (settings, findings) = read(&[secret, ("auth-tls-verify-client", "optional")]);
    assert_eq!((settings.policy.refuse, findings.len()), (None, 2));
}

#[test]
fn sticky_sessions() {
    assert_eq!(good(&[("session-cookie-name", "x")]).policy.session, None);
    let cookie = good(&[("affinity", "cookie")]).policy.session.unwrap();
    assert_eq!((&*cookie.name, cookie.secure, cookie.is_persistent), ("INGRESSCOOKIE", None, false));
    let cookie = good(&[
        ("affinity", "cookie"),
        ("affinity-mode", "persistent"),
        ("session-cookie-name", "route"),
        ("session-cookie-expires", "172800"),
        ("session-cookie-max-age", "172800"),
        ("session-cookie-path", "/"),
        ("session-cookie-domain", "example.com"),
        ("session-cookie-samesite", "Lax"),
        ("session-cookie-secure", "true"),
        ("session-cookie-change-on-failure", "true"),
    ])
    .policy
    .session
    .unwrap();
    let two_days = Some(Duration::from_secs(172_800));
    assert_eq!((&*cookie.name, cookie.expires, cookie.max_age), ("route", two_days, two_days));
    assert_eq!((cookie.path.as_deref(), cookie.domain.as_deref()), (Some("/"), Some("example.com")));
    assert_eq!((cookie.same_site, cookie.secure), (Some(SameSite::Lax), Some(true)));
    assert!(cookie.change_on_failure && cookie.is_persistent);
    assert!(bad(&[("affinity", "ip")]).contains("must be cookie"));
    assert!(bad(&[("affinity", "cookie"), ("session-cookie-path", "/; Secure")]).contains("must be a path"));
    assert!(bad(&[("affinity", "cookie"), ("session-cookie-name", "a=b")]).contains("name of a cookie"));
}

#[test]
fn limits() {
    let policy = good(&[("limit-rps", "10"), ("limit-rpm", "300"), ("limit-connections", "4")]).policy;
    let rates: Vec<_> = policy
        .rate_limits
        .iter()
        .map(|limit| (limit.requests, limit.per.as_secs(), limit.burst, limit.status))
        .collect();
    assert_eq!(rates, [(10, 1, 50, 503), (300, 60, 1500, 503)]);
    let connections = policy.connection_limit.unwrap();
    assert_eq!((connections.limit, &*connections.zone, connections.status), (4, "web/one", 503));
    let policy =
        good(&[("limit-rps", "10"), ("limit-burst-multiplier", "2"), ("limit-whitelist", "10.0.0.0/8")]).policy;
    assert_eq!(policy.rate_limits[0].burst, 20);
    assert!(policy.rate_limits[0].exempts("10.1.1.1".parse().unwrap()));
    assert_eq!(good(&[("limit-rps", "0")]).policy.rate_limits, []);
    assert!(bad(&[("limit-rps", "ten")]).contains("limit-rps"));
}

#[test]
fn redirects() {
    let of = |annotations: &[(&str, &str)]| {
        good(annotations).policy.redirect.map(|redirect| (redirect.status, redirect.location))
    };
    let url = |text| Template::url(text).unwrap();
    assert_eq!(of(&[("permanent-redirect", "https://www.google.com")]), Some((301, url("https://www.google.com"))));
    let code = ("permanent-redirect-code", "308");
    assert_eq!(of(&[("permanent-redirect", "https://a.example$request_uri"), code]).unwrap().0, 308);
    assert_eq!(of(&[("permanent-redirect", "https://a.example"), ("permanent-redirect-code", "404")]).unwrap().0, 301);
    assert_eq!(of(&[("temporal-redirect", "https://a.example")]).unwrap().0, 302);
    assert_eq!(of(&[("temporal-redirect", "https://a.example"), ("temporal-redirect-code", "307")]).unwrap().0, 307);
    // Beyond 307 is no temporary redirect.
    assert_eq!(of(&[("temporal-redirect", "https://a.example"), ("temporal-redirect-code", "308")]).unwrap().0, 302);
    let both = of(&[("temporal-redirect", "https://t.example"), ("permanent-redirect", "https://p.example")]);
    assert_eq!(both, Some((302, url("https://t.example"))));
    assert!(bad(&[("permanent-redirect", "/elsewhere")]).contains("is not a URL"));
    assert!(bad(&[("app-root", "https://a.example")]).contains("app-root"));
}

#[test]
fn headers_and_hosts() {
    let mut filters =
        good(&[("rewrite-target", "/"), ("x-forwarded-prefix", "/path"), ("upstream-vhost", "inner.example")]).filters;
    let host = filters.pop().unwrap().url_rewrite.unwrap().hostname;
    let set = filters.pop().unwrap().request_header_modifier.unwrap().set;
    assert_eq!(
        (host.as_deref(), &*set[0].name, &*set[0].value),
        (Some("inner.example"), "X-Forwarded-Prefix", "/path")
    );
    // Without a rewrite nginx does not send it.
    assert_eq!(good(&[("x-forwarded-prefix", "/path")]).filters, []);
    assert!(bad(&[("upstream-vhost", "$service.example")]).contains("a host without variables"));
    assert_eq!(&*good(&[("server-alias", "a.example, *.b.example")]).aliases[1], "*.b.example");
    assert!(bad(&[("server-alias", "~^www\\d+\\.example\\.com$")]).contains("regular expressions are not supported"));
}

#[test]
fn our_own_annotations_set_headers() {
    let mut one = ingress("one", 1, &[], &[]);
    let headers = "Strict-Transport-Security: max-age=31536000\n\nX-Frame-Options: DENY\nbroken\n";
    one.metadata.annotations =
        [("waypost.dev/response-headers", headers), ("waypost.dev/ssl-redirect", "false")].into_iter().collect();
    let (settings, findings) = Settings::read(&one, &Defaults::default());
    let set = &settings.filters[0].response_header_modifier.as_ref().unwrap().set;
    assert_eq!((set.len(), &*set[0].name, &*set[1].value), (2, "Strict-Transport-Security", "DENY"));
    assert!(!settings.ssl_redirect);
    assert_eq!(findings.len(), 1);
    assert!(findings[0].message.contains("the line `broken` is not of the form `Name: value`"));
}

#[test]
fn retries() {
    let of = |annotations: &[(&str, &str)]| good(annotations).retry.map(|retry| (retry.codes, retry.attempts));
    assert_eq!(of(&[("proxy-next-upstream", "error timeout http_502 http_503")]), Some((vec![502, 503], 2)));
    assert_eq!(of(&[("proxy-next-upstream-tries", "1")]), Some((vec![], 0)));
    assert_eq!(of(&[("proxy-next-upstream-tries", "0")]), Some((vec![], 10)));
    assert_eq!(of(&[("proxy-next-upstream", "off")]), Some((vec![], 0)));
    assert!(bad(&[("proxy-next-upstream", "error non_idempotent")]).contains("only error, timeout"));
}

#[test]
fn canaries_must_be_enabled() {
    assert!(bad(&[("canary-weight", "20")]).contains("only with canary"));
    assert_eq!(good(&[("canary", "false"), ("canary-weight", "0")]).canary, None);
    assert!(
        bad(&[("canary", "true"), ("canary-by-header", "X"), ("canary-by-header-pattern", "(")])
            .contains("canary-by-header-pattern")
    );
}

#[test]
fn snippets_name_the_alternative() {
    for key in ["configuration-snippet", "server-snippet"] {
        let finding = bad(&[(key, "more_set_headers \"X: y\";")]);
        assert!(finding.starts_with("AnnotationNotHonoured: annotation nginx.ingress.kubernetes.io/"), "{finding}");
        assert!(
            finding.contains("waypost.dev/response-headers") && finding.contains("permanent-redirect"),
            "{finding}"
        );
    }
}
