//! An HTTP client for the Kubernetes API, with one persistent connection.
//!
//! In: a kubeconfig. Out: responses as JSON, as bytes, or as streams.

pub(crate) mod connection;
pub mod socket;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
pub use http::Method;
use http::request::Builder;
use http::{Request, Response, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;

use crate::kubeconfig::{Access, KubeconfigError};
use connection::Connection;
pub use connection::{ConnectError, full};

/// Time limit of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {path}: {why}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: KubeconfigError,
    },
    /// No connection.
    #[error("connecting to {address}: {why}")]
    Connect {
        /// Where.
        address: String,
        /// What happened.
        why: ConnectError,
    },
    /// The credentials of the kubeconfig cannot be used.
    #[error("talking to the server: {0}")]
    Credentials(KubeconfigError),
    /// The connection failed.
    #[error("talking to the server: {0}")]
    Broken(String),
    /// The response is not JSON.
    #[error("the answer cannot be read: {0}")]
    NotJson(String),
}

/// A client with one connection, opened on first use.
pub struct Client {
    access: Arc<Access>,
    protocol: Protocol,
    connection: Option<Connection>,
}

/// How a client connects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protocol {
    /// Time limit of a connection attempt.
    pub(crate) connect: Duration,
    /// Negotiate HTTP/2, with keep-alive pings at this interval; HTTP/1.1 without.
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
        Self::with(access, Protocol { connect: CONNECT_TIMEOUT, ping: None })
    }

    pub(crate) const fn with(access: Arc<Access>, protocol: Protocol) -> Self {
        Self { access, protocol, connection: None }
    }

    /// Another client for the same server, with a connection of its own.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::with(self.access.clone(), self.protocol)
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

    /// Sends a request with a JSON body and reads the JSON response.
    ///
    /// # Errors
    /// When there is no response; an error status is a response.
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

    /// Sends a request and reads the whole response.
    ///
    /// # Errors
    /// When there is no response.
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

    /// Sends a request and returns when the headers of the response have arrived.
    ///
    /// # Errors
    /// When there is no response.
    pub async fn open(
        &mut self,
        method: Method,
        path: &str,
        content_type: Option<&str>,
        body: Bytes,
    ) -> Result<Response<Incoming>, ClientError> {
        self.open_as(method, path, "application/json", content_type, body).await
    }

    /// The same with a media type to accept.
    ///
    /// # Errors
    /// When there is no response.
    pub async fn open_as(
        &mut self,
        method: Method,
        path: &str,
        accept: &str,
        content_type: Option<&str>,
        body: Bytes,
    ) -> Result<Response<Incoming>, ClientError> {
        if let Some(mut connection) = self.reusable().await {
            let request = self.request(&connection, &method, path, accept, content_type)?;
            let sent = connection.send(&self.access, request, body.clone()).await;
            // A server may close an idle connection at the moment at which it is used again. Only reads are repeated: a write may have happened,
            // and the response to the second one would differ.
            if sent.is_ok() || method != Method::GET {
                self.connection = Some(connection);
                return sent;
            }
        }
        let mut connection = Connection::open(&self.access, self.protocol).await?;
        let request = self.request(&connection, &method, path, accept, content_type)?;
        let response = connection.send(&self.access, request, body).await?;
        self.connection = Some(connection);
        Ok(response)
    }

    /// Sends a prepared request, with the headers of the server's access added, and reads the whole response. The path is that of the request's
    /// URI; the connection is the client's.
    ///
    /// # Errors
    /// When there is no response.
    pub async fn send(&mut self, request: Request<Bytes>) -> Result<Response<Bytes>, ClientError> {
        let (parts, body) = request.into_parts();
        let mut connection = Connection::open(&self.access, self.protocol).await?;
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let path = path.strip_prefix(&self.access.prefix).unwrap_or(path);
        let mut builder = self.request(&connection, &parts.method, path, "*/*", None)?;
        if let Some(headers) = builder.headers_mut() {
            headers.extend(parts.headers);
        }
        let response = connection.send(&self.access, builder, body).await?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| ClientError::Broken(error.to_string()))?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    }

    /// The connection of the last request, unless the server has closed it. The task of the connection runs first, because it may not have
    /// read the end of the connection yet: on a runtime of one thread it runs only while this one waits.
    async fn reusable(&mut self) -> Option<Connection> {
        self.connection.as_ref()?;
        tokio::task::yield_now().await;
        self.connection.take().filter(Connection::is_open)
    }

    fn request(
        &self,
        connection: &Connection,
        method: &Method,
        path: &str,
        accept: &str,
        content_type: Option<&str>,
    ) -> Result<Builder, ClientError> {
        let mut request = Request::builder()
            .method(method)
            .uri(connection.uri(&self.access, path))
            .header(header::USER_AGENT, concat!("waypost/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT, accept);
        for (name, value) in self.access.headers().map_err(ClientError::Credentials)? {
            request = request.header(name, value);
        }
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests;
