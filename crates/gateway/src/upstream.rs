//! Connections to pods: opened, spoken on, kept for the next request.
//!
//! In: an endpoint and what it speaks. Out: somebody to hand a request to. Every worker keeps connections of its own, so that none waits
//! for another's lock; one for all requests of HTTP/2, one for each request of HTTP/1.1.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::balance::{Busy, Endpoint};
use crate::body::Upload;
use crate::lane::Lane;
use crate::talk::{Stream, Talk};
use crate::tls::is_h2;
use crate::wanted::Back;

/// How often a pod that speaks HTTP/2 is asked for a sign of life.
const PING: Duration = Duration::from_secs(30);
/// How much of a body may be on its way in HTTP/2.
const WINDOW: u32 = 1024 * 1024;

/// Connections of a worker to an endpoint that wait for requests.
#[derive(Default)]
pub(crate) struct Spare {
    h1: Vec<(Box<Talk>, Instant)>,
    h2: Option<http2::SendRequest<Upload>>,
}

impl Spare {
    /// Lets go of those that have waited since before this, or that have ended.
    pub(crate) fn sweep(&mut self, before: Instant) {
        self.h1.retain_mut(|(talk, since)| *since >= before && talk.is_ready());
        self.h2.take_if(|sender| sender.is_closed());
    }
}

/// Somebody to hand a request to.
pub(crate) enum Line {
    H1(Box<Talk>),
    H2(http2::SendRequest<Upload>),
}

/// Why a pod cannot be spoken to.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It does not take connections.
    Refused(io::Error),
    /// It does not answer.
    Slow,
    /// It takes connections but does not speak what it should.
    Speech(String),
}

/// A request under way: the endpoint is busy, and its connection may be used again afterwards.
pub(crate) struct Lease {
    pub(crate) busy: Busy,
    pub(crate) worker: usize,
    /// How many connections may wait.
    pub(crate) spare: usize,
}

impl Line {
    /// A connection that waits, if there is one; the youngest, so that the others can grow old.
    pub(crate) fn kept(endpoint: &Endpoint, worker: usize, h2: bool) -> Option<Self> {
        let mut spare = endpoint.spare[worker].lock();
        if h2 {
            let sender = spare.h2.as_ref().filter(|sender| !sender.is_closed())?;
            return Some(Self::H2(sender.clone()));
        }
        while let Some((mut talk, _)) = spare.h1.pop() {
            if talk.is_ready() {
                return Some(Self::H1(talk));
            }
        }
        None
    }

    /// A new connection.
    pub(crate) async fn open(lane: &Lane, endpoint: &Endpoint, worker: usize, h2: bool) -> Result<Self, Failure> {
        let stream = connect(lane, endpoint).await?;
        let line = match lane.port.back {
            Back::Plain => speak(stream, h2).await?,
            Back::Tls => {
                let config = if h2 { &lane.back.h2 } else { &lane.back.h1 };
                let stream = handshake(lane, endpoint, stream, config).await?;
                if h2 && !is_h2(stream.get_ref().1.alpn_protocol()) {
                    return Err(Failure::Speech("it does not offer HTTP/2 (ALPN)".to_owned()));
                }
                speak(stream, h2).await?
            }
        };
        if let Self::H2(sender) = &line {
            endpoint.spare[worker].lock().h2 = Some(sender.clone());
        }
        Ok(line)
    }
}

impl Lease {
    /// The answer is whole: its connection waits for another request.
    pub(crate) fn keep(self, mut talk: Box<Talk>) {
        talk.rest();
        let mut spare = self.busy.spare[self.worker].lock();
        if spare.h1.len() < self.spare {
            spare.h1.push((talk, Instant::now()));
        }
    }
}

/// A connection to an endpoint.
pub(crate) async fn connect(lane: &Lane, endpoint: &Endpoint) -> Result<TcpStream, Failure> {
    let stream = timeout(lane.limits.connect, TcpStream::connect(endpoint.address)).await;
    let stream = stream.map_err(|_| Failure::Slow)?.map_err(Failure::Refused)?;
    stream.set_nodelay(true).map_err(Failure::Refused)?;
    Ok(stream)
}

/// TLS with an endpoint.
pub(crate) async fn handshake(
    lane: &Lane,
    endpoint: &Endpoint,
    stream: TcpStream,
    config: &Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, Failure> {
    let name = ServerName::IpAddress(endpoint.address.ip().into());
    let connecting = TlsConnector::from(Arc::clone(config)).connect(name, stream);
    let stream = timeout(lane.limits.handshake, connecting).await.map_err(|_| Failure::Slow)?;
    stream.map_err(|error| Failure::Speech(format!("it does not speak TLS: {error}")))
}

/// Begins to speak HTTP.
async fn speak(stream: impl Stream + 'static, h2: bool) -> Result<Line, Failure> {
    if !h2 {
        return Ok(Line::H1(Talk::new(stream)));
    }
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).keep_alive_interval(PING);
    builder.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
    let shaken = builder.handshake(TokioIo::new(stream)).await;
    let (sender, connection) = shaken.map_err(|error| Failure::Speech(error.to_string()))?;
    // How it ends, the requests that are under way hear.
    tokio::spawn(connection);
    Ok(Line::H2(sender))
}
