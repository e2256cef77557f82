//! The API client of commands that send a few requests and end.
//!
//! In: the [`KubeconfigFlags`] that flags select. Out: objects, or an error that names the object and the next step.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use api::value::ValueExt as _;
use clap::Args;
use client::http::{Client, Method};
use client::kubeconfig::Access;
use serde_json::Value;

use crate::kubeconfig::{Kubeconfig, KubeconfigFlags};

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Flags of the connection.
#[derive(Args, Debug, Clone)]
pub struct ApiFlags {
    #[command(flatten)]
    kubeconfig: KubeconfigFlags,
}

/// A client of an API.
pub struct ApiClient {
    client: Client,
}

impl ApiFlags {
    /// The kubeconfig.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn kubeconfig(&self) -> anyhow::Result<Kubeconfig> {
        self.kubeconfig.find()
    }

    /// Address and credentials of the server.
    ///
    /// # Errors
    /// When there is no valid kubeconfig.
    pub fn access(&self) -> anyhow::Result<Arc<Access>> {
        Ok(Arc::new(self.kubeconfig.find()?.access()?))
    }

    /// Reads the kubeconfig; sends no request.
    ///
    /// # Errors
    /// When there is no valid kubeconfig.
    pub fn client(&self) -> anyhow::Result<ApiClient> {
        Ok(ApiClient { client: Client::new(self.access()?) })
    }
}

impl ApiClient {
    /// Uses an existing client.
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    /// The HTTP status code of a GET.
    ///
    /// # Errors
    /// Without a response.
    pub async fn code(&mut self, path: &str) -> anyhow::Result<u16> {
        Ok(self.get_raw(path).await?.0)
    }

    /// Status code and body of a GET.
    async fn get_raw(&mut self, path: &str) -> anyhow::Result<(u16, Value)> {
        self.send(Method::GET, path, None).await
    }

    async fn send(&mut self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<(u16, Value)> {
        let response = tokio::time::timeout(TIMEOUT, self.client.json(method, path, body)).await;
        response
            .map_err(|_| anyhow!("no response of the API within {TIMEOUT:?}"))
            .and_then(|response| response.map_err(Into::into))
            .with_context(|| format!("requesting {path}; is the server of the kubeconfig running?"))
    }

    /// The object at a path; none for 404.
    ///
    /// # Errors
    /// For other status codes, and without a response.
    pub async fn get(&mut self, path: &str) -> anyhow::Result<Option<Value>> {
        match self.get_raw(path).await? {
            (200, body) => Ok(Some(body)),
            (404, _) => Ok(None),
            (401 | 403, body) => {
                bail!(
                    "the API denied the request: {}; use the kubeconfig of a user with the permission",
                    body.text("message")
                )
            }
            (code, body) => bail!("reading {path}: the API returned {code}: {}", body.text("message")),
        }
    }

    /// The items of a list; empty for 404.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn list(&mut self, path: &str) -> anyhow::Result<Vec<Value>> {
        Ok(match self.get(path).await?.map(|mut list| list["items"].take()) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        })
    }

    /// The items of a list; empty also on errors.
    pub async fn optional(&mut self, path: &str) -> Vec<Value> {
        self.list(path).await.unwrap_or_default()
    }

    /// Status code and text of a GET; for responses of components behind the API.
    ///
    /// # Errors
    /// Without a response.
    pub async fn text(&mut self, path: &str) -> anyhow::Result<(u16, String)> {
        let request = self.client.bytes(Method::GET, path, None, bytes::Bytes::new());
        let response = tokio::time::timeout(TIMEOUT, request).await;
        let (code, body) = response
            .map_err(|_| anyhow!("no response of the API within {TIMEOUT:?}"))
            .and_then(|response| response.map_err(Into::into))
            .with_context(|| format!("requesting {path}; is the server of the kubeconfig running?"))?;
        Ok((code, String::from_utf8_lossy(&body).into_owned()))
    }

    /// A client of the same API with its own connection.
    #[must_use]
    pub fn another(&self) -> Self {
        Self { client: self.client.another() }
    }

    /// Creates an object in a collection.
    ///
    /// # Errors
    /// When it is rejected, and without a response.
    pub async fn create(&mut self, path: &str, object: &Value) -> anyhow::Result<Value> {
        match self.send(Method::POST, path, Some(object)).await? {
            (200 | 201, made) => Ok(made),
            (401 | 403, body) => {
                bail!(
                    "the API denied the request: {}; use the kubeconfig of a user with the permission",
                    body.text("message")
                )
            }
            (code, body) => bail!("writing to {path}: the API returned {code}: {}", body.text("message")),
        }
    }

    /// Deletes an object; returns whether it existed.
    ///
    /// # Errors
    /// When it is rejected, and without a response.
    pub async fn delete(&mut self, path: &str) -> anyhow::Result<bool> {
        match self.send(Method::DELETE, path, None).await? {
            (200 | 202, _) => Ok(true),
            (404, _) => Ok(false),
            (401 | 403, body) => {
                bail!(
                    "the API denied the request: {}; use the kubeconfig of a user with the permission",
                    body.text("message")
                )
            }
            (code, body) => bail!("deleting {path}: the API returned {code}: {}", body.text("message")),
        }
    }

    /// The URL of the server.
    #[must_use]
    pub fn server(&self) -> String {
        self.client.server()
    }

    /// Fails if a namespace does not exist. Users who may not read namespaces pass.
    ///
    /// # Errors
    /// When it does not exist, and without a response.
    pub async fn namespace(&mut self, name: &str) -> anyhow::Result<()> {
        is_name("namespace", name)?;
        let (code, _) = self.get_raw(&format!("/api/v1/namespaces/{name}")).await?;
        ensure!(code != 404, "there is no namespace {name}; `kubectl get namespaces` lists those there are");
        Ok(())
    }

    /// A Pod.
    ///
    /// # Errors
    /// When it does not exist, and as [`Self::get`].
    pub async fn pod(&mut self, namespace: &str, name: &str) -> anyhow::Result<Value> {
        is_name("Pod", name)?;
        let found = self.get(&format!("/api/v1/namespaces/{namespace}/pods/{name}")).await?;
        found.with_context(|| {
            format!("there is no Pod {namespace}/{name}; `kubectl get pods -n {namespace}` lists those there are")
        })
    }
}

/// Rejects names that would change the path.
///
/// # Errors
/// For invalid names.
pub fn is_name(what: &str, name: &str) -> anyhow::Result<()> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let is_good = name.bytes().all(good) && name.starts_with(|first: char| first.is_ascii_alphanumeric());
    ensure!(is_good, "{name:?} cannot be the name of a {what}; names have lower-case letters, digits, dashes and dots");
    Ok(())
}
