//! Metrics of Services at layer 7: requests by Service, backend, source workload, method and status class.
//!
//! In: one relaxed atomic addition per response, after a lookup under a shared lock. Out: samples for the collector. Label
//! values are bounded, also for each Service alone: whoever may create Pods or routes chooses names of sources and backends.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::{Method, StatusCode};
use parking_lot::{Mutex, RwLock};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::{CLASSES, MAX_SERVICES, OTHER};

/// Pairs of a backend and a source that a Service has of its own; the rest is counted as one.
const MAX_PAIRS: usize = 64;
/// Methods with series of their own; the last stands for all others.
const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", OTHER];

/// Metrics of all Services at layer 7. Clones share state.
#[derive(Clone, Debug, Default)]
pub(crate) struct MeshMetrics(Arc<Mutex<BTreeMap<Box<str>, Arc<ServiceRequests>>>>);

/// Requests to a Service.
#[derive(Debug, Default)]
pub(crate) struct ServiceRequests {
    pairs: RwLock<HashMap<Pair, Arc<Counts>>>,
}

/// The backend Service, empty if there is none, and the source workload.
type Pair = (Arc<str>, Arc<str>);

/// Responses by method and status class.
#[derive(Debug, Default)]
struct Counts([[AtomicU64; CLASSES.len()]; METHODS.len()]);

impl MeshMetrics {
    /// Metrics of a Service.
    pub(crate) fn for_service(&self, service: &str) -> Arc<ServiceRequests> {
        let mut all = self.0.lock();
        let name = if all.len() < MAX_SERVICES || all.contains_key(service) { service } else { OTHER };
        Arc::clone(all.entry(name.into()).or_default())
    }

    /// Removes the metrics of a Service that is no longer served.
    pub(crate) fn remove(&self, service: &str) {
        self.0.lock().remove(service);
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(
            "waypost_gateway_service_requests",
            "Requests to Services at layer 7, by Service, backend Service, source workload, method and status class",
            None,
            MetricType::Counter,
        )?;
        for (service, requests) in self.0.lock().iter() {
            for ((backend, source), counts) in requests.pairs.read().iter() {
                for (method, by_class) in METHODS.iter().zip(&counts.0) {
                    let counted = CLASSES.iter().zip(by_class).map(|(class, count)| (class, count.load(Relaxed)));
                    for (class, count) in counted.filter(|(_, count)| *count > 0) {
                        let labels = [
                            ("service", &**service),
                            ("code", class),
                            ("method", method),
                            ("backend", &**backend),
                            ("source", &**source),
                        ];
                        family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl ServiceRequests {
    /// Counts a response.
    pub(crate) fn answered(&self, backend: Option<&Arc<str>>, source: &Arc<str>, method: &Method, status: StatusCode) {
        let counts = self.counts((backend.cloned().unwrap_or_else(|| "".into()), Arc::clone(source)));
        let others = METHODS.len() - 1;
        let method = METHODS[..others].iter().position(|name| *name == method.as_str()).unwrap_or(others);
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(count) = counts.0[method].get(class) {
            count.fetch_add(1, Relaxed);
        }
    }

    fn counts(&self, pair: Pair) -> Arc<Counts> {
        if let Some(known) = self.pairs.read().get(&pair) {
            return Arc::clone(known);
        }
        let mut pairs = self.pairs.write();
        let key = if pairs.len() < MAX_PAIRS { pair } else { (OTHER.into(), OTHER.into()) };
        Arc::clone(pairs.entry(key).or_default())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::metrics::GatewayMetrics;

    fn shown(metrics: &GatewayMetrics) -> Vec<String> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(metrics.clone()));
        let mut out = String::new();
        text::encode(&mut out, &registry).expect("a text");
        out.lines()
            .filter(|line| line.starts_with("waypost_gateway_service_requests_total{"))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn s54_requests_are_counted_by_who_asks_what_of_whom() {
        let metrics = GatewayMetrics::default();
        let requests = metrics.mesh().for_service("shop/web");
        let (backend, source): (Arc<str>, Arc<str>) = ("shop/web-v2".into(), "shop/cart".into());
        for code in [200, 204] {
            requests.answered(Some(&backend), &source, &Method::GET, StatusCode::from_u16(code).expect("a code"));
        }
        requests.answered(None, &"node".into(), &Method::TRACE, StatusCode::NOT_FOUND);
        let mut lines = shown(&metrics);
        lines.sort();
        let line = |code: &str, method: &str, backend: &str, source: &str, count: u64| {
            format!(
                "waypost_gateway_service_requests_total{{service=\"shop/web\",code=\"{code}\",method=\"{method}\",\
                 backend=\"{backend}\",source=\"{source}\"}} {count}"
            )
        };
        assert_eq!(lines, [line("2xx", "GET", "shop/web-v2", "shop/cart", 2), line("4xx", OTHER, "", "node", 1)],);
        metrics.mesh().remove("shop/web");
        assert!(shown(&metrics).is_empty());
    }

    #[test]
    fn s54_series_of_a_service_are_bounded() {
        let metrics = GatewayMetrics::default();
        let requests = metrics.mesh().for_service("shop/web");
        for number in 0..MAX_PAIRS + 10 {
            requests.answered(None, &format!("shop/{number}").into(), &Method::GET, StatusCode::OK);
        }
        let lines = shown(&metrics);
        assert_eq!(lines.len(), MAX_PAIRS + 1);
        assert!(lines.iter().any(|line| line.ends_with("source=\"other\"} 10")), "{lines:?}");
    }
}
