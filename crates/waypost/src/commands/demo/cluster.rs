//! The cluster of the demo: a `waypost up`, and a client of its API.
//!
//! In: paths and objects. Out: responses; and the end of the log after a failure.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use api::value::ValueExt as _;
use client::http::{Client, Method};
use kernel::process::{Signal, Spawned};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{http, stage};

/// Interval of retries.
const RETRY_INTERVAL: Duration = Duration::from_millis(40);
/// Timeout of the stop of the node.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// The address of `/proxyMode`.
const MODE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10249);
/// Lines of the log in error messages.
const LINES: usize = 12;

/// The core objects of the demo's namespace.
pub(super) const CORE: &str = "/api/v1/namespaces/default";
/// Its Deployments.
pub(super) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
/// Its HTTPRoutes.
pub(super) const HTTP_ROUTES: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes";

/// The deadline of an act.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    /// After a duration from now.
    pub(super) fn of(duration: Duration) -> Self {
        Self(Instant::now() + duration)
    }

    /// Waits for the retry interval; returns whether there is time left.
    pub(super) async fn wait_retry(self) -> bool {
        sleep(RETRY_INTERVAL).await;
        Instant::now() < self.0
    }
}

/// A node that runs, and a client of its API.
pub(super) struct Cluster {
    node: Spawned,
    client: Client,
    /// The proxy mode.
    pub(super) mode: String,
}

impl Cluster {
    /// Starts it, and waits until it serves.
    pub(super) async fn start(deadline: Deadline) -> anyhow::Result<Self> {
        let log = File::create(stage::log()).context("creating the log file")?;
        let data = stage::data_dir();
        let mut words: Vec<&OsStr> = vec![OsStr::new("up"), OsStr::new("--data-dir"), data.as_os_str()];
        words.extend(
            [
                "--listen=127.0.0.1:0",
                "--service-cluster-ip-range=10.96.0.0/16",
                "--cluster-cidr=10.244.0.0/16",
                "--node-name=demo",
                "--workloads=true",
                "--metrics-listen=127.0.0.1:10249",
            ]
            .map(OsStr::new),
        );
        let streams = [File::open("/dev/null")?.into(), log.try_clone()?.into(), log.into()];
        let node = Spawned::begin(&stage::program(), &words, streams).context("starting `waypost up`")?;
        let kubeconfig = data.join("kubeconfig");
        loop {
            ensure!(!node.handle.has_ended(), "`waypost up` has ended\n{}", log_tail());
            if let Some((client, mode)) = serving(&kubeconfig).await {
                return Ok(Self { node, client, mode });
            }
            ensure!(deadline.wait_retry().await, "`waypost up` is not ready\n{}", log_tail());
        }
    }

    /// Stops it.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.node.handle.signal(Signal::TERM);
        let deadline = Deadline::of(STOP_TIMEOUT);
        while !self.node.handle.has_ended() {
            ensure!(deadline.wait_retry().await, "`waypost up` does not end");
        }
        Ok(())
    }

    async fn send(&mut self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let (code, answer) = self.client.json(method.clone(), path, body).await?;
        ensure!((200..300).contains(&code), "{method} {path} failed: {}", answer.text("message"));
        Ok(answer)
    }

    /// An object, or a list.
    pub(super) async fn get(&mut self, path: &str) -> anyhow::Result<Value> {
        self.send(Method::GET, path, None).await
    }

    /// Creates an object in a collection.
    pub(super) async fn create(&mut self, collection: &str, object: &Value) -> anyhow::Result<Value> {
        self.send(Method::POST, collection, Some(object)).await
    }

    /// Creates a Service.
    pub(super) async fn serve(&mut self, service: &Value) -> anyhow::Result<Value> {
        self.create(&format!("{CORE}/services"), service).await
    }

    /// Changes an object.
    pub(super) async fn merge(&mut self, path: &str, patch: &Value) -> anyhow::Result<Value> {
        let (code, bytes) = self
            .client
            .bytes(Method::PATCH, path, Some("application/merge-patch+json"), patch.to_string().into())
            .await?;
        let answer: Value = serde_json::from_slice(&bytes).context("reading the answer")?;
        ensure!((200..300).contains(&code), "PATCH {path} failed: {}", answer.text("message"));
        Ok(answer)
    }

    /// Deletes an object.
    pub(super) async fn delete(&mut self, path: &str) -> anyhow::Result<()> {
        self.send(Method::DELETE, path, None).await.map(drop)
    }

    /// The Pods of an app.
    pub(super) async fn pods(&mut self, app: &str) -> anyhow::Result<Vec<Value>> {
        let list = self.get(&format!("{CORE}/pods?labelSelector=app={app}")).await?;
        Ok(list.items("items").to_vec())
    }
}

/// A client and the proxy mode, once the node is ready.
async fn serving(kubeconfig: &Path) -> Option<(Client, String)> {
    let mut client = Client::from_kubeconfig(kubeconfig).ok()?;
    let (code, nodes) = client.json(Method::GET, "/api/v1/nodes", None).await.ok()?;
    if code != 200 || !nodes.items("items").iter().any(is_ready) {
        return None;
    }
    let mode = tokio::task::spawn_blocking(|| http::ask(MODE, "/proxyMode", &[], http::TIMEOUT)).await.ok()?.ok()?;
    Some((client, mode.text()))
}

/// Whether a Pod or a Node is ready and not terminating.
pub(super) fn is_ready(object: &Value) -> bool {
    let is = |condition: &Value| condition.text("type") == "Ready" && condition.text("status") == "True";
    object.text("metadata.deletionTimestamp").is_empty() && object.items("status.conditions").iter().any(is)
}

/// The addresses of Pods, by their names.
pub(super) fn addresses(pods: &[Value]) -> BTreeMap<String, IpAddr> {
    let address = |pod: &Value| Some((name(pod), pod.text("status.podIP").parse().ok()?));
    pods.iter().filter_map(address).collect()
}

/// The names of objects.
pub(super) fn names(objects: &[Value]) -> BTreeSet<String> {
    objects.iter().map(name).collect()
}

/// The name of an object.
pub(super) fn name(object: &Value) -> String {
    object.text("metadata.name").to_owned()
}

/// The end of the log of the node.
pub(super) fn log_tail() -> String {
    let text = std::fs::read_to_string(stage::log()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(LINES)).map(|line| format!("  {line}\n")).collect()
}

/// The address of a Service and its first port.
pub(super) fn frontend(service: &Value) -> anyhow::Result<SocketAddr> {
    let port =
        service.items("spec.ports").first().map(|port| port.int("port")).and_then(|port| u16::try_from(port).ok());
    match (service.text("spec.clusterIP").parse(), port) {
        (Ok(ip), Some(port)) => Ok(SocketAddr::new(ip, port)),
        _ => bail!("the Service {} got no address", name(service)),
    }
}
