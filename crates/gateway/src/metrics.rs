//! Metrics per Service: responses by status class, connections, failures. Those of Gateways are in [`routing`].
//!
//! In: one relaxed atomic addition per event. Out: a [`prometheus_client`] collector. Label values are bounded: metrics
//! of a deleted Service are removed, and beyond [`MAX_SERVICES`] Services the rest is counted as one.

mod health;
mod mesh;
mod quic;
mod routing;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use http::StatusCode;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::access_log::AccessLog;

pub(crate) use health::{HealthMetrics, HealthSeries};
pub(crate) use mesh::{MeshMetrics, ServiceRequests};
pub(crate) use quic::{QuicLimit, QuicMetrics};
pub(crate) use routing::{ListenerMetrics, RouteMetrics, RoutingMetrics};

/// Number of Services with their own metrics.
const MAX_SERVICES: usize = 500;
/// Label value of all others; not a valid Service key.
const OTHER: &str = "other";
/// Status classes.
pub(crate) const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Selects a counter.
type Select = fn(&ServiceMetrics) -> &AtomicU64;

/// Metrics of a Service.
#[derive(Debug, Default)]
pub(crate) struct ServiceMetrics {
    answers: [AtomicU64; CLASSES.len()],
    open: AtomicI64,
    handshakes: AtomicU64,
    proxy_headers: AtomicU64,
    unknown_clients: AtomicU64,
    /// Limits of QUIC clients.
    pub(crate) quic: QuicMetrics,
    /// Requests and connections that failed at the pods.
    pub(crate) upstream: Arc<AtomicU64>,
    /// Ejections of endpoints.
    pub(crate) health: Arc<HealthMetrics>,
}

impl ServiceMetrics {
    /// Counts a response.
    pub(crate) fn answered(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(count) = self.answers.get(class) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Counts an opened connection.
    pub(crate) fn connection_opened(&self) {
        self.open.fetch_add(1, Relaxed);
    }

    /// Counts a closed connection.
    pub(crate) fn connection_closed(&self) {
        self.open.fetch_sub(1, Relaxed);
    }

    /// Counts a failed TLS handshake with a client.
    pub(crate) fn handshake_failure(&self) {
        self.handshakes.fetch_add(1, Relaxed);
    }

    /// Counts a connection of a proxy without a valid PROXY protocol header.
    pub(crate) fn proxy_header_failure(&self) {
        self.proxy_headers.fetch_add(1, Relaxed);
    }

    /// Counts a connection to a Service at layer 7 that is neither of this node nor of a Pod of it.
    pub(crate) fn unknown_client(&self) {
        self.unknown_clients.fetch_add(1, Relaxed);
    }
}

/// All metrics. Clones share state.
#[derive(Clone, Debug, Default)]
pub struct GatewayMetrics {
    /// Lines of the access log that were not written.
    dropped_lines: Arc<AtomicU64>,
    services: Services,
    routes: RoutingMetrics,
    mesh: MeshMetrics,
    health: HealthSeries,
}

/// Metrics of Services, by key.
type Services = Arc<Mutex<BTreeMap<Box<str>, Arc<ServiceMetrics>>>>;

impl GatewayMetrics {
    /// Metrics of Gateways, their routes and backends.
    pub(crate) const fn routing(&self) -> &RoutingMetrics {
        &self.routes
    }

    /// Metrics of Services at layer 7.
    pub(crate) const fn mesh(&self) -> &MeshMetrics {
        &self.mesh
    }

    /// With the dropped lines of an access log.
    pub(crate) fn of_log(log: &AccessLog) -> Self {
        Self { dropped_lines: Arc::clone(log.dropped()), ..Self::default() }
    }

    /// Ejections of endpoints.
    pub(crate) const fn health(&self) -> &HealthSeries {
        &self.health
    }

    /// Metrics of a Service.
    pub(crate) fn for_service(&self, service: &str) -> Arc<ServiceMetrics> {
        let mut all = self.services.lock();
        let name = if all.len() < MAX_SERVICES || all.contains_key(service) { service } else { OTHER };
        let new = || Arc::new(ServiceMetrics { health: self.health.for_service(name), ..ServiceMetrics::default() });
        Arc::clone(all.entry(name.into()).or_insert_with(new))
    }

    /// Removes the metrics of a deleted Service.
    pub(crate) fn remove(&self, service: &str) {
        self.services.lock().remove(service);
        self.health.sweep();
    }
}

impl Collector for GatewayMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = self.services.lock();
        let mut family = encoder.encode_descriptor(
            "waypost_gateway_requests",
            "Requests answered, by Service and status class",
            None,
            MetricType::Counter,
        )?;
        for (service, metrics) in all.iter() {
            for (class, count) in CLASSES.iter().zip(&metrics.answers) {
                let labels = [("service", &**service), ("code", class)];
                let value = count.load(Relaxed);
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "waypost_gateway_connections",
            "Open client connections",
            None,
            MetricType::Gauge,
        )?;
        for (service, metrics) in all.iter() {
            family.encode_family(&[("service", &**service)])?.encode_gauge(&metrics.open.load(Relaxed))?;
        }
        let failures: [(&str, &str, Select); 4] = [
            ("waypost_gateway_handshake_failures", "Failed TLS handshakes with clients", |all| &all.handshakes),
            (
                "waypost_gateway_proxy_protocol_failures",
                "Connections of proxies without a valid PROXY protocol header",
                |all| &all.proxy_headers,
            ),
            (
                "waypost_gateway_unknown_clients",
                "Connections to Services at layer 7 that were refused: neither of this node nor of a Pod of it",
                |all| &all.unknown_clients,
            ),
            ("waypost_gateway_upstream_failures", "Requests and connections that failed at the pods", |all| {
                &all.upstream
            }),
        ];
        for (name, help, select) in failures {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (service, metrics) in all.iter() {
                let value = select(metrics).load(Relaxed);
                let labels = [("service", &**service)];
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "waypost_gateway_http3_limited",
            "HTTP/3 clients that reached a limit, by Service and limit",
            None,
            MetricType::Counter,
        )?;
        for (service, metrics) in all.iter() {
            for (limit, count) in metrics.quic.counts().filter(|(_, count)| *count > 0) {
                let labels = [("service", &**service), ("limit", limit)];
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        drop(all);
        let dropped = encoder.encode_descriptor(
            "waypost_gateway_access_log_dropped",
            "Lines of the access log that were dropped because the log could not keep up or be written",
            None,
            MetricType::Counter,
        );
        dropped?.encode_counter::<NoLabelSet, _, u64>(&self.dropped_lines.load(Relaxed), None)?;
        self.health.encode(&mut encoder)?;
        self.mesh.encode(&mut encoder)?;
        self.routes.encode(&mut encoder)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    use super::*;

    fn shown(metrics: &GatewayMetrics) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(metrics.clone()));
        let mut out = String::new();
        text::encode(&mut out, &registry).expect("a text");
        out
    }

    #[track_caller]
    fn has(text: &str, line: &str) {
        assert!(text.lines().any(|one| one == line), "{line} is no line of\n{text}");
    }

    #[test]
    fn metrics_are_per_service_and_removed_with_it() {
        let metrics = GatewayMetrics::default();
        let service = metrics.for_service("shop/web");
        for code in [200, 204, 404, 503] {
            service.answered(StatusCode::from_u16(code).expect("a code"));
        }
        service.connection_opened();
        service.connection_opened();
        metrics.for_service("shop/web").connection_closed();
        service.handshake_failure();
        service.proxy_header_failure();
        service.quic.limited(QuicLimit::Resets);
        service.upstream.fetch_add(1, Relaxed);
        let text = shown(&metrics);
        has(&text, "waypost_gateway_requests_total{service=\"shop/web\",code=\"2xx\"} 2");
        has(&text, "waypost_gateway_requests_total{service=\"shop/web\",code=\"5xx\"} 1");
        has(&text, "waypost_gateway_connections{service=\"shop/web\"} 1");
        has(&text, "waypost_gateway_handshake_failures_total{service=\"shop/web\"} 1");
        has(&text, "waypost_gateway_proxy_protocol_failures_total{service=\"shop/web\"} 1");
        has(&text, "waypost_gateway_http3_limited_total{service=\"shop/web\",limit=\"resets\"} 1");
        has(&text, "waypost_gateway_upstream_failures_total{service=\"shop/web\"} 1");
        drop(service);
        metrics.remove("shop/web");
        assert!(!shown(&metrics).contains("shop/web"));
    }

    #[test]
    fn labels_are_bounded() {
        let metrics = GatewayMetrics::default();
        for number in 0..MAX_SERVICES + 20 {
            metrics.for_service(&format!("shop/{number}")).upstream.fetch_add(1, Relaxed);
        }
        let text = shown(&metrics);
        assert_eq!(text.lines().filter(|line| line.contains("upstream_failures_total{")).count(), MAX_SERVICES + 1);
        has(&text, "waypost_gateway_upstream_failures_total{service=\"other\"} 20");
    }
}
