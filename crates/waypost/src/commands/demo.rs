//! `waypost demo`: a server in a temporary directory, the examples everybody knows, what came of them; then nothing is left.

use std::ffi::{OsStr, OsString};

use anyhow::{Context as _, ensure};
use api::value::ValueExt as _;
use rest::client::Client;
use serde_json::{Value, json};

use super::server::{self, Running};
use crate::config::{self, Subject};

/// Runs the command.
pub(crate) fn exec() -> anyhow::Result<()> {
    let home = tempfile::Builder::new().prefix("waypost-demo-").tempdir().context("making a temporary directory")?;
    let place = [OsStr::new("--data-dir"), home.path().as_os_str()];
    let words = ["waypost", "up", "--listen", "127.0.0.1:0"].map(OsStr::new).into_iter().chain(place);
    let Subject::Up(arguments) = config::parse(words.map(OsString::from))?.command else {
        unreachable!("`up` was asked for")
    };
    let arguments = arguments.server.for_one_machine();
    server::runtime()?.block_on(async {
        let running = server::start(&arguments, &[]).await?;
        say(&format!("A server is ready at https://{}, with its data in a temporary directory.\n", running.address));
        let told = tokio::select! {
            told = tell(&running) => told,
            () = server::stop_signal() => Err(anyhow::anyhow!("stopped before the end")),
        };
        running.stop().await;
        told
    })?;
    home.close().context("removing the temporary directory")?;
    say("\nThe server has stopped and its directory is gone.");
    Ok(())
}

/// The examples, and what they show.
async fn tell(running: &Running) -> anyhow::Result<()> {
    let mut client = Client::from_kubeconfig(&running.kubeconfig)?;
    for example in examples() {
        let path = format!("/api/v1/namespaces/default/{}", plural(&example));
        let (code, answer) = client.json(http_method("POST")?, &path, Some(&example)).await?;
        ensure!(code == 201, "creating {} was refused: {}", example.text("metadata.name"), answer.text("message"));
    }
    let (code, list) = client.json(http_method("GET")?, "/api/v1/namespaces/default/services", None).await?;
    ensure!(code == 200, "listing Services was refused: {}", list.text("message"));
    show(list.items("items"));
    let mut taken = examples().remove(0);
    let first =
        list.items("items").iter().find(|item| item.text("metadata.name") == "my-service").context("my-service")?;
    taken.put("metadata.name", "my-twin");
    taken.put("spec.clusterIP", first.text("spec.clusterIP"));
    let (code, answer) = client.json(http_method("POST")?, "/api/v1/namespaces/default/services", Some(&taken)).await?;
    ensure!(code == 422, "a taken address was given out twice: {answer}");
    say(&format!(
        "\nAn address has one owner. Asking for the one of my-service again is answered with:\n  {}",
        answer.text("message")
    ));
    Ok(())
}

fn http_method(name: &str) -> anyhow::Result<rest::client::Method> {
    rest::client::Method::from_bytes(name.as_bytes()).context("a method")
}

fn plural(object: &Value) -> &'static str {
    if object.text("kind") == "Endpoints" { "endpoints" } else { "services" }
}

fn service(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

/// The Services that every description of Services begins with.
fn examples() -> Vec<Value> {
    let selector = json!({"app": "MyApp"});
    vec![
        service(
            "my-service",
            &json!({"selector": selector, "ports": [{"protocol": "TCP", "port": 80, "targetPort": 9376}]}),
        ),
        service("no-selector", &json!({"ports": [{"protocol": "TCP", "port": 80, "targetPort": 9376}]})),
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "no-selector"},
               "subsets": [{"addresses": [{"ip": "192.0.2.42"}], "ports": [{"port": 9376}]}]}),
        service(
            "two-ports",
            &json!({"selector": selector, "ports": [
            {"name": "http", "protocol": "TCP", "port": 80, "targetPort": 9376},
            {"name": "https", "protocol": "TCP", "port": 443, "targetPort": 9377}]}),
        ),
        service("headless", &json!({"clusterIP": "None", "selector": selector, "ports": [{"port": 80}]})),
        service(
            "both-families",
            &json!({"ipFamilyPolicy": "PreferDualStack", "selector": selector, "ports": [{"port": 80}]}),
        ),
        service(
            "on-every-node",
            &json!({"type": "NodePort", "selector": selector, "ports": [{"port": 80, "targetPort": 9376}]}),
        ),
        service(
            "balanced",
            &json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "selector": selector, "ports": [{"port": 80}]}),
        ),
        service("elsewhere", &json!({"type": "ExternalName", "externalName": "my.database.example.com"})),
    ]
}

fn show(services: &[Value]) {
    let mut rows = vec![["NAME", "TYPE", "ADDRESSES", "PORTS", "NOTE"].map(str::to_owned)];
    for service in services {
        let ports = service.items("spec.ports").iter().map(|port| match port.int("nodePort") {
            0 => format!("{}/{}", port.int("port"), port.text("protocol")),
            node_port => format!("{}:{node_port}/{}", port.int("port"), port.text("protocol")),
        });
        let ports: Vec<String> = ports.collect();
        let note = match (service.text("spec.externalName"), service.int("spec.healthCheckNodePort")) {
            ("", 0) => String::new(),
            ("", port) => format!("health checks on {port}"),
            (name, _) => format!("alias of {name}"),
        };
        let addresses = service.texts("spec.clusterIPs").join(" ");
        rows.push([
            service.text("metadata.name").to_owned(),
            service.text("spec.type").to_owned(),
            if addresses.is_empty() { "-".to_owned() } else { addresses },
            if ports.is_empty() { "-".to_owned() } else { ports.join(",") },
            note,
        ]);
    }
    let widths: Vec<usize> = (0..5).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        say(cells.join("   ").trim_end());
    }
}

/// Prints what the demo shows.
#[expect(clippy::print_stdout, reason = "this is the output of the command")]
fn say(text: &str) {
    println!("{text}");
}
