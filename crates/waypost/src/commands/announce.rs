//! The announcers of a machine, put together: watches and frames go in, Leases, answers to neighbours and Events come out.
//!
//! `up` and `node` differ only in where objects come from.

mod bgp;

use std::sync::Arc;

use announce::inputs::Inputs;
use announce::l2;
use announce::leases::ApiLeases;
use announce::metrics::Figures;
use client::events::EventRecorder;
use client::remote::Remote;
use client::watch::Source;
use dataplane::health::Health;
use kernel::packets::{self, Packets, PacketsError};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::config::ProxyArguments;

/// As whom we speak in Events.
const COMPONENT: &str = "waypost-announcer";

/// What the announcers of a machine need.
pub(super) struct Place<'a> {
    /// Where objects come from.
    pub(super) source: &'a dyn Source,
    /// How to reach the API.
    pub(super) remote: &'a Remote,
    /// The name of the node.
    pub(super) node: String,
    /// The bridge of Pods, which leads to no neighbours.
    pub(super) pod_bridge: &'a str,
    /// What is counted.
    pub(super) figures: Figures,
    /// How the proxy of the machine stands, if there is one.
    pub(super) proxy: Option<Arc<Health>>,
}

/// Announcers that run.
pub(super) struct Announcing {
    stop: oneshot::Sender<()>,
    l2: JoinHandle<()>,
    bgp: bgp::Speaker,
    _inputs: Inputs,
}

impl Announcing {
    /// Starts them, on the present tokio runtime.
    pub(super) fn start(place: Place<'_>) -> anyhow::Result<Self> {
        let inputs = Inputs::start(place.source).map_err(|status| anyhow::anyhow!("{}", status.message))?;
        let remote = place.remote.clone();
        let recorder = EventRecorder::start(&remote, COMPONENT, &place.node);
        let (secrets, figures) = (Arc::new(remote.clone()), place.figures.bgp.clone());
        let bgp = bgp::Speaker::start(&place.node, inputs.view(), secrets, recorder.clone(), figures, place.proxy);
        let api = Arc::new(ApiLeases::new(remote, recorder));
        let left_out = vec![place.pod_bridge.to_owned()];
        let tools = l2::Tools {
            node: place.node,
            process: uuid::Uuid::new_v4().simple().to_string(),
            open: Box::new(move || -> Result<Box<dyn Packets>, PacketsError> {
                Ok(Box::new(packets::linux::Linux::open(left_out.clone())?))
            }),
            clock: packets::now,
            api,
            figures: place.figures,
        };
        let (stop, stopped) = oneshot::channel();
        let l2 = tokio::spawn(l2::run(inputs.view(), tools, stopped));
        Ok(Self { stop, l2, bgp, _inputs: inputs })
    }

    /// Falls silent and gives everything back, so that others answer at once.
    pub(super) async fn leave(self) {
        l2::leave(self.stop, self.l2).await;
        self.bgp.leave().await;
    }
}

/// Whether this machine lets us hear and send frames.
pub(super) fn may_announce() -> bool {
    use rustix::thread::CapabilitySet;
    rustix::thread::capabilities(None).is_ok_and(|have| have.effective.contains(CapabilitySet::NET_RAW))
}

/// The mode ipvs has addresses of Services on a device of its own, for which the kernel would answer neighbours of every node by itself.
pub(super) fn leave_answers_to_us(proxy: &mut ProxyArguments, announces: bool) {
    proxy.ipvs.ipvs_strict_arp |= announces;
}
