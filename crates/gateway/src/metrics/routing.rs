//! Metrics of Gateways and of Services at layer 7: requests and latency per route, connections per listener, failures per
//! backend. The label `gateway` of the latter is `Service/NAMESPACE/NAME`.
//!
//! In: relaxed atomic additions. Out: samples for the collector. Label values are bounded: series of a Gateway or backend
//! that is gone are removed, and beyond [`MAX_SERIES`] of a kind the rest is counted as one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use ::routing::model::{ListenerId, RouteId, RouteKind};
use http::StatusCode;
use parking_lot::Mutex;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::{CLASSES, OTHER};
use crate::policy::Reason;

/// Series of a kind.
const MAX_SERIES: usize = 2000;

/// Metrics of a route at a Gateway.
#[derive(Debug, Default)]
pub(crate) struct RouteMetrics {
    answers: [AtomicU64; CLASSES.len()],
    micros: AtomicU64,
    connections: AtomicU64,
    refusals: [AtomicU64; Reason::ALL.len()],
}

/// Metrics of a listener.
#[derive(Debug, Default)]
pub(crate) struct ListenerMetrics {
    open: AtomicI64,
}

/// Counts an open connection until it is dropped.
pub(crate) struct OpenConnection(Arc<ListenerMetrics>);

/// Names of a series: Gateway and listener, Gateway and route, Service and port.
type Series<T> = Mutex<BTreeMap<(Box<str>, Box<str>), Arc<T>>>;

/// Metrics of all Gateways. Clones share state.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoutingMetrics(Arc<All>);

#[derive(Debug, Default)]
struct All {
    routes: Series<RouteMetrics>,
    listeners: Series<ListenerMetrics>,
    backends: Series<AtomicU64>,
    unread: AtomicUsize,
}

impl RouteMetrics {
    /// Counts a response, and the time until its head.
    pub(crate) fn answered(&self, status: StatusCode, after: Duration) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(count) = self.answers.get(class) {
            count.fetch_add(1, Relaxed);
        }
        self.micros.fetch_add(u64::try_from(after.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Counts a request that the policy of its rule refuses.
    pub(crate) fn refused(&self, reason: Reason) {
        self.refusals[reason as usize].fetch_add(1, Relaxed);
    }

    /// Counts a connection or flow.
    pub(crate) fn connected(&self) {
        self.connections.fetch_add(1, Relaxed);
    }
}

impl ListenerMetrics {
    /// Counts a connection as open.
    pub(crate) fn open(self: &Arc<Self>) -> OpenConnection {
        self.open.fetch_add(1, Relaxed);
        OpenConnection(Arc::clone(self))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

impl RoutingMetrics {
    /// Metrics of a route at a Gateway.
    pub(crate) fn for_route(&self, gateway: &str, route: &RouteId) -> Arc<RouteMetrics> {
        let kind = match route.kind {
            RouteKind::Http => "HTTPRoute",
            RouteKind::Grpc => "GRPCRoute",
            RouteKind::Tls => "TLSRoute",
            RouteKind::Tcp => "TCPRoute",
            RouteKind::Udp => "UDPRoute",
            RouteKind::Ingress => "Ingress",
        };
        series(&self.0.routes, gateway, &format!("{kind}/{}", route.key))
    }

    /// Metrics of a route at a Service at layer 7.
    pub(crate) fn for_route_of_service(&self, service: &str, route: &RouteId) -> Arc<RouteMetrics> {
        self.for_route(&format!("Service/{service}"), route)
    }

    /// Metrics of a Service at layer 7 where no route is attached.
    pub(crate) fn for_own(&self, service: &str) -> Arc<RouteMetrics> {
        series(&self.0.routes, &format!("Service/{service}"), "none")
    }

    /// Metrics of a listener.
    pub(crate) fn for_listener(&self, listener: &ListenerId) -> Arc<ListenerMetrics> {
        let name = match &listener.set {
            Some(set) => format!("{set}/{}", listener.name),
            None => listener.name.to_string(),
        };
        series(&self.0.listeners, &listener.gateway, &name)
    }

    /// Failures of a backend.
    pub(crate) fn for_backend(&self, service: &str, port: u16) -> Arc<AtomicU64> {
        series(&self.0.backends, service, &port.to_string())
    }

    /// Sets the number of Secrets and ConfigMaps that are not read.
    pub(crate) fn set_unread(&self, count: usize) {
        self.0.unread.store(count, Relaxed);
    }

    /// Removes the series of a Gateway.
    pub(crate) fn remove_gateway(&self, gateway: &str) {
        self.0.routes.lock().retain(|(of, _), _| **of != *gateway);
        self.0.listeners.lock().retain(|(of, _), _| **of != *gateway);
    }

    /// Removes the series of routes and backends that nothing counts for any longer.
    pub(crate) fn sweep(&self) {
        self.0.routes.lock().retain(|_, metrics| Arc::strong_count(metrics) > 1);
        self.0.backends.lock().retain(|_, failures| Arc::strong_count(failures) > 1);
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let routes = self.0.routes.lock();
        let mut family = encoder.encode_descriptor(
            "waypost_gateway_route_requests",
            "Requests answered, by Gateway, route and status class",
            None,
            MetricType::Counter,
        )?;
        for ((gateway, route), metrics) in routes.iter() {
            for (class, count) in CLASSES.iter().zip(&metrics.answers) {
                let labels = [("gateway", &**gateway), ("route", &**route), ("code", class)];
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count.load(Relaxed), None)?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "waypost_gateway_route_seconds",
            "Time from requests to the heads of their responses, by Gateway and route",
            None,
            MetricType::Counter,
        )?;
        for ((gateway, route), metrics) in routes.iter() {
            let seconds = Duration::from_micros(metrics.micros.load(Relaxed)).as_secs_f64();
            let labels = [("gateway", &**gateway), ("route", &**route)];
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&seconds, None)?;
        }
        let mut family = encoder.encode_descriptor(
            "waypost_gateway_route_connections",
            "Connections and flows forwarded, by Gateway and route",
            None,
            MetricType::Counter,
        )?;
        for ((gateway, route), metrics) in routes.iter() {
            let labels = [("gateway", &**gateway), ("route", &**route)];
            let value = metrics.connections.load(Relaxed);
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        let mut family = encoder.encode_descriptor(
            "waypost_gateway_route_refusals",
            "Requests that the policy of their rule refused, by Gateway, route and reason",
            None,
            MetricType::Counter,
        )?;
        for ((gateway, route), metrics) in routes.iter() {
            let counts = Reason::ALL.iter().zip(&metrics.refusals).map(|(reason, count)| (reason, count.load(Relaxed)));
            // Most routes refuse nothing.
            for (reason, count) in counts.filter(|(_, count)| *count > 0) {
                let labels = [("gateway", &**gateway), ("route", &**route), ("reason", reason.name())];
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        drop(routes);
        let mut family = encoder.encode_descriptor(
            "waypost_gateway_listener_connections",
            "Open client connections of listeners with TLS or bytes, by Gateway and listener",
            None,
            MetricType::Gauge,
        )?;
        for ((gateway, listener), metrics) in self.0.listeners.lock().iter() {
            let labels = [("gateway", &**gateway), ("listener", &**listener)];
            family.encode_family(&labels)?.encode_gauge(&metrics.open.load(Relaxed))?;
        }
        let mut family = encoder.encode_descriptor(
            "waypost_gateway_backend_failures",
            "Requests and connections that failed at the endpoints of a Service port",
            None,
            MetricType::Counter,
        )?;
        for ((service, port), failures) in self.0.backends.lock().iter() {
            let labels = [("service", &**service), ("port", &**port)];
            let value = failures.load(Relaxed);
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        let unread = i64::try_from(self.0.unread.load(Relaxed)).unwrap_or(i64::MAX);
        let mut gauge = encoder.encode_descriptor(
            "waypost_gateway_unread_references",
            "Secrets and ConfigMaps of Ingresses, Gateways and policies that are not read because their namespace has too many",
            None,
            MetricType::Gauge,
        )?;
        gauge.encode_gauge(&unread)
    }
}

/// The series with these names; the common one beyond the limit.
fn series<T: Default>(all: &Series<T>, first: &str, second: &str) -> Arc<T> {
    let mut all = all.lock();
    let own = (first.into(), second.into());
    let key = if all.len() < MAX_SERIES || all.contains_key(&own) { own } else { (OTHER.into(), OTHER.into()) };
    Arc::clone(all.entry(key).or_default())
}
