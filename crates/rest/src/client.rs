//! The other end of the wire: a small client that speaks JSON over one kept connection.
//!
//! In: a kubeconfig. Out: answers as JSON, or bodies as they come. Enough for the demo, the benchmarks and the tests; it
//! reads any kubeconfig with embedded or named certificates, so it also speaks to a real kube-apiserver.

use std::path::Path;
use std::sync::Arc;

use api::value::ValueExt as _;
use base64::Engine as _;
use bytes::Bytes;
pub use http::Method;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

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
    target: Arc<Target>,
    sender: Option<http1::SendRequest<Full<Bytes>>>,
}

struct Target {
    address: String,
    name: ServerName<'static>,
    tls: TlsConnector,
    token: Option<String>,
}

impl Client {
    /// A client for the current context of a kubeconfig.
    ///
    /// # Errors
    /// When the file cannot be read or lacks something.
    pub fn from_kubeconfig(path: &Path) -> Result<Self, ClientError> {
        let refuse = |why: String| ClientError::Kubeconfig { path: path.display().to_string(), why };
        let bytes = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
        let (config, _) = api::yaml::from_yaml(&bytes).map_err(|error| refuse(error.to_string()))?;
        let context = named(&config, "contexts", config.text("current-context"), "context");
        let cluster = named(&config, "clusters", context.text("cluster"), "cluster");
        let user = named(&config, "users", context.text("user"), "user");
        let server = cluster.text("server").to_owned();
        let address = server.strip_prefix("https://").ok_or_else(|| refuse(format!("`{server}` is no https URL")))?;
        let address = address.trim_end_matches('/').to_owned();
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|error| refuse(error.to_string()))?;
        let tls = tls_config(&cluster, &user, path).map_err(refuse)?;
        let token = Some(user.text("token").to_owned()).filter(|token| !token.is_empty());
        let target = Target { address, name, tls: TlsConnector::from(Arc::new(tls)), token };
        Ok(Self { target: Arc::new(target), sender: None })
    }

    /// Another client for the same server, with a connection of its own.
    #[must_use]
    pub fn another(&self) -> Self {
        Self { target: self.target.clone(), sender: None }
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
        let broken = |error: &dyn std::fmt::Display| ClientError::Broken(error.to_string());
        let mut sender = match self.sender.take().filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        sender.ready().await.map_err(|error| broken(&error))?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.target.address)
            .header(header::USER_AGENT, "waypost/0")
            .header(header::ACCEPT, "application/json");
        if let Some(token) = &self.target.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let request = request.body(Full::new(body)).map_err(|error| broken(&error))?;
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        self.sender = Some(sender);
        Ok(response)
    }

    async fn connect(&self) -> Result<http1::SendRequest<Full<Bytes>>, ClientError> {
        let failed = |error: &dyn std::fmt::Display| ClientError::Connect {
            address: self.target.address.clone(),
            why: error.to_string(),
        };
        let stream = TcpStream::connect(&self.target.address).await.map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        let stream = self.target.tls.connect(self.target.name.clone(), stream).await.map_err(|error| failed(&error))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        tokio::spawn(async move {
            // Whoever waits for an answer is told when the connection ends.
            let _ = connection.await;
        });
        Ok(sender)
    }
}

fn named(config: &Value, list: &str, name: &str, part: &str) -> Value {
    let found = config.items(list).iter().find(|item| item.text("name") == name);
    found.map_or(Value::Null, |item| item.at(part).clone())
}

fn tls_config(cluster: &Value, user: &Value, path: &Path) -> Result<rustls::ClientConfig, String> {
    let mut roots = rustls::RootCertStore::empty();
    let ca = material(cluster, "certificate-authority", path)?.ok_or("the cluster has no certificate authority")?;
    for certificate in CertificateDer::pem_slice_iter(&ca) {
        roots.add(certificate.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let (Some(chain), Some(key)) = (material(user, "client-certificate", path)?, material(user, "client-key", path)?)
    else {
        return Ok(builder.with_no_client_auth());
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| error.to_string())?;
    builder.with_client_auth_cert(chain.map_err(|error| error.to_string())?, key).map_err(|error| error.to_string())
}

/// A certificate or key: embedded, or in a file beside the kubeconfig.
fn material(part: &Value, key: &str, path: &Path) -> Result<Option<Vec<u8>>, String> {
    let embedded = part.at(&format!("{key}-data")).as_str().unwrap_or_default();
    if !embedded.is_empty() {
        let bytes = base64::engine::general_purpose::STANDARD.decode(embedded.trim());
        return bytes.map(Some).map_err(|error| format!("{key}-data: {error}"));
    }
    match part.text(key) {
        "" => Ok(None),
        file => {
            let file = path.parent().unwrap_or(Path::new(".")).join(file);
            std::fs::read(&file).map(Some).map_err(|error| format!("{}: {error}", file.display()))
        }
    }
}
