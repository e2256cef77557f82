//! Rules of Ingresses: hosts, paths, default backends, classes, certificates by server name, addresses.

use serde_json::json;
use testbed::net::eventually;

use super::stage::{ADDRESS, INGRESSES, Stage, backend, rule};

#[test]
fn s51_host_and_path_decide_which_service_answers() {
    let stage = Stage::new();
    for name in ["exact", "prefix", "longer", "wildcard", "fallback", "other"] {
        stage.backend(name);
    }
    stage.ingress(
        "shop",
        &[],
        &json!({
            "defaultBackend": backend("fallback"),
            "rules": [
                rule("shop.test", "/cart", "Exact", "exact"),
                rule("shop.test", "/cart", "Prefix", "prefix"),
                rule("shop.test", "/cart/items/", "Prefix", "longer"),
                rule("*.shop.test", "/", "Prefix", "wildcard"),
            ],
        }),
    );
    // Other hosts are not those of this default backend, as with ingress-nginx.
    // Another Ingress of the same host, and one of a class that is not served.
    stage.ingress("more", &[], &json!({"rules": [rule("shop.test", "/more", "ImplementationSpecific", "other")]}));
    stage.ingress(
        "foreign",
        &[],
        &json!({"ingressClassName": "nginx", "rules": [rule("foreign.test", "/", "Prefix", "other")]}),
    );
    stage.settle("rules");
    for (url, expected) in [
        ("http://shop.test/cart", Some("exact")),
        ("http://shop.test/cart?x=1", Some("exact")),
        ("http://shop.test/cart/", Some("prefix")),
        ("http://shop.test/cart/1", Some("prefix")),
        ("http://SHOP.test/cart/1", Some("prefix")),
        ("http://shop.test/cart/items", Some("longer")),
        ("http://shop.test/cart/items/2", Some("longer")),
        ("http://shop.test/cart/itemsets", Some("prefix")),
        ("http://shop.test/Cart", Some("fallback")),
        ("http://shop.test/cartoon", Some("fallback")),
        ("http://shop.test/more/x", Some("other")),
        ("http://a.shop.test/cart", Some("wildcard")),
        ("http://a.b.shop.test/cart", None),
        ("http://unknown.test/", None),
        ("http://foreign.test/", None),
    ] {
        let page = stage.get(&[url]);
        assert_eq!(page.pod(), expected, "{url}: {page:?}");
    }
}

#[test]
fn s51_backends_and_clients_get_the_headers_of_a_reverse_proxy() {
    let stage = Stage::new();
    stage.backend("web");
    stage.ingress("web", &[], &json!({"rules": [rule("web.test", "/", "Prefix", "web")]}));
    stage.settle("headers");
    let url = "http://web.test/path?query=1";
    let page = stage.get(&["-H", "X-Forwarded-For: 198.51.100.1", "-H", "X-Request-ID: mine", url]);
    let client = stage.client();
    for (name, expected) in [
        ("host", "web.test"),
        ("x-forwarded-for", client.as_str()),
        ("x-real-ip", client.as_str()),
        ("x-original-forwarded-for", "198.51.100.1"),
        ("x-forwarded-host", "web.test"),
        ("x-forwarded-port", "80"),
        ("x-forwarded-proto", "http"),
        ("x-scheme", "http"),
        ("x-request-id", "mine"),
    ] {
        assert_eq!(page.heard(name), Some(expected), "{name}: {page:?}");
    }
    assert_eq!(page.target(), "/path?query=1");
    assert_eq!(page.header("server"), Some("waypost"));
    assert!(page.header("date").is_some_and(|date| date.ends_with("gmt")), "{page:?}");
    // A client cannot remove what the gateway says of it.
    let removing = "Connection: close, X-Real-IP, X-Forwarded-Host, X-Scheme";
    let page = stage.get(&["-H", removing, url]);
    assert_eq!(page.heard("x-real-ip"), Some(client.as_str()), "{page:?}");
    assert_eq!(page.heard("x-scheme"), Some("http"), "{page:?}");
}

#[test]
fn s51_each_host_shows_its_certificate_and_has_https() {
    let stage = Stage::new();
    stage.backend("web");
    for host in ["one", "two"] {
        stage.certificate(&format!("{host}-tls"), &format!("{host}.test"));
        let full = format!("{host}.test");
        let tls = json!([{"hosts": [full], "secretName": format!("{host}-tls")}]);
        stage.ingress(host, &[], &json!({"tls": tls, "rules": [rule(&full, "/", "Prefix", "web")]}));
    }
    stage.settle("tls");
    for host in ["one", "two"] {
        let certificate = stage.file(&format!("{host}-tls.crt")).to_string_lossy().into_owned();
        let url = format!("https://{host}.test/");
        let page = stage
            .until("the certificate is shown", &["--http1.1", "--cacert", &certificate, &url], |page| page.code == 200);
        assert_eq!(page.heard("x-forwarded-proto"), Some("https"), "{page:?}");
        let plain = stage.get(&[&format!("http://{host}.test/path?x=1")]);
        let location = format!("https://{host}.test/path?x=1");
        assert_eq!((plain.code, plain.header("location")), (308, Some(location.as_str())), "{plain:?}");
    }
    let unknown = stage.curl(ADDRESS, &["--insecure", "https://three.test/"]);
    assert!(!unknown.ok, "a host without a certificate: {unknown:?}");
}

#[test]
fn s51_the_status_has_the_address_of_the_class() {
    let stage = Stage::new();
    stage.backend("web");
    stage.ingress("web", &[], &json!({"rules": [rule("web.test", "/", "Prefix", "web")]}));
    let path = format!("{INGRESSES}/web");
    let address = || {
        let found = stage.served.session(|session| session.get(&path).success());
        found["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().map(str::to_owned)
    };
    eventually("the Ingress has an address", || address().as_deref() == Some(ADDRESS));
    let _ = stage.served.session(|session| session.delete(&path)).success();
    let service = "/api/v1/namespaces/waypost-system/services/ingress-waypost";
    eventually("the Service goes with the last Ingress", || {
        stage.served.session(|session| session.get(service).code == 404)
    });
}
