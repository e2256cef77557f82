//! Rules of routes, ready to serve: filters are compiled, backends are upstreams.
//!
//! In: a [`Rule`] or a [`StreamRule`], and the upstreams of its targets. Out: an immutable value, shared by requests.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use routing::filters::Filters;
use routing::model::{self, Backend, Matches, RouteId, RouteKind, Rule, StreamRule, Target};
use routing::policy::Balancing;
use routing::weights::Rotation;

use super::session::Session;
use crate::access_log::RulePlace;
use crate::forward::{Policy, Retry};
use crate::metrics::RouteMetrics;
use crate::policy::{Enforced, Enforcer, PasswordStore};
use crate::upstream::Upstream;

/// A pod may be silent for so long where a route sets time limits of its own.
const FOREVER: Duration = Duration::from_secs(7 * 24 * 3600);

/// A rule of an HTTPRoute or a GRPCRoute.
pub(crate) struct CompiledRule {
    /// For the access log.
    pub(crate) place: Arc<RulePlace>,
    pub(crate) filters: Filters,
    /// Receivers of mirrored requests, one for each mirror filter; none if the reference is invalid.
    mirrors: Vec<Option<Arc<Upstream>>>,
    /// Why requests fail with 500.
    pub(crate) broken: Option<Box<str>>,
    /// What it demands of requests beyond the Gateway API.
    pub(crate) enforced: Option<Enforced>,
    pub(super) rotation: Rotation,
    pub(super) backends: Vec<CompiledBackend>,
    /// How requests reach the endpoints of a backend without settings of its own.
    settings: Settings,
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
    /// What holds towards it in place of that of the rule.
    pub(super) settings: Option<Box<Settings>>,
}

/// How requests reach the endpoints of a backend.
#[derive(Default)]
pub(super) struct Settings {
    pub(super) balancing: Balancing,
    /// Sessions of a backend; those of the rule are not here.
    pub(super) session: Option<Session>,
    connect: Option<Duration>,
    read: Option<Duration>,
    send: Option<Duration>,
}

/// A rule of a TLSRoute, a TCPRoute or a UDPRoute.
pub(crate) struct CompiledStream {
    /// For the access log.
    pub(crate) place: Arc<RulePlace>,
    pub(super) rule: Arc<StreamRule>,
    rotation: Rotation,
    upstreams: Vec<Option<Arc<Upstream>>>,
    pub(crate) metrics: Arc<RouteMetrics>,
}

impl CompiledRule {
    pub(super) fn new(
        rule: &Rule,
        mut upstream: impl FnMut(&Target) -> Option<Arc<Upstream>>,
        metrics: Arc<RouteMetrics>,
        (enforcer, passwords): (&Arc<Enforcer>, &PasswordStore),
    ) -> Self {
        let namespace = rule.route.key.split_once('/').map_or("", |(namespace, _)| namespace);
        let enforced = rule.policy.as_ref().map(|policy| enforcer.compile(policy, namespace, passwords, &mut upstream));
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
            let settings = backend.policy.as_ref().map(|policy| Box::new(Settings::of_backend(policy, backend, rule)));
            CompiledBackend { filters, mirrors, upstream: upstream(&backend.target), settings }
        };
        let backends: Vec<CompiledBackend> = rule.backends.iter().map(backend).collect();
        let weights: Vec<u32> = rule.backends.iter().map(|backend| backend.weight).collect();
        Self {
            place: RulePlace::of_rule(rule),
            filters,
            mirrors,
            broken,
            enforced,
            rotation: rotation(&weights),
            backends,
            settings: rule.policy.as_deref().map(Settings::of).unwrap_or_default(),
            session: Session::of_rule(rule),
            whole: rule.request_timeout.filter(|limit| !limit.is_zero()),
            attempt: rule.backend_timeout.filter(|limit| !limit.is_zero()),
            is_limited: rule.request_timeout.is_some() || rule.backend_timeout.is_some(),
            retry: rule.retry.as_ref().map(retry),
            metrics,
        }
    }

    /// The rule for requests to a Service without routes: all go to its own endpoints.
    pub(super) fn of_service(
        service: &Arc<str>,
        backend: &Backend,
        upstream: impl FnMut(&Target) -> Option<Arc<Upstream>>,
        metrics: Arc<RouteMetrics>,
        means: (&Arc<Enforcer>, &PasswordStore),
    ) -> Self {
        let rule = Rule {
            route: RouteId { kind: RouteKind::Http, key: Arc::clone(service) },
            index: 0,
            name: None,
            matches: Matches::Http(Vec::new()),
            filters: Vec::new(),
            mirrors: Vec::new(),
            backends: vec![backend.clone()],
            request_timeout: None,
            backend_timeout: None,
            retry: None,
            session: None,
            policy: None,
            broken: None,
        };
        Self { place: RulePlace::of_service(service), ..Self::new(&rule, upstream, metrics, means) }
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

    /// How requests reach the endpoints of a backend.
    pub(super) fn settings<'a>(&'a self, backend: &'a CompiledBackend) -> &'a Settings {
        backend.settings.as_deref().unwrap_or(&self.settings)
    }

    /// Time limits and retries; `idle` is how long a pod may be silent unless the route says otherwise.
    pub(crate) fn policy(&self, backend: &CompiledBackend, idle: Duration) -> Policy<'_> {
        let settings = self.settings(backend);
        let stall = settings.read.unwrap_or(if self.is_limited { FOREVER } else { idle });
        let send = settings.send.unwrap_or(stall);
        let (whole, attempt, retry) = (self.whole, self.attempt, self.retry.as_ref());
        Policy { connect: settings.connect, stall, send, whole, attempt, retry }
    }
}

impl Settings {
    fn of(policy: &routing::policy::Policy) -> Self {
        Self {
            balancing: policy.balancing.clone().unwrap_or_default(),
            session: None,
            connect: policy.connect_timeout,
            read: policy.read_timeout,
            send: policy.send_timeout,
        }
    }

    /// A route says with `sessionPersistence` what its sessions are, whatever its Services say. The sessions of a policy are
    /// those of a backend if the rule has others.
    fn of_backend(policy: &routing::policy::Policy, backend: &Backend, rule: &Rule) -> Self {
        let of_rule = rule.policy.as_ref().and_then(|policy| policy.session.as_ref());
        let own = policy.session.as_ref().filter(|own| rule.session.is_none() && of_rule != Some(own));
        let session = own.map(|cookie| Session::of_backend(cookie, &backend.target));
        Self { session, ..Self::of(policy) }
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
        rule: &Arc<StreamRule>,
        upstream: impl FnMut(&Target) -> Option<Arc<Upstream>>,
        metrics: Arc<RouteMetrics>,
    ) -> Self {
        let weights: Vec<u32> = rule.backends.iter().map(|backend| backend.weight).collect();
        let upstreams = rule.backends.iter().map(|backend| &backend.target).map(upstream).collect();
        let place = RulePlace::of_route(&rule.route);
        Self { place, rule: Arc::clone(rule), rotation: rotation(&weights), upstreams, metrics }
    }

    /// The rule for connections to a Service without routes: all go to its own endpoints.
    pub(super) fn of_service(
        service: &Arc<str>,
        backend: &Backend,
        upstream: impl FnMut(&Target) -> Option<Arc<Upstream>>,
        metrics: Arc<RouteMetrics>,
    ) -> Self {
        let route = RouteId { kind: RouteKind::Tcp, key: Arc::clone(service) };
        let rule = StreamRule { route, hostnames: Vec::new(), backends: vec![backend.clone()], policy: None };
        Self { place: RulePlace::of_service(service), ..Self::new(&Arc::new(rule), upstream, metrics) }
    }

    /// Whether a client may connect; none may where a restriction cannot be enforced.
    pub(crate) fn admits(&self, client: IpAddr) -> bool {
        self.rule.policy.as_ref().is_none_or(|policy| policy.refuse.is_none() && policy.admits(client))
    }

    /// The upstream of the next connection or flow.
    pub(crate) fn next(&self) -> Option<&Arc<Upstream>> {
        self.upstreams.get(self.rotation.next()?)?.as_ref()
    }
}
