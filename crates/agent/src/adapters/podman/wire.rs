//! The language of docker, as much of it as is needed: a question over a socket, and a stream of events.

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

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an answer may be.
const MOST: usize = 16 << 20;
/// How long an event may be.
const LONGEST: usize = 1 << 20;

/// Why there is no answer.
#[derive(Debug, Error)]
pub(super) enum WireError {
    /// Nobody is there.
    #[error("{0}")]
    Connect(#[from] std::io::Error),
    /// It does not speak the language.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// It answers something else.
    #[error("it answers {0}: {1}")]
    Refused(u16, String),
    /// It says nothing, or nothing that can be read.
    #[error("{0}")]
    Silent(String),
}

/// Asks for something.
pub(super) async fn get(socket: &Path, path: &str) -> Result<Value, WireError> {
    let asked = async {
        let (body, _line) = open(socket, path).await?;
        let bytes = Limited::new(body, MOST).collect().await.map_err(|error| WireError::Silent(error.to_string()))?;
        serde_json::from_slice(&bytes.to_bytes()).map_err(|error| WireError::Silent(format!("{path}: {error}")))
    };
    timeout(PATIENCE, asked).await.map_err(|_| WireError::Silent(format!("{path}: no answer within {PATIENCE:?}")))?
}

/// What an answer needs to come whole: the right to ask, and the task that carries it.
type Line = (SendRequest<Empty<Bytes>>, JoinSet<()>);

/// The body of a good answer, and the line it comes by.
async fn open(socket: &Path, path: &str) -> Result<(Incoming, Line), WireError> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    let mut carried = JoinSet::new();
    carried.spawn(async { drop(connection.await) });
    let request = http::Request::get(path).header("host", "localhost").body(Empty::<Bytes>::new());
    let request = request.map_err(|error| WireError::Silent(error.to_string()))?;
    let answer = sender.send_request(request).await?;
    let code = answer.status().as_u16();
    if code == 200 {
        return Ok((answer.into_body(), (sender, carried)));
    }
    let bytes = Limited::new(answer.into_body(), MOST).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let said: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    Err(WireError::Refused(code, said.text("message").to_owned()))
}

/// What happens to containers, as it happens.
pub(super) struct Events {
    body: Incoming,
    read: Vec<u8>,
    _line: Line,
}

impl Events {
    /// Begins to listen.
    pub(super) async fn open(socket: &Path) -> Result<Self, WireError> {
        // {"type":["container"]}
        let path = "/events?filters=%7B%22type%22%3A%5B%22container%22%5D%7D";
        let opened = timeout(PATIENCE, open(socket, path)).await;
        let (body, line) = opened.map_err(|_| WireError::Silent("no events".to_owned()))??;
        Ok(Self { body, read: Vec::new(), _line: line })
    }

    /// The container of the next event. Nothing is lost when this is dropped while it waits.
    pub(super) async fn next(&mut self) -> Result<String, WireError> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).unwrap_or_default();
                return Ok(event.text("Actor.ID").to_owned());
            }
            if self.read.len() > LONGEST {
                return Err(WireError::Silent("an event without an end".to_owned()));
            }
            let frame = self.body.frame().await.ok_or_else(|| WireError::Silent("the events ended".to_owned()))??;
            self.read.extend_from_slice(&frame.into_data().unwrap_or_default());
        }
    }
}
