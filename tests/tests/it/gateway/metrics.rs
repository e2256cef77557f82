//! The gateway's metrics are on the page of the proxy.

use serde_json::json;
use testbed::net::{Family, eventually};

use super::pods;
use super::stage::{ARN, Stage, TARGET};

/// A figure of the Service of the examples.
fn figure(stage: &Stage, name: &str, more: &str) -> u64 {
    let page = stage.node.page("127.0.0.1", 10_249, "/metrics").expect("a page").body;
    let start = format!("waypost_gateway_{name}{{service=\"default/my-service\"{more}}} ");
    // The deprecated name is exported, too.
    assert!(page.contains(&format!("\nkubeproxy_{start}")), "{page}");
    let line = page.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("{start} is not in\n{page}")).parse().expect("a number")
}

#[test]
fn s48_requests_connections_and_failures_are_counted_by_service() {
    let stage = Stage::new();
    let pod = stage.node.pod("web");
    let heard = pods::serve(&pod, TARGET, None);
    stage.secret("web-tls", "web", &json!({"waypost.dev/certificate-arn": ARN}));
    stage.publish(&[("ssl-cert", ARN), ("backend-protocol", "http")], &[&pod]);
    let url = "https://web.example/";
    let _ = stage.page(Family::V4, &[url]);
    let before = figure(&stage, "requests_total", ",code=\"2xx\"");
    assert!(before > 0);
    let _ = stage.curl("web", Family::V4, &["--fail", url, url]).success();
    eventually("both are counted", || figure(&stage, "requests_total", ",code=\"2xx\"") == before + 2);
    eventually("no connection is open", || figure(&stage, "connections", "") == 0);
    // A client that trusts no certificate ends the
    // handshake.
    stage.certificate("other");
    let failures = figure(&stage, "handshake_failures_total", "");
    let refused = stage.curl("other", Family::V4, &[url]);
    assert!(!refused.ok, "{refused:?}");
    eventually("the handshake is counted", || figure(&stage, "handshake_failures_total", "") > failures);
    assert_eq!(figure(&stage, "upstream_failures_total", ""), 0);
    drop(heard);
    stage.publish(&[("ssl-cert", ARN), ("backend-protocol", "http")], &[]);
    eventually("nobody is there, and that is counted", || {
        let _ = stage.curl("web", Family::V4, &[url]);
        figure(&stage, "upstream_failures_total", "") > 0
    });
    assert!(figure(&stage, "requests_total", ",code=\"5xx\"") > 0);
}
