//! Metrics of announcers.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Metrics of the announcer of a node. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Addresses announced now.
    pub announced: Gauge,
    /// Times that this node started to announce an address.
    pub taken: Counter,
    /// Address conflicts with other machines.
    pub conflicts: Counter,
    /// Times that this node stopped announcing because it could not renew its Lease.
    pub lapses: Counter,
    /// Metrics of the BGP speaker.
    pub bgp: super::bgp::Metrics,
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        let announced = "Addresses that this node announces by layer 2";
        registry.register("waypost_announced_addresses", announced, self.announced.clone());
        registry.register(
            "waypost_announced_takeovers",
            "Times that this node started to announce an address",
            self.taken.clone(),
        );
        let conflicts = "Address conflicts with other machines";
        registry.register("waypost_announced_conflicts", conflicts, self.conflicts.clone());
        let lapses = "Times that announcing stopped because the Lease could not be renewed";
        registry.register("waypost_announced_lapses", lapses, self.lapses.clone());
        self.bgp.register(registry);
    }
}
