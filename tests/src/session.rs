//! A client that waits for each response, for tests that send requests sequentially.
//!
//! In: a path and a body. Out: an [`Answer`], which can be required to be a success or a rejection; and [`Watch`]es, read
//! event by event. Nothing here waits for ever: what does not come within [`TIMEOUT`] fails the test.

use std::time::Duration;

use bytes::Bytes;
use client::http::{Client, ClientError, Method};
use http_body::Body;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// Timeout of a response or an event. Far more than any takes.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// The Services of the namespace `default`.
pub const SERVICES: &str = "/api/v1/namespaces/default/services";
/// The objects that hold cluster IPs.
pub const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
/// The ranges from which cluster IPs come.
pub const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";

/// A Service in the form in which people write it.
#[must_use]
#[expect(clippy::needless_pass_by_value, reason = "a spec is written where it is used")]
pub fn service(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

/// A client with its own runtime.
pub struct Session {
    runtime: Runtime,
    client: Client,
}

impl Session {
    /// Wraps a client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Self { runtime: runtime.expect("a runtime"), client }
    }

    /// GET.
    #[track_caller]
    pub fn get(&mut self, path: &str) -> Answer {
        self.ask(Method::GET, path, None)
    }

    /// POST of an object.
    #[track_caller]
    pub fn post(&mut self, path: &str, body: &Value) -> Answer {
        self.ask(Method::POST, path, Some(body))
    }

    /// PUT of an object.
    #[track_caller]
    pub fn put(&mut self, path: &str, body: &Value) -> Answer {
        self.ask(Method::PUT, path, Some(body))
    }

    /// PATCH with a merge patch.
    #[track_caller]
    pub fn merge(&mut self, path: &str, patch: &Value) -> Answer {
        let body = patch.to_string().into();
        let answer = async { self.client.bytes(Method::PATCH, path, Some("application/merge-patch+json"), body).await };
        let (code, bytes) = self.runtime.block_on(patient(answer));
        Answer { code, body: serde_json::from_slice(&bytes).expect("JSON") }
    }

    /// DELETE.
    #[track_caller]
    pub fn delete(&mut self, path: &str) -> Answer {
        self.ask(Method::DELETE, path, None)
    }

    /// Any request with a JSON body and a JSON answer.
    #[track_caller]
    pub fn ask(&mut self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let answer = self.runtime.block_on(patient(self.client.json(method, path, body)));
        Answer { code: answer.0, body: answer.1 }
    }

    /// The `items` of a list.
    #[track_caller]
    pub fn items(&mut self, path: &str) -> Vec<Value> {
        match self.get(path).success()["items"].take() {
            Value::Array(items) => items,
            other => panic!("the list has no items but {other}"),
        }
    }

    /// The names in a list, in its order.
    #[track_caller]
    pub fn names(&mut self, path: &str) -> Vec<String> {
        self.items(path).iter().map(|item| text(item, "/metadata/name").to_owned()).collect()
    }

    /// Creates a Service in `default` and answers what became of it.
    #[track_caller]
    pub fn create(&mut self, name: &str, spec: Value) -> Value {
        self.post(SERVICES, &service(name, spec)).success()
    }

    /// The rejection of an invalid Service: the message of a 422.
    #[track_caller]
    pub fn refuse(&mut self, name: &str, spec: Value) -> String {
        self.post(SERVICES, &service(name, spec)).refused(422)
    }

    /// Starts a watch on a collection, over its own connection; `query` is what follows `watch=true`.
    #[track_caller]
    pub fn watch(&self, path: &str, query: &str) -> Watch<'_> {
        let mut client = self.client.another();
        let path = format!("{path}?watch=true{query}");
        let response = self.runtime.block_on(patient(client.open(Method::GET, &path, None, Bytes::new())));
        assert_eq!(response.status().as_u16(), 200, "a watch on {path}");
        let (sender, events) = tokio::sync::mpsc::unbounded_channel();
        self.runtime.spawn(async move {
            read_lines(response.into_body(), sender).await;
            // The connection belongs to the client: it exists as long as the watch.
            drop(client);
        });
        Watch { runtime: &self.runtime, events }
    }
}

async fn patient<T>(answer: impl Future<Output = Result<T, ClientError>>) -> T {
    let answer = tokio::time::timeout(TIMEOUT, answer).await;
    answer.expect("an answer in time").unwrap_or_else(|error| panic!("no answer: {error}"))
}

/// The text at a JSON pointer, or nothing.
#[must_use]
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A response of the server.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub code: u16,
    /// The object or the Status.
    pub body: Value,
}

impl Answer {
    /// The object, when the request was carried out.
    #[must_use]
    #[track_caller]
    pub fn success(self) -> Value {
        assert!((200..300).contains(&self.code), "refused with {}: {}", self.code, self.body);
        self.body
    }

    /// The message, when the request was rejected with this code; the Status has the same code.
    #[must_use]
    #[track_caller]
    pub fn refused(self, code: u16) -> String {
        assert_eq!((self.code, text(&self.body, "/kind")), (code, "Status"), "{}", self.body);
        assert_eq!(self.body["code"], json!(code), "{}", self.body);
        text(&self.body, "/message").to_owned()
    }
}

/// A stream of events, read in the background so that the server never waits for the test.
pub struct Watch<'a> {
    runtime: &'a Runtime,
    events: UnboundedReceiver<Value>,
}

impl Watch<'_> {
    /// The next event: its type and its object. `None` when the stream has ended.
    #[track_caller]
    pub fn event(&mut self) -> Option<(String, Value)> {
        let event = async { tokio::time::timeout(TIMEOUT, self.events.recv()).await.expect("an event in time") };
        let mut event = self.runtime.block_on(event)?;
        Some((text(&event, "/type").to_owned(), event["object"].take()))
    }

    /// Reads on until an event is what the test waits for, and answers its object.
    #[track_caller]
    pub fn until(&mut self, mut wanted: impl FnMut(&str, &Value) -> bool) -> Value {
        // More events than any test makes: a wait that ends.
        for _ in 0..10_000 {
            let (kind, object) = self.event().expect("the watch goes on");
            if wanted(&kind, &object) {
                return object;
            }
        }
        panic!("the event does not come")
    }
}

/// Passes on every line of a body as JSON.
async fn read_lines<B>(mut body: B, events: UnboundedSender<Value>)
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut read: Vec<u8> = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        read.extend_from_slice(&frame.into_data().unwrap_or_default());
        while let Some(end) = read.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = read.drain(..=end).collect();
            let event = serde_json::from_slice(&line).expect("an event in JSON");
            if events.send(event).is_err() {
                return;
            }
        }
    }
}
