//! The lines of the report about load balancers, and the budgets: at least as much as the peer.

use super::load::Load;
use crate::report::{Budget, Figures, Row, less, more};

/// The key of a figure.
#[must_use]
pub fn key(load: Load, what: &str) -> String {
    let load = match load {
        Load::Plain => "http",
        Load::Tls => "tls",
        Load::Handshakes => "handshakes",
    };
    format!("{load}_{what}")
}

/// The lines for the comparison with a peer with these figures.
#[must_use]
pub fn rows(peer: Option<&Figures>) -> Vec<Row> {
    let budget = |key: &str| peer.and_then(|peer| peer.get(key)).map(|rate| Budget::TimesPeer(1.0, rate.round()));
    let of = |(load, title): (Load, &str)| {
        let rate = more(&key(load, "rate"), &format!("{title} a second"));
        let core = more(&key(load, "core"), "  for a second of its processor time");
        [
            Row { budget: budget(&rate.key), ..rate },
            Row { budget: budget(&core.key), ..core },
            less(&key(load, "p50_us"), "  p50 (µs)", None),
            less(&key(load, "p99_us"), "  p99 (µs)", None),
        ]
    };
    let loads = [
        (Load::Plain, "requests by HTTP, connections kept,"),
        (Load::Tls, "requests by TLS, connections kept,"),
        (Load::Handshakes, "connections with a whole handshake and a request"),
    ];
    loads.into_iter().flat_map(of).collect()
}
