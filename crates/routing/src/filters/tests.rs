//! Filters against the tables of the specification and the values that conformance tests expect.

use api::view::gateway_api::Filter;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{FilterError, Filters, RedirectRequest};

mod cors;

fn compile(filters: &Value) -> Result<Filters, FilterError> {
    Filters::compile(&serde_json::from_value::<Vec<Filter>>(filters.clone()).unwrap())
}

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    map
}

fn lines(map: &HeaderMap) -> Vec<(String, String)> {
    let mut lines: Vec<_> =
        map.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    lines.sort();
    lines
}

#[test]
fn headers_are_set_added_and_removed() {
    let modifier = json!({
        "set": [{"name": "X-Header-Set", "value": "set-overwrites-values"}, {"name": "X-Both", "value": "new"}],
        "add": [{"name": "X-Header-Add", "value": "b"}, {"name": "X-Both", "value": "more"}, {"name": "Set-Cookie", "value": "c=2"}],
        "remove": ["X-Header-Remove", "x-both"],
    });
    let filters = compile(&json!([
        {"type": "RequestHeaderModifier", "requestHeaderModifier": modifier},
        {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": [{"name": "A", "value": "1"}]}},
    ]));
    let filters = filters.unwrap();
    let mut request = headers(&[
        ("x-header-set", "one"),
        ("x-header-set", "two"),
        ("x-header-add", "a"),
        ("x-header-add", "a2"),
        ("x-header-remove", "gone"),
        ("x-both", "old"),
        ("set-cookie", "c=1"),
        ("other", "kept"),
    ]);
    filters.modify_request(&mut request);
    let expected = headers(&[
        ("x-header-set", "set-overwrites-values"),
        ("x-header-add", "a,a2,b"),
        ("x-both", "new,more"),
        ("set-cookie", "c=1"),
        ("set-cookie", "c=2"),
        ("other", "kept"),
    ]);
    assert_eq!(lines(&request), lines(&expected));
    let mut request = HeaderMap::new();
    filters.modify_request(&mut request);
    assert_eq!(request["x-header-add"], "b");
    let mut response = HeaderMap::new();
    filters.modify_response(&mut response);
    assert_eq!(lines(&response), [("a".to_owned(), "1".to_owned())]);
}

/// Prefix, replacement, path, expected path.
const PREFIXES: [(&str, &str, &str, &str); 20] = [
    ("/foo", "/xyz", "/foo/bar", "/xyz/bar"),
    ("/foo", "/xyz/", "/foo/bar", "/xyz/bar"),
    ("/foo/", "/xyz", "/foo/bar", "/xyz/bar"),
    ("/foo/", "/xyz/", "/foo/bar", "/xyz/bar"),
    ("/foo", "/xyz", "/foo", "/xyz"),
    ("/foo/", "/xyz", "/foo", "/xyz"),
    ("/foo", "/xyz", "/foo/", "/xyz/"),
    ("/foo/", "/xyz/", "/foo/", "/xyz/"),
    ("/foo", "", "/foo/bar", "/bar"),
    ("/foo/", "", "/foo/bar", "/bar"),
    ("/foo", "", "/foo", "/"),
    ("/foo", "", "/foo/", "/"),
    ("/foo", "/", "/foo/bar", "/bar"),
    ("/foo", "/", "/foo", "/"),
    ("/foo", "/", "/foo/", "/"),
    ("/", "/xyz", "/foo", "/xyz/foo"),
    ("/", "/xyz", "/", "/xyz/"),
    ("/", "", "/foo", "/foo"),
    ("/foo", "xyz", "/foo/bar", "/xyz/bar"),
    ("/foo", "/xyz", "*", "*"),
];

fn redirect(given: &Value) -> super::Redirect {
    compile(&json!([{"type": "RequestRedirect", "requestRedirect": given}])).unwrap().redirect.unwrap()
}

fn request<'a>(scheme: &'a str, path: &'a str, listener_port: u16) -> RedirectRequest<'a> {
    RedirectRequest { scheme, host: "example.com", path, query: None, listener_port, prefix: Some("/") }
}

#[test]
fn prefixes_are_replaced_by_elements() {
    for (prefix, replacement, path, expected) in PREFIXES {
        let modifier = json!({"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": replacement}});
        let rewrite = compile(&json!([{"type": "URLRewrite", "urlRewrite": modifier}])).unwrap().rewrite.unwrap();
        assert_eq!(rewrite.path(path, Some(prefix)), expected, "{prefix} {replacement} {path}");
        if path != "*" {
            let request = RedirectRequest { prefix: Some(prefix), ..request("http", path, 80) };
            assert_eq!(redirect(&modifier).location(&request).1, format!("http://example.com{expected}"));
        }
    }
}

#[test]
fn rewrites_of_path_and_host() {
    let rewrite =
        |given: Value| compile(&json!([{"type": "URLRewrite", "urlRewrite": given}])).map(|f| f.rewrite.unwrap());
    let full = |path: &str| rewrite(json!({"path": {"type": "ReplaceFullPath", "replaceFullPath": path}})).unwrap();
    assert_eq!(full("/one").path("/full/one/two", Some("/full/one")), "/one");
    assert_eq!(full("").path("/a", None), "/");
    assert_eq!(full("a b?c#d/é%20").path("/a", None), "/a%20b%3Fc%23d/%C3%A9%20");
    let host = rewrite(json!({"hostname": "one.example.org"})).unwrap();
    assert_eq!((host.hostname.as_deref(), &*host.path("/a", None)), (Some("one.example.org"), "/a"));
    assert_eq!(host.path("", None), "/");
    assert!(rewrite(json!({"hostname": "a\r\nb"})).is_err());
    assert!(rewrite(json!({"path": {"type": "Later"}})).is_err());
}

#[test]
fn locations_have_no_default_ports() {
    // Given, scheme and port of the request, expected.
    let table = [
        (json!({}), "http", 80, "http://example.com/p"),
        (json!({}), "http", 8080, "http://example.com:8080/p"),
        (json!({}), "https", 443, "https://example.com/p"),
        (json!({}), "https", 8443, "https://example.com:8443/p"),
        (json!({"port": 8083}), "http", 80, "http://example.com:8083/p"),
        (json!({"port": 80}), "http", 8080, "http://example.com/p"),
        (json!({"port": 80}), "https", 443, "https://example.com:80/p"),
        (json!({"scheme": "https"}), "http", 80, "https://example.com/p"),
        (json!({"scheme": "https"}), "http", 8080, "https://example.com/p"),
        (json!({"scheme": "http"}), "https", 443, "http://example.com/p"),
        (json!({"scheme": "https", "port": 443}), "http", 8080, "https://example.com/p"),
        (json!({"scheme": "https", "port": 8443}), "http", 80, "https://example.com:8443/p"),
        (json!({"scheme": "http", "port": 443}), "http", 80, "http://example.com:443/p"),
        (json!({"hostname": "example.org"}), "http", 80, "http://example.org/p"),
        (json!({"hostname": "example.org"}), "http", 8080, "http://example.org:8080/p"),
    ];
    for (given, scheme, port, expected) in table {
        let (status, location) = redirect(&given).location(&request(scheme, "/p", port));
        assert_eq!((status, location.to_str().unwrap()), (StatusCode::FOUND, expected), "{given} {scheme} {port}");
    }
}

#[test]
fn locations_keep_query_and_status() {
    for code in [301, 302, 303, 307, 308] {
        let query = RedirectRequest { query: Some("a=1&b"), ..request("http", "/p", 80) };
        let (status, location) = redirect(&json!({"statusCode": code})).location(&query);
        assert_eq!((status.as_u16(), location.to_str().unwrap()), (code, "http://example.com/p?a=1&b"));
    }
    let location = |request: &RedirectRequest<'_>| redirect(&json!({})).location(request).1;
    assert_eq!(location(&request("http", "*", 80)), "http://example.com/");
    assert_eq!(location(&request("http", "", 80)), "http://example.com/");
    assert_eq!(location(&request("http", "//evil.example", 80)), "http://example.com//evil.example");
    let no_host = |path| RedirectRequest { host: "", ..request("http", path, 80) };
    assert_eq!(location(&no_host("/p")), "/p");
    assert_eq!(location(&no_host("//evil.example")), "/evil.example");
    let literal = RedirectRequest { host: "[::1]", ..request("http", "/p", 81) };
    assert_eq!(location(&literal), "http://[::1]:81/p");
}

#[test]
fn mirrors_take_their_share() {
    let share = |given: Value| {
        let filters = compile(&json!([{"type": "RequestMirror", "requestMirror": given}])).unwrap();
        (0..1000).filter(|_| filters.mirrors[0].takes_next()).count()
    };
    assert_eq!(share(json!({})), 1000);
    assert_eq!(share(json!({"percent": 0})), 0);
    assert_eq!(share(json!({"percent": 42})), 420);
    assert_eq!(share(json!({"percent": 100})), 1000);
    assert_eq!(share(json!({"fraction": {"numerator": 5}})), 50);
    assert_eq!(share(json!({"fraction": {"numerator": 1, "denominator": 8}})), 125);
    assert_eq!(share(json!({"fraction": {"numerator": 9, "denominator": 8}})), 1000);
    assert_eq!(share(json!({"fraction": {"numerator": 0, "denominator": 0}})), 0);
    let several = json!([{"type": "RequestMirror", "requestMirror": {"percent": 0}}, {"type": "RequestMirror", "requestMirror": {}}]);
    assert_eq!(
        compile(&several).unwrap().mirrors.iter().map(super::MirrorShare::takes_next).collect::<Vec<_>>(),
        [false, true]
    );
}

#[test]
fn filters_that_cannot_be_applied_are_errors() {
    let set = |name: &str, value: &str| json!([{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": name, "value": value}]}}]);
    let table = [
        (json!([{"type": "ExtensionRef", "extensionRef": {"name": "x"}}]), "ExtensionRef"),
        (json!([{"type": "ExternalAuth"}]), "ExternalAuth"),
        (json!([{"type": "Later"}]), "later"),
        (json!([{"type": "CORS"}]), "filters[0].cors is missing"),
        (json!([{"type": "RequestHeaderModifier"}]), "requestHeaderModifier is missing"),
        (json!([{"type": "CORS", "cors": {}}, {"type": "CORS", "cors": {}}]), "filters[1]"),
        (
            json!([{"type": "URLRewrite", "urlRewrite": {}}, {"type": "RequestRedirect", "requestRedirect": {}}]),
            "not RequestRedirect together with URLRewrite",
        ),
        (set(":path", "/"), "not the name of a header"),
        (set("a", "b\r\nc: d"), "characters that no header"),
        (set("Transfer-Encoding", "chunked"), "sets this header itself"),
        (json!([{"type": "RequestRedirect", "requestRedirect": {"scheme": "ftp"}}]), "http or https"),
        (json!([{"type": "RequestRedirect", "requestRedirect": {"statusCode": 200}}]), "301"),
        (json!([{"type": "RequestRedirect", "requestRedirect": {"hostname": "a/b"}}]), "not a hostname"),
        (json!([{"type": "CORS", "cors": {"allowOrigins": ["ftp://a"]}}]), "SCHEME://HOST"),
    ];
    for (filters, expected) in table {
        let error = compile(&filters).unwrap_err().to_string();
        assert!(error.contains(expected), "{filters}: {error}");
    }
}
