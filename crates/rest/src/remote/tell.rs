//! Telling people what was found, as Kubernetes Events on the server.
//!
//! In: findings about objects, from code that must not wait. Out: Events, each finding once while it is news, and never more than
//! a few in a while: a problem that comes back a thousand times a second is one problem. What cannot be said is counted.

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

use super::{Remote, path};

/// How many findings may wait.
const WAITING: usize = 100;
/// The same finding is news again after this.
const AGAIN: Duration = Duration::from_secs(600);
/// So many may be said at once …
const BURST: f64 = 20.0;
/// … and so many each second after that.
const RATE: f64 = 0.5;
/// How often the server is asked to take an Event.
const TRIES: u32 = 3;
/// So much of an object's name stands in the name of its Event, which may not be longer than other names.
const NAME: usize = 200;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Something that somebody should know about an object.
#[derive(Clone)]
pub struct Finding {
    /// The kind of the object.
    pub kind: &'static Kind,
    /// Its namespace, if it has one.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid; asked for when it is empty, because `kubectl describe` shows only Events that have it.
    pub uid: String,
    /// Whether it is only news.
    pub normal: bool,
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// Says findings to a server. Clones say them together; the last one takes the queue with it.
#[derive(Clone, Debug)]
pub struct Teller {
    queue: mpsc::Sender<Finding>,
    dropped: Arc<AtomicU64>,
}

impl Teller {
    /// A teller that speaks as a component (`kube-proxy`) of a host; runs on the present tokio runtime.
    #[must_use]
    pub fn start(remote: &Remote, component: &str, host: &str) -> Self {
        let (queue, findings) = mpsc::channel(WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        let author = Author { component: component.to_owned(), host: host.to_owned() };
        tokio::spawn(run(remote.clone(), author, findings, dropped.clone()));
        Self { queue, dropped }
    }

    /// Says it, if there is room; never waits.
    pub fn tell(&self, finding: Finding) {
        if self.queue.try_send(finding).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    /// How many findings were not said, because there were too many or the server did not take them.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

struct Author {
    component: String,
    host: String,
}

async fn run(remote: Remote, author: Author, mut findings: mpsc::Receiver<Finding>, dropped: Arc<AtomicU64>) {
    let mut limits = Limits::new(Instant::now());
    while let Some(finding) = findings.recv().await {
        let verdict = limits.judge(finding.identity(), Instant::now());
        let said = match verdict {
            Verdict::Known => continue,
            Verdict::TooMany => false,
            Verdict::Say => post(&remote, &finding, &author).await,
        };
        if !said {
            dropped.fetch_add(1, Relaxed);
        }
    }
}

/// Creates the Event; true when the server has it.
async fn post(remote: &Remote, finding: &Finding, author: &Author) -> bool {
    let mut path = "/api/v1/namespaces/".to_owned();
    path::escape(&mut path, finding.home());
    path.push_str("/events");
    let uid = if finding.uid.is_empty() { find(remote, finding).await } else { finding.uid.clone() };
    let event = Finding { uid, ..finding.clone() }.event(author, Timestamp::now());
    for attempt in 0..TRIES {
        let mut client = remote.client();
        let why = match timeout(PATIENCE, client.json(Method::POST, &path, Some(&event))).await {
            // 409: it was said before, perhaps by an earlier life of this program.
            Ok(Ok((200..=299 | 409, _))) => return true,
            // Its namespace is gone or going, or we may not: asking again does not help.
            Ok(Ok((code @ (403 | 404 | 422), answer))) => {
                tracing::debug!(code, message = %answer["message"], reason = finding.reason, "an Event was refused");
                return false;
            }
            Ok(Ok((code, _))) => format!("the server answers {code}"),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {PATIENCE:?}"),
        };
        tracing::debug!(why, reason = finding.reason, "an Event could not be sent");
        sleep(Duration::from_secs(1 << attempt)).await;
        remote.server.reread();
    }
    false
}

/// The uid of the object, empty when it is not to be had.
async fn find(remote: &Remote, finding: &Finding) -> String {
    let path = path::object(finding.kind, &finding.namespace, &finding.name);
    match timeout(PATIENCE, remote.client().json(Method::GET, &path, None)).await {
        Ok(Ok((200, object))) => object["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}

impl Finding {
    /// The same for the same finding, also in another life of the program: it names the Event.
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
        let name = self.name.get(..NAME).unwrap_or(&self.name).trim_end_matches(['-', '.']);
        format!("{name}.{:016x}", self.identity())
    }

    fn event(&self, author: &Author, now: Timestamp) -> Value {
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

impl std::fmt::Debug for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {} {}/{}: {}", self.reason, self.kind.kind, self.namespace, self.name, self.message)
    }
}

/// What may be said now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Say,
    /// It was said not long ago.
    Known,
    TooMany,
}

struct Limits {
    said: HashMap<u64, Instant>,
    left: f64,
    at: Instant,
}

impl Limits {
    fn new(now: Instant) -> Self {
        Self { said: HashMap::new(), left: BURST, at: now }
    }

    fn judge(&mut self, identity: u64, now: Instant) -> Verdict {
        self.left = (self.left + now.duration_since(self.at).as_secs_f64() * RATE).min(BURST);
        self.at = now;
        self.said.retain(|_, at| now.duration_since(*at) < AGAIN);
        if self.said.contains_key(&identity) {
            return Verdict::Known;
        }
        if self.left < 1.0 {
            return Verdict::TooMany;
        }
        self.left -= 1.0;
        self.said.insert(identity, now);
        Verdict::Say
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_same_is_said_once_and_much_is_said_slowly() {
        let begun = Instant::now();
        let mut limits = Limits::new(begun);
        assert_eq!(limits.judge(0, begun), Verdict::Say);
        assert_eq!(limits.judge(0, begun + AGAIN / 2), Verdict::Known);
        assert_eq!(limits.judge(0, begun + AGAIN), Verdict::Say);
        let later = begun + AGAIN * 3;
        let said = (1..100).filter(|finding| limits.judge(*finding, later) == Verdict::Say).count();
        assert_eq!(said, BURST as usize);
        assert_eq!(limits.judge(200, later + Duration::from_secs(1)), Verdict::TooMany);
        assert_eq!(limits.judge(200, later + Duration::from_secs(3)), Verdict::Say);
    }

    #[test]
    fn an_event_says_who_and_what() {
        let finding = Finding {
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
        let event = finding.event(&author, now);
        let involved = json!({"kind": "Service", "apiVersion": "v1", "namespace": "shop", "name": "cart", "uid": "u"});
        assert_eq!(event["involvedObject"], involved);
        assert_eq!(event["metadata"], finding.event(&author, Timestamp::UNIX_EPOCH)["metadata"]);
        assert_eq!((&event["type"], &event["lastTimestamp"]), (&json!("Warning"), &json!("2027-01-15T08:00:00Z")));
        assert_eq!(event["source"], json!({"component": "kube-proxy", "host": "n1"}));
    }
}
