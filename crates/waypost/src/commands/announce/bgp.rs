//! Wires the BGP speaker of a machine: BGPPeers in, sessions and Events out.

use std::sync::Arc;

use announce::bgp::{self, Dependencies, Metrics, PeerEvent};
use announce::inputs::View;
use api::kinds::bgppeer;
use client::events::{EventRecorder, ObjectEvent};
use client::watch::Source;
use dataplane::health::Health;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running speaker. Dropping it closes the connections, as a crash would.
pub(super) struct Speaker {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Speaker {
    /// Starts it. Sessions start when the initial lists are complete and the proxy has written its rules. Passwords come from
    /// the source.
    pub(super) fn start(
        node: &str,
        view: View,
        source: Arc<dyn Source>,
        recorder: EventRecorder,
        metrics: Metrics,
        proxy: Option<Arc<Health>>,
    ) -> Self {
        let record = Arc::new(move |event: PeerEvent| recorder.record(object_event(event)));
        let (stop, mut stopped) = oneshot::channel();
        let deps = Dependencies { node: node.into(), source, record, metrics };
        let task = tokio::spawn(async move {
            if let Some(proxy) = proxy {
                tokio::select! {
                    () = proxy.wait_first_sync() => {}
                    _ = &mut stopped => return,
                }
            }
            bgp::run(view, deps, stopped).await;
        });
        Self { stop, task }
    }

    /// Ends all sessions; routers with graceful restart keep our routes.
    pub(super) async fn stop(self) {
        // It may have ended already.
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

fn object_event(event: PeerEvent) -> ObjectEvent {
    ObjectEvent {
        kind: &bgppeer::KIND,
        namespace: String::new(),
        name: event.peer.into(),
        uid: event.uid.into(),
        normal: event.normal,
        reason: event.reason,
        message: event.message,
    }
}
