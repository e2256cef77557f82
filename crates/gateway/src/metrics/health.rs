//! Metrics of endpoint health: ejections, and endpoints that are ejected, per Service.
//!
//! In: relaxed atomic additions. Out: samples for the collector. Beyond [`MAX_SERVICES`] Services the rest is counted as
//! one; series of Services whose upstreams are gone are removed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::{MAX_SERVICES, OTHER};

/// Ejections of the endpoints of a Service.
#[derive(Debug, Default)]
pub(crate) struct HealthMetrics {
    ejections: AtomicU64,
    ejected: AtomicI64,
}

/// Of all Services. Clones share state.
#[derive(Clone, Debug, Default)]
pub(crate) struct HealthSeries(Arc<Mutex<BTreeMap<Box<str>, Arc<HealthMetrics>>>>);

impl HealthMetrics {
    /// Counts an ejection.
    pub(crate) fn ejected(&self) {
        self.ejections.fetch_add(1, Relaxed);
        self.ejected.fetch_add(1, Relaxed);
    }

    /// Counts the end of an ejection.
    pub(crate) fn returned(&self) {
        self.ejected.fetch_sub(1, Relaxed);
    }
}

impl HealthSeries {
    /// Metrics of a Service.
    pub(crate) fn for_service(&self, service: &str) -> Arc<HealthMetrics> {
        let mut all = self.0.lock();
        let name = if all.len() < MAX_SERVICES || all.contains_key(service) { service } else { OTHER };
        Arc::clone(all.entry(name.into()).or_default())
    }

    /// Removes the series that nothing counts for any longer.
    pub(crate) fn sweep(&self) {
        self.0.lock().retain(|_, metrics| Arc::strong_count(metrics) > 1);
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = self.0.lock();
        let mut family = encoder.encode_descriptor(
            "waypost_gateway_ejections",
            "Ejections of endpoints that refused connections or whose responses were errors, by Service",
            None,
            MetricType::Counter,
        )?;
        for (service, metrics) in all.iter() {
            let value = metrics.ejections.load(Relaxed);
            let labels = [("service", &**service)];
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        let mut family = encoder.encode_descriptor(
            "waypost_gateway_ejected_endpoints",
            "Ejections of endpoints that are in effect, by Service",
            None,
            MetricType::Gauge,
        )?;
        for (service, metrics) in all.iter() {
            family.encode_family(&[("service", &**service)])?.encode_gauge(&metrics.ejected.load(Relaxed))?;
        }
        Ok(())
    }
}
