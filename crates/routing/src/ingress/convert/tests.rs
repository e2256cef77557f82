use api::value::ValueExt as _;
use api::view::gateway_api::{Gateway, HttpRoute};
use serde_json::json;

use super::super::testing::{ingress, of_namespace, with_tls};
use super::*;

fn convert_all(ingresses: &[Ingress]) -> Conversion {
    convert(ingresses, &[], "waypost")
}

/// The objects of a kind, by name.
fn of_kind<'a>(conversion: &'a Conversion, kind: &str) -> Vec<(&'a str, &'a Value)> {
    let objects = conversion.objects.iter().filter(|object| object.text("kind") == kind);
    objects.map(|object| (object.text("metadata.name"), object)).collect()
}

fn notes(conversion: &Conversion) -> Vec<&str> {
    conversion.notes.iter().map(|note| note.message.as_str()).collect()
}

#[test]
fn an_ingress_is_a_gateway_and_a_route() {
    let conversion = convert_all(&[ingress("shop", 1, &[], &["shop.example /cart P a", "shop.example /cart E b"])]);
    assert_eq!(notes(&conversion), [""; 0]);
    let gateway: Gateway = serde_json::from_value(conversion.objects[0].clone()).unwrap();
    assert_eq!((&*gateway.metadata.name, &*gateway.metadata.namespace), ("waypost", "web"));
    assert_eq!(&*gateway.spec.gateway_class_name, "waypost");
    let listeners: Vec<_> =
        gateway.spec.listeners.iter().map(|listener| (&*listener.name, listener.host(), listener.port)).collect();
    assert_eq!(listeners, [("http-shop-example", Some("shop.example"), 80)]);
    let want = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": "shop", "namespace": "web"},
        "spec": {
            "parentRefs": [{"name": "waypost", "sectionName": "http-shop-example"}],
            "hostnames": ["shop.example"],
            "rules": [
                {"matches": [{"path": {"type": "Exact", "value": "/cart"}}], "backendRefs": [{"name": "b", "port": 80}]},
                {"matches": [{"path": {"type": "PathPrefix", "value": "/cart"}}], "backendRefs": [{"name": "a", "port": 80}]},
            ],
        },
    });
    assert_eq!(conversion.objects[1..], [want]);
}

#[test]
fn hosts_with_a_certificate_have_two_listeners_and_a_redirect() {
    let conversion = convert_all(&[with_tls(ingress("shop", 1, &[], &["shop.example / P a"]), &["shop.example"])]);
    let gateway: Gateway = serde_json::from_value(conversion.objects[0].clone()).unwrap();
    let https = &gateway.spec.listeners[1];
    assert_eq!((&*https.name, https.port, &*https.protocol), ("https-shop-example", 443, "HTTPS"));
    assert_eq!(&*https.tls.as_ref().unwrap().certificate_refs[0].name, "tls");
    let routes = of_kind(&conversion, "HTTPRoute");
    assert_eq!(routes.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["shop", "shop-redirect"]);
    assert_eq!(routes[0].1["spec"]["parentRefs"], json!([{"name": "waypost", "sectionName": "https-shop-example"}]));
    assert_eq!(
        routes[1].1["spec"]["rules"],
        json!([{"filters": [{"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 308}}]}])
    );
    // Without the redirect one route serves both listeners.
    let plain = with_tls(ingress("shop", 1, &[("ssl-redirect", "false")], &["shop.example / P a"]), &["shop.example"]);
    let conversion = convert_all(&[plain]);
    let routes = of_kind(&conversion, "HTTPRoute");
    assert_eq!((routes.len(), routes[0].1["spec"]["parentRefs"].as_array().unwrap().len()), (1, 2));
}

#[test]
fn certificates_for_hosts_of_another_namespace_are_noted() {
    let of = |minute, path| with_tls(ingress("shop", minute, &[], &[path]), &["shop.example"]);
    let conversion = convert_all(&[of(1, "shop.example / P a"), of_namespace("other", of(2, "shop.example /x P b"))]);
    let gateways = of_kind(&conversion, "Gateway");
    let listeners = |namespace: &str| {
        let gateway = gateways.iter().find(|(_, gateway)| gateway.text("metadata.namespace") == namespace).unwrap();
        gateway.1["spec"]["listeners"].as_array().unwrap().len()
    };
    assert_eq!((listeners("web"), listeners("other")), (2, 1));
    assert!(conversion.notes.iter().all(|note| &*note.ingress == "other/shop"));
    assert_eq!(
        notes(&conversion),
        [
            "requests are redirected to https, for which there is no certificate",
            "the certificate of Secret other/tls is not shown for shop.example, which belongs to the namespace of Ingress \
             web/shop",
        ]
    );
}

#[test]
fn rewrites_of_a_prefix_have_an_equivalent() {
    // Path, target, converted path, filter.
    let cases = [
        (
            "/something(/|$)(.*)",
            "/$2",
            "/something",
            Some(json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"})),
        ),
        ("/api/(.*)", "/v2/$1", "/api", Some(json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": "/v2"}))),
        ("/(.*)", "/$1", "/", None),
        ("/x", "/y", "(?i)(?:/x).*", Some(json!({"type": "ReplaceFullPath", "replaceFullPath": "/y"}))),
    ];
    for (path, target, want, filter) in cases {
        let conversion =
            convert_all(&[ingress("one", 1, &[("rewrite-target", target)], &[&format!("h.example {path} I a")])]);
        let rule = &of_kind(&conversion, "HTTPRoute")[0].1["spec"]["rules"][0];
        assert_eq!(rule["matches"][0]["path"]["value"], want, "{path}");
        assert_eq!(rule["filters"][0]["urlRewrite"].get("path"), filter.as_ref(), "{path}");
        assert_eq!(notes(&conversion), [""; 0]);
    }
    let conversion = convert_all(&[ingress("one", 1, &[("rewrite-target", "/$2/$1")], &["h.example /(a)/(b) I a"])]);
    assert_eq!(notes(&conversion), ["the rewrite of /(a)/(b) to /$2/$1 has no equivalent"]);
}

#[test]
fn redirects_have_an_equivalent_without_variables() {
    let filter = |annotation, value| {
        let conversion = convert_all(&[ingress("one", 1, &[(annotation, value)], &["h.example / P a"])]);
        let rule = of_kind(&conversion, "HTTPRoute")[0].1["spec"]["rules"][0].clone();
        (rule["filters"][0]["requestRedirect"].clone(), conversion.notes.len())
    };
    let path = |path| json!({"type": "ReplaceFullPath", "replaceFullPath": path});
    let cases = [
        (
            "permanent-redirect",
            "https://www.google.com",
            json!({"scheme": "https", "hostname": "www.google.com", "statusCode": 301, "path": path("/")}),
        ),
        (
            "temporal-redirect",
            "https://a.example:8443$request_uri",
            json!({"scheme": "https", "hostname": "a.example", "port": 8443, "statusCode": 302}),
        ),
        ("app-root", "/app1", json!({"statusCode": 302, "path": path("/app1")})),
    ];
    for (annotation, value, want) in cases {
        assert_eq!(filter(annotation, value), (want, 0), "{annotation}");
    }
    assert_eq!(filter("permanent-redirect", "https://a.example/?next=$request_uri"), (Value::Null, 1));
}

#[test]
fn canaries_are_weights_and_matches() {
    let canary =
        [("canary", "true"), ("canary-weight", "20"), ("canary-by-header", "x-new"), ("canary-by-cookie", "new")];
    let conversion = convert_all(&[
        ingress("shop", 1, &[], &["h.example / P a"]),
        ingress("canary", 2, &canary, &["h.example / P b"]),
    ]);
    let routes = of_kind(&conversion, "HTTPRoute");
    assert_eq!(routes.len(), 1);
    let rules = routes[0].1["spec"]["rules"].as_array().unwrap();
    let backends: Vec<_> = rules.iter().map(|rule| rule["backendRefs"][0]["name"].as_str().unwrap()).collect();
    assert_eq!(backends, ["b", "a", "b", "a", "a"]);
    assert_eq!(rules[0]["matches"][0]["headers"], json!([{"type": "Exact", "name": "x-new", "value": "always"}]));
    assert_eq!(rules[2]["matches"][0]["headers"][0]["value"], "(?:.*;\\s*)?new=always(?:\\s*;.*)?");
    assert_eq!(
        rules[4]["backendRefs"],
        json!([{"name": "a", "port": 80, "weight": 80}, {"name": "b", "port": 80, "weight": 20}])
    );
}

#[test]
fn what_has_no_equivalent_is_noted() {
    let annotations = [
        ("auth-url", "https://a.example/auth"),
        ("auth-type", "basic"),
        ("auth-secret", "passwords"),
        ("limit-rps", "5"),
        ("proxy-body-size", "8m"),
        ("proxy-read-timeout", "3600"),
        ("whitelist-source-range", "10.0.0.0/8"),
        ("server-snippet", "x"),
    ];
    let conversion = convert_all(&[ingress("one", 1, &annotations, &["h.example / P a"])]);
    let notes = notes(&conversion);
    for what in [
        "auth-url",
        "auth-type",
        "limit-rps",
        "proxy-body-size",
        "proxy-read-timeout",
        "allowlist-source-range",
        "server-snippet",
    ] {
        assert_eq!(notes.iter().filter(|note| note.contains(what)).count(), 1, "{what}: {notes:?}");
    }
    assert!(conversion.notes.iter().all(|note| &*note.ingress == "web/one"));
}

#[test]
fn tls_towards_backends_is_a_policy() {
    let conversion =
        convert_all(&[ingress("one", 1, &[("backend-protocol", "HTTPS")], &["h.example / P a", "h.example /x P a"])]);
    let policies = of_kind(&conversion, "BackendTLSPolicy");
    assert_eq!(policies.len(), 1);
    assert_eq!(policies[0].1["spec"]["validation"]["hostname"], "a.web.svc");
    assert!(notes(&conversion)[0].contains("was not verified"));
    let conversion = convert_all(&[ingress("one", 1, &[("backend-protocol", "GRPC")], &["h.example / P a"])]);
    assert!(notes(&conversion)[0].contains("kubernetes.io/h2c"));
}

#[test]
fn sessions_headers_and_cross_origin_requests_are_members_of_the_rule() {
    let annotations = [
        ("affinity", "cookie"),
        ("session-cookie-name", "route"),
        ("session-cookie-max-age", "60"),
        ("enable-cors", "true"),
        ("cors-allow-origin", "https://a.example"),
        ("upstream-vhost", "inner.example"),
    ];
    let conversion = convert_all(&[ingress("one", 1, &annotations, &["h.example / P a"])]);
    let route: HttpRoute = serde_json::from_value(of_kind(&conversion, "HTTPRoute")[0].1.clone()).unwrap();
    let rule = &route.spec.rules[0];
    let session = rule.session_persistence.as_ref().unwrap();
    assert_eq!((session.session_name.as_deref(), session.absolute_timeout.as_deref()), (Some("route"), Some("60s")));
    let cors = rule.filters.iter().find_map(|filter| filter.cors.as_ref()).unwrap();
    assert_eq!((cors.allow_credentials, cors.max_age), (Some(true), Some(1_728_000)));
    let rewrite = rule.filters.iter().find_map(|filter| filter.url_rewrite.as_ref()).unwrap();
    assert_eq!(rewrite.hostname.as_deref(), Some("inner.example"));
}

#[test]
fn classes_and_namespaces_are_gateways_of_their_own() {
    let mut other = ingress("two", 2, &[], &["h.example /two P a"]);
    other.metadata.namespace = "other".into();
    let mut foreign = ingress("three", 3, &[], &["i.example / P a"]);
    foreign.spec.ingress_class_name = Some("nginx".into());
    let mut none = ingress("four", 4, &[], &["- / P a"]);
    none.spec.ingress_class_name = None;
    let conversion =
        convert_all(&[ingress("one", 1, &[], &["h.example / P a", "*.h.example / P a"]), other, foreign, none]);
    let gateways = of_kind(&conversion, "Gateway");
    let names: Vec<_> = gateways.iter().map(|(name, object)| (*name, object.text("metadata.namespace"))).collect();
    assert_eq!(names, [("default", "web"), ("nginx", "web"), ("waypost", "other"), ("waypost", "web")]);
    let routes: Vec<_> = of_kind(&conversion, "HTTPRoute").into_iter().map(|(name, _)| name).collect();
    assert_eq!(routes, ["four", "three", "two", "one-wildcard-h-example", "one-h-example"]);
    assert_eq!(
        notes(&conversion),
        ["a wildcard host of a Gateway matches any number of labels, that of an Ingress exactly one"]
    );
}

#[test]
fn ports_by_name_need_the_service() {
    let mut one = ingress("one", 1, &[], &["h.example / P a"]);
    one.spec.rules[0].http.paths[0].backend =
        serde_json::from_value(json!({"service": {"name": "a", "port": {"name": "web"}}})).unwrap();
    let conversion = convert_all(std::slice::from_ref(&one));
    assert!(notes(&conversion)[0].contains("there is no Service web/a"), "{:?}", conversion.notes);
    let service =
        json!({"metadata": {"namespace": "web", "name": "a"}, "spec": {"ports": [{"name": "web", "port": 8080}]}});
    let conversion = convert(&[one], &[serde_json::from_value(service).unwrap()], "waypost");
    assert_eq!(
        of_kind(&conversion, "HTTPRoute")[0].1["spec"]["rules"][0]["backendRefs"],
        json!([{"name": "a", "port": 8080}])
    );
    assert_eq!(notes(&conversion), [""; 0]);
}

#[test]
fn routes_have_at_most_sixteen_rules() {
    let paths: Vec<_> = (0..20).map(|number| format!("h.example /{number} P a")).collect();
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    let conversion = convert_all(&[ingress("one", 1, &[], &paths)]);
    let routes = of_kind(&conversion, "HTTPRoute");
    let counts: Vec<_> =
        routes.iter().map(|(name, route)| (*name, route["spec"]["rules"].as_array().unwrap().len())).collect();
    assert_eq!(counts, [("one", 16), ("one-2", 4)]);
}
