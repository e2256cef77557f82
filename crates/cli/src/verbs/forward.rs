//! `waypost port-forward`: forwards ports of this machine to a Pod.
//!
//! In: a Pod, or an object that has Pods, and ports. Out: listeners on loopback; each connection is forwarded through the API to the Pod, as
//! `SPDY/3.1+portforward.k8s.io` in its own WebSocket (`tunnel`), so that a failure does not affect other connections.

mod tunnel;

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use api::value::ValueExt as _;
use clap::Args;
use serde_json::Value;
use tokio::net::TcpListener;

use super::client::Client;
use super::connect::Connection;
use super::{exec, pods};
use crate::terminal;

/// Settings of the verb.
#[derive(Args, Debug)]
pub struct Arguments {
    /// A Pod, or KIND/NAME of an object that has Pods, such as svc/web
    #[arg(value_name = "POD")]
    target: String,
    /// Ports: [LOCAL:]REMOTE; without LOCAL it is the same, with :REMOTE any free port
    #[arg(required = true, value_name = "PORT")]
    ports: Vec<String>,
    /// Listen addresses
    #[arg(long, default_value = "localhost", value_delimiter = ',', value_name = "ADDRESS")]
    address: Vec<String>,
    #[command(flatten)]
    connection: Connection,
}

/// A local port and its target.
#[derive(Debug, PartialEq, Eq)]
struct Port {
    local: u16,
    remote: u16,
}

/// Runs the verb.
pub(super) async fn exec(arguments: Arguments) -> anyhow::Result<()> {
    let mut client = arguments.connection.client()?;
    let (object, pod) = pods::best(&mut client, std::slice::from_ref(&arguments.target)).await?;
    ensure!(
        pod.text("status.phase") == "Running",
        "the Pod {} is not running but {}; `waypost describe pod/{0}` shows why",
        pod.text("metadata.name"),
        pod.text("status.phase")
    );
    let service = (object.kind.plural == "services").then_some(&object.value);
    let client = Arc::new(client);
    let path = format!("{}/portforward", exec::pod_path(&pod));
    let mut listening = Vec::new();
    for text in &arguments.ports {
        let port = read(text, service, &pod)?;
        listening.extend(listen(&arguments.address, &port).await?.into_iter().map(|listener| (listener, port.remote)));
    }
    for (listener, remote) in &listening {
        terminal::print(&format!("Forwarding from {} -> {remote}\n", listener.local_addr()?))?;
    }
    let tasks = listening.into_iter().map(|(listener, remote)| accept(client.clone(), path.clone(), listener, remote));
    futures_util::future::join_all(tasks).await;
    Ok(())
}

/// Parses `[LOCAL:]REMOTE`; ports of a Service are mapped to those of the Pod.
fn read(text: &str, service: Option<&Value>, pod: &Value) -> anyhow::Result<Port> {
    let (local, remote) = text.split_once(':').unwrap_or((text, text));
    let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let target = match service {
        Some(service) => target_port(service, remote)?,
        None => remote.to_owned(),
    };
    let resolved = number(&target).or_else(|| named_port(pod, &target));
    let resolved = resolved.with_context(|| {
        format!(
            "the Pod {} has no port {target:?}; name a number, or one of its ports' names",
            pod.text("metadata.name")
        )
    })?;
    let local = match (local, number(local)) {
        ("", _) => 0,
        (_, Some(port)) => port,
        // A named port listens on its number.
        _ if !text.contains(':') => resolved,
        _ => bail!("{local:?} is no port of this machine; write a number, or :{remote} for any that is free"),
    };
    Ok(Port { local, remote: resolved })
}

/// The target of a Service's port.
fn target_port(service: &Value, port: &str) -> anyhow::Result<String> {
    let ports = service.items("spec.ports");
    let found = ports.iter().find(|one| one.text("name") == port || one.int("port").to_string() == port);
    let found = found.with_context(|| {
        let have: Vec<String> = ports.iter().map(|port| port.int("port").to_string()).collect();
        format!("the Service {} has no port {port}; it has: {}", service.text("metadata.name"), have.join(", "))
    })?;
    Ok(match found.at("targetPort") {
        Value::String(name) => name.clone(),
        Value::Number(number) => number.to_string(),
        _ => found.int("port").to_string(),
    })
}

fn named_port(pod: &Value, name: &str) -> Option<u16> {
    let containers = pod.items("spec.containers").iter();
    let mut ports = containers.flat_map(|container| container.items("ports"));
    ports.find(|port| port.text("name") == name).and_then(|port| u16::try_from(port.int("containerPort")).ok())
}

/// Opens listeners; `localhost` is both loopback addresses, of which one is enough.
async fn listen(addresses: &[String], port: &Port) -> anyhow::Result<Vec<TcpListener>> {
    let mut out = Vec::new();
    for address in addresses {
        let ips: Vec<IpAddr> = match address.as_str() {
            "localhost" => vec![[127, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into()],
            other => {
                vec![other.parse().with_context(|| format!("--address: {other:?} is no address of this machine"))?]
            }
        };
        let mut local = port.local;
        for (number, ip) in ips.iter().enumerate() {
            match TcpListener::bind((*ip, local)).await {
                Ok(listener) => {
                    local = listener.local_addr()?.port();
                    out.push(listener);
                }
                // The second loopback address is optional.
                Err(_) if number > 0 => {}
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!(
                            "listening at {ip} port {local}; choose another, as in {}:{1}",
                            local.saturating_add(1),
                            port.remote
                        )
                    });
                }
            }
        }
    }
    Ok(out)
}

/// Accepts and forwards connections.
async fn accept(client: Arc<Client>, path: String, listener: TcpListener, remote: u16) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (client, path) = (client.clone(), path.clone());
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            if let Err(error) = tunnel::forward(&client, &path, remote, stream).await {
                terminal::note(&format!("waypost: a connection to port {remote}: {error:#}"));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_are_parsed_as_in_kubectl() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]}});
        let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [
            {"name": "web", "port": 80, "targetPort": "http"}, {"name": "plain", "port": 81}]}});
        let of = |text: &str, service: Option<&Value>| read(text, service, &pod).map_err(|error| error.to_string());
        let port = |local, remote| Ok(Port { local, remote });
        assert_eq!(of("8080", None), port(8080, 8080));
        assert_eq!(of("5000:8080", None), port(5000, 8080));
        assert_eq!(of(":http", None), port(0, 8080));
        assert_eq!(of("http", None), port(8080, 8080));
        assert_eq!(of("9000:80", Some(&service)), port(9000, 8080));
        assert_eq!(of(":web", Some(&service)), port(0, 8080));
        assert_eq!(of("81", Some(&service)), port(81, 81));
        assert!(of("82", Some(&service)).expect_err("no port").contains("it has: 80, 81"));
        assert!(of("x:80", None).is_err() && of("0", None).is_err() && of("smtp", None).is_err());
    }
}
