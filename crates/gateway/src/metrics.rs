//! What the gateway counts for each Service: answers by class, connections, and what failed on either side.
//!
//! In: a relaxed addition for each request. Out: figures of Prometheus, made when somebody asks for them. Labels are bounded: a
//! Service that goes takes its figures with it, and beyond [`MOST`] Services the rest is counted together.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use http::StatusCode;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// How many Services have figures of their own.
const MOST: usize = 500;
/// What all others are called; no Service is.
const OTHERS: &str = "other";
/// Classes of answers.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// One of the numbers.
type Of = fn(&Counts) -> &AtomicU64;

/// What is counted for a Service.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    answers: [AtomicU64; CLASSES.len()],
    open: AtomicI64,
    handshakes: AtomicU64,
    upstream: AtomicU64,
}

impl Counts {
    /// A request was answered.
    pub(crate) fn answered(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(count) = self.answers.get(class) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// A connection came.
    pub(crate) fn entered(&self) {
        self.open.fetch_add(1, Relaxed);
    }

    /// A connection ended.
    pub(crate) fn left(&self) {
        self.open.fetch_sub(1, Relaxed);
    }

    /// There is no TLS with a client.
    pub(crate) fn no_handshake(&self) {
        self.handshakes.fetch_add(1, Relaxed);
    }

    /// No pod could be spoken to, or the one that was broke off.
    pub(crate) fn no_pod(&self) {
        self.upstream.fetch_add(1, Relaxed);
    }
}

/// The figures of all Services. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Figures(Arc<Mutex<BTreeMap<Box<str>, Arc<Counts>>>>);

impl Figures {
    /// Those of a Service.
    pub(crate) fn of(&self, service: &str) -> Arc<Counts> {
        let mut all = self.0.lock();
        let name = if all.len() < MOST || all.contains_key(service) { service } else { OTHERS };
        Arc::clone(all.entry(name.into()).or_default())
    }

    /// A Service has gone.
    pub(crate) fn forget(&self, service: &str) {
        self.0.lock().remove(service);
    }
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = self.0.lock();
        let mut family = encoder.encode_descriptor(
            "waypost_gateway_requests",
            "Requests that were answered, by Service and class of the answer",
            None,
            MetricType::Counter,
        )?;
        for (service, counts) in all.iter() {
            for (class, count) in CLASSES.iter().zip(&counts.answers) {
                let labels = [("service", &**service), ("code", class)];
                let value = count.load(Relaxed);
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "waypost_gateway_connections",
            "Connections of clients that are open",
            None,
            MetricType::Gauge,
        )?;
        for (service, counts) in all.iter() {
            family.encode_family(&[("service", &**service)])?.encode_gauge(&counts.open.load(Relaxed))?;
        }
        let failures: [(&str, &str, Of); 2] = [
            ("waypost_gateway_handshake_failures", "Connections without TLS where it was due", |all| &all.handshakes),
            ("waypost_gateway_upstream_failures", "Requests and connections that no pod could answer", |all| {
                &all.upstream
            }),
        ];
        for (name, help, of) in failures {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (service, counts) in all.iter() {
                let value = of(counts).load(Relaxed);
                let labels = [("service", &**service)];
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    use super::*;

    fn shown(figures: &Figures) -> String {
        let mut registry = Registry::with_prefix("kubeproxy");
        registry.register_collector(Box::new(figures.clone()));
        let mut out = String::new();
        text::encode(&mut out, &registry).expect("a text");
        out
    }

    #[track_caller]
    fn has(text: &str, line: &str) {
        assert!(text.lines().any(|one| one == line), "{line} is no line of\n{text}");
    }

    #[test]
    fn what_is_counted_is_shown_by_service_and_goes_with_it() {
        let figures = Figures::default();
        let counts = figures.of("shop/web");
        for code in [200, 204, 404, 503] {
            counts.answered(StatusCode::from_u16(code).expect("a code"));
        }
        counts.entered();
        counts.entered();
        figures.of("shop/web").left();
        counts.no_handshake();
        counts.no_pod();
        let text = shown(&figures);
        has(&text, "kubeproxy_waypost_gateway_requests_total{service=\"shop/web\",code=\"2xx\"} 2");
        has(&text, "kubeproxy_waypost_gateway_requests_total{service=\"shop/web\",code=\"5xx\"} 1");
        has(&text, "kubeproxy_waypost_gateway_connections{service=\"shop/web\"} 1");
        has(&text, "kubeproxy_waypost_gateway_handshake_failures_total{service=\"shop/web\"} 1");
        has(&text, "kubeproxy_waypost_gateway_upstream_failures_total{service=\"shop/web\"} 1");
        figures.forget("shop/web");
        assert!(!shown(&figures).contains("shop/web"));
    }

    #[test]
    fn labels_are_bounded() {
        let figures = Figures::default();
        for number in 0..MOST + 20 {
            figures.of(&format!("shop/{number}")).no_pod();
        }
        let text = shown(&figures);
        assert_eq!(text.lines().filter(|line| line.contains("upstream_failures_total{")).count(), MOST + 1);
        has(&text, "kubeproxy_waypost_gateway_upstream_failures_total{service=\"other\"} 20");
    }
}
