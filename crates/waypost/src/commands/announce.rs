//! Wiring of the announcers of a machine: watches and frames in, Leases, ARP and NDP replies, BGP routes and Events out.
//!
//! `up` and `node` differ only in the source of objects.

mod bgp;

use std::sync::Arc;

use announce::inputs::Inputs;
use announce::l2;
use announce::leases::ApiLeases;
use announce::metrics::Metrics;
use client::events::EventRecorder;
use client::remote::Remote;
use client::watch::Source;
use dataplane::health::Health;
use kernel::packets::{self, Packets, PacketsError};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::config::ProxyArguments;

/// The reporting component of Events.
const COMPONENT: &str = "waypost-announcer";

/// Dependencies of the announcers.
pub(super) struct Dependencies<'a> {
    /// The source of objects.
    pub(super) source: &'a dyn Source,
    /// The client of the API.
    pub(super) remote: &'a Remote,
    /// The name of the node.
    pub(super) node: String,
    /// The bridge of Pods, which has no neighbours.
    pub(super) pod_bridge: &'a str,
    /// Metrics.
    pub(super) metrics: Metrics,
    /// The health of the machine's proxy, if there is one.
    pub(super) proxy: Option<Arc<Health>>,
}

/// Running announcers.
pub(super) struct Announcing {
    stop: oneshot::Sender<()>,
    l2: JoinHandle<()>,
    bgp: bgp::Speaker,
    _inputs: Inputs,
}

impl Announcing {
    /// Starts them on the current tokio runtime.
    pub(super) fn start(dependencies: Dependencies<'_>) -> anyhow::Result<Self> {
        let inputs = Inputs::start(dependencies.source).map_err(|status| anyhow::anyhow!("{}", status.message))?;
        let remote = dependencies.remote.clone();
        let recorder = EventRecorder::start(&remote, COMPONENT, &dependencies.node);
        let (secrets, metrics) = (Arc::new(remote.clone()), dependencies.metrics.bgp.clone());
        let bgp = bgp::Speaker::start(
            &dependencies.node,
            inputs.view(),
            secrets,
            recorder.clone(),
            metrics,
            dependencies.proxy,
        );
        let api = Arc::new(ApiLeases::new(remote, recorder));
        let left_out = vec![dependencies.pod_bridge.to_owned()];
        let deps = l2::Dependencies {
            node: dependencies.node,
            process: uuid::Uuid::new_v4().simple().to_string(),
            open: Box::new(move || -> Result<Box<dyn Packets>, PacketsError> {
                Ok(Box::new(packets::linux::Linux::open(left_out.clone())?))
            }),
            clock: packets::now,
            api,
            metrics: dependencies.metrics,
        };
        let (stop, stopped) = oneshot::channel();
        let l2 = tokio::spawn(l2::run(inputs.view(), deps, stopped));
        Ok(Self { stop, l2, bgp, _inputs: inputs })
    }

    /// Stops announcing and releases the Leases, so that other nodes take over at once.
    pub(super) async fn stop(self) {
        l2::stop(self.stop, self.l2).await;
        self.bgp.stop().await;
    }
}

/// Whether frames may be sent and received (CAP_NET_RAW).
pub(super) fn may_announce() -> bool {
    use rustix::thread::CapabilitySet;
    rustix::thread::capabilities(None).is_ok_and(|have| have.effective.contains(CapabilitySet::NET_RAW))
}

/// In IPVS mode Service addresses are on a dummy device, for which the kernel of every node would answer ARP requests: sets strict ARP.
pub(super) fn require_strict_arp(proxy: &mut ProxyArguments, announces: bool) {
    proxy.ipvs.ipvs_strict_arp |= announces;
}
