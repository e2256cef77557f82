//! One client for all verbs: requests in, objects or a [`Refused`] out.
//!
//! It prints the warnings of the server, follows long lists page by page, shows a line of progress when an answer takes longer than a
//! second, and says what to do when there is no server. What the server has is asked once (`kinds`).

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
use super::terminal::{self, Progress};
use crate::commands::reach::Api;

/// Tables as kubectl asks for them; objects from servers that have no tables.
pub(super) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const JSON: &str = "application/json";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// What writes of ours are said to be from.
pub(super) const MANAGER: &str = "waypost";
/// How many objects a page has.
const PAGE: usize = 500;
/// How long an answer may take; far longer than any server lets it.
const PATIENCE: Duration = Duration::from_secs(90);

/// The kinds of patches.
pub(super) const APPLY: &str = "application/apply-patch+yaml";
pub(super) const MERGE: &str = "application/merge-patch+json";
pub(super) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(super) const JSON_PATCH: &str = "application/json-patch+json";

/// The server said no.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct Refused {
    /// The code of the answer.
    pub(super) code: u16,
    message: String,
}

/// See the module.
pub(super) struct Client {
    http: client::http::Client,
    address: String,
    /// Which kubeconfig was read.
    origin: String,
    /// The namespace of requests that name none.
    pub(super) namespace: String,
    /// It was asked for by name.
    pub(super) asked: bool,
    kinds: Option<Arc<Kinds>>,
}

impl Client {
    pub(super) fn new(access: Arc<Access>, origin: String, namespace: String, asked: bool) -> Self {
        let address = access.address().to_owned();
        Self { http: client::http::Client::new(access), address, origin, namespace, asked, kinds: None }
    }

    /// Another client for the same server, to be used at the same time.
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

    /// The same server, for those who ask about Services.
    pub(super) fn api(&self) -> Api {
        Api::new(self.http.another())
    }

    /// What the server has.
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

    /// The kind that a word names.
    pub(super) async fn kind(&mut self, word: &str) -> anyhow::Result<Resource> {
        Ok(self.kinds().await?.find(word)?.clone())
    }

    /// Where objects of a kind are, in the namespace of this client.
    pub(super) fn path(&self, kind: &Resource, name: Option<&str>) -> String {
        kind.path(Some(&self.namespace), name)
    }

    pub(super) async fn get(&mut self, path: &str) -> anyhow::Result<Value> {
        self.get_as(path, JSON).await
    }

    pub(super) async fn get_as(&mut self, path: &str, accept: &str) -> anyhow::Result<Value> {
        Ok(self.ask(Method::GET, path, accept, None, Bytes::new()).await?.1)
    }

    /// What is at a path; nothing when it is not there.
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
            kind.sign(item);
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

    /// Patches an object; says also whether it was made.
    pub(super) async fn patch(&mut self, path: &str, form: &str, patch: &Value) -> anyhow::Result<(bool, Value)> {
        let (code, object) = self.ask(Method::PATCH, path, JSON, Some(form), patch.to_string().into()).await?;
        Ok((code == 201, object))
    }

    pub(super) async fn delete(&mut self, path: &str, options: &Value) -> anyhow::Result<Value> {
        Ok(self.ask(Method::DELETE, path, JSON, Some(JSON), options.to_string().into()).await?.1)
    }

    /// Begins a watch, over a connection of its own.
    pub(super) async fn watch(&self, path: &str, query: &Query, accept: &str) -> anyhow::Result<Watch> {
        let path = query.clone().add("watch", "true").add("allowWatchBookmarks", "true").on(path);
        Ok(Watch { pieces: self.stream(&path, accept).await?, held: BytesMut::new() })
    }

    /// An answer that goes on, over a connection of its own.
    pub(super) async fn stream(&self, path: &str, accept: &str) -> anyhow::Result<Pieces> {
        let mut http = self.http.another();
        let response = http.open_as(Method::GET, path, accept, None, Bytes::new()).await;
        let response = response.map_err(|error| self.unreachable(error))?;
        let code = response.status().as_u16();
        let mut pieces = Pieces { body: response.into_body(), _connection: http };
        if code < 300 {
            return Ok(pieces);
        }
        let mut body = BytesMut::new();
        while let Some(piece) = pieces.next().await? {
            body.extend_from_slice(&piece);
        }
        Err(refused(code, &body).into())
    }

    /// Opens a WebSocket.
    pub(super) async fn socket(&self, path: &str, protocol: &str) -> anyhow::Result<Socket> {
        match self.http.socket(path, protocol).await.map_err(|error| self.unreachable(error))? {
            Opened::Socket(socket) => Ok(socket),
            Opened::Refused(code, body) => Err(refused(code, &body).into()),
        }
    }

    /// One question and its whole answer.
    async fn ask(
        &mut self,
        method: Method,
        path: &str,
        accept: &str,
        content_type: Option<&str>,
        body: Bytes,
    ) -> anyhow::Result<(u16, Value)> {
        let _progress = Progress::begin(format!("waiting for the API at {}", self.address));
        let answer = tokio::time::timeout(PATIENCE, async {
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
        let late = || ClientError::Broken(format!("no answer within {} seconds", PATIENCE.as_secs()));
        let answer: Result<_, ClientError> = answer.await.unwrap_or_else(|_| Err(late()));
        let (code, whole) = answer.map_err(|error| self.unreachable(error))?;
        if code >= 300 {
            return Err(refused(code, &whole).into());
        }
        let value = serde_json::from_slice(&whole).with_context(|| format!("reading the answer to {path}"))?;
        Ok((code, value))
    }

    /// There is no answer: where was asked, and what to do.
    fn unreachable(&self, error: ClientError) -> anyhow::Error {
        let hint = format!(
            "no answer from the API at {} (kubeconfig {}); if it should run on this machine start it with `waypost up`, else \
             choose another with --kubeconfig or --context",
            self.address, self.origin
        );
        anyhow::Error::new(error).context(hint)
    }
}

/// The body of an answer that goes on.
pub(super) struct Pieces {
    body: Incoming,
    /// The connection is the client's.
    _connection: client::http::Client,
}

impl Pieces {
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

/// Events as they come.
pub(super) struct Watch {
    pieces: Pieces,
    held: BytesMut,
}

/// One event.
pub(super) struct Event {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub(super) kind: String,
    pub(super) object: Value,
}

impl Watch {
    /// The next event; nothing when the server has ended the watch.
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

/// What follows the question mark.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(String);

impl Query {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter; an empty one is left out.
    pub(super) fn add(mut self, name: &str, value: &str) -> Self {
        if !value.is_empty() {
            self = self.add_empty(name);
            self.0.push_str(&encode(value));
        }
        self
    }

    /// Adds a parameter that is there and empty.
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

/// Encodes what may not stand in a path or a query.
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

/// Whether the server said that something is not there.
pub(super) fn is_not_found(error: &anyhow::Error) -> bool {
    refusal(error).is_some_and(|refused| refused.code == 404)
}

/// The refusal of the server that an error is.
pub(super) fn refusal(error: &anyhow::Error) -> Option<&Refused> {
    error.downcast_ref::<Refused>()
}

fn refused(code: u16, body: &[u8]) -> Refused {
    let status: Value =
        serde_json::from_slice(body).unwrap_or_else(|_| json!({"message": String::from_utf8_lossy(body)}));
    let said = status.text("message").trim();
    let message = match (code, said) {
        (_, "") => format!("the API answers {code}"),
        (401 | 403, said) => {
            format!("the API refuses: {said}; use the kubeconfig of a user who may (--kubeconfig, --context, --as)")
        }
        (_, said) => said.to_owned(),
    };
    Refused { code, message }
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
    fn queries_are_encoded_and_leave_out_what_is_empty() {
        let query = Query::new().add("labelSelector", "app=web,tier!=db").add("fieldSelector", "").add("limit", "5");
        assert_eq!(query.on("/p"), "/p?labelSelector=app%3Dweb%2Ctier%21%3Ddb&limit=5");
        assert_eq!(Query::new().on("/p"), "/p");
    }

    #[test]
    fn warnings_lose_their_wrapping() {
        assert_eq!(warning_text(r#"299 - "spec.x: \"y\" is old""#), r#"spec.x: "y" is old"#);
    }

    #[test]
    fn refusals_keep_the_words_of_the_server() {
        let status = json!({"message": "services \"x\" not found", "reason": "NotFound"}).to_string();
        let no = refused(404, status.as_bytes());
        assert_eq!((no.code, no.to_string().as_str()), (404, "services \"x\" not found"));
        assert!(refused(403, status.as_bytes()).to_string().contains("--kubeconfig"));
        assert_eq!(refused(502, b"").to_string(), "the API answers 502");
    }
}
