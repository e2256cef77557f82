//! The recorder of Kubernetes Events.
//!
//! In: events about objects, from code that must not wait. Out: Event objects on the server, deduplicated and rate-limited. Events
//! that are not recorded are counted.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use api::kind::Kind;
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::path;
use crate::remote::Remote;

/// Capacity of the queue, in events.
const QUEUE: usize = 100;
/// The same event is recorded again after this time.
const DEDUPLICATION: Duration = Duration::from_secs(600);
/// Events that may be recorded at once.
const BURST: f64 = 20.0;
/// Events per second after a burst.
const RATE: f64 = 0.5;
/// Attempts for each event.
const ATTEMPTS: u32 = 3;
/// Part of the object's name in the name of its Event, in bytes.
const MAX_NAME: usize = 200;
/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An event about an object.
#[derive(Clone)]
pub struct ObjectEvent {
    /// The kind of the object.
    pub kind: &'static Kind,
    /// Its namespace, if it has one.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid; read from the server when empty, because `kubectl describe` shows only Events that have it.
    pub uid: String,
    /// Type `Normal` instead of `Warning`.
    pub normal: bool,
    /// The reason, in CamelCase.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// Records events on a server. Clones share the queue.
#[derive(Clone, Debug)]
pub struct EventRecorder {
    queue: mpsc::Sender<ObjectEvent>,
    dropped: Arc<AtomicU64>,
}

impl EventRecorder {
    /// A recorder for a component (`kube-proxy`) of a host; runs on the current tokio runtime.
    #[must_use]
    pub fn start(remote: &Remote, component: &str, host: &str) -> Self {
        let (queue, events) = mpsc::channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let author = Author { component: component.to_owned(), host: host.to_owned() };
        tokio::spawn(run(remote.clone(), author, events, dropped.clone()));
        Self { queue, dropped }
    }

    /// Enqueues an event; never waits.
    pub fn record(&self, event: ObjectEvent) {
        if self.queue.try_send(event).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Events that were not recorded: too many, or refused by the server.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

struct Author {
    component: String,
    host: String,
}

async fn run(remote: Remote, author: Author, mut events: mpsc::Receiver<ObjectEvent>, dropped: Arc<AtomicU64>) {
    let mut limits = Limits::new(Instant::now());
    while let Some(event) = events.recv().await {
        let verdict = limits.judge(event.identity(), Instant::now());
        let recorded = match verdict {
            Verdict::Duplicate => continue,
            Verdict::TooMany => false,
            Verdict::Record => post(&remote, &event, &author).await,
        };
        if !recorded {
            dropped.fetch_add(1, Relaxed);
        }
    }
}

/// Creates the Event; true when the server has it.
async fn post(remote: &Remote, event: &ObjectEvent, author: &Author) -> bool {
    let mut path = "/api/v1/namespaces/".to_owned();
    path::escape(&mut path, event.home());
    path.push_str("/events");
    let uid = if event.uid.is_empty() { find(remote, event).await } else { event.uid.clone() };
    let object = ObjectEvent { uid, ..event.clone() }.object(author, Timestamp::now());
    for attempt in 0..ATTEMPTS {
        let mut client = remote.client();
        let error = match timeout(TIMEOUT, client.json(Method::POST, &path, Some(&object))).await {
            // 409: recorded before, perhaps by an earlier process.
            Ok(Ok((200..=299 | 409, _))) => return true,
            // The namespace is terminating or gone, or we are not allowed to: a retry does not help.
            Ok(Ok((code @ (403 | 404 | 422), answer))) => {
                tracing::debug!(code, message = %answer["message"], reason = event.reason, "Event refused");
                return false;
            }
            Ok(Ok((code, _))) => format!("HTTP status {code}"),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no response within {TIMEOUT:?}"),
        };
        tracing::debug!(%error, reason = event.reason, "could not record Event");
        sleep(Duration::from_secs(1 << attempt)).await;
        remote.server.reread();
    }
    false
}

/// The uid of the object; empty when it cannot be read.
async fn find(remote: &Remote, event: &ObjectEvent) -> String {
    let path = path::object(event.kind, &event.namespace, &event.name);
    match timeout(TIMEOUT, remote.client().json(Method::GET, &path, None)).await {
        Ok(Ok((200, object))) => object["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}

impl ObjectEvent {
    /// Equal for equal events, also across restarts: it is part of the Event's name.
    fn identity(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.kind.kind, &self.namespace, &self.name, &self.uid, self.reason, &self.message).hash(&mut hasher);
        hasher.finish()
    }

    /// The namespace of the Event.
    fn home(&self) -> &str {
        if self.namespace.is_empty() { "default" } else { &self.namespace }
    }

    fn event_name(&self) -> String {
        let name = self.name.get(..MAX_NAME).unwrap_or(&self.name).trim_end_matches(['-', '.']);
        format!("{name}.{:016x}", self.identity())
    }

    fn object(&self, author: &Author, now: Timestamp) -> Value {
        let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut involved = json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(), "name": self.name});
        for (key, text) in [("namespace", &self.namespace), ("uid", &self.uid)] {
            if !text.is_empty() {
                involved[key] = text.as_str().into();
            }
        }
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": self.event_name(), "namespace": self.home()},
            "involvedObject": involved,
            "type": if self.normal { "Normal" } else { "Warning" },
            "reason": self.reason, "message": self.message, "action": self.reason,
            "source": {"component": author.component, "host": author.host},
            "reportingComponent": author.component, "reportingInstance": author.host,
            "firstTimestamp": now, "lastTimestamp": now, "count": 1, "eventTime": null,
        })
    }
}

impl std::fmt::Debug for ObjectEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {} {}/{}: {}", self.reason, self.kind.kind, self.namespace, self.name, self.message)
    }
}

/// What happens to an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Record,
    /// Recorded not long ago.
    Duplicate,
    TooMany,
}

struct Limits {
    recorded: HashMap<u64, Instant>,
    left: f64,
    at: Instant,
}

impl Limits {
    fn new(now: Instant) -> Self {
        Self { recorded: HashMap::new(), left: BURST, at: now }
    }

    fn judge(&mut self, identity: u64, now: Instant) -> Verdict {
        self.left = (self.left + now.duration_since(self.at).as_secs_f64() * RATE).min(BURST);
        self.at = now;
        self.recorded.retain(|_, at| now.duration_since(*at) < DEDUPLICATION);
        if self.recorded.contains_key(&identity) {
            return Verdict::Duplicate;
        }
        if self.left < 1.0 {
            return Verdict::TooMany;
        }
        self.left -= 1.0;
        self.recorded.insert(identity, now);
        Verdict::Record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn duplicates_are_dropped_and_many_are_rate_limited() {
        let begun = Instant::now();
        let mut limits = Limits::new(begun);
        assert_eq!(limits.judge(0, begun), Verdict::Record);
        assert_eq!(limits.judge(0, begun + DEDUPLICATION / 2), Verdict::Duplicate);
        assert_eq!(limits.judge(0, begun + DEDUPLICATION), Verdict::Record);
        let later = begun + DEDUPLICATION * 3;
        let recorded = (1..100).filter(|event| limits.judge(*event, later) == Verdict::Record).count();
        assert_eq!(recorded, BURST as usize);
        assert_eq!(limits.judge(200, later + Duration::from_secs(1)), Verdict::TooMany);
        assert_eq!(limits.judge(200, later + Duration::from_secs(3)), Verdict::Record);
    }

    #[test]
    fn an_event_names_its_object_and_its_source() {
        let event = ObjectEvent {
            kind: &api::kinds::service::KIND,
            namespace: "shop".to_owned(),
            name: "cart".to_owned(),
            uid: "u".to_owned(),
            normal: false,
            reason: "PortTaken",
            message: "another Service has it".to_owned(),
        };
        let author = Author { component: "kube-proxy".to_owned(), host: "n1".to_owned() };
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let object = event.object(&author, now);
        let involved = json!({"kind": "Service", "apiVersion": "v1", "namespace": "shop", "name": "cart", "uid": "u"});
        assert_eq!(object["involvedObject"], involved);
        assert_eq!(object["metadata"], event.object(&author, Timestamp::UNIX_EPOCH)["metadata"]);
        assert_eq!((&object["type"], &object["lastTimestamp"]), (&json!("Warning"), &json!("2027-01-15T08:00:00Z")));
        assert_eq!(object["source"], json!({"component": "kube-proxy", "host": "n1"}));
    }
}
