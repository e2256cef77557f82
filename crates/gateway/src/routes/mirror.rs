//! Copies of requests for other backends.
//!
//! In: a request, its body as it is forwarded. Out: a request to one endpoint of another Service, whose response is
//! ignored. A copy never delays the original: its body is queued up to a limit, and given up beyond.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, Request, Version};
use http_body::Body as _;
use tokio::time::timeout;

use crate::balance::Selection;
use crate::body::RequestBody;
use crate::forward::{Exchange, Policy, forward};
use crate::headers::{self, UpstreamProtocol};
use crate::http_proxy::ClientConnection;
use crate::upstream::Upstream;

/// Bytes of a body that are queued for a copy.
const ROOM: usize = 64 * 1024;
/// Copies in flight.
const MAX_COPIES: usize = 1024;
/// Time limit of a copy.
const LIMIT: Duration = Duration::from_secs(60);

/// Number of copies in flight.
static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);

/// The copies of a request.
pub(super) struct Copies {
    receivers: Vec<Arc<Upstream>>,
    /// The head, before it was prepared for its own backend.
    head: Option<Box<Parts>>,
}

/// Counts a copy in flight until it is dropped.
struct Turn;

impl Turn {
    fn take() -> Option<Self> {
        let turn = Self;
        (IN_FLIGHT.fetch_add(1, Relaxed) < MAX_COPIES).then_some(turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        IN_FLIGHT.fetch_sub(1, Relaxed);
    }
}

impl Copies {
    pub(super) fn of(receivers: Vec<Arc<Upstream>>, head: &Parts) -> Self {
        let head = (!receivers.is_empty()).then(|| Box::new(head.clone()));
        Self { receivers, head }
    }

    /// Sends the copies; their bodies follow that of the original.
    pub(super) fn send(self, client: &Arc<ClientConnection>, body: &mut RequestBody, modify: &impl Fn(&mut HeaderMap)) {
        let Some(head) = self.head else { return };
        for upstream in self.receivers {
            let Some(turn) = Turn::take() else { return };
            let mut parts = (*head).clone();
            let is_h2 = upstream.h2 || (parts.version >= Version::HTTP_2 && headers::is_grpc(&parts));
            let protocol = UpstreamProtocol { h2: is_h2, tls: upstream.tls.load().is_some() };
            if headers::prepare(&mut parts, &client.client, protocol, None, super::http::NO_HOST).is_err() {
                continue;
            }
            modify(&mut parts.headers);
            let request = Request::from_parts(parts, body.copy(ROOM));
            let client = Arc::clone(client);
            tokio::spawn(async move {
                let _turn = turn;
                let _ = timeout(LIMIT, exchange(&client, &upstream, request, is_h2)).await;
            });
        }
    }
}

/// Sends a copy and reads its response, so that the connection can be used again.
async fn exchange(client: &ClientConnection, upstream: &Arc<Upstream>, request: Request<RequestBody>, is_h2: bool) {
    let exchange = Exchange { request, is_h2, upgrade: None, in_use: Vec::new(), trail: None };
    let answer = forward(client, upstream, exchange, Policy::silence(LIMIT), &mut Selection::default()).await;
    let mut body = answer.into_body();
    while let Some(Ok(_)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {}
}
