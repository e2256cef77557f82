//! Single reads and writes of objects.
//!
//! In: a verb, a path, a body. Out: the object, or why not. [`Requests`] sends them to a server over a few persistent connections; tests
//! implement [`Api`] in memory.

use api::status::Status;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use thiserror::Error;

use crate::http::{Client, ClientError, Method};
use crate::remote::Remote;

/// Idle connections that are kept.
const MAX_IDLE: usize = 8;

/// An operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Read.
    Get,
    /// Create.
    Create,
    /// Strategic merge patch.
    Patch,
    /// Replace.
    Replace,
    /// Delete.
    Delete,
}

/// Why a request failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ApiError {
    /// An error response.
    #[error("the API answers {code}: {message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// The message of its Status.
        message: String,
    },
    /// No response, or one that cannot be read.
    #[error("the API cannot be reached: {0}")]
    Unreachable(String),
}

impl ApiError {
    /// Whether the object does not exist.
    #[must_use]
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. })
    }

    /// Whether the object exists already, or was changed meanwhile.
    #[must_use]
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: 409, .. })
    }

    /// The error of an error response.
    #[must_use]
    pub fn refused(code: u16, body: &Value) -> Self {
        let message = body["message"].as_str().unwrap_or("no reason was given").to_owned();
        Self::Refused { code, message }
    }
}

impl From<Status> for ApiError {
    fn from(status: Status) -> Self {
        Self::Unreachable(status.message)
    }
}

/// Reads and writes of objects.
pub trait Api: Send + Sync + 'static {
    /// Sends a request.
    fn request<'a>(
        &'a self,
        verb: Verb,
        path: &'a str,
        body: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<Value, ApiError>>;
}

/// Reads an object; `None` when it does not exist.
///
/// # Errors
/// When it cannot be read.
pub async fn find(api: &dyn Api, path: &str) -> Result<Option<Value>, ApiError> {
    match api.request(Verb::Get, path, None).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Requests to a server, over persistent connections.
pub struct Requests {
    remote: Remote,
    idle: Mutex<Vec<Client>>,
}

impl Requests {
    /// Requests to this server.
    #[must_use]
    pub fn new(remote: Remote) -> Self {
        Self { remote, idle: Mutex::default() }
    }

    /// Sends a request and reads the status and the JSON of its response.
    ///
    /// # Errors
    /// When there is no response, or it is not JSON.
    pub async fn send(&self, verb: Verb, path: &str, body: Option<&Value>) -> Result<(u16, Value), ClientError> {
        let (method, media) = match verb {
            Verb::Get => (Method::GET, None),
            Verb::Create => (Method::POST, Some("application/json")),
            Verb::Patch => (Method::PATCH, Some("application/strategic-merge-patch+json")),
            Verb::Replace => (Method::PUT, Some("application/json")),
            Verb::Delete => (Method::DELETE, Some("application/json")),
        };
        let bytes = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let idle = self.idle.lock().pop();
        let reused = idle.is_some();
        let mut client = idle.unwrap_or_else(|| self.remote.client());
        let mut response = client.bytes(method.clone(), path, media, bytes.clone()).await;
        if response.is_err() && reused {
            // The server may have closed an idle connection.
            self.remote.refresh();
            client = self.remote.client();
            response = client.bytes(method, path, media, bytes).await;
        }
        let (code, bytes) = response.inspect_err(|_| self.remote.refresh())?;
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(client);
        }
        drop(idle);
        let value = serde_json::from_slice(&bytes).map_err(|error| ClientError::NotJson(error.to_string()))?;
        Ok((code, value))
    }
}

impl Api for Requests {
    fn request<'a>(
        &'a self,
        verb: Verb,
        path: &'a str,
        body: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<Value, ApiError>> {
        let sent = self.send(verb, path, body);
        async move {
            match sent.await.map_err(|error| ApiError::Unreachable(error.to_string()))? {
                (200..=299, object) => Ok(object),
                (code, body) => Err(ApiError::refused(code, &body)),
            }
        }
        .boxed()
    }
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Requests({:?})", self.remote)
    }
}
