//! Metrics of the BGP speaker.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::session::{Session, State};

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Peer {
    peer: String,
}

/// Metrics of a speaker. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    up: Family<Peer, Gauge>,
    announced: Family<Peer, Gauge>,
    received: Family<Peer, Gauge>,
    messages: Family<Peer, Counter>,
    ends: Family<Peer, Counter>,
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("waypost_bgp_session_up", "Whether the session with a peer is established", self.up.clone());
        registry.register("waypost_bgp_routes_announced", "Routes announced to a peer", self.announced.clone());
        registry.register("waypost_bgp_prefixes_received", "Prefixes received from a peer", self.received.clone());
        registry.register("waypost_bgp_messages_sent", "Messages sent to a peer", self.messages.clone());
        registry.register("waypost_bgp_session_ends", "Established sessions that ended", self.ends.clone());
    }

    /// Updates the metrics of a session.
    pub(super) fn update(&self, peer: &str, session: &Session) {
        let peer = Peer { peer: peer.to_owned() };
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let is_up = session.state() == State::Established;
        if self.up.get_or_create(&peer).set(i64::from(is_up)) == 1 && !is_up {
            self.ends.get_or_create(&peer).inc();
        }
        self.announced.get_or_create(&peer).set(number(session.announced()));
        self.received.get_or_create(&peer).set(number(session.received()));
    }

    pub(super) fn sent(&self, peer: &str) {
        self.messages.get_or_create(&Peer { peer: peer.to_owned() }).inc();
    }

    /// Removes a peer.
    pub(super) fn remove(&self, peer: &str) {
        let peer = Peer { peer: peer.to_owned() };
        self.up.remove(&peer);
        self.announced.remove(&peer);
        self.received.remove(&peer);
    }
}
