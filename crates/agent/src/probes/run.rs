//! Performs one probe or lifecycle hook: httpGet, tcpSocket, exec, grpc, sleep.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use api::value::ValueExt as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::command;

/// The most bytes that are read from a response.
const MAX_RESPONSE: usize = 10 << 10;

/// The container to probe.
#[derive(Clone, Debug)]
pub struct ProbeTarget {
    /// The Pod IP.
    pub address: IpAddr,
    /// Its spec, for named ports.
    pub container: Value,
    /// The directory of its instance.
    pub instance: PathBuf,
    /// The path of this program.
    pub program: PathBuf,
}

/// Why a probe or hook failed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// It has no known action.
    #[error("the probe has no exec, httpGet, tcpSocket or grpc")]
    NoAction,
    /// There was no response in time.
    #[error("no response within {}s", .0.as_secs())]
    Timeout(Duration),
    /// The command did not exit in time.
    #[error("command {0:?} timed out after {secs}s", secs = .1.as_secs())]
    CommandTimeout(String, Duration),
    /// The command could not be run.
    #[error(transparent)]
    Exec(io::Error),
    /// The command failed without output.
    #[error("the command exited with {0}")]
    Exit(i32),
    /// The command failed with this output.
    #[error("{0}")]
    ExitWithOutput(String),
    /// The host is not an IP address.
    #[error("host {0} is not an address")]
    Host(String),
    /// The container has no such port.
    #[error("the container has no port {0}")]
    Port(Value),
    /// The TCP connection failed.
    #[error("dial tcp {0}: {1}")]
    Dial(SocketAddr, io::Error),
    /// The TCP connection for HTTP failed; the scheme comes first.
    #[error("Get \"{0}://{1}\": dial tcp {1}: {2}")]
    HttpDial(String, SocketAddr, io::Error),
    /// The TLS settings are invalid.
    #[error(transparent)]
    TlsConfig(#[from] rustls::Error),
    /// The TLS handshake failed.
    #[error(transparent)]
    TlsHandshake(io::Error),
    /// The HTTP request to this address and path failed.
    #[error("Get \"http://{0}{1}\": {2}")]
    Http(SocketAddr, String, BoxError),
    /// The HTTP status is an error.
    #[error("HTTP probe failed with statuscode: {0}")]
    HttpStatus(u16),
    /// The gRPC request failed.
    #[error(transparent)]
    Grpc(BoxError),
    /// The gRPC status is an error.
    #[error("the server returned the gRPC status {0}")]
    GrpcStatus(String),
    /// The gRPC service is not healthy.
    #[error("service unhealthy (responded with \"NOT_SERVING\")")]
    NotServing,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Performs a probe within a time limit.
///
/// # Errors
/// Why it failed.
pub async fn run_probe(how: &Value, place: &ProbeTarget, limit: Duration) -> Result<(), ProbeError> {
    match tokio::time::timeout(limit, perform(how, place)).await {
        Ok(answer) => answer,
        Err(_) if how.has("exec") => Err(ProbeError::CommandTimeout(how.texts("exec.command").join(" "), limit)),
        Err(_) => Err(ProbeError::Timeout(limit)),
    }
}

async fn perform(how: &Value, place: &ProbeTarget) -> Result<(), ProbeError> {
    if how.has("exec") {
        let words: Vec<String> = how.texts("exec.command").into_iter().map(str::to_owned).collect();
        let run = command::run(&place.program, &place.instance, &words).await;
        return match run.map_err(ProbeError::Exec)? {
            (0, _) => Ok(()),
            (code, said) if said.trim().is_empty() => Err(ProbeError::Exit(code)),
            (_, said) => Err(ProbeError::ExitWithOutput(said.trim().to_owned())),
        };
    }
    if how.has("httpGet") {
        return http(how.at("httpGet"), place).await;
    }
    if how.has("tcpSocket") {
        let at = address(how.at("tcpSocket"), place)?;
        return TcpStream::connect(at).await.map(drop).map_err(|error| ProbeError::Dial(at, error));
    }
    if how.has("grpc") {
        return grpc(how.at("grpc"), place).await;
    }
    if how.has("sleep") {
        let seconds = how.at("sleep.seconds").as_u64().unwrap_or(0);
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        return Ok(());
    }
    Err(ProbeError::NoAction)
}

/// The address to probe: the port by number or name, on the Pod or on another host.
fn address(how: &Value, place: &ProbeTarget) -> Result<SocketAddr, ProbeError> {
    let host = match how.text("host") {
        "" => place.address,
        host => host.parse().map_err(|_| ProbeError::Host(host.to_owned()))?,
    };
    let port = match how.at("port") {
        Value::Number(number) => number.as_u64().and_then(|port| u16::try_from(port).ok()),
        Value::String(name) => {
            let ports = place.container.items("ports").iter();
            let named = ports.filter(|port| port.text("name") == name).map(|port| port.int("containerPort"));
            named.chain(name.parse().ok()).next().and_then(|port| u16::try_from(port).ok())
        }
        _ => None,
    };
    port.map(|port| SocketAddr::new(host, port)).ok_or_else(|| ProbeError::Port(how.at("port").clone()))
}

async fn http(how: &Value, place: &ProbeTarget) -> Result<(), ProbeError> {
    let at = address(how, place)?;
    let scheme = how.text("scheme").to_lowercase();
    let is_tls = scheme == "https";
    let stream = TcpStream::connect(at).await.map_err(|error| ProbeError::HttpDial(scheme, at, error))?;
    if is_tls {
        let stream = tls::connect(stream, at.ip()).await?;
        return http_over(stream, how, at).await;
    }
    http_over(stream, how, at).await
}

async fn http_over<S>(stream: S, how: &Value, at: SocketAddr) -> Result<(), ProbeError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: BoxError| ProbeError::Http(at, how.text("path").to_owned(), error);
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(error.into()))?;
    let carried = tokio::spawn(async { drop(connection.await) });
    let path = how.text("path");
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let mut request = http::Request::get(path).header("user-agent", "kube-probe/1.37").header("accept", "*/*");
    let mut host = at.to_string();
    for header in how.items("httpHeaders") {
        match header.text("name") {
            name if name.eq_ignore_ascii_case("host") => header.text("value").clone_into(&mut host),
            name => request = request.header(name, header.text("value")),
        }
    }
    let request = request.header("host", host).header("connection", "close");
    let request = request.body(Full::<Bytes>::default()).map_err(|error| failed(error.into()))?;
    let answer = sender.send_request(request).await.map_err(|error| failed(error.into()));
    carried.abort();
    match answer?.status().as_u16() {
        200..400 => Ok(()),
        code => Err(ProbeError::HttpStatus(code)),
    }
}

/// The gRPC health checking protocol, encoded by hand: its two messages have one field each.
async fn grpc(how: &Value, place: &ProbeTarget) -> Result<(), ProbeError> {
    let at = address(how, place)?;
    let stream = TcpStream::connect(at).await.map_err(|error| ProbeError::Dial(at, error))?;
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(|error| ProbeError::Grpc(error.into()))?;
    let carried = tokio::spawn(async { drop(connection.await) });
    let service = how.text("service").as_bytes();
    let mut message = Vec::new();
    if let Some(length @ 1..) = u8::try_from(service.len()).ok().filter(|length| *length < 128) {
        message.extend([0x0a, length]);
        message.extend(service);
    }
    let length = u32::try_from(message.len()).unwrap_or(0);
    let body = [&[0], &length.to_be_bytes()[..], &message].concat();
    let request = http::Request::post(format!("http://{at}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| ProbeError::Grpc(error.into()))?;
    let answer = sender.send_request(request).await.map_err(|error| ProbeError::Grpc(error.into()))?;
    let (head, body) = answer.into_parts();
    let body = http_body_util::Limited::new(body, MAX_RESPONSE).collect().await.map_err(ProbeError::Grpc);
    carried.abort();
    let body = body?;
    let status = |map: &http::HeaderMap| map.get("grpc-status").map(|code| code.to_str().unwrap_or("?").to_owned());
    let code = body.trailers().and_then(status).or_else(|| status(&head.headers)).unwrap_or_default();
    // Field 1, varint: 1 is SERVING.
    match (code.as_str(), body.to_bytes().get(5..)) {
        ("0", Some([0x08, 1, ..])) => Ok(()),
        ("0", Some(_)) => Err(ProbeError::NotServing),
        (_, _) => Err(ProbeError::GrpcStatus(code)),
    }
}

mod tls {
    //! HTTPS probes do not verify the certificate, as in Kubernetes.

    use std::net::IpAddr;
    use std::sync::Arc;

    use client::tls::InsecureSkipVerify;
    use rustls::ClientConfig;
    use rustls::pki_types::ServerName;
    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;

    use super::ProbeError;

    pub(super) async fn connect(stream: TcpStream, ip: IpAddr) -> Result<TlsStream<TcpStream>, ProbeError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(InsecureSkipVerify::new(provider)))
            .with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(ServerName::from(ip), stream).await.map_err(ProbeError::TlsHandshake)
    }
}
