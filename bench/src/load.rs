//! The load: prepared requests in, as many clients as wanted send them, how long each took out.
//!
//! Every client has its own connection and sends its next request when the last one was answered. Bodies are made before
//! the clock starts and responses are not parsed, so that the processor time goes to the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use client::http::{Client, Method};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The namespace of all objects.
pub const NAMESPACE: &str = "bench";
/// Where Services are.
pub const SERVICES: &str = "/api/v1/namespaces/bench/services";
/// Where EndpointSlices are.
pub const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/bench/endpointslices";

/// What most bodies are.
const JSON: &str = "application/json";

/// A prepared request.
pub struct Work {
    method: Method,
    path: String,
    body: Bytes,
    content_type: &'static str,
    expect: u16,
}

/// What a load came to.
#[derive(Debug, Default)]
pub struct Load {
    /// How many requests were answered; less than all when the time was over.
    pub done: usize,
    /// From the first request to the last answer.
    pub took: Duration,
    /// How long each request took.
    pub delays: Vec<Duration>,
}

impl Load {
    /// Answers per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "fewer requests than 2^52")]
    pub fn rate(&self) -> f64 {
        self.done as f64 / self.took.as_secs_f64().max(f64::EPSILON)
    }
}

impl Work {
    /// The creation of an object.
    #[must_use]
    pub fn create(collection: &str, object: &Value) -> Self {
        let body = object.to_string().into();
        Self { method: Method::POST, path: collection.to_owned(), body, content_type: JSON, expect: 201 }
    }

    /// A new content for an object, whatever it was before.
    #[must_use]
    pub fn replace(collection: &str, name: &str, object: &Value) -> Self {
        let (path, body) = (format!("{collection}/{name}"), object.to_string().into());
        Self { method: Method::PUT, path, body, content_type: JSON, expect: 200 }
    }

    /// A change of an object, whatever it was before: a merge patch. Objects of definitions are not replaced without their resourceVersion.
    #[must_use]
    pub fn patch(collection: &str, name: &str, change: &Value) -> Self {
        let (path, body) = (format!("{collection}/{name}"), change.to_string().into());
        Self { method: Method::PATCH, path, body, content_type: "application/merge-patch+json", expect: 200 }
    }

    /// A read of an object or of a list, with a query.
    #[must_use]
    pub fn get(path: &str) -> Self {
        Self { method: Method::GET, path: path.to_owned(), body: Bytes::new(), content_type: JSON, expect: 200 }
    }

    /// The deletion of an object.
    #[must_use]
    pub fn delete(collection: &str, name: &str) -> Self {
        let path = format!("{collection}/{name}");
        Self { method: Method::DELETE, path, body: Bytes::new(), content_type: JSON, expect: 200 }
    }

    /// A change of the status of an object, as a kubelet sends it.
    #[must_use]
    pub fn patch_status(collection: &str, name: &str, change: &Value) -> Self {
        let (path, body) = (format!("{collection}/{name}/status"), change.to_string().into());
        Self { method: Method::PATCH, path, body, content_type: "application/strategic-merge-patch+json", expect: 200 }
    }

    /// Sends it; how long the answer took.
    ///
    /// # Errors
    /// When there is no answer, or another than expected.
    pub async fn send(&self, client: &mut Client) -> anyhow::Result<Duration> {
        let content_type = (!self.body.is_empty()).then_some(self.content_type);
        let begun = Instant::now();
        let asked = client.bytes(self.method.clone(), &self.path, content_type, self.body.clone());
        let (code, answer) =
            timeout(TIMEOUT, asked).await.with_context(|| format!("{} {}: no answer", self.method, self.path))??;
        let took = begun.elapsed();
        ensure!(
            code == self.expect,
            "{} {} was answered with {code}: {}",
            self.method,
            self.path,
            String::from_utf8_lossy(&answer)
        );
        Ok(took)
    }
}

/// Sends all requests through this many clients, or as many as the time allows.
///
/// # Errors
/// When one fails.
pub async fn run(client: &Client, clients: usize, work: Vec<Work>, limit: Duration) -> anyhow::Result<Load> {
    let work = Arc::new(work);
    let next = Arc::new(AtomicUsize::new(0));
    let together = Arc::new(Barrier::new(clients + 1));
    let mut senders = JoinSet::new();
    for _ in 0..clients {
        let (mut client, work, next, together) = (client.another(), work.clone(), next.clone(), together.clone());
        senders.spawn(async move {
            let connected = client.bytes(Method::GET, "/version", None, Bytes::new()).await;
            together.wait().await;
            connected.context("connecting")?;
            let deadline = Instant::now() + limit;
            let mut delays = Vec::with_capacity(work.len() / clients + 1);
            while Instant::now() < deadline
                && let Some(next) = work.get(next.fetch_add(1, Ordering::Relaxed))
            {
                delays.push(next.send(&mut client).await?);
            }
            anyhow::Ok(delays)
        });
    }
    together.wait().await;
    let begun = Instant::now();
    let mut load = Load::default();
    while let Some(delays) = senders.join_next().await {
        load.delays.extend(delays.context("a client")??);
    }
    load.took = begun.elapsed();
    load.done = load.delays.len();
    Ok(load)
}

/// Makes the namespace of all objects.
///
/// # Errors
/// When it is refused.
pub async fn make_namespace(client: &mut Client) -> anyhow::Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    Work::create("/api/v1/namespaces", &object).send(client).await.map(drop)
}

/// A Service as most are: a selector and one port.
#[must_use]
pub fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name, "tier": "backend"}},
        "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    })
}

/// A Service with manually created endpoints: controllers ignore it.
#[must_use]
pub fn service_by_hand(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name, "tier": "backend"}},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    })
}

/// The name of the Service of this number.
#[must_use]
pub fn service_name(number: usize) -> String {
    format!("svc-{number:06}")
}

/// The EndpointSlice of a Service: ten Pods on ten nodes.
#[must_use]
pub fn slice(number: usize) -> Value {
    let service = service_name(number);
    let endpoint = |index: usize| {
        let pod = number * 10 + index;
        json!({
            "addresses": [format!("10.{}.{}.{}", 128 + (pod >> 16) % 64, (pod >> 8) & 255, pod & 255)],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": format!("node-{index:02}"),
            "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": format!("{service}-{index:05}"),
                "uid": format!("00000000-0000-4000-8000-{pod:012}")},
        })
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": format!("{service}-slice"), "namespace": NAMESPACE, "labels": {
            "kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "bench"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
        "endpoints": (0..10).map(endpoint).collect::<Vec<_>>(),
    })
}
