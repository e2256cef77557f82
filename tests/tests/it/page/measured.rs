//! The measured stages of a Service with a real node: it measures the Service while the page shows it.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testbed::browser::Browser;
use testbed::{binary, run};

use crate::doctor::clinic::Clinic;

const STAGES: [&str; 6] = ["address", "selector", "endpoints", "programmed", "name", "reachable"];

/// A script that is true when a stage has a status.
fn stage_is(id: &str, status: &str) -> String {
    format!("document.querySelector('[data-stage={id}]')?.dataset.status === '{status}'")
}

/// A browser that shows the page of a server, and the address of that page.
fn visitor(kubeconfig: &Path) -> (Browser, String) {
    let link = run(Command::new(binary()).args(["page", "--kubeconfig"]).arg(kubeconfig), "").success();
    let browser = Browser::start(1280, 900);
    browser.open(link.trim());
    browser.until("document.querySelector('#pulse')?.dataset.state === 'live'");
    let (site, _) = link.split_once('#').expect("a link");
    (browser, site.to_owned())
}

#[test]
fn a_node_measures_every_stage_of_a_service() {
    let mut clinic = Clinic::new();
    let http = |target: Value| json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": target}]});
    clinic.pod("default", "web-1", "web");
    clinic.service("default", "web", http(json!("http")));
    clinic.service("default", "wrong", http(json!(9999)));
    clinic.service(
        "default",
        "alias",
        json!({"type": "ExternalName", "externalName": "web.default.svc.cluster.local"}),
    );
    let datagrams = json!({"selector": {"app": "web"}, "ports": [{"port": 53, "targetPort": 8080, "protocol": "UDP"}]});
    clinic.service("default", "datagrams", datagrams);
    let kubeconfig = clinic.kubeconfig();
    clinic.node.in_namespace(|| {
        let (browser, site) = visitor(&kubeconfig);
        let look = |name: &str| browser.open(&format!("{site}#/service/default/{name}"));

        look("web");
        for stage in STAGES {
            browser.until(&stage_is(stage, "ok"));
        }
        assert!(
            browser.text("[data-stage=name]").contains("web.default.svc.cluster.local."),
            "{}",
            browser.text("main")
        );
        assert!(browser.text("[data-stage=reachable]").contains(":80 connects; 1 endpoint connects"));

        // The Pod is ready, so nothing else is wrong: only a connection shows it.
        look("wrong");
        browser.until(&stage_is("reachable", "failed"));
        for stage in &STAGES[..5] {
            browser.until(&stage_is(stage, "ok"));
        }
        let said = browser.text("#verdict");
        for part in [
            "Reachable: failed",
            "From node n1",
            ":9999 (Pod web-1): refused",
            "http (8080/TCP), which accepts connections",
        ] {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
        let typed = browser.text("#verdict .command code");
        let mut shell = Command::new("sh");
        let mended = run(shell.env("KUBECONFIG", &kubeconfig).args(["-ec", &typed]), "");
        assert!(mended.ok, "{typed}: {mended:?}");
        browser.until(&stage_is("reachable", "ok"));
        browser.until("document.querySelector('#verdict') === null");

        look("alias");
        browser.until(&stage_is("name", "ok"));
        browser.until(&stage_is("reachable", "unneeded"));
        look("datagrams");
        browser.until(&stage_is("name", "ok"));
        browser.until("document.querySelector('[data-stage=reachable]').innerText.includes('not TCP')");
        browser.until(&stage_is("reachable", "unmeasured"));
        assert_eq!(browser.complaints(), [""; 0]);
    });
}

#[test]
fn a_node_tries_only_what_it_is_asked_for_and_once_for_all_who_ask() {
    let mut clinic = Clinic::new();
    let here = clinic.node.v4();
    let listener = clinic.node.in_namespace(|| TcpListener::bind(SocketAddr::from((here, 0))).expect("a port"));
    listener.set_nonblocking(true).expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    clinic.service("default", "by-hand", json!({"ports": [{"port": 80, "targetPort": port}]}));
    clinic.slice("default", "by-hand", &here.to_string(), port);
    let report = "/api/v1/nodes/n1/proxy/waypost/report?service=default%2Fby-hand";
    let told = clinic.api(|session| session.get(report)).success();
    assert_eq!(told["tried"], Value::Null);
    assert!(listener.accept().is_err(), "nobody asked for a try");

    // The slice may take a moment to be in the rules.
    let proved = |told: &Value| ["name", "reachable"].iter().all(|what| told["tried"][what]["verdict"] == "proved");
    testbed::net::eventually("the Service answers", || {
        proved(&clinic.api(|session| session.get(&format!("{report}&try=true"))).success())
    });
    let taken = || std::iter::from_fn(|| listener.accept().ok()).count();
    assert!(taken() > 0, "it was really connected to");
    for _ in 0..30 {
        let told = clinic.api(|session| session.get(&format!("{report}&try=true"))).success();
        assert!(proved(&told), "{told}");
    }
    // One look is two connections, and is good for three seconds.
    let again = taken();
    assert!(again < 30, "{again} connections for 30 questions");

    let nobody =
        clinic.api(|session| session.get("/api/v1/nodes/n1/proxy/waypost/report?service=default%2Fnone&try=true"));
    let told = nobody.success();
    assert_eq!(told["tried"]["reachable"]["verdict"], "unmeasured");
    assert_eq!(told["tried"]["reachable"]["text"], "there is no Service default/none");
}
