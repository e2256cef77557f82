//! One client for all verbs: requests in, objects or a [`Rejected`] out.
//!
//! It prints the warnings of the server, reads long lists in pages, shows progress when a response takes longer than a second, and
//! explains what to do when the server cannot be reached. Discovery is read once (`kinds`).

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::value::ValueExt as _;
use bytes::{Bytes, BytesMut};
use client::http::socket::{Opened, Socket};
use client::http::{ClientError, Method};
use client::kubeconfig::Access;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::kinds::{Kinds, Resource};
use crate::api_client::ApiClient;
use crate::terminal::{self, Progress};

/// Accepts tables, as kubectl does; objects from servers without tables.
pub(super) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const JSON: &str = "application/json";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// The field manager of writes.
pub(super) const MANAGER: &str = "waypost";
/// Objects per page of a list.
const PAGE: usize = 500;
/// Timeout of a response; longer than the request timeout of servers.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Content types of patches.
pub(super) const APPLY: &str = "application/apply-patch+yaml";
pub(super) const MERGE: &str = "application/merge-patch+json";
pub(super) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(super) const JSON_PATCH: &str = "application/json-patch+json";

/// The server rejected a request.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct Rejected {
    /// The HTTP status code.
    pub(super) code: u16,
    message: String,
}

/// See the module.
pub(super) struct Client {
    http: client::http::Client,
    address: String,
    /// The kubeconfig files.
    origin: String,
    /// The namespace of requests that name none.
    pub(super) namespace: String,
    /// Whether it was set by a flag.
    pub(super) asked: bool,
    kinds: Option<Arc<Kinds>>,
}

impl Client {
    pub(super) fn new(access: Arc<Access>, origin: String, namespace: String, asked: bool) -> Self {
        let address = access.address().to_owned();
        Self { http: client::http::Client::new(access), address, origin, namespace, asked, kinds: None }
    }

    /// Another client for the same server, for concurrent requests.
    pub(super) fn another(&self) -> Self {
        Self {
            http: self.http.another(),
            address: self.address.clone(),
            origin: self.origin.clone(),
            namespace: self.namespace.clone(),
            asked: self.asked,
            kinds: self.kinds.clone(),
        }
    }

    /// A client for questions about Services.
    pub(super) fn api(&self) -> ApiClient {
        ApiClient::new(self.http.another())
    }

    /// The kinds of the server.
    pub(super) async fn kinds(&mut self) -> anyhow::Result<Arc<Kinds>> {
        if let Some(kinds) = &self.kinds {
            return Ok(kinds.clone());
        }
        let core = self.ask(Method::GET, "/api", DISCOVERY, None, Bytes::new()).await?;
        let groups = self.ask(Method::GET, "/apis", DISCOVERY, None, Bytes::new()).await?;
        let kinds = Arc::new(Kinds::read(&[core.1, groups.1]));
        self.kinds = Some(kinds.clone());
        Ok(kinds)
    }

    /// The kind of a name.
    pub(super) async fn kind(&mut self, word: &str) -> anyhow::Result<Resource> {
        Ok(self.kinds().await?.find(word)?.clone())
    }

    /// The path of objects of a kind, in the namespace of this client.
    pub(super) fn path(&self, kind: &Resource, name: Option<&str>) -> String {
        kind.path(Some(&self.namespace), name)
    }

    pub(super) async fn get(&mut self, path: &str) -> anyhow::Result<Value> {
        self.get_as(path, JSON).await
    }

    pub(super) async fn get_as(&mut self, path: &str, accept: &str) -> anyhow::Result<Value> {
        Ok(self.ask(Method::GET, path, accept, None, Bytes::new()).await?.1)
    }

    /// The object at a path; none for 404.
    pub(super) async fn find(&mut self, path: &str) -> anyhow::Result<Option<Value>> {
        match self.get(path).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A list, page by page; the result is the first page with the rows or items of all.
    pub(super) async fn list(&mut self, path: &str, query: &Query, accept: &str) -> anyhow::Result<Value> {
        let first = query.clone().add("limit", &PAGE.to_string());
        let mut all = self.get_as(&first.on(path), accept).await?;
        loop {
            let more = all.text("metadata.continue").to_owned();
            if more.is_empty() {
                return Ok(all);
            }
            let mut page = self.get_as(&first.clone().add("continue", &more).on(path), accept).await?;
            for member in ["items", "rows"] {
                if let (Some(Value::Array(have)), Some(Value::Array(new))) = (all.get_mut(member), page.get_mut(member))
                {
                    have.append(new);
                }
            }
            all.put("metadata", page.at("metadata").clone());
        }
    }

    /// The objects of a kind in the namespace of this client.
    pub(super) async fn objects(&mut self, kind: &Resource, query: &Query) -> anyhow::Result<Vec<Value>> {
        let path = self.path(kind, None);
        let mut list = self.list(&path, query, JSON).await?;
        let mut items = match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        for item in &mut items {
            kind.set_type(item);
        }
        Ok(items)
    }

    pub(super) async fn post(&mut self, path: &str, object: &Value) -> anyhow::Result<Value> {
        let body = object.to_string().into();
        Ok(self.ask(Method::POST, path, JSON, Some(JSON), body).await?.1)
    }

    pub(super) async fn put(&mut self, path: &str, object: &Value) -> anyhow::Result<Value> {
        let body = object.to_string().into();
        Ok(self.ask(Method::PUT, path, JSON, Some(JSON), body).await?.1)
    }

    /// Patches an object; also returns whether it was created.
    pub(super) async fn patch(&mut self, path: &str, form: &str, patch: &Value) -> anyhow::Result<(bool, Value)> {
        let (code, object) = self.ask(Method::PATCH, path, JSON, Some(form), patch.to_string().into()).await?;
        Ok((code == 201, object))
    }

    pub(super) async fn delete(&mut self, path: &str, options: &Value) -> anyhow::Result<Value> {
        Ok(self.ask(Method::DELETE, path, JSON, Some(JSON), options.to_string().into()).await?.1)
    }

    /// Starts a watch over its own connection.
    pub(super) async fn watch(&self, path: &str, query: &Query, accept: &str) -> anyhow::Result<Watch> {
        let path = query.clone().add("watch", "true").add("allowWatchBookmarks", "true").on(path);
        Ok(Watch { pieces: self.stream(&path, accept).await?, held: BytesMut::new() })
    }

    /// A streaming response over its own connection.
    pub(super) async fn stream(&self, path: &str, accept: &str) -> anyhow::Result<BodyStream> {
        let mut http = self.http.another();
        let response = http.open_as(Method::GET, path, accept, None, Bytes::new()).await;
        let response = response.map_err(|error| self.unreachable(error))?;
        let code = response.status().as_u16();
        let mut pieces = BodyStream { body: response.into_body(), _connection: http };
        if code < 300 {
            return Ok(pieces);
        }
        let mut body = BytesMut::new();
        while let Some(piece) = pieces.next().await? {
            body.extend_from_slice(&piece);
        }
        Err(rejected(code, &body).into())
    }

    /// Opens a WebSocket.
    pub(super) async fn socket(&self, path: &str, protocol: &str) -> anyhow::Result<Socket> {
        match self.http.socket(path, protocol).await.map_err(|error| self.unreachable(error))? {
            Opened::Socket(socket) => Ok(socket),
            Opened::Refused(code, body) => Err(rejected(code, &body).into()),
        }
    }

    /// One request and its complete response.
    async fn ask(
        &mut self,
        method: Method,
        path: &str,
        accept: &str,
        content_type: Option<&str>,
        body: Bytes,
    ) -> anyhow::Result<(u16, Value)> {
        let _progress = Progress::begin(format!("waiting for the API at {}", self.address));
        let answer = tokio::time::timeout(TIMEOUT, async {
            let response = self.http.open_as(method, path, accept, content_type, body).await?;
            let code = response.status().as_u16();
            for warning in response.headers().get_all("warning") {
                terminal::warn(&warning_text(&String::from_utf8_lossy(warning.as_bytes())));
            }
            let mut body = response.into_body();
            let mut whole = BytesMut::new();
            while let Some(frame) = frame(&mut body).await? {
                whole.extend_from_slice(&frame);
            }
            Ok((code, whole))
        });
        let late = || ClientError::Broken(format!("no response within {} seconds", TIMEOUT.as_secs()));
        let answer: Result<_, ClientError> = answer.await.unwrap_or_else(|_| Err(late()));
        let (code, whole) = answer.map_err(|error| self.unreachable(error))?;
        if code >= 300 {
            return Err(rejected(code, &whole).into());
        }
        let value = serde_json::from_slice(&whole).with_context(|| format!("reading the response to {path}"))?;
        Ok((code, value))
    }

    /// An error without a response: the address, and what to do.
    fn unreachable(&self, error: ClientError) -> anyhow::Error {
        let hint = format!(
            "no answer from the API at {} (kubeconfig {}); if it should run on this machine start it with `waypost up`, else \
             choose another with --kubeconfig or --context",
            self.address, self.origin
        );
        anyhow::Error::new(error).context(hint)
    }
}

/// The body of a streaming response.
pub(super) struct BodyStream {
    body: Incoming,
    /// Keeps the connection open.
    _connection: client::http::Client,
}

impl BodyStream {
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Bytes>> {
        Ok(frame(&mut self.body).await?)
    }
}

/// The next bytes of a body.
async fn frame(body: &mut Incoming) -> Result<Option<Bytes>, ClientError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ClientError::Broken(error.to_string()))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// The events of a watch.
pub(super) struct Watch {
    pieces: BodyStream,
    held: BytesMut,
}

/// One event.
pub(super) struct Event {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub(super) kind: String,
    pub(super) object: Value,
}

impl Watch {
    /// The next event; none when the server has closed the watch.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Event>> {
        loop {
            if let Some(end) = self.held.iter().position(|byte| *byte == b'\n') {
                let line = self.held.split_to(end + 1);
                let mut event: Value = serde_json::from_slice(&line).context("reading an event")?;
                let kind = event.text("type").to_owned();
                let object = event.get_mut("object").map(Value::take).unwrap_or_default();
                return Ok(Some(Event { kind, object }));
            }
            match self.pieces.next().await? {
                Some(piece) => self.held.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }
}

/// A query string.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(String);

impl Query {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter unless it is empty.
    pub(super) fn add(mut self, name: &str, value: &str) -> Self {
        if !value.is_empty() {
            self = self.add_empty(name);
            self.0.push_str(&encode(value));
        }
        self
    }

    /// Adds a parameter without a value.
    pub(super) fn add_empty(mut self, name: &str) -> Self {
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        self.0.push_str(name);
        self.0.push('=');
        self
    }

    /// A path with these parameters.
    pub(super) fn on(&self, path: &str) -> String {
        format!("{path}{}", self.0)
    }
}

/// Percent-encodes text for a path or a query.
pub(super) fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Whether the server responded 404.
pub(super) fn is_not_found(error: &anyhow::Error) -> bool {
    rejection(error).is_some_and(|rejected| rejected.code == 404)
}

/// The rejection by the server, if the error is one.
pub(super) fn rejection(error: &anyhow::Error) -> Option<&Rejected> {
    error.downcast_ref::<Rejected>()
}

fn rejected(code: u16, body: &[u8]) -> Rejected {
    let status: Value =
        serde_json::from_slice(body).unwrap_or_else(|_| json!({"message": String::from_utf8_lossy(body)}));
    let text = status.text("message").trim();
    let message = match (code, text) {
        (_, "") => format!("the API answers {code}"),
        (401 | 403, text) => {
            format!(
                "the API denied the request: {text}; use the kubeconfig of a user with the permission (--kubeconfig, --context, --as)"
            )
        }
        (_, text) => text.to_owned(),
    };
    Rejected { code, message }
}

/// The text of a `Warning` header: `299 - "text"`.
fn warning_text(header: &str) -> String {
    let quoted =
        header.split_once('"').map_or(header, |(_, rest)| rest.rsplit_once('"').map_or(rest, |(text, _)| text));
    quoted.replace("\\\"", "\"").replace("\\\\", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_encoded_and_omit_empty_parameters() {
        let query = Query::new().add("labelSelector", "app=web,tier!=db").add("fieldSelector", "").add("limit", "5");
        assert_eq!(query.on("/p"), "/p?labelSelector=app%3Dweb%2Ctier%21%3Ddb&limit=5");
        assert_eq!(Query::new().on("/p"), "/p");
    }

    #[test]
    fn the_text_of_a_warning_header_is_unquoted() {
        assert_eq!(warning_text(r#"299 - "spec.x: \"y\" is old""#), r#"spec.x: "y" is old"#);
    }

    #[test]
    fn rejections_have_the_message_of_the_server() {
        let status = json!({"message": "services \"x\" not found", "reason": "NotFound"}).to_string();
        let no = rejected(404, status.as_bytes());
        assert_eq!((no.code, no.to_string().as_str()), (404, "services \"x\" not found"));
        assert!(rejected(403, status.as_bytes()).to_string().contains("--kubeconfig"));
        assert_eq!(rejected(502, b"").to_string(), "the API answers 502");
    }
}
