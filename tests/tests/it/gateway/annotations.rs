//! What the annotations of AWS's examples do, seen by a client outside and by the pod.

use testbed::net::{Family, Kind, Protocol, eventually};

use super::pods;
use super::stage::{ARN, HOST, Stage, TARGET, vip};

const URL: &str = "https://web.example/hello?x=1";

fn claimed(stage: &Stage) {
    stage.secret("web-tls", "web", &serde_json::json!({"waypost.dev/certificate-arn": ARN}));
}

#[test]
fn s48_with_http_pods_are_told_who_asks_and_with_tcp_they_are_not() {
    let stage = Stage::new();
    let pod = stage.node.pod("web");
    let heard = pods::serve(&pod, TARGET, None);
    claimed(&stage);
    stage.publish(&[("ssl-cert", ARN), ("backend-protocol", "http")], &[&pod]);
    for family in Family::BOTH {
        let page = stage.page(family, &["--header", "X-Forwarded-For: 198.51.100.9", URL]);
        let client = stage.client(family);
        assert!(page.starts_with("http/2 200"), "both speak HTTP/2: {page}");
        assert!(page.contains(&format!("x-forwarded-for: 198.51.100.9, {client}\r\n")), "{page}");
        assert!(page.contains("x-forwarded-port: 443") && page.contains("x-forwarded-proto: https"), "{page}");
        assert!(page.contains("get /hello?x=1 http/1.1") && page.contains(&format!("host: {HOST}")), "{page}");
        let old = stage.page(family, &["--http1.1", URL]);
        assert!(old.starts_with("http/1.1 200") && old.contains(&format!("x-forwarded-for: {client}\r\n")), "{old}");
    }
    let other = stage.page(Family::V4, &["https://web.example:80/"]);
    assert!(other.contains("x-forwarded-port: 80"), "all ports have the certificate: {other}");
    assert!(heard.lock().iter().all(|head| head.contains("x-forwarded-for")));
}

#[test]
fn s48_bytes_pass_unchanged_with_tcp_and_without_a_backend_protocol() {
    let stage = Stage::new();
    let pod = stage.node.pod("web");
    let heard = pods::serve(&pod, TARGET, None);
    claimed(&stage);
    for annotations in [&[("ssl-cert", ARN)][..], &[("ssl-cert", ARN), ("backend-protocol", "tcp")]] {
        stage.publish(annotations, &[&pod]);
        for family in Family::BOTH {
            let page = stage.page(family, &["--header", "X-Odd:   kept", URL]);
            assert!(page.starts_with("http/1.1 200") && page.contains("x-odd:   kept"), "{page}");
            assert!(!page.contains("x-forwarded"), "{page}");
        }
    }
    assert!(heard.lock().iter().all(|head| !head.contains("x-forwarded")));
}

#[test]
fn s48_https_and_ssl_pods_are_spoken_to_by_tls() {
    let stage = Stage::new();
    let pod = stage.node.pod("web");
    stage.certificate("pod");
    let heard = pods::serve(&pod, TARGET, Some((stage.files(), "pod")));
    claimed(&stage);
    stage.publish(&[("ssl-cert", ARN), ("backend-protocol", "https")], &[&pod]);
    let page = stage.page(Family::V4, &[URL]);
    assert!(page.contains(&format!("x-forwarded-for: {}\r\n", stage.client(Family::V4))), "{page}");
    stage.publish(&[("ssl-cert", ARN), ("backend-protocol", "ssl")], &[&pod]);
    eventually("it is bytes now", || !stage.page(Family::V6, &[URL]).contains("x-forwarded-for"));
    assert!(heard.lock().len() >= 2);
}

#[test]
fn s48_ssl_ports_says_which_ports_have_the_certificate() {
    let stage = Stage::new();
    let pod = stage.node.pod("web");
    let _heard = pods::serve(&pod, TARGET, None);
    claimed(&stage);
    stage.publish(&[("ssl-cert", ARN), ("ssl-ports", "https"), ("backend-protocol", "http")], &[&pod]);
    let secure = stage.page(Family::V4, &[URL]);
    assert!(secure.contains("x-forwarded-proto: https"), "{secure}");
    let plain = stage.page(Family::V4, &["http://web.example/"]);
    assert!(plain.contains("x-forwarded-proto: http\r\n") && plain.contains("x-forwarded-port: 80"), "{plain}");
    // Without a word on what pods speak, the other port is as if there were no annotation: packets, straight to the pod.
    stage.publish(&[("ssl-cert", ARN), ("ssl-ports", "443")], &[&pod]);
    let straight = stage.page(Family::V4, &["http://web.example/"]);
    assert!(!straight.contains("x-forwarded"), "{straight}");
    assert!(!stage.page(Family::V4, &[URL]).contains("x-forwarded"));
}

#[test]
fn s48_without_a_certificate_http_is_understood_and_nothing_else_changes() {
    let stage = Stage::new();
    let (near, far) = (stage.node.pod("near"), stage.node.pod("far"));
    let (one, two) = (pods::serve(&near, TARGET, None), pods::serve(&far, TARGET, None));
    stage.publish(&[("backend-protocol", "http")], &[&near, &far]);
    let url = "http://web.example/";
    let page = stage.page(Family::V4, &[url]);
    assert!(page.contains(&format!("x-forwarded-for: {}\r\n", stage.client(Family::V4))), "{page}");
    let before = (one.lock().len(), two.lock().len());
    let _ = stage.curl("web", Family::V4, &[url, url, url, url]).success();
    assert_eq!(
        (one.lock().len(), two.lock().len()),
        (before.0 + 2, before.1 + 2),
        "requests of one connection take turns"
    );
    // The cluster IP leads to pods by packets, as ever.
    let client = stage.node.pod("client");
    let inside = client.run("curl --silent --max-time 20 http://10.96.0.70/").success();
    assert!(inside.starts_with("GET / HTTP/1.1") && !inside.to_lowercase().contains("x-forwarded"), "{inside}");
}

#[test]
fn an_unknown_backend_protocol_closes_the_load_balancer_and_is_an_event() {
    let stage = Stage::new();
    let pod = stage.node.pod("web");
    let heard = pods::serve(&pod, TARGET, None);
    claimed(&stage);
    stage.publish(&[("ssl-cert", ARN), ("backend-protocol", "ftp")], &[&pod]);
    eventually("it is said", || {
        stage.events("BackendProtocolUnknown").iter().any(|message| message.contains("http, https, ssl or tcp"))
    });
    let refused = stage.outside.ask(Protocol::Tcp, vip(Family::V4), 443).expect_err("refused");
    assert_eq!(refused.kind, Kind::Refused);
    assert!(heard.lock().is_empty(), "nothing goes to pods past the gateway");
}
