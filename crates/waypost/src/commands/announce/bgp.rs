//! The BGP speaker of this machine, put together: BGPPeers go in, sessions and Events come out.

use std::sync::Arc;

use announce::bgp::{self, Metrics, News, Tools};
use announce::inputs::View;
use api::kinds::bgppeer;
use client::events::{EventRecorder, ObjectEvent};
use client::watch::Source;
use dataplane::health::Health;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A speaker that runs. Dropping it ends it without a word, as a crash would.
pub(super) struct Speaker {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Speaker {
    /// Starts it; it speaks when all objects were read, and when the proxy has written its rules: packets should find them. Passwords
    /// come from the source.
    pub(super) fn start(
        node: &str,
        view: View,
        source: Arc<dyn Source>,
        recorder: EventRecorder,
        metrics: Metrics,
        proxy: Option<Arc<Health>>,
    ) -> Self {
        let tell = Arc::new(move |news: News| recorder.record(event(news)));
        let (stop, mut stopped) = oneshot::channel();
        let tools = Tools { node: node.into(), source, tell, metrics };
        let task = tokio::spawn(async move {
            if let Some(proxy) = proxy {
                tokio::select! {
                    () = proxy.wait_first_sync() => {}
                    _ = &mut stopped => return,
                }
            }
            bgp::run(view, tools, stopped).await;
        });
        Self { stop, task }
    }

    /// Ends it: routers that can keep our routes until we are back are not told to forget them, others are.
    pub(super) async fn leave(self) {
        // It may have ended already.
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

fn event(news: News) -> ObjectEvent {
    ObjectEvent {
        kind: &bgppeer::KIND,
        namespace: String::new(),
        name: news.peer.into(),
        uid: news.uid.into(),
        normal: news.normal,
        reason: news.reason,
        message: news.message,
    }
}
