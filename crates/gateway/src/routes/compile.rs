//! Tables of rules from the routes that are attached to a place.
//!
//! In: a place, the routes there with what TrafficPolicies say. Out: tables with compiled rules, whose upstreams are shared.

use std::sync::Arc;

use routing::cluster::Cluster;
use routing::model::{Backend, Place, RouteId, Rule, ServicePortId, Target};

use super::mesh::OwnEndpoints;
use super::pools::{Pools, Reach};
use super::rule::{CompiledRule, CompiledStream};
use super::tables::Tables;
use super::trust::Trust;
use crate::controller::Shared;
use crate::metrics::RouteMetrics;
use crate::upstream::Upstream;

/// What rules are compiled with.
pub(super) struct Compiler<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) pools: &'a mut Pools,
    pub(super) trust: &'a Trust,
    pub(super) shared: &'a Shared,
}

impl Compiler<'_> {
    /// The table of a place from scratch. `client` is the Secret with the certificate that TLS backends are shown.
    pub(super) fn table(&mut self, place: &Place, client: Option<&Arc<str>>) -> Tables {
        let routes: Vec<RouteId> = self.cluster.attached(place).map(|(id, ..)| id.clone()).collect();
        let mut tables = Tables::default();
        self.change(&mut tables, place, &routes, client);
        tables
    }

    /// Inserts these routes as they are attached to a place, or removes them.
    pub(super) fn change(&mut self, tables: &mut Tables, place: &Place, routes: &[RouteId], client: Option<&Arc<str>>) {
        for route in routes {
            self.insert(tables, place, route, client);
        }
        tables.is_routed = self.cluster.attached(place).next().is_some();
    }

    fn insert(&mut self, tables: &mut Tables, place: &Place, route: &RouteId, client: Option<&Arc<str>>) {
        let Self { cluster, pools, trust, shared } = self;
        let effective = cluster.with_policies(place, route);
        let state = effective.as_ref().or_else(|| cluster.route(route));
        let parents = state.into_iter().flat_map(|state| &state.parents).filter(|parent| parent.accepted.holds());
        let mut attached = parents.flat_map(|parent| &parent.places).filter(|(id, _)| id == place);
        let (Some(state), Some((_, first))) = (state, attached.next()) else { return tables.remove(route) };
        // Several references may lead to one place.
        let mut hostnames = first.clone();
        for (_, others) in attached {
            hostnames.extend(others.iter().filter(|host| !first.contains(host)).cloned());
        }
        let mut upstream = upstreams(pools, trust, client, reach(place));
        let metrics = metrics(shared, place, route);
        let stream =
            state.stream.as_ref().map(|rule| Arc::new(CompiledStream::new(rule, &mut upstream, Arc::clone(&metrics))));
        let means = (&shared.enforcer, &trust.passwords);
        let compile = |rule: &Rule| Arc::new(CompiledRule::new(rule, &mut upstream, Arc::clone(&metrics), means));
        tables.insert(route, (state, &hostnames), compile, stream);
    }

    /// The endpoints of a Service itself, where no route is attached.
    pub(super) fn own(&mut self, service: &Arc<str>, backend: &Backend) -> OwnEndpoints {
        let Self { pools, trust, shared, .. } = self;
        let mut upstream = upstreams(pools, trust, None, Reach::AsProxy);
        let metrics = shared.metrics.routing().for_own(service);
        let means = (&shared.enforcer, &trust.passwords);
        let stream = CompiledStream::of_service(service, backend, &mut upstream, Arc::clone(&metrics));
        let http = CompiledRule::of_service(service, backend, upstream, metrics, means);
        OwnEndpoints { http: Arc::new(http), stream: Arc::new(stream) }
    }
}

/// Upstreams of targets.
fn upstreams<'a>(
    pools: &'a mut Pools,
    trust: &'a Trust,
    client: Option<&'a Arc<str>>,
    reach: Reach,
) -> impl FnMut(&Target) -> Option<Arc<Upstream>> {
    move |target| match target {
        Target::Service(target) => Some(pools.reached(target, client, reach, trust)),
        Target::Invalid(_) => None,
    }
}

/// Clients of a Service get the endpoints that the proxy would give them; those of a Gateway are outside the cluster.
const fn reach(place: &Place) -> Reach {
    match place {
        Place::Listener(_) => Reach::Anywhere,
        Place::ServicePort(_) => Reach::AsProxy,
    }
}

fn metrics(shared: &Shared, place: &Place, route: &RouteId) -> Arc<RouteMetrics> {
    let metrics = shared.metrics.routing();
    match place {
        Place::Listener(listener) => metrics.for_route(&listener.gateway, route),
        Place::ServicePort(ServicePortId { service, .. }) => metrics.for_route_of_service(service, route),
    }
}
