//! [`prometheus_client`] collector of the server's metrics.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::encode::{HistogramValue, Labels, counters, encode, gauges, histograms};
use super::{DURATION_BUCKETS, Histogram, LIMITED, Metrics, RCODES, SIZES, TYPES, ThreadCounters};
use crate::snapshot::ZoneSnapshot;
use crate::wire::{rcode, rtype};

const TRANSPORTS: [&str; 2] = ["udp", "tcp"];
const FAMILIES: [&str; 2] = ["1", "2"];

impl Metrics {
    /// Collector of these metrics and of the state of a snapshot.
    #[must_use]
    pub fn collector(self: &Arc<Self>, snapshot: &Arc<ZoneSnapshot>) -> Box<dyn Collector> {
        Box::new(ServerCollector { metrics: self.clone(), snapshot: snapshot.clone() })
    }

    /// Metrics in text format.
    #[must_use]
    pub fn text(self: &Arc<Self>, snapshot: &Arc<ZoneSnapshot>) -> String {
        encode([self.collector(snapshot)])
    }

    fn labels(&self, zone: usize) -> Labels {
        vec![("server", self.server.clone()), ("zone", self.zones[zone].clone()), ("view", String::new())]
    }

    fn labels_with(&self, zone: usize, more: impl IntoIterator<Item = (&'static str, &'static str)>) -> Labels {
        let mut labels = self.labels(zone);
        labels.extend(more.into_iter().map(|(name, value)| (name, value.to_owned())));
        labels
    }
}

#[derive(Debug)]
struct ServerCollector {
    metrics: Arc<Metrics>,
    snapshot: Arc<ZoneSnapshot>,
}

impl Collector for ServerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let threads = self.metrics.threads.lock().clone();
        let scrape = Scrape { metrics: &self.metrics, threads: &threads };
        let encoder = &mut encoder;
        scrape.requests(encoder)?;
        scrape.responses(encoder)?;
        scrape.durations(encoder)?;
        scrape.sizes(encoder)?;
        scrape.services(encoder, &self.snapshot)?;
        scrape.programming(encoder)?;
        scrape.watches(encoder)?;
        scrape.totals(encoder)?;
        let build = vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("revision", "waypost".to_owned()),
            ("goversion", String::new()),
        ];
        gauges(encoder, "coredns_build_info", "Build information", [(build, 1)])?;
        let ready = u64::from(self.snapshot.is_ready());
        gauges(encoder, "waypost_dns_ready", "Whether the initial lists are complete", [(Labels::new(), ready)])?;
        let serial = u64::from(self.snapshot.serial());
        gauges(encoder, "waypost_dns_serial", "SOA serial of the cluster zones", [(Labels::new(), serial)])
    }
}

/// Metrics with the counters of all threads.
struct Scrape<'a> {
    metrics: &'a Metrics,
    threads: &'a [Arc<ThreadCounters>],
}

impl<'a> Scrape<'a> {
    fn sum(&self, counter: impl Fn(&'a ThreadCounters) -> &'a AtomicU64) -> u64 {
        self.threads.iter().map(|thread| counter(thread).load(Relaxed)).sum()
    }

    fn zones(&self) -> std::ops::Range<usize> {
        0..self.metrics.zones.len()
    }

    fn requests(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let indices = self.zones().flat_map(|zone| (0..4 * TYPES).map(move |index| (zone, index)));
        let samples = indices.filter_map(|(zone, index)| {
            let count = self.sum(|thread| &thread.zones[zone].requests[index]);
            let (transport, family) = (TRANSPORTS[index / TYPES / 2], FAMILIES[index / TYPES % 2]);
            let qtype = rtype::TABLE.get(index % TYPES).map_or("other", |(_, text)| *text);
            let more = [("proto", transport), ("family", family), ("type", qtype)];
            (count > 0).then(|| (self.metrics.labels_with(zone, more), count))
        });
        counters(encoder, "coredns_dns_requests", "DNS queries", samples)?;
        let dnssec =
            self.zones().map(|zone| (self.metrics.labels(zone), self.sum(|thread| &thread.zones[zone].dnssec)));
        counters(encoder, "coredns_dns_do_requests", "DNS queries with the DO bit", dnssec)
    }

    fn responses(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let indices = self.zones().flat_map(|zone| (0..RCODES).map(move |code| (zone, code)));
        let samples = indices.filter_map(|(zone, code)| {
            let count = self.sum(|thread| &thread.zones[zone].responses[code]);
            let plugin = if zone + 1 == self.metrics.zones.len() { "forward" } else { "kubernetes" };
            let text = rcode::text(u16::try_from(code).unwrap_or(u16::MAX));
            (count > 0).then(|| (self.metrics.labels_with(zone, [("rcode", text), ("plugin", plugin)]), count))
        });
        counters(encoder, "coredns_dns_responses", "DNS replies", samples)
    }

    fn durations(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let bounds: Vec<f64> = (0..DURATION_BUCKETS).map(|power| 0.00025 * f64::from(1 << power)).collect();
        let samples = self.zones().map(|zone| {
            let value = self.histogram(&bounds, 1e-9, |thread| &thread.zones[zone].durations);
            (self.metrics.labels(zone), value)
        });
        histograms(encoder, "coredns_dns_request_duration_seconds", "Time to reply", samples)
    }

    fn sizes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "bounds below 65536")]
        let bounds = SIZES.map(|size| size as f64);
        let indices = || self.zones().flat_map(|zone| [(zone, 0), (zone, 1)]);
        let labels = |zone, transport: usize| self.metrics.labels_with(zone, [("proto", TRANSPORTS[transport])]);
        let requests = indices().map(|(zone, transport)| {
            let value = self.histogram(&bounds, 1.0, |thread| &thread.zones[zone].request_size[transport]);
            (labels(zone, transport), value)
        });
        histograms(encoder, "coredns_dns_request_size_bytes", "Size of queries", requests)?;
        let responses = indices().map(|(zone, transport)| {
            let value = self.histogram(&bounds, 1.0, |thread| &thread.zones[zone].response_size[transport]);
            (labels(zone, transport), value)
        });
        histograms(encoder, "coredns_dns_response_size_bytes", "Size of replies", responses)
    }

    /// Queries per Service. An id that belonged to another Service starts at the count of that Service.
    fn services(&self, encoder: &mut DescriptorEncoder<'_>, snapshot: &ZoneSnapshot) -> fmt::Result {
        let mut known = self.metrics.known.lock();
        let mut samples = Vec::new();
        snapshot.for_each_service(|service, id| {
            let total: u64 = self.threads.iter().map(|thread| thread.service_count(id)).sum();
            let (owner, before) = known.entry(id).or_insert_with(|| (service.to_owned(), 0));
            if owner != service {
                service.clone_into(owner);
                *before = total;
            }
            let count = total.saturating_sub(*before);
            if count > 0 {
                let (namespace, name) = service.split_once('/').unwrap_or(("", service));
                samples.push((vec![("namespace", namespace.to_owned()), ("service", name.to_owned())], count));
            }
        });
        counters(encoder, "waypost_dns_service_requests", "DNS queries for names of a Service", samples)
    }

    fn programming(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kinds = ["cluster_ip", "headless_with_selector"].into_iter().zip(&self.metrics.programming);
        let samples =
            kinds.map(|(kind, histogram)| (vec![("service_kind", kind.to_owned())], histogram.lock().value()));
        let name = "coredns_kubernetes_dns_programming_duration_seconds";
        histograms(encoder, name, "Time from an endpoint change to the update of its records", samples)
    }

    fn watches(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let watched = self.metrics.watched.lock();
        let labels = |name: &dyn fmt::Display| vec![("watch", name.to_string())];
        let synced = watched.iter().map(|watch| (labels(&watch.name()), u64::from(watch.is_synced())));
        gauges(encoder, "waypost_dns_watch_in_sync", "Whether a watch is in sync", synced)?;
        let breaks = watched.iter().map(|watch| (labels(&watch.name()), watch.health().failures));
        counters(encoder, "waypost_dns_watch_breaks", "Failures of a watch", breaks)
    }

    fn totals(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = self.metrics;
        for (name, help, value) in [
            ("coredns_panics", "Recovered panics", metrics.panics.load(Relaxed)),
            ("waypost_dns_dropped", "Queries dropped because too many were in flight", metrics.dropped.load(Relaxed)),
            ("waypost_dns_unsent", "Replies that could not be sent", self.sum(|thread| &thread.unsent)),
            ("waypost_dns_connections_refused", "TCP connections over a limit", metrics.refused.load(Relaxed)),
            ("waypost_dns_changes", "Updates that changed records", metrics.changes.load(Relaxed)),
        ] {
            counters(encoder, name, help, [(Labels::new(), value)])?;
        }
        let limited = LIMITED.into_iter().enumerate().map(|(index, (reason, result))| {
            let labels = vec![("reason", reason.to_owned()), ("result", result.to_owned())];
            (labels, self.sum(|thread| &thread.limited[index]))
        });
        counters(encoder, "waypost_dns_client_rate_limited", "Queries over a limit of their client", limited)
    }

    fn histogram<const N: usize>(
        &self,
        bounds: &[f64],
        unit: f64,
        of: impl Fn(&'a ThreadCounters) -> &'a Histogram<N>,
    ) -> HistogramValue {
        let counts = (0..N).map(|index| self.sum(|thread| &of(thread).counts[index]));
        let buckets: Vec<(f64, u64)> = bounds.iter().copied().chain([f64::INFINITY]).zip(counts).collect();
        #[expect(clippy::cast_precision_loss, reason = "a metric may be off by one in 2^53")]
        let sum = self.sum(|thread| &of(thread).sum) as f64 * unit;
        HistogramValue { sum, count: buckets.iter().map(|(_, count)| count).sum(), buckets }
    }
}
