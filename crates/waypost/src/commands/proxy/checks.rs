//! On-demand checks of a Service from this node: DNS resolution and connections.
//!
//! In: a Service name. Out: a JSON document with a verdict per check, from the doctor's checks over fresh API objects.
//! Runs only on request, for a few Services at a time; results are cached for some seconds.

use std::collections::BTreeMap;
use std::time::Duration;

use cli::api_client::ApiClient;
use cli::doctor::{Evidence, Machine, measurements, objects};
use client::remote::Remote;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use crate::commands::doctor::probe::{Limits, Prober};

/// Timeout of a check.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Lifetime of cached results.
const CACHE_TTL: Duration = Duration::from_secs(3);
/// Delay before a failed check is repeated: a recent change may still be propagating.
const RETRY_DELAY: Duration = Duration::from_millis(300);
/// Maximum number of concurrent checks.
const MAX_CONCURRENT: usize = 2;

/// Runs the checks.
pub(super) struct ServiceChecker {
    remote: Remote,
    node: String,
    domain: String,
    permits: Semaphore,
    cached: Mutex<BTreeMap<String, (Instant, Value)>>,
}

impl ServiceChecker {
    pub(super) fn new(remote: Remote, node: &str, domain: &str) -> Self {
        let domain = domain.trim_matches('.').to_owned();
        Self {
            remote,
            node: node.to_owned(),
            domain,
            permits: Semaphore::new(MAX_CONCURRENT),
            cached: Mutex::default(),
        }
    }

    /// The result for a Service (`namespace/name`), possibly cached.
    pub(super) async fn of(&self, service: &str) -> Value {
        if let Some(cached) = self.cached(service) {
            return cached;
        }
        let busy = || unmeasured(&format!("the checks on this node did not finish within {} s", TIMEOUT.as_secs()));
        timeout(TIMEOUT, self.check_uncached(service)).await.unwrap_or_else(|_| busy())
    }

    fn cached(&self, service: &str) -> Option<Value> {
        let cached = self.cached.lock();
        let (at, result) = cached.get(service)?;
        (at.elapsed() < CACHE_TTL).then(|| result.clone())
    }

    async fn check_uncached(&self, service: &str) -> Value {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        // Another request may have checked the same Service meanwhile.
        if let Some(cached) = self.cached(service) {
            return cached;
        }
        let result = match self.check(service).await {
            // Transient failures are not reported.
            Ok((_, true)) => {
                sleep(RETRY_DELAY).await;
                self.check(service).await
            }
            result => result,
        };
        let result = result.map_or_else(|error| unmeasured(&format!("{error:#}")), |(result, _)| result);
        let mut cached = self.cached.lock();
        cached.retain(|_, (at, _)| at.elapsed() < CACHE_TTL);
        cached.insert(service.to_owned(), (Instant::now(), result.clone()));
        result
    }

    /// Runs the checks once; also returns whether one failed.
    async fn check(&self, service: &str) -> anyhow::Result<(Value, bool)> {
        let (namespace, name) = service.split_once('/').unwrap_or(("default", service));
        let mut api = ApiClient::new(self.remote.client());
        let cluster = objects::of_one(&mut api, (namespace, name), &self.node, &self.domain).await?;
        anyhow::ensure!(cluster.service(namespace, name).is_some(), "there is no Service {namespace}/{name}");
        let machine = Machine::named(&self.node);
        let probes = Prober::new(&cluster, &machine, Limits::BRIEF).await.of(namespace, name).await;
        let evidence =
            Evidence { namespace, name, cluster: &cluster, machine: &machine, probes: &probes, diagnosis: None };
        Ok(measurements(&evidence))
    }
}

/// A result for checks that could not run.
fn unmeasured(why: &str) -> Value {
    let stage = json!({"verdict": "unmeasured", "text": why, "next": ""});
    json!({"name": stage, "reachable": stage})
}
