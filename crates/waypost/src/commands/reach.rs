//! Reaching an API to ask it something once, for commands that answer and end.
//!
//! In: the [`Kubeconfig`] that flags lead to. Out: objects, or an error that names the object and what to do next; and the way to
//! standard output.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use api::value::ValueExt as _;
use clap::Args;
use client::http::{Client, Method};
use client::kubeconfig::Access;
use serde_json::Value;

use crate::kubeconfig::{Found, Kubeconfig};

/// How long one answer of the API may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How to reach the API.
#[derive(Args, Debug, Clone)]
pub(crate) struct Reach {
    #[command(flatten)]
    kubeconfig: Kubeconfig,
}

/// An API that can be asked.
pub(crate) struct Api {
    client: Client,
}

impl Reach {
    /// What the kubeconfig says.
    pub(super) fn found(&self) -> anyhow::Result<Found> {
        self.kubeconfig.find()
    }

    /// The way to the server.
    pub(super) fn access(&self) -> anyhow::Result<Arc<Access>> {
        Ok(Arc::new(self.kubeconfig.find()?.access()?))
    }

    /// Reads the kubeconfig. Nothing is asked yet.
    pub(crate) fn api(&self) -> anyhow::Result<Api> {
        Ok(Api { client: Client::new(self.access()?) })
    }
}

impl Api {
    /// By a client that is there already.
    pub(crate) const fn new(client: Client) -> Self {
        Self { client }
    }

    /// The code of the answer to a question.
    pub(super) async fn code(&mut self, path: &str) -> anyhow::Result<u16> {
        Ok(self.ask(path).await?.0)
    }

    /// The code and the body that the API answers a question with.
    async fn ask(&mut self, path: &str) -> anyhow::Result<(u16, Value)> {
        self.send(Method::GET, path, None).await
    }

    async fn send(&mut self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<(u16, Value)> {
        let answer = tokio::time::timeout(PATIENCE, self.client.json(method, path, body)).await;
        answer
            .map_err(|_| anyhow!("the API does not answer within {PATIENCE:?}"))
            .and_then(|answer| answer.map_err(Into::into))
            .with_context(|| format!("asking for {path}; is the server of the kubeconfig running?"))
    }

    /// What is at a path; nothing when the API says that it is not there.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Option<Value>> {
        match self.ask(path).await? {
            (200, body) => Ok(Some(body)),
            (404, _) => Ok(None),
            (401 | 403, body) => {
                bail!("the API refuses: {}; use the kubeconfig of a user who may", body.text("message"))
            }
            (code, body) => bail!("asking for {path}: the API answers {code}: {}", body.text("message")),
        }
    }

    /// The objects of a list; none when the API knows of no such list.
    pub(crate) async fn list(&mut self, path: &str) -> anyhow::Result<Vec<Value>> {
        Ok(match self.get(path).await?.map(|mut list| list["items"].take()) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        })
    }

    /// The same for whoever can do without: none, also when they may not be seen.
    pub(crate) async fn optional(&mut self, path: &str) -> Vec<Value> {
        self.list(path).await.unwrap_or_default()
    }

    /// Whatever is at a path, as text, with its code; for what others than the API answer through it.
    pub(crate) async fn text(&mut self, path: &str) -> anyhow::Result<(u16, String)> {
        let asked = self.client.bytes(Method::GET, path, None, bytes::Bytes::new());
        let answer = tokio::time::timeout(PATIENCE, asked).await;
        let (code, body) = answer
            .map_err(|_| anyhow!("the API does not answer within {PATIENCE:?}"))
            .and_then(|answer| answer.map_err(Into::into))
            .with_context(|| format!("asking for {path}; is the server of the kubeconfig running?"))?;
        Ok((code, String::from_utf8_lossy(&body).into_owned()))
    }

    /// The same API by a connection of its own.
    pub(crate) fn another(&self) -> Self {
        Self { client: self.client.another() }
    }

    /// Makes an object in a collection.
    pub(super) async fn create(&mut self, path: &str, object: &Value) -> anyhow::Result<Value> {
        match self.send(Method::POST, path, Some(object)).await? {
            (200 | 201, made) => Ok(made),
            (401 | 403, body) => {
                bail!("the API refuses: {}; use the kubeconfig of a user who may", body.text("message"))
            }
            (code, body) => bail!("writing to {path}: the API answers {code}: {}", body.text("message")),
        }
    }

    /// Deletes an object, and says whether there was one.
    pub(super) async fn delete(&mut self, path: &str) -> anyhow::Result<bool> {
        match self.send(Method::DELETE, path, None).await? {
            (200 | 202, _) => Ok(true),
            (404, _) => Ok(false),
            (401 | 403, body) => {
                bail!("the API refuses: {}; use the kubeconfig of a user who may", body.text("message"))
            }
            (code, body) => bail!("deleting {path}: the API answers {code}: {}", body.text("message")),
        }
    }

    /// Where the server is, as a URL.
    pub(super) fn server(&self) -> String {
        self.client.server()
    }

    /// Makes sure that a namespace is there. Who may not look at namespaces is believed.
    pub(super) async fn namespace(&mut self, name: &str) -> anyhow::Result<()> {
        is_name("namespace", name)?;
        let (code, _) = self.ask(&format!("/api/v1/namespaces/{name}")).await?;
        ensure!(code != 404, "there is no namespace {name}; `kubectl get namespaces` lists those there are");
        Ok(())
    }

    /// A Pod.
    pub(super) async fn pod(&mut self, namespace: &str, name: &str) -> anyhow::Result<Value> {
        is_name("Pod", name)?;
        let found = self.get(&format!("/api/v1/namespaces/{namespace}/pods/{name}")).await?;
        found.with_context(|| {
            format!("there is no Pod {namespace}/{name}; `kubectl get pods -n {namespace}` lists those there are")
        })
    }
}

/// Refuses what would lead to another path.
pub(super) fn is_name(what: &str, name: &str) -> anyhow::Result<()> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let is_good = name.bytes().all(good) && name.starts_with(|first: char| first.is_ascii_alphanumeric());
    ensure!(is_good, "{name:?} cannot be the name of a {what}; names are small letters, digits, dashes and dots");
    Ok(())
}

/// Writes what was asked for to standard output.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    std::io::stdout().lock().write_all(text.as_bytes()).context("writing the answer")
}

/// Says something beside the answer.
pub(crate) fn remark(text: &str) {
    eprintln!("waypost: {text}");
}
