//! One Pod after the other beside a crowd of others: created, ready, reached through its Service, deleted.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use client::http::{Client, Method};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::machine::Machine;
use super::watch::Watch;
use crate::report::{Figures, key};
use crate::stats::{each, median, megabytes, percentile, seconds};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
/// The Service of the Pod that is measured.
const VIP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 80)), 80);
/// Where the server in each Pod listens.
const PORT: u16 = 8080;
/// How long anything may take.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Timeout of a request before another one is sent.
const SILENCE: Duration = Duration::from_millis(250);
/// The interval at which a Service is tried, and a count is read.
const LOOK: Duration = Duration::from_millis(1);

/// Measures with each of these numbers of Pods on the machine, this many times.
///
/// # Errors
/// When a server refuses or is silent.
pub async fn measure(machine: &Machine, counts: &[usize], samples: usize) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    let mut client = machine.client()?;
    prepare(&mut client, &machine.backend).await?;
    // The first Pod also waits for what a machine needs once.
    sample(machine, &mut client).await?;
    let [_, alone] = machine.memory()?;
    figures.set("memory_mb", megabytes(alone));
    let mut before = 0;
    for &count in counts {
        let crowd = count.saturating_sub(1);
        let took = scale(machine, &mut client, crowd).await?;
        if crowd > before {
            eprintln!("{} more Pods are ready after {took:.2?}", crowd - before);
            figures.set(&key("crowd_ms_each", count), each(took, crowd - before) / 1e3);
        }
        before = crowd;
        steps(machine, &mut client, count, samples, &mut figures).await?;
        let [server, memory] = machine.memory()?;
        figures.set(&key("server_mb", count), megabytes(server));
        figures.set(&key("memory_mb", count), megabytes(memory));
        let (held, supervisors) = machine.supervisors()?;
        ensure!(supervisors >= crowd, "{supervisors} supervisors of {crowd} containers");
        if crowd > 0 {
            #[expect(clippy::cast_precision_loss, reason = "fewer bytes than 2^52")]
            let of_each = |bytes: u64| bytes as f64 / 1e3 / crowd as f64;
            figures.set(&key("memory_each_kb", count), of_each(memory.saturating_sub(alone)));
            figures.set(&key("supervisor_kb", count), of_each(held));
        }
    }
    Ok(figures)
}

async fn steps(
    machine: &Machine,
    client: &mut Client,
    count: usize,
    samples: usize,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let (mut ready, mut reached) = (Vec::new(), Vec::new());
    let before = machine.cpu()?;
    for _ in 0..samples {
        let (to_ready, to_reached) = sample(machine, client).await?;
        ready.push(to_ready);
        reached.push(to_reached);
    }
    figures.set(&key("cpu_ms", count), each(machine.cpu()?.saturating_sub(before), samples) / 1e3);
    for (name, times) in [("ready", seconds(&ready)), ("reached", seconds(&reached))] {
        figures.set(&key(&format!("{name}_p50_ms"), count), median(&times) * 1e3);
        figures.set(&key(&format!("{name}_p99_ms"), count), percentile(&times, 0.99) * 1e3);
    }
    eprintln!("{count} Pods: {samples} measured");
    Ok(())
}

/// The Service, and a Deployment without Pods.
async fn prepare(client: &mut Client, backend: &Path) -> anyhow::Result<()> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "probe"},
        "spec": {"clusterIP": VIP.ip(), "selector": {"app": "probe"}, "ports": [{"port": VIP.port(), "targetPort": PORT}]},
    });
    create(client, SERVICES, &service).await?;
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "crowd"},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": "crowd"}},
            "template": {"metadata": {"labels": {"app": "crowd"}}, "spec": spec(backend)},
        },
    });
    create(client, DEPLOYMENTS, &deployment).await
}

fn spec(backend: &Path) -> Value {
    json!({
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "backend", "image": "host", "command": [backend, PORT.to_string()]}],
    })
}

/// From the creation of a Pod until it is ready, and until it is reached. It is gone afterwards.
async fn sample(machine: &Machine, client: &mut Client) -> anyhow::Result<(Duration, Duration)> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "labels": {"app": "probe"}},
        "spec": spec(&machine.backend),
    });
    let path = format!("{PODS}?watch=true&fieldSelector=metadata.name=probe");
    let mut watch = Watch::begin(machine.client()?, &path).await?;
    let begun = Instant::now();
    create(client, PODS, &pod).await?;
    let reach = tokio::spawn(async move { timeout(TIMEOUT, until_reached()).await.map(|()| begun.elapsed()) });
    timeout(TIMEOUT, watch.until(|_, pod| is_ready(pod))).await.context("the Pod is not ready")??;
    let ready = begun.elapsed();
    let reached = reach.await.context("asking")?.context("the Pod was not reached")?;
    let (code, _) = client.json(Method::DELETE, &format!("{PODS}/probe?gracePeriodSeconds=0"), None).await?;
    ensure!(code == 200, "deleting the Pod: {code}");
    timeout(TIMEOUT, watch.until(|kind, _| kind == "DELETED")).await.context("the Pod stays")??;
    // The next one must not be reached before it is there.
    timeout(TIMEOUT, async {
        while ask().await.is_ok() {
            sleep(LOOK).await;
        }
    })
    .await
    .context("the Pod that was deleted still answers")?;
    Ok((ready, reached))
}

/// Scales the crowd to this number of Pods; returns how long it took until all were ready.
async fn scale(machine: &Machine, client: &mut Client, replicas: usize) -> anyhow::Result<Duration> {
    let mut watch = Watch::begin(machine.client()?, &format!("{DEPLOYMENTS}?watch=true")).await?;
    let begun = Instant::now();
    let patch = json!({"spec": {"replicas": replicas}}).to_string().into();
    let path = format!("{DEPLOYMENTS}/crowd");
    let (code, _) = client.bytes(Method::PATCH, &path, Some("application/merge-patch+json"), patch).await?;
    ensure!(code == 200, "scaling: {code}");
    let complete = watch.until(|_, deployment| {
        let (wanted, status) = (&deployment["spec"]["replicas"], &deployment["status"]);
        let ready = status["readyReplicas"].as_u64().unwrap_or_default();
        *wanted == replicas
            && wanted.as_u64() == Some(ready)
            && status["observedGeneration"] == deployment["metadata"]["generation"]
    });
    timeout(TIMEOUT, complete).await.context("the Pods are not ready in time")??;
    Ok(begun.elapsed())
}

async fn create(client: &mut Client, collection: &str, object: &Value) -> anyhow::Result<()> {
    let (code, answer) = client.json(Method::POST, collection, Some(object)).await?;
    if code != 201 {
        bail!("creating in {collection}: {code}: {answer}");
    }
    Ok(())
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

async fn until_reached() {
    while ask().await.is_err() {
        sleep(LOOK).await;
    }
}

/// One request through the Service. A Pod that is terminating may drop it silently.
async fn ask() -> std::io::Result<()> {
    let question = async {
        let mut stream = TcpStream::connect(VIP).await?;
        stream.write_all(b"who?\n").await?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await.map(drop)
    };
    timeout(SILENCE, question).await.unwrap_or_else(|silent| Err(silent.into()))
}
