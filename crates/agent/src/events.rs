//! Telling people what happens to their Pods, as Kubernetes Events.
//!
//! In: words about a Pod or a container of it, from code that must not wait. Out: Events; what is said again is counted on the Event
//! that said it first, and a Pod that has much to say says it slowly.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use client::requests::{Api, Verb};

/// As whom we speak.
const COMPONENT: &str = "kubelet";
/// How many words may wait.
const WAITING: usize = 4096;
/// After this a word is a new one.
const AGAIN: Duration = Duration::from_secs(600);
/// How many words of one Pod are said at once, and how long until one more is.
const BURST: f64 = 25.0;
const REFILL: Duration = Duration::from_secs(300);

/// A word about a Pod.
#[derive(Clone, Debug)]
struct Word {
    reference: Value,
    normal: bool,
    reason: &'static str,
    message: String,
}

/// Says words. Clones say them together.
#[derive(Clone, Debug)]
pub struct Teller(mpsc::Sender<Word>);

impl Teller {
    /// One that speaks for a Node; runs on the present runtime.
    #[must_use]
    pub fn start(api: Arc<dyn Api>, node: &str) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        tokio::spawn(run(api, node.to_owned(), receiver));
        Self(sender)
    }

    /// Says something of a Pod, or of a container of it. Never waits; who cannot be told is not.
    pub fn tell(&self, pod: &Value, container: Option<&str>, normal: bool, reason: &'static str, message: String) {
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
        let _ = self.0.try_send(Word { reference, normal, reason, message });
    }
}

struct Said {
    name: String,
    count: u32,
    at: Instant,
}

async fn run(api: Arc<dyn Api>, node: String, mut words: mpsc::Receiver<Word>) {
    let mut said: HashMap<String, Said> = HashMap::new();
    let mut purses: HashMap<String, (f64, Instant)> = HashMap::new();
    while let Some(word) = words.recv().await {
        let now = Instant::now();
        said.retain(|_, said| now.duration_since(said.at) < AGAIN);
        purses.retain(|_, (_, at)| now.duration_since(*at) < REFILL * 30);
        let (left, at) = purses.entry(word.reference.text("uid").to_owned()).or_insert((BURST, now));
        *left = (*left + now.duration_since(*at).as_secs_f64() / REFILL.as_secs_f64()).min(BURST);
        *at = now;
        if *left < 1.0 {
            continue;
        }
        *left -= 1.0;
        let key = format!("{}/{}/{}", word.reference, word.reason, word.message);
        let namespace = word.reference.text("namespace").to_owned();
        let path = format!("/api/v1/namespaces/{namespace}/events");
        let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        if let Some(known) = said.get_mut(&key) {
            known.count += 1;
            let change = json!({"count": known.count, "lastTimestamp": time});
            let path = format!("{path}/{}", known.name);
            if api.request(Verb::Patch, &path, Some(&change)).await.is_ok() {
                continue;
            }
        }
        let event = event(&word, &node, &time);
        let name = event.text("metadata.name").to_owned();
        if let Err(error) = api.request(Verb::Create, &path, Some(&event)).await {
            tracing::debug!(%error, reason = word.reason, "an Event could not be sent");
        }
        said.insert(key, Said { name, count: 1, at: now });
    }
}

fn event(word: &Word, node: &str, time: &str) -> Value {
    let object = word.reference.text("name");
    let name = format!("{}.{:016x}", object.get(..200).unwrap_or(object), fastrand::u64(..));
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": word.reference.text("namespace")},
        "involvedObject": word.reference,
        "type": if word.normal { "Normal" } else { "Warning" },
        "reason": word.reason, "message": word.message,
        "source": {"component": COMPONENT, "host": node},
        "reportingComponent": COMPONENT, "reportingInstance": node,
        "firstTimestamp": time, "lastTimestamp": time, "count": 1, "eventTime": null,
    })
}
