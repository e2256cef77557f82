//! Records Kubernetes Events about Pods.
//!
//! In: reason and message about a Pod or a container, from code that must not block. Out: Events; a repeated one increments `count` of the
//! existing Event, and each Pod has a rate limit.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use client::requests::{Api, Verb};

/// `source.component` of Events; clients expect the name of the kubelet.
const COMPONENT: &str = "kubelet";
/// The length of the queue; Events are dropped when it is full.
const QUEUE_LENGTH: usize = 4096;
/// A repetition after this time is a new Event.
const REPEAT_WINDOW: Duration = Duration::from_secs(600);
/// Token bucket per Pod: its size, and the time until one more token.
const BURST: f64 = 25.0;
const REFILL: Duration = Duration::from_secs(300);

/// An Event to write.
#[derive(Clone, Debug)]
struct PendingEvent {
    reference: Value,
    normal: bool,
    reason: &'static str,
    message: String,
}

/// Queues Events; clones share the queue.
#[derive(Clone, Debug)]
pub struct EventRecorder(mpsc::Sender<PendingEvent>);

impl EventRecorder {
    /// Starts the recorder of a node on the current tokio runtime.
    #[must_use]
    pub fn start(api: Arc<dyn Api>, node: &str) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
        tokio::spawn(run(api, node.to_owned(), receiver));
        Self(sender)
    }

    /// Records an Event about a Pod or one of its containers. Does not block; the Event is dropped when the queue is full.
    pub fn record(&self, pod: &Value, container: Option<&str>, normal: bool, reason: &'static str, message: String) {
        let meta = pod.at("metadata");
        let mut reference = json!({
            "kind": "Pod", "apiVersion": "v1", "namespace": meta.text("namespace"), "name": meta.text("name"),
            "uid": meta.text("uid"),
        });
        if let Some(name) = container {
            let init = pod.items("spec.initContainers").iter().any(|init| init.text("name") == name);
            let list = if init { "initContainers" } else { "containers" };
            reference["fieldPath"] = format!("spec.{list}{{{name}}}").into();
        }
        let _ = self.0.try_send(PendingEvent { reference, normal, reason, message });
    }
}

struct Recorded {
    name: String,
    count: u32,
    at: Instant,
}

async fn run(api: Arc<dyn Api>, node: String, mut pending: mpsc::Receiver<PendingEvent>) {
    let mut recorded: HashMap<String, Recorded> = HashMap::new();
    let mut buckets: HashMap<String, (f64, Instant)> = HashMap::new();
    while let Some(event_data) = pending.recv().await {
        let now = Instant::now();
        recorded.retain(|_, recorded| now.duration_since(recorded.at) < REPEAT_WINDOW);
        buckets.retain(|_, (_, at)| now.duration_since(*at) < REFILL * 30);
        let (left, at) = buckets.entry(event_data.reference.text("uid").to_owned()).or_insert((BURST, now));
        *left = (*left + now.duration_since(*at).as_secs_f64() / REFILL.as_secs_f64()).min(BURST);
        *at = now;
        if *left < 1.0 {
            continue;
        }
        *left -= 1.0;
        let key = format!("{}/{}/{}", event_data.reference, event_data.reason, event_data.message);
        let namespace = event_data.reference.text("namespace").to_owned();
        let path = format!("/api/v1/namespaces/{namespace}/events");
        let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        if let Some(known) = recorded.get_mut(&key) {
            known.count += 1;
            let change = json!({"count": known.count, "lastTimestamp": time});
            let path = format!("{path}/{}", known.name);
            if api.request(Verb::Patch, &path, Some(&change)).await.is_ok() {
                continue;
            }
        }
        let event = event(&event_data, &node, &time);
        let name = event.text("metadata.name").to_owned();
        if let Err(error) = api.request(Verb::Create, &path, Some(&event)).await {
            tracing::debug!(%error, reason = event_data.reason, "failed to write Event");
        }
        recorded.insert(key, Recorded { name, count: 1, at: now });
    }
}

fn event(event_data: &PendingEvent, node: &str, time: &str) -> Value {
    let object = event_data.reference.text("name");
    let name = format!("{}.{:016x}", object.get(..200).unwrap_or(object), fastrand::u64(..));
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": event_data.reference.text("namespace")},
        "involvedObject": event_data.reference,
        "type": if event_data.normal { "Normal" } else { "Warning" },
        "reason": event_data.reason, "message": event_data.message,
        "source": {"component": COMPONENT, "host": node},
        "reportingComponent": COMPONENT, "reportingInstance": node,
        "firstTimestamp": time, "lastTimestamp": time, "count": 1, "eventTime": null,
    })
}
