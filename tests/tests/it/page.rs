//! The page: the real server, the real program that gives links, a real browser.
//!
//! Nothing runs Pods here, but in `measured`: the tests write what an agent would write, and the controllers make slices of it.

mod access;
mod gateways;
mod keyboard;
mod live;
mod login;
mod many;
mod measured;

use std::process::Command;

use serde_json::{Value, json};
use testbed::browser::Browser;
use testbed::session::Session;
use testbed::{Home, Server, binary, run};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server whose Services say how they are, as with `waypost up`, and a Node.
fn server() -> Server {
    server_with(&[])
}

/// The same with further arguments.
fn server_with(more: &[&str]) -> Server {
    let home = testbed::folder();
    // No heartbeats are sent here, and a busy machine may be slow.
    let arguments = [&["--service-conditions", "--node-monitor-grace-period", "600s"], more].concat();
    let server = Server::start_with(Home::Own(home), &arguments);
    let node = json!({
        "metadata": {"name": "n1"}, "spec": {"podCIDR": "10.244.0.0/24", "podCIDRs": ["10.244.0.0/24"]},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]},
    });
    let _ = server.session().post("/api/v1/nodes", &node).success();
    server
}

/// A link, as the command prints it.
fn link(server: &Server) -> String {
    let out = run(Command::new(binary()).args(["page", "--kubeconfig"]).arg(server.kubeconfig()), "").success();
    let link = out.trim().to_owned();
    assert!(link.starts_with(&format!("https://{}/page/#login=", server.address)), "{link}");
    link
}

/// The token in a link.
fn word(link: &str) -> &str {
    link.split_once("#login=").expect("a link").1
}

/// The browser of a user who has opened a link, and in which everything has been loaded.
fn visitor(server: &Server) -> Browser {
    let browser = Browser::start(1280, 900);
    browser.open(&link(server));
    browser.until("document.querySelector('#pulse')?.dataset.state === 'live'");
    browser
}

/// A Pod that runs; `ready` sets its readiness.
fn run_pod(session: &mut Session, name: &str, app: &str, ip: &str, ready: bool) {
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "image", "ports": [{"containerPort": 8080}]}]},
    });
    let _ = session.post(PODS, &pod).success();
    set_ready(session, name, ip, ready);
}

/// Sets whether a Pod is ready.
fn set_ready(session: &mut Session, name: &str, ip: &str, ready: bool) {
    let status = json!({"status": {
        "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }, "message": "as the test says"}],
    }});
    let _ = session.merge(&format!("{PODS}/{name}/status"), &status).success();
}

/// A Service of port 80 in front of Pods of an app.
fn expose(session: &mut Session, name: &str, app: &str) -> Value {
    session.create(name, json!({"selector": {"app": app}, "ports": [{"port": 80, "targetPort": 8080}]}))
}

/// A script that is true when the row of a Service has a grade.
fn row_is(name: &str, grade: &str) -> String {
    format!("document.querySelector('[data-key=\"default/{name}\"] [data-grade]')?.dataset.grade === '{grade}'")
}
