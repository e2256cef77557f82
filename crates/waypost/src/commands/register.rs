//! `waypost register` and `waypost unregister`: make a program that listens on a machine an endpoint of Services, and undo it.
//!
//! In: a name, a port, labels. Out: a Pod that represents the program, and optionally a Service. The Pod is the only state: the agent of its Node
//! probes the program while the Pod exists.

mod find;
mod list;

use std::time::Duration;

use ::agent::adapters::listeners::{self, Listening};
use anyhow::{Context as _, bail, ensure};
use api::adopted::{self, Draft, Port, REGISTERED};
use api::names;
use api::value::ValueExt as _;
use clap::Args;
use cli::api_client::{ApiClient, ApiFlags};
use cli::terminal;
use serde_json::{Value, json};

use super::server;

/// Interval and number of reads of the Pod while the agent updates it.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const POLLS: usize = 60;

/// Settings of the command.
#[derive(Args, Debug, Clone)]
pub(crate) struct Arguments {
    /// Its name
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// The port that it listens on
    #[arg(short, long, required_unless_present = "list", value_parser = clap::value_parser!(u16).range(1..), value_name = "PORT")]
    port: Option<u16>,
    /// The name of that port, for targetPort of Services [default: http when --health is a path, else the protocol]
    #[arg(long, value_name = "NAME")]
    port_name: Option<String>,
    /// Its labels, by which Services select it; may be repeated [default: app=NAME]
    #[arg(short = 'l', long = "label", value_delimiter = ',', value_name = "KEY=VALUE")]
    labels: Vec<String>,
    /// The namespace
    #[arg(short, long, default_value = "default", value_name = "NAMESPACE")]
    namespace: String,
    /// The protocol: tcp, udp or sctp
    #[arg(long, default_value = "tcp", value_parser = ["tcp", "udp", "sctp"], ignore_case = true, value_name = "PROTOCOL")]
    protocol: String,
    /// The readiness probe: tcp (it accepts connections), http:/path, https:/path, or none [default: tcp; none for other protocols]
    #[arg(long, default_value = "", hide_default_value = true, value_name = "HOW")]
    health: String,
    /// Interval of the probe, in seconds
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600), value_name = "SECONDS")]
    period: u64,
    /// Also create a Service of the same name, on this port or on that of the program
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "0", value_name = "PORT")]
    service: Option<u16>,
    /// The Node that it runs on [default: that of this machine]
    #[arg(long, env = "WAYPOST_NODE_NAME", value_name = "NAME")]
    node: Option<String>,
    /// List registered programs, in all namespaces
    #[arg(long, conflicts_with_all = ["name", "port", "service"])]
    list: bool,
    #[command(flatten)]
    api: ApiFlags,
}

/// Settings of `unregister`.
#[derive(Args, Debug, Clone)]
pub(crate) struct Removal {
    /// Its name
    name: String,
    /// The namespace
    #[arg(short, long, default_value = "default", value_name = "NAMESPACE")]
    namespace: String,
    #[command(flatten)]
    api: ApiFlags,
}

/// Runs `register`.
pub(crate) fn exec(arguments: &Arguments) -> anyhow::Result<()> {
    let said = server::runtime()?.block_on(async {
        let mut api = arguments.api.client()?;
        if arguments.list {
            return list::list(&mut api).await;
        }
        register(&mut api, arguments).await
    })?;
    terminal::print(&said)
}

/// Runs `unregister`.
pub(crate) fn exec_removal(arguments: &Removal) -> anyhow::Result<()> {
    let said = server::runtime()?.block_on(async {
        let mut api = arguments.api.client()?;
        unregister(&mut api, &arguments.namespace, &arguments.name).await
    })?;
    terminal::print(&said)
}

impl Arguments {
    /// The Pod, without its Node.
    fn draft(&self) -> anyhow::Result<Draft> {
        let name = self.name.as_deref().context("a name is needed")?;
        if let Some(wrong) = names::dns_label(name).first() {
            bail!("{name:?} cannot be the name of a Pod: {wrong}");
        }
        let number = self.port.context("--port is needed")?;
        let usual = if self.health.starts_with("http") { "http".to_owned() } else { self.protocol.to_lowercase() };
        let port_name = self.port_name.clone().unwrap_or(usual);
        if let Some(wrong) = names::port_name(&port_name).first() {
            bail!("--port-name {port_name}: {wrong}");
        }
        let port = Port { name: port_name, number, protocol: self.protocol.to_uppercase() };
        let probe =
            adopted::probe(&self.health, &port, self.period).map_err(|why| anyhow::anyhow!("--health: {why}"))?;
        let pair = |text: &String| {
            let (key, value) = text.split_once('=').with_context(|| format!("--label {text}: expected KEY=VALUE"))?;
            let wrong = names::qualified_name(key).into_iter().chain(names::label_value(value)).next();
            ensure!(wrong.is_none(), "--label {text}: {}", wrong.unwrap_or_default());
            Ok((key.to_owned(), value.to_owned()))
        };
        let mut labels = self.labels.iter().map(pair).collect::<anyhow::Result<std::collections::BTreeMap<_, _>>>()?;
        if labels.is_empty() {
            labels.insert("app".to_owned(), name.to_owned());
        }
        Ok(Draft {
            how: REGISTERED,
            source: format!("port {number}"),
            namespace: self.namespace.clone(),
            name: name.to_owned(),
            labels,
            image: REGISTERED.to_owned(),
            host_network: true,
            ports: vec![port],
            probe,
        })
    }
}

async fn register(api: &mut ApiClient, arguments: &Arguments) -> anyhow::Result<String> {
    let draft = arguments.draft()?;
    let (namespace, name) = (draft.namespace.as_str(), draft.name.as_str());
    api.namespace(namespace).await?;
    let node = find::node(api, arguments.node.as_deref()).await?;
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let own = format!("{path}/{name}");
    let node_name = node.text("metadata.name");
    let mut action = "registered";
    match api.get(&own).await? {
        Some(pod) if adopted::how(&pod) != Some(REGISTERED) => bail!(
            "there is a Pod {namespace}/{name} already, and it was not registered; choose another name, or look at it with `kubectl describe pod -n {namespace} {name}`"
        ),
        Some(pod) if draft.is(&pod) && pod.text("spec.nodeName") == node_name => action = "unchanged",
        Some(_) => {
            action = "registered again";
            remove(api, &own).await?;
            api.create(&path, &draft.pod(node_name, node.text("metadata.uid"))).await?;
        }
        None => drop(api.create(&path, &draft.pod(node_name, node.text("metadata.uid"))).await?),
    }
    let port = arguments.port.unwrap_or_default();
    let listening = (find::is_here(&node) && arguments.protocol.eq_ignore_ascii_case("tcp"))
        .then(|| listeners::of_this_machine(port));
    let is_listening = !matches!(listening, Some(Listening::Loopback | Listening::Nowhere));
    let pod = wait_for_probe(api, &own, is_listening).await?;
    let mut said = match list::addresses(&pod) {
        at if at.is_empty() => format!("pod/{name} {action} on {node_name}\n"),
        at => format!("pod/{name} {action} on {node_name}: {at}\n"),
    };
    if !list::is_ready(&pod) {
        terminal::remark(&unready_reason(&pod, port, listening));
    }
    if let Some(wanted) = arguments.service {
        said += &create_service(api, &draft, if wanted == 0 { port } else { wanted }).await?;
    }
    Ok(said)
}

/// The Pod after its first probe; or as it is after a while. Without a listener the probe is not awaited.
async fn wait_for_probe(api: &mut ApiClient, path: &str, is_listening: bool) -> anyhow::Result<Value> {
    let mut pod = Value::Null;
    for _ in 0..POLLS {
        pod = api.get(path).await?.unwrap_or_default();
        if list::is_ready(&pod) || (!is_listening && pod.has("status.podIP")) {
            break;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(pod)
}

/// Why it is not ready.
fn unready_reason(pod: &Value, port: u16, listening: Option<Listening>) -> String {
    let (node, name) = (pod.text("spec.nodeName"), pod.text("metadata.name"));
    if !pod.has("status.podIP") {
        return format!(
            "the agent of {node} has not reported {name} yet; is `waypost up` or `waypost node` running there, as root?"
        );
    }
    match listening {
        Some(Listening::Loopback) => format!("not ready: {}", listeners::advice(port)),
        Some(Listening::Nowhere) => {
            format!("not ready: nothing listens on port {port} yet; it becomes ready when a program does")
        }
        _ => format!(
            "not ready: its health check fails; `kubectl describe pod {name}` shows why; it becomes ready when the check passes"
        ),
    }
}

/// Creates the Service, unless it exists.
async fn create_service(api: &mut ApiClient, draft: &Draft, port: u16) -> anyhow::Result<String> {
    let (namespace, name) = (&draft.namespace, &draft.name);
    let path = format!("/api/v1/namespaces/{namespace}/services");
    let own = draft.ports.first().context("a port is needed")?;
    if let Some(there) = api.get(&format!("{path}/{name}")).await? {
        let same = there.map("spec.selector").is_some_and(|selector| {
            selector.iter().all(|(key, value)| draft.labels.get(key).map(String::as_str) == value.as_str())
        });
        ensure!(
            same,
            "there is a Service {namespace}/{name} already, and it selects other Pods; look at it with `kubectl describe service -n {namespace} {name}`"
        );
        return Ok(format!("service/{name} unchanged: {}\n", there.text("spec.clusterIP")));
    }
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "annotations": {adopted::ANNOTATION: REGISTERED}},
        "spec": {
            "selector": draft.labels,
            "ports": [{"name": own.name, "port": port, "targetPort": own.name, "protocol": own.protocol}],
        },
    });
    let made = api.create(&path, &service).await?;
    Ok(format!("service/{name} created: {}:{port}, {name}.{namespace}.svc\n", made.text("spec.clusterIP")))
}

async fn unregister(api: &mut ApiClient, namespace: &str, name: &str) -> anyhow::Result<String> {
    let pod = api.pod(namespace, name).await?;
    match adopted::how(&pod) {
        Some(REGISTERED) => {}
        Some(how) => {
            bail!("Pod {namespace}/{name} was created by the adapter {how}; it is deleted when its program ends")
        }
        None => bail!(
            "Pod {namespace}/{name} was not registered; delete it with `kubectl delete pod -n {namespace} {name}`"
        ),
    }
    remove(api, &format!("/api/v1/namespaces/{namespace}/pods/{name}")).await?;
    let mut said = format!("pod/{name} unregistered; the program itself was not touched\n");
    let service = format!("/api/v1/namespaces/{namespace}/services/{name}");
    if api.get(&service).await?.is_some_and(|service| adopted::how(&service) == Some(REGISTERED)) {
        api.delete(&service).await?;
        said += &format!("service/{name} deleted, as `register` had made it\n");
    }
    Ok(said)
}

/// Deletes a registration without a grace period: there is no process to stop.
async fn remove(api: &mut ApiClient, path: &str) -> anyhow::Result<()> {
    api.delete(&format!("{path}?gracePeriodSeconds=0")).await?;
    for _ in 0..POLLS {
        if api.get(path).await?.is_none_or(|pod| !pod.has("metadata.deletionTimestamp")) {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    bail!("{path} is terminating and not deleted; `kubectl get pod -o yaml` shows its finalizers")
}
