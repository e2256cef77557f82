//! Rules of routes, ready to serve: filters are compiled, backends are upstreams.
//!
//! In: a [`Rule`] or a [`StreamRule`], and the upstreams of its targets. Out: an immutable value, shared by requests.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use routing::filters::Filters;
use routing::model::{self, Backend, Rule, StreamRule, Target};
use routing::policy::Balancing;
use routing::weights::Rotation;

use super::session::Session;
use crate::forward::{Policy, Retry};
use crate::metrics::RouteMetrics;
use crate::policy::{Enforced, Enforcer, PasswordStore};
use crate::upstream::Upstream;

/// A pod may be silent for so long where a route sets time limits of its own.
const FOREVER: Duration = Duration::from_secs(7 * 24 * 3600);

/// A rule of an HTTPRoute or a GRPCRoute.
pub(crate) struct CompiledRule {
    pub(crate) filters: Filters,
    /// Receivers of mirrored requests, one for each mirror filter; none if the reference is invalid.
    mirrors: Vec<Option<Arc<Upstream>>>,
    /// Why requests fail with 500.
    pub(crate) broken: Option<Box<str>>,
    /// What it demands of requests beyond the Gateway API.
    pub(crate) enforced: Option<Enforced>,
    pub(super) rotation: Rotation,
    pub(super) backends: Vec<CompiledBackend>,
    /// How requests are spread over the endpoints of a backend.
    pub(super) balancing: Balancing,
    pub(super) session: Option<Session>,
    whole: Option<Duration>,
    attempt: Option<Duration>,
    /// Whether the route sets time limits.
    is_limited: bool,
    retry: Option<Retry>,
    pub(crate) metrics: Arc<RouteMetrics>,
}

/// A backend of a rule.
pub(crate) struct CompiledBackend {
    pub(crate) filters: Filters,
    /// Receivers of mirrored requests, one for each mirror filter; none if the reference is invalid.
    mirrors: Vec<Option<Arc<Upstream>>>,
    /// None if the reference is invalid.
    pub(crate) upstream: Option<Arc<Upstream>>,
}

/// A rule of a TLSRoute, a TCPRoute or a UDPRoute.
pub(crate) struct CompiledStream {
    rotation: Rotation,
    upstreams: Vec<Option<Arc<Upstream>>>,
    policy: Option<Arc<routing::policy::Policy>>,
    pub(crate) metrics: Arc<RouteMetrics>,
}

impl CompiledRule {
    pub(super) fn new(
        rule: &Rule,
        mut upstream: impl FnMut(&Target) -> Option<Arc<Upstream>>,
        metrics: Arc<RouteMetrics>,
        (enforcer, passwords): (&Arc<Enforcer>, &PasswordStore),
    ) -> Self {
        let enforced = rule.policy.as_ref().map(|policy| enforcer.compile(policy, passwords, &mut upstream));
        let mut broken = rule.broken.clone();
        let mut compile = |filters: &[_]| {
            Filters::compile(filters).unwrap_or_else(|error| {
                broken.get_or_insert_with(|| error.to_string().into());
                Filters::default()
            })
        };
        let filters = compile(&rule.filters);
        let mirrors = rule.mirrors.iter().map(&mut upstream).collect();
        let backend = |backend: &Backend| {
            let filters = compile(&backend.filters);
            let mirrors = backend.mirrors.iter().map(&mut upstream).collect();
            CompiledBackend { filters, mirrors, upstream: upstream(&backend.target) }
        };
        let backends: Vec<CompiledBackend> = rule.backends.iter().map(backend).collect();
        let weights: Vec<u32> = rule.backends.iter().map(|backend| backend.weight).collect();
        Self {
            filters,
            mirrors,
            broken,
            enforced,
            rotation: rotation(&weights),
            backends,
            balancing: rule.policy.as_ref().and_then(|policy| policy.balancing.clone()).unwrap_or_default(),
            session: Session::of_rule(rule),
            whole: rule.request_timeout.filter(|limit| !limit.is_zero()),
            attempt: rule.backend_timeout.filter(|limit| !limit.is_zero()),
            is_limited: rule.request_timeout.is_some() || rule.backend_timeout.is_some(),
            retry: rule.retry.as_ref().map(retry),
            metrics,
        }
    }

    /// The backend of the next request.
    pub(crate) fn next(&self) -> Option<&CompiledBackend> {
        self.backends.get(self.rotation.next()?)
    }

    /// Where copies of this request go, which is for this backend.
    pub(crate) fn receivers(&self, backend: &CompiledBackend) -> Vec<Arc<Upstream>> {
        receivers(&self.filters, &self.mirrors).chain(receivers(&backend.filters, &backend.mirrors)).collect()
    }

    /// Whether requests may be sent again.
    pub(crate) const fn retries(&self) -> bool {
        self.retry.is_some()
    }

    /// Time limits and retries; `idle` is how long a pod may be silent unless the route says otherwise.
    pub(crate) fn policy(&self, idle: Duration) -> Policy<'_> {
        let stall = if self.is_limited { FOREVER } else { idle };
        let (enforced, retry) = (self.enforced.as_ref(), self.retry.as_ref());
        let stall = enforced.and_then(Enforced::read_timeout).unwrap_or(stall);
        let send = enforced.and_then(Enforced::send_timeout).unwrap_or(stall);
        let connect = enforced.and_then(Enforced::connect_timeout);
        Policy { connect, stall, send, whole: self.whole, attempt: self.attempt, retry }
    }
}

/// Begins anywhere: a rule that is replaced often must not prefer its first backend.
fn rotation(weights: &[u32]) -> Rotation {
    Rotation::starting_at(weights, fastrand::u32(..).into())
}

fn retry(retry: &model::Retry) -> Retry {
    let codes = retry.codes.iter().filter_map(|code| StatusCode::from_u16(*code).ok()).collect();
    Retry { codes, attempts: retry.attempts, backoff: retry.backoff }
}

/// Where copies of this request go.
fn receivers(filters: &Filters, mirrors: &[Option<Arc<Upstream>>]) -> impl Iterator<Item = Arc<Upstream>> {
    let shares = filters.mirrors.iter().zip(mirrors).filter(|(share, _)| share.takes_next());
    shares.filter_map(|(_, upstream)| upstream.clone())
}

impl CompiledStream {
    pub(super) fn new(
        rule: &StreamRule,
        upstream: impl FnMut(&Target) -> Option<Arc<Upstream>>,
        metrics: Arc<RouteMetrics>,
    ) -> Self {
        let weights: Vec<u32> = rule.backends.iter().map(|backend| backend.weight).collect();
        let upstreams = rule.backends.iter().map(|backend| &backend.target).map(upstream).collect();
        Self { rotation: rotation(&weights), upstreams, policy: rule.policy.clone(), metrics }
    }

    /// Whether a client may connect.
    pub(crate) fn admits(&self, client: IpAddr) -> bool {
        self.policy.as_ref().is_none_or(|policy| policy.admits(client))
    }

    /// The upstream of the next connection or flow.
    pub(crate) fn next(&self) -> Option<&Arc<Upstream>> {
        self.upstreams.get(self.rotation.next()?)?.as_ref()
    }
}
