//! A minimal client of the Docker Engine API on a Unix socket: GET requests and the event stream.

use std::path::Path;
use std::time::Duration;

use api::value::ValueExt as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use thiserror::Error;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest response, in bytes.
const MAX_RESPONSE: usize = 16 << 20;
/// The largest event, in bytes.
const MAX_EVENT: usize = 1 << 20;

/// Why a request failed.
#[derive(Debug, Error)]
pub(super) enum SocketError {
    /// The socket cannot be connected to.
    #[error("{0}")]
    Connect(#[from] std::io::Error),
    /// The HTTP exchange failed.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The response has an error status.
    #[error("status {0}: {1}")]
    Refused(u16, String),
    /// Timeout, or an invalid response.
    #[error("{0}")]
    Protocol(String),
}

/// A GET request that returns JSON.
pub(super) async fn get(socket: &Path, path: &str) -> Result<Value, SocketError> {
    let asked = async {
        let (body, _connection) = open(socket, path).await?;
        let bytes = Limited::new(body, MAX_RESPONSE)
            .collect()
            .await
            .map_err(|error| SocketError::Protocol(error.to_string()))?;
        serde_json::from_slice(&bytes.to_bytes()).map_err(|error| SocketError::Protocol(format!("{path}: {error}")))
    };
    timeout(TIMEOUT, asked)
        .await
        .map_err(|_| SocketError::Protocol(format!("{path}: no response within {TIMEOUT:?}")))?
}

/// Keeps the connection open while the body is read.
type Connection = (SendRequest<Empty<Bytes>>, JoinSet<()>);

/// Sends a request; returns the body of a response with status 200.
async fn open(socket: &Path, path: &str) -> Result<(Incoming, Connection), SocketError> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    let mut task = JoinSet::new();
    task.spawn(async { drop(connection.await) });
    let request = http::Request::get(path).header("host", "localhost").body(Empty::<Bytes>::new());
    let request = request.map_err(|error| SocketError::Protocol(error.to_string()))?;
    let answer = sender.send_request(request).await?;
    let code = answer.status().as_u16();
    if code == 200 {
        return Ok((answer.into_body(), (sender, task)));
    }
    let bytes =
        Limited::new(answer.into_body(), MAX_RESPONSE).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    Err(SocketError::Refused(code, body.text("message").to_owned()))
}

/// The stream of container events.
pub(super) struct Events {
    body: Incoming,
    read: Vec<u8>,
    _connection: Connection,
}

impl Events {
    /// Subscribes.
    pub(super) async fn open(socket: &Path) -> Result<Self, SocketError> {
        // {"type":["container"]}
        let path = "/events?filters=%7B%22type%22%3A%5B%22container%22%5D%7D";
        let opened = timeout(TIMEOUT, open(socket, path)).await;
        let (body, connection) = opened.map_err(|_| SocketError::Protocol("no events".to_owned()))??;
        Ok(Self { body, read: Vec::new(), _connection: connection })
    }

    /// The container ID of the next event. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<String, SocketError> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let connection: Vec<u8> = self.read.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&connection).unwrap_or_default();
                return Ok(event.text("Actor.ID").to_owned());
            }
            if self.read.len() > MAX_EVENT {
                return Err(SocketError::Protocol("event too long".to_owned()));
            }
            let frame =
                self.body.frame().await.ok_or_else(|| SocketError::Protocol("event stream ended".to_owned()))??;
            self.read.extend_from_slice(&frame.into_data().unwrap_or_default());
        }
    }
}
