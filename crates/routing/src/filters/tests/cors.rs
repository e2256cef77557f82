//! Cross-origin resource sharing.

use super::*;

fn policy(cors: &Value) -> crate::filters::CorsPolicy {
    compile(&json!([{"type": "CORS", "cors": cors}])).unwrap().cors.unwrap()
}

fn preflight(cors: &Value, origin: &str, asked: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut request = headers(asked);
    request.insert("origin", HeaderValue::from_str(origin).unwrap());
    lines(&policy(cors).preflight(&Method::OPTIONS, &request).unwrap())
}

fn decorated(cors: &Value, origin: Option<&str>, sent: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut response = headers(sent);
    let origin = origin.map(|origin| HeaderValue::from_str(origin).unwrap());
    policy(cors).decorate(origin.as_ref(), &mut response);
    lines(&response)
}

fn expect(lines: &[(&str, &str)]) -> Vec<(String, String)> {
    lines.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

const GET: [(&str, &str); 2] =
    [("access-control-request-method", "GET"), ("access-control-request-headers", "x-header-1, x-header-2")];

fn full() -> Value {
    json!({
        "allowOrigins": ["https://www.foo.com", "https://*.bar.com"], "allowMethods": ["GET", "OPTIONS"],
        "allowHeaders": ["x-header-1", "x-header-2"], "exposeHeaders": ["x-header-3", "x-header-4"],
        "allowCredentials": true, "maxAge": 3600,
    })
}

#[test]
fn preflight_requests_of_allowed_origins() {
    for origin in ["https://www.foo.com", "https://www.bar.com", "https://xpto.www.bar.com"] {
        let expected = [
            ("access-control-allow-credentials", "true"),
            ("access-control-allow-headers", "x-header-1, x-header-2"),
            ("access-control-allow-methods", "GET, OPTIONS"),
            ("access-control-allow-origin", origin),
            ("access-control-expose-headers", "x-header-3, x-header-4"),
            ("access-control-max-age", "3600"),
            ("vary", "Origin"),
        ];
        assert_eq!(preflight(&full(), origin, &GET), expect(&expected));
    }
}

#[test]
fn other_origins_get_no_headers() {
    let others =
        ["https://foobar.com", "http://www.foo.com", "https://www.foo.com:8443", "https://bar.com", "null", "", "x"];
    for origin in others {
        assert_eq!(preflight(&full(), origin, &GET), expect(&[("vary", "Origin")]), "{origin}");
        let sent = [("access-control-allow-origin", "*"), ("access-control-max-age", "1"), ("a", "b")];
        assert_eq!(decorated(&full(), Some(origin), &sent), expect(&[("a", "b"), ("vary", "Origin")]), "{origin}");
    }
}

#[test]
fn only_preflight_requests_are_answered() {
    let policy = policy(&full());
    let asks = headers(&[("origin", "https://www.foo.com"), ("access-control-request-method", "GET")]);
    assert!(policy.preflight(&Method::OPTIONS, &asks).is_some());
    assert!(policy.preflight(&Method::GET, &asks).is_none());
    assert!(policy.preflight(&Method::OPTIONS, &headers(&[("origin", "https://www.foo.com")])).is_none());
    assert!(policy.preflight(&Method::OPTIONS, &headers(&[("access-control-request-method", "GET")])).is_none());
}

#[test]
fn a_star_is_sent_without_credentials() {
    let all = json!({"allowOrigins": ["*"], "allowMethods": ["*"], "allowHeaders": ["*"], "exposeHeaders": ["*"]});
    let expected = [
        ("access-control-allow-headers", "*"),
        ("access-control-allow-methods", "*"),
        ("access-control-allow-origin", "*"),
        ("access-control-expose-headers", "*"),
        ("access-control-max-age", "5"),
    ];
    assert_eq!(preflight(&all, "https://foobar.com:12345", &GET), expect(&expected));
    let real = [("access-control-allow-origin", "*"), ("access-control-expose-headers", "*")];
    assert_eq!(decorated(&all, Some("null"), &[]), expect(&real));
    assert_eq!(decorated(&all, None, &[]), []);
}

#[test]
fn a_star_is_what_was_asked_with_credentials() {
    let all = json!({
        "allowOrigins": ["*"], "allowMethods": ["*"], "allowHeaders": ["*"], "exposeHeaders": ["*"], "allowCredentials": true,
    });
    let origin = "https://other.foo.com";
    let mut expected = vec![
        ("access-control-allow-credentials", "true"),
        ("access-control-allow-headers", "x-header-1, x-header-2"),
        ("access-control-allow-methods", "GET"),
        ("access-control-allow-origin", origin),
        ("access-control-max-age", "5"),
        ("vary", "Origin"),
    ];
    assert_eq!(preflight(&all, origin, &GET), expect(&expected));
    expected.remove(1);
    assert_eq!(preflight(&all, origin, &GET[..1]), expect(&expected), "no headers were asked for");
    let real = [
        ("access-control-allow-credentials", "true"),
        ("access-control-allow-origin", origin),
        ("access-control-expose-headers", "content-type"),
        ("content-type", "text/plain"),
        ("set-cookie", "a=b"),
        ("vary", "Origin"),
    ];
    let sent = [("content-type", "text/plain"), ("set-cookie", "a=b")];
    assert_eq!(decorated(&all, Some(origin), &sent), expect(&real));
}

#[test]
fn headers_of_the_backend_are_replaced_and_vary_is_kept() {
    let sent = [
        ("access-control-allow-credentials", "false"),
        ("access-control-allow-origin", "https://a"),
        ("access-control-allow-origin", "https://b"),
        ("vary", "Accept"),
    ];
    let expected = [
        ("access-control-allow-credentials", "true"),
        ("access-control-allow-origin", "https://www.foo.com"),
        ("access-control-expose-headers", "x-header-3, x-header-4"),
        ("vary", "Accept"),
        ("vary", "Origin"),
    ];
    assert_eq!(decorated(&full(), Some("https://www.foo.com"), &sent), expect(&expected));
    for vary in ["origin", "*", "Accept, Origin"] {
        assert_eq!(decorated(&full(), None, &[("vary", vary)]), expect(&[("vary", vary)]));
    }
}

#[test]
fn origins_by_scheme_host_and_port() {
    // Configured, sent, allowed.
    let table = [
        ("https://a.com", "https://a.com", true),
        ("https://a.com", "https://a.com:443", true),
        ("https://a.com:443", "https://a.com", true),
        ("https://A.com", "https://a.COM", true),
        ("http://a.com", "http://a.com:80", true),
        ("http://a.com", "http://a.com:8080", false),
        ("http://a.com:8080", "http://a.com:8080", true),
        ("http://a.com", "https://a.com", false),
        ("https://*.a.com", "https://x.a.com", true),
        ("https://*.a.com", "https://x.y.a.com", true),
        ("https://*.a.com", "https://a.com", false),
        ("https://*.a.com", "https://.a.com", false),
        ("https://*.a.com", "https://xa.com", false),
        ("https://*.a.com", "https://x.a.com:8443", false),
        ("https://*.a.com:8443", "https://x.a.com:8443", true),
        ("https://*.a.com", "https://evil.com/.a.com", false),
        ("https://*", "https://any.thing", true),
        ("https://*", "https://any.thing:1", false),
        ("https://*", "http://any.thing", false),
        ("http://[::1]:80", "http://[::1]", true),
    ];
    for (configured, origin, allowed) in table {
        let lines = decorated(&json!({"allowOrigins": [configured]}), Some(origin), &[]);
        assert_eq!(lines.iter().any(|(_, value)| value == origin), allowed, "{configured} {origin}");
    }
}
