//! Metrics per upstream address.
//!
//! In: queries to upstreams with RCODE and duration. Out: samples. They belong to an address, not to a configuration:
//! they survive a reload, and blocks with the same upstream share them.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::DescriptorEncoder;

use crate::metrics::DurationHistogram;
use crate::metrics::encode::{counters, histograms};
use crate::wire::rcode;

/// Metrics of all upstreams ever used.
#[derive(Default)]
pub(super) struct UpstreamMetricsRegistry(Mutex<HashMap<SocketAddr, Arc<UpstreamMetrics>>>);

/// Metrics of one upstream.
#[derive(Default)]
pub(super) struct UpstreamMetrics {
    /// Duration of answers by RCODE.
    answers: Mutex<BTreeMap<u16, DurationHistogram>>,
    /// Failed health probes.
    pub(super) probes_failed: AtomicU64,
    /// Queries over an existing and over a new connection; without and with TLS.
    pub(super) reused: [AtomicU64; 2],
    pub(super) opened: [AtomicU64; 2],
}

impl UpstreamMetrics {
    pub(super) fn answered(&self, rcode: u16, duration: Duration) {
        self.answers.lock().entry(rcode).or_insert_with(DurationHistogram::for_requests).add(duration);
    }
}

impl UpstreamMetricsRegistry {
    /// Metrics of an upstream.
    pub(super) fn for_upstream(&self, address: SocketAddr) -> Arc<UpstreamMetrics> {
        self.0.lock().entry(address).or_default().clone()
    }

    /// Encodes the metrics of all upstreams, sorted by address.
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let upstreams: BTreeMap<_, _> = self.0.lock().iter().map(|(to, metrics)| (*to, metrics.clone())).collect();
        let labels = |to: &SocketAddr| vec![("proxy_name", "forward".to_owned()), ("to", to.to_string())];
        let durations: Vec<_> = upstreams
            .iter()
            .flat_map(|(to, metrics)| {
                let answers = metrics.answers.lock();
                let of_code = |(code, histogram): (&u16, &DurationHistogram)| {
                    let mut labels = labels(to);
                    labels.push(("rcode", rcode::text(*code).to_owned()));
                    (labels, histogram.value())
                };
                answers.iter().map(of_code).collect::<Vec<_>>()
            })
            .collect();
        histograms(encoder, "coredns_proxy_request_duration_seconds", "Time to answers of upstreams", durations)?;
        let failures = upstreams.iter().map(|(to, metrics)| (labels(to), metrics.probes_failed.load(Relaxed)));
        counters(encoder, "coredns_proxy_healthcheck_failures", "Failed health probes of upstreams", failures)?;
        let by_proto = |select: fn(&UpstreamMetrics) -> &[AtomicU64; 2]| {
            let samples = upstreams.iter().flat_map(move |(to, metrics)| {
                ["tcp", "tcp-tls"].into_iter().zip(select(metrics)).map(move |(proto, count)| {
                    let mut labels = labels(to);
                    labels.push(("proto", proto.to_owned()));
                    (labels, count.load(Relaxed))
                })
            });
            samples.collect::<Vec<_>>()
        };
        let (reused, opened) = (by_proto(|metrics| &metrics.reused), by_proto(|metrics| &metrics.opened));
        counters(encoder, "coredns_proxy_conn_cache_hits", "Upstream queries over a pooled connection", reused)?;
        counters(encoder, "coredns_proxy_conn_cache_misses", "Upstream queries over a new connection", opened)
    }
}
