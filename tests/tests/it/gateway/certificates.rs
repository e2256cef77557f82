//! Certificates: found by name or by claim, missed aloud, and changed while clients are there.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use serde_json::json;
use testbed::net::{Family, eventually};

use super::pods;
use super::stage::{ARN, Stage, TARGET};

const URL: &str = "https://web.example/";

#[test]
fn s48_a_certificate_that_is_missing_is_an_event_and_its_arrival_is_enough() {
    let stage = Stage::new();
    let pod = stage.node.pod("web");
    let _heard = pods::serve(&pod, TARGET, None);
    stage.publish(&[("ssl-cert", ARN), ("backend-protocol", "http")], &[&pod]);
    let hint = format!("kubectl -n default annotate secret NAME waypost.dev/certificate-arn={ARN}");
    eventually("it is said", || stage.events("CertificateMissing").iter().any(|message| message.contains(&hint)));
    let refused = stage.curl("web", Family::V4, &[URL]);
    assert!(!refused.ok, "{refused:?}");
    stage.secret("web-tls", "web", &json!({"waypost.dev/certificate-arn": ARN}));
    let _ = stage.page(Family::V4, &[URL]);
}

#[test]
fn s48_a_certificate_can_be_named_by_its_secret() {
    let stage = Stage::new();
    let pod = stage.node.pod("web");
    let _heard = pods::serve(&pod, TARGET, None);
    stage.secret("web-tls", "web", &json!({}));
    stage.publish(&[("ssl-cert", "secret://default/web-tls"), ("backend-protocol", "http")], &[&pod]);
    let _ = stage.page(Family::V6, &[URL]);
}

#[test]
fn s48_certificates_change_under_load_without_a_failed_request() {
    let stage = Stage::new();
    let pod = stage.node.pod("web");
    let _heard = pods::serve(&pod, TARGET, None);
    let claim = json!({"waypost.dev/certificate-arn": ARN});
    stage.secret("web-tls", "web", &claim);
    stage.publish(&[("ssl-cert", ARN), ("backend-protocol", "http")], &[&pod]);
    let _ = stage.page(Family::V4, &[URL]);
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let clients: Vec<_> = ["--http1.1", "--http2"]
            .into_iter()
            .map(|version| {
                let (stage, is_over, asked) = (&stage, &is_over, &asked);
                scope.spawn(move || {
                    while !is_over.load(Relaxed) {
                        // Several on one connection, and a new connection each time.
                        let got = stage.curl("web", Family::V4, &["--insecure", "--fail", version, URL, URL, URL]);
                        assert!(got.ok, "{version}: {got:?}");
                        asked.fetch_add(3, Relaxed);
                    }
                })
            })
            .collect();
        for turn in 0..5 {
            let before = asked.load(Relaxed);
            stage.certificate(&format!("turn-{turn}"));
            stage.secret("web-tls", &format!("turn-{turn}"), &claim);
            let name = format!("turn-{turn}");
            eventually("the new one is served", || stage.curl(&name, Family::V4, &[URL]).ok);
            eventually("clients go on", || asked.load(Relaxed) > before);
        }
        is_over.store(true, Relaxed);
        clients.into_iter().for_each(|client| client.join().expect("no request failed"));
    });
    let old = stage.curl("web", Family::V4, &[URL]);
    assert!(!old.ok && old.err.contains("certificate"), "the first is served no more: {old:?}");
}

#[test]
fn a_certificate_that_is_none_leaves_the_one_before() {
    let stage = Stage::new();
    let pod = stage.node.pod("web");
    let _heard = pods::serve(&pod, TARGET, None);
    let claim = json!({"waypost.dev/certificate-arn": ARN});
    stage.secret("web-tls", "web", &claim);
    stage.publish(&[("ssl-cert", ARN), ("backend-protocol", "http")], &[&pod]);
    let _ = stage.page(Family::V4, &[URL]);
    stage.certificate("other");
    std::fs::copy(stage.files().join("other.key"), stage.files().join("mixed.key")).expect("a copy");
    std::fs::copy(stage.files().join("web.crt"), stage.files().join("mixed.crt")).expect("a copy");
    stage.secret("web-tls", "mixed", &claim);
    eventually("it is said", || {
        stage
            .events("CertificateBad")
            .iter()
            .any(|message| message.contains("not the key of") && message.contains("still served"))
    });
    let _ = stage.curl("web", Family::V4, &["--fail", URL]).success();
}
