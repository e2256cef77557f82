//! What announcers count.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The figures of the announcer of a node. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Addresses that are answered for now.
    pub announced: Gauge,
    /// Times that this node began to answer for an address.
    pub taken: Counter,
    /// Times that somebody else had, or claimed, an address of ours.
    pub conflicts: Counter,
    /// Times that this node fell silent because it could not renew its Lease.
    pub lapses: Counter,
    /// What the BGP speaker counts.
    pub bgp: super::bgp::Metrics,
}

impl Figures {
    /// Shows them.
    pub fn register(&self, registry: &mut Registry) {
        let announced = "Addresses that this node answers for by layer 2";
        registry.register("waypost_announced_addresses", announced, self.announced.clone());
        registry.register("waypost_announced_takeovers", "Times it began to answer for one", self.taken.clone());
        let conflicts = "Times somebody else had, or claimed, such an address";
        registry.register("waypost_announced_conflicts", conflicts, self.conflicts.clone());
        let lapses = "Times it fell silent because its Lease could not be renewed";
        registry.register("waypost_announced_lapses", lapses, self.lapses.clone());
        self.bgp.register(registry);
    }
}
