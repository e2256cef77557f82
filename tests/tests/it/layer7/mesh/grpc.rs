//! A gRPC client with one connection: HTTP/2 without TLS, by prior knowledge.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use testbed::net::Pod;
use tokio::runtime::Runtime;

/// Far more than a call takes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// See the module.
pub(super) struct Grpc {
    sender: SendRequest<Full<Bytes>>,
    authority: String,
    runtime: Runtime,
}

impl Grpc {
    /// Connects from a Pod.
    #[track_caller]
    pub(super) fn connect(client: &Pod, at: SocketAddr) -> Self {
        Self::try_connect(client, at).unwrap_or_else(|| panic!("no connection of HTTP/2 to {at}"))
    }

    /// Connects from a Pod; none if that fails.
    pub(super) fn try_connect(client: &Pod, at: SocketAddr) -> Option<Self> {
        let stream = client.in_namespace(|| TcpStream::connect_timeout(&at, TIMEOUT)).ok()?;
        stream.set_nonblocking(true).ok()?;
        stream.set_nodelay(true).ok()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().ok()?;
        let opening = async {
            let stream = TokioIo::new(tokio::net::TcpStream::from_std(stream).ok()?);
            let (sender, connection) = handshake(TokioExecutor::new(), stream).await.ok()?;
            drop(tokio::spawn(connection));
            Some(sender)
        };
        let sender = runtime.block_on(async { tokio::time::timeout(TIMEOUT, opening).await.ok().flatten() })?;
        Some(Self { sender, authority: at.to_string(), runtime })
    }

    /// Calls, so many at once; how many each Pod answered, or the first failure.
    pub(super) fn calls(&self, count: usize, at_once: usize) -> Result<BTreeMap<String, usize>, String> {
        let calls = (0..count).map(|_| call(self.sender.clone(), &self.authority));
        let mut calls = futures_util::stream::iter(calls).buffer_unordered(at_once);
        self.runtime.block_on(async {
            let mut pods = BTreeMap::new();
            while let Some(pod) = calls.next().await {
                *pods.entry(pod?).or_default() += 1;
            }
            Ok(pods)
        })
    }

    /// The status of one call.
    pub(super) fn status(&self) -> Result<String, String> {
        self.runtime.block_on(answer(self.sender.clone(), &self.authority)).map(|answer| answer.status)
    }
}

/// The end of a call.
struct Answer {
    /// Empty if a gateway answered.
    pod: String,
    /// The status of gRPC.
    status: String,
}

/// The Pod that answers a call.
async fn call(sender: SendRequest<Full<Bytes>>, authority: &str) -> Result<String, String> {
    let Answer { pod, status } = answer(sender, authority).await?;
    if status == "0" && !pod.is_empty() { Ok(pod) } else { Err(format!("status {status:?} from {pod:?}")) }
}

async fn answer(mut sender: SendRequest<Full<Bytes>>, authority: &str) -> Result<Answer, String> {
    // An empty message.
    let body = Full::new(Bytes::from_static(&[0; 5]));
    let request = Request::post(format!("http://{authority}/test.Echo/Say"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers").body(body);
    let asking = async {
        sender.ready().await?;
        let response = sender.send_request(request.expect("a request")).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await?;
        let trailer = |name: &str| body.trailers().and_then(|trailers| trailers.get(name)).cloned();
        let text = |value: Option<hyper::header::HeaderValue>| {
            value.and_then(|value| value.to_str().ok().map(str::to_owned)).unwrap_or_default()
        };
        // A response without messages has its status among the headers.
        let status = trailer("grpc-status").or_else(|| head.headers.get("grpc-status").cloned());
        Ok::<_, hyper::Error>(Answer { pod: text(head.headers.get("x-pod").cloned()), status: text(status) })
    };
    let answer = tokio::time::timeout(TIMEOUT, asking).await.map_err(|_| "no response".to_owned())?;
    answer.map_err(|error| format!("{error:?}"))
}
