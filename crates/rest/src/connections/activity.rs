//! Tracks requests in progress on a connection.
//!
//! In: the start of each request and the end of its response. Out: a future that resolves when the connection was idle for too long.
//! A watch is in progress until its body ends, so its connection is not idle.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::watch;

/// The requests of one connection.
#[derive(Clone)]
pub(crate) struct Activity(Arc<watch::Sender<Requests>>);

#[derive(Clone, Copy, Default)]
struct Requests {
    begun: u64,
    open: usize,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::default()))
    }

    /// A request starts.
    pub(crate) fn begin(&self) -> Busy {
        self.0.send_modify(|requests| {
            requests.begun += 1;
            requests.open += 1;
        });
        Busy(self.clone())
    }

    /// Resolves after `first` without a request at the start, or after `later` without one thereafter.
    pub(crate) async fn idle(&self, first: Duration, later: Duration) {
        let mut requests = self.0.subscribe();
        loop {
            let now = *requests.borrow_and_update();
            let limit = if now.begun == 0 { first } else { later };
            if now.open > 0 {
                // The sender is in `self`, so this does not fail.
                let _ = requests.changed().await;
            } else if tokio::time::timeout(limit, requests.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Resolves when no request is in progress.
    pub(crate) async fn none(&self) {
        let _ = self.0.subscribe().wait_for(|requests| requests.open == 0).await;
    }
}

/// A request in progress.
pub(crate) struct Busy(Activity);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.send_modify(|requests| requests.open -= 1);
    }
}

/// The body of a response; its request is in progress until it ends.
pub(crate) struct Tracked<B> {
    body: B,
    _busy: Busy,
}

impl<B> Tracked<B> {
    pub(crate) const fn new(body: B, busy: Busy) -> Self {
        Self { body, _busy: busy }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Tracked<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
