//! Which policies hold where: layers of Gateways and ListenerSets, which their routes share, and the policies of a route.
//!
//! In: the policies of each target. Out: for each listener that a route is attached to, the policy of each of its rules, and
//! of backends whose Service has settings. Where nothing holds there is nothing, and what holds for a listener alone is one
//! value for all of its routes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Target;
use super::fields::{Fields, Settings};
use crate::attach::ListenerView;
use crate::cluster::{Reader, RouteState};
use crate::model::{Backend, RouteId, Rule, StreamRule, Target as BackendTarget};
use crate::policy::Policy;

/// What holds at a place, with all that holds around it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Layer {
    restrictions: Option<Arc<Policy>>,
    settings: Settings,
    /// Both together.
    policy: Option<Arc<Policy>>,
}

/// The layers of the listeners of a Gateway or of a ListenerSet.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct OwnerLayers {
    whole: Option<Arc<Layer>>,
    /// Those of listeners with a policy of their own.
    listeners: BTreeMap<Box<str>, Arc<Layer>>,
}

impl OwnerLayers {
    /// The layer of a listener.
    pub(crate) fn of_listener(&self, name: &str) -> Option<&Arc<Layer>> {
        self.listeners.get(name).or(self.whole.as_ref())
    }

    fn is_empty(&self) -> bool {
        self.whole.is_none() && self.listeners.is_empty()
    }
}

impl Layer {
    /// Fields within a layer of another owner; that layer itself if there are none.
    fn within(outer: Option<&Arc<Self>>, fields: Option<Fields>) -> Option<Arc<Self>> {
        let Some(fields) = fields else { return outer.cloned() };
        let none = Self::default();
        let around = outer.map_or(&none, |outer| &**outer);
        let restrictions = fields.restrictions.within(around.restrictions.as_ref());
        let settings = fields.settings.over(&around.settings);
        let policy = settings.with(restrictions.as_ref());
        Some(Arc::new(Self { restrictions, settings, policy }))
    }
}

/// The layers of a Gateway with these listeners.
pub(crate) fn of_gateway(reader: &Reader<'_>, key: &Arc<str>, listeners: &[ListenerView]) -> Option<Arc<OwnerLayers>> {
    of_owner(reader, &Target::Gateway(Arc::clone(key)), listeners, None)
}

/// The layers of a ListenerSet within those of its Gateway, whose own listeners do not count.
pub(crate) fn of_set(
    reader: &Reader<'_>,
    key: &Arc<str>,
    listeners: &[ListenerView],
    gateway: Option<&OwnerLayers>,
) -> Option<Arc<OwnerLayers>> {
    of_owner(reader, &Target::Set(Arc::clone(key)), listeners, gateway.and_then(|gateway| gateway.whole.as_ref()))
}

fn of_owner(
    reader: &Reader<'_>,
    target: &Target,
    listeners: &[ListenerView],
    outer: Option<&Arc<Layer>>,
) -> Option<Arc<OwnerLayers>> {
    if !reader.has_traffic_policies() {
        return None;
    }
    let whole = fields(reader, target, None);
    let mut layers = OwnerLayers { whole: Layer::within(outer, whole.clone()), listeners: BTreeMap::new() };
    for section in listeners.iter().map(|listener| &*listener.id.name) {
        let Some(own) = fields(reader, target, Some(section)) else { continue };
        let both = own.over(whole.clone().unwrap_or_default());
        layers.listeners.extend(Layer::within(outer, Some(both)).map(|layer| (section.into(), layer)));
    }
    (!layers.is_empty()).then(|| Arc::new(layers))
}

/// The fields of the policy for exactly this target.
fn fields(reader: &Reader<'_>, target: &Target, section: Option<&str>) -> Option<Fields> {
    let (key, stored) = reader.traffic_for(target, section)?;
    let zone = format!("{key}/{}/{}/{}", target.kind().1, target.key(), section.unwrap_or_default());
    Some(stored.compiled.at(&zone))
}

/// What holds for a route at a listener.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RoutePolicies {
    /// In the order of the rules of its state.
    rules: Box<[RulePolicy]>,
    /// For the rule of a TLSRoute, a TCPRoute or a UDPRoute.
    stream: Option<Arc<Policy>>,
}

#[derive(Clone, PartialEq, Debug)]
struct RulePolicy {
    policy: Option<Arc<Policy>>,
    /// In the order of the backends; none for those to which the policy of the rule applies.
    backends: Box<[Option<Arc<Policy>>]>,
}

/// What holds for a route at a listener with this layer; none when nothing does.
pub(crate) fn of_route(
    reader: &Reader<'_>,
    id: &RouteId,
    state: &RouteState,
    layer: Option<&Arc<Layer>>,
) -> Option<Arc<RoutePolicies>> {
    if !reader.has_traffic_policies() {
        return None;
    }
    let target = Target::Route(id.clone());
    let whole = fields(reader, &target, None);
    let of_whole = Layer::within(layer, whole.clone());
    let of_rule = |rule: &Arc<Rule>| {
        let own = rule.name.as_deref().and_then(|name| fields(reader, &target, Some(name)));
        let layer = match own {
            Some(own) => Layer::within(layer, Some(own.over(whole.clone().unwrap_or_default()))),
            None => of_whole.clone(),
        };
        let layer = layer.as_deref();
        let backends = rule.backends.iter().map(|backend| of_backend(reader, backend, layer)).collect();
        RulePolicy { policy: layer.and_then(|layer| layer.policy.clone()), backends }
    };
    let rules: Box<[_]> = state.rules.iter().map(of_rule).collect();
    let stream = state.stream.as_ref().and_then(|_| layer?.restrictions.clone());
    let is_set = |rule: &RulePolicy| rule.policy.is_some() || rule.backends.iter().any(Option::is_some);
    (stream.is_some() || rules.iter().any(is_set)).then(|| Arc::new(RoutePolicies { rules, stream }))
}

/// The policy towards a backend whose Service has settings.
pub(crate) fn of_backend(reader: &Reader<'_>, backend: &Backend, layer: Option<&Layer>) -> Option<Arc<Policy>> {
    let BackendTarget::Service(service) = &backend.target else { return None };
    let target = Target::Service(Arc::clone(&service.service));
    let port = Some(&*service.port_name).filter(|name| !name.is_empty());
    let of_port = port.and_then(|port| reader.traffic_for(&target, Some(port)));
    let of_whole = reader.traffic_for(&target, None);
    let settings = |found: Option<(_, &super::Stored)>| found.map(|(_, stored)| stored.compiled.settings().clone());
    let own = match (settings(of_port), settings(of_whole)) {
        (Some(port), Some(whole)) => port.over(&whole),
        (port, whole) => port.or(whole)?,
    };
    let around = layer.map(|layer| &layer.settings).cloned().unwrap_or_default();
    own.over(&around).with(None)
}

/// A route with the policies that hold for it at a listener.
pub(crate) fn effective(state: &RouteState, policies: &RoutePolicies) -> RouteState {
    let rule = |(rule, found): (&Arc<Rule>, &RulePolicy)| {
        let backend =
            |(backend, policy): (&Backend, &Option<Arc<Policy>>)| Backend { policy: policy.clone(), ..backend.clone() };
        let backends = rule.backends.iter().zip(&found.backends).map(backend).collect();
        Arc::new(Rule { policy: found.policy.clone(), backends, ..Rule::clone(rule) })
    };
    let stream = |stream: &Arc<StreamRule>| {
        Arc::new(StreamRule { policy: policies.stream.clone(), ..StreamRule::clone(stream) })
    };
    RouteState {
        rules: state.rules.iter().zip(&policies.rules).map(rule).collect(),
        stream: state.stream.as_ref().map(stream),
        ..state.clone()
    }
}
