//! The other end of the wire: a small client that speaks JSON over one kept connection.
//!
//! In: a kubeconfig. Out: answers as JSON, or bodies as they come. Enough for the demo, the benchmarks, the tests and remote
//! watches; it reads any kubeconfig with certificates or tokens, so it also speaks to a real kube-apiserver.

pub(crate) mod connection;
pub mod socket;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
pub use http::Method;
use http::{Request, Response, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;

use crate::kubeconfig::Access;
use connection::Connection;

/// How long it may take until there is a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {path}: {why}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The server cannot be reached.
    #[error("connecting to {address}: {why}")]
    Connect {
        /// Where.
        address: String,
        /// What happened.
        why: String,
    },
    /// The connection broke.
    #[error("talking to the server: {0}")]
    Broken(String),
    /// The answer is no JSON.
    #[error("the answer cannot be read: {0}")]
    NotJson(String),
}

/// A client with one connection, opened when it is needed.
pub struct Client {
    access: Arc<Access>,
    manner: Manner,
    connection: Option<Connection>,
}

/// How a client speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// How long it may take until there is a connection.
    pub(crate) connect: Duration,
    /// Speak HTTP/2 where the server has it, and ask it for a sign of life so often.
    pub(crate) ping: Option<Duration>,
}

impl Client {
    /// A client for the current context of a kubeconfig.
    ///
    /// # Errors
    /// When the file cannot be read or lacks something.
    pub fn from_kubeconfig(path: &Path) -> Result<Self, ClientError> {
        Ok(Self::new(Arc::new(Access::read(path)?)))
    }

    /// A client for a server.
    #[must_use]
    pub const fn new(access: Arc<Access>) -> Self {
        Self::with(access, Manner { connect: CONNECT, ping: None })
    }

    pub(crate) const fn with(access: Arc<Access>, manner: Manner) -> Self {
        Self { access, manner, connection: None }
    }

    /// Another client for the same server, with a connection of its own.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::with(self.access.clone(), self.manner)
    }

    /// The certificates that the server presents, its own first, in DER; none without TLS. Sends no request.
    ///
    /// # Errors
    /// When there is no connection within this time, or the handshake fails.
    pub async fn presented(&self, limit: Duration) -> Result<Vec<Vec<u8>>, ClientError> {
        connection::presented(&self.access, limit).await
    }

    /// Where the server is, as a URL.
    #[must_use]
    pub fn server(&self) -> String {
        let scheme = if self.access.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{}", self.access.address, self.access.prefix)
    }

    /// Sends a request with a JSON body and reads the JSON answer.
    ///
    /// # Errors
    /// When there is no answer; an answer that says no is an answer.
    pub async fn json(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), ClientError> {
        let bytes = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let content_type = body.is_some().then_some("application/json");
        let (code, bytes) = self.bytes(method, path, content_type, bytes).await?;
        let value = serde_json::from_slice(&bytes).map_err(|error| ClientError::NotJson(error.to_string()))?;
        Ok((code, value))
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn bytes(
        &mut self,
        method: Method,
        path: &str,
        content_type: Option<&str>,
        body: Bytes,
    ) -> Result<(u16, Bytes), ClientError> {
        let response = self.open(method, path, content_type, body).await?;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.map_err(|error| ClientError::Broken(error.to_string()))?;
        Ok((code, body.to_bytes()))
    }

    /// Sends a request and returns when the headers of the answer are there.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn open(
        &mut self,
        method: Method,
        path: &str,
        content_type: Option<&str>,
        body: Bytes,
    ) -> Result<Response<Incoming>, ClientError> {
        self.open_as(method, path, "application/json", content_type, body).await
    }

    /// The same, and the answer should have this form.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn open_as(
        &mut self,
        method: Method,
        path: &str,
        accept: &str,
        content_type: Option<&str>,
        body: Bytes,
    ) -> Result<Response<Incoming>, ClientError> {
        let mut connection = match self.connection.take().filter(Connection::is_open) {
            Some(connection) => connection,
            None => Connection::open(&self.access, self.manner).await?,
        };
        let mut request = Request::builder()
            .method(method)
            .uri(connection.uri(&self.access, path))
            .header(header::USER_AGENT, concat!("waypost/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT, accept);
        for (name, value) in self.access.headers().map_err(ClientError::Broken)? {
            request = request.header(name, value);
        }
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let response = connection.send(&self.access, request, body).await?;
        self.connection = Some(connection);
        Ok(response)
    }
}
