//! Why a route is not attached to a parent: which listener, which hostname, which namespace.
//!
//! In: a route and the [`Placement`]s of one of its references. Out: a finding for each parent at which it is not attached,
//! and for each listener that does not serve it.

use std::sync::Arc;

use api::view::gateway_api::{Listener, ParentRef};
use routing::cluster::{ListenerState, NotAttached, Placement};
use routing::model::{ListenerId, RouteId};
use serde_json::json;

use super::objects::{Kind, Route};
use super::{Layer7, code, kubectl, name_of, namespace_of, near};
use crate::finding::{Finding, Level};
use crate::words::list;

/// A parent of a route that cannot be attached, or is of another controller.
pub(super) enum Stranger<'a> {
    /// It does not exist.
    Missing,
    /// Its GatewayClass does not exist.
    NoClass(&'a str),
    /// Another controller implements it.
    Foreign(&'a str),
}

/// The kind of a parent with listeners; none for others, such as Services.
pub(super) fn parent_kind(reference: &ParentRef) -> Option<Kind> {
    [Kind::Gateway, Kind::ListenerSet].into_iter().find(|kind| reference.is(kind.name()))
}

/// A listener in a sentence: `http (port 80, *.example.com)`.
pub(super) fn describe(placement: &Placement) -> String {
    let host = placement.hostname.as_deref().map(|host| format!(", {host}")).unwrap_or_default();
    format!("{} (port {}{host})", placement.listener.name, placement.port)
}

/// Why a route is not attached to a listener, in a few words.
pub(super) const fn why(outcome: NotAttached) -> &'static str {
    match outcome {
        NotAttached::Parent => "the ListenerSet is not attached to its Gateway",
        NotAttached::SectionName => "sectionName of the parentRef is another one",
        NotAttached::Port => "port of the parentRef is another one",
        NotAttached::Kind => "the listener does not take routes of this kind",
        NotAttached::Namespace => "the listener does not take routes of this namespace",
        NotAttached::Hostname => "no hostname in common",
    }
}

impl Layer7<'_> {
    /// The findings for a route at its parents.
    pub(super) fn attachment_findings(&self, id: &RouteId, route: &Route) -> Vec<Finding> {
        let mut found = Vec::new();
        let parents = self.cluster.route(id).map(|state| &state.parents[..]).unwrap_or_default();
        for reference in route.parents() {
            let Some(state) = parents.iter().find(|parent| parent.parent_ref == *reference) else {
                found.extend(self.stranger_finding(id, reference));
                continue;
            };
            if reference.is_service() {
                found.extend(self.service_parent_finding(id, reference, state));
                continue;
            }
            if state.places.is_empty() && !state.accepted.holds() && state.accepted.reason != "UnsupportedValue" {
                found.push(self.not_attached(id, route, reference));
            }
            let listeners = state.places.iter().filter_map(|(place, _)| place.listener());
            found.extend(listeners.filter_map(|listener| self.not_served(listener)));
        }
        found
    }

    /// What a parent that is not ours is.
    pub(super) fn stranger(&self, id: &RouteId, reference: &ParentRef) -> Option<Stranger<'_>> {
        let key = reference.key(namespace_of(&id.key));
        let gateway = match parent_kind(reference)? {
            Kind::ListenerSet => {
                let Some(set) = self.objects.sets.get(&*key) else { return Some(Stranger::Missing) };
                set.spec.parent_ref.key(namespace_of(&key))
            }
            _ => key,
        };
        let Some(gateway) = self.objects.gateways.get(&*gateway) else { return Some(Stranger::Missing) };
        let class = &*gateway.spec.gateway_class_name;
        Some(match self.objects.classes.get(class) {
            None => Stranger::NoClass(class),
            Some(found) => Stranger::Foreign(&found.spec.controller_name),
        })
    }

    fn stranger_finding(&self, id: &RouteId, reference: &ParentRef) -> Option<Finding> {
        let kind = parent_kind(reference)?;
        let key = reference.key(namespace_of(&id.key));
        Some(match self.stranger(id, reference)? {
            Stranger::Missing => self.parent_missing(Kind::of_route(id.kind), &id.key, kind, &key),
            Stranger::NoClass(class) => self.class_missing(class, &format!("of {} {key}", kind.name()), &key),
            Stranger::Foreign(controller) => {
                let message = format!("{} {key} is implemented by controller {controller}", kind.name());
                let fix = kubectl("describe", id.kind.name(), &id.key);
                Finding::new(code::GATEWAY_CLASS_FOREIGN, message, fix).at(Level::Degraded)
            }
        })
    }

    /// The parent of an object does not exist.
    pub(super) fn parent_missing(&self, of: Kind, own: &str, kind: Kind, key: &str) -> Finding {
        let hint = self.memo.hint(kind.name(), key, || self.other_parent(kind, key));
        let message = format!("{} {key}, its parent, does not exist{hint}", kind.name());
        Finding::new(code::PARENT_MISSING, message, kubectl("edit", of.name(), own))
    }

    /// The parent that was probably meant, or those there are, as the end of a sentence.
    fn other_parent(&self, kind: Kind, key: &str) -> String {
        let keys: Vec<&str> = match kind {
            Kind::ListenerSet => self.objects.sets.keys().map(|key| &**key).collect(),
            _ => self.objects.gateways.keys().map(|key| &**key).collect(),
        };
        match near::key(key, keys.iter().copied()) {
            Some(near) if namespace_of(near) == namespace_of(key) => format!("; did you mean {}?", name_of(near)),
            Some(near) => format!("; there is {near}: add namespace: {} to the parentRef", namespace_of(near)),
            None if keys.is_empty() => format!("; there is no {}", kind.name()),
            None => format!("; there is {}", list(&keys, near::NAMED)),
        }
    }

    fn not_attached(&self, id: &RouteId, route: &Route, reference: &ParentRef) -> Finding {
        let placements = self.cluster.placements(id, reference);
        let parent = format!("{} {}", reference.kind(), reference.key(namespace_of(&id.key)));
        // The listener that comes closest tells why.
        let furthest = placements.iter().filter_map(|one| one.outcome.as_ref().err().copied()).max();
        let closest: Vec<&Placement> =
            placements.iter().filter(|one| one.outcome.as_ref().err().copied() == furthest).collect();
        let all: Vec<String> = placements.iter().map(describe).collect();
        let mut finding = match furthest {
            Some(NotAttached::Parent) => self.set_not_allowed(&reference.key(namespace_of(&id.key))),
            None | Some(NotAttached::SectionName | NotAttached::Port) => {
                self.no_listener(id, reference, &parent, &placements)
            }
            Some(NotAttached::Kind) => kind_not_allowed(id, &parent, &closest),
            Some(NotAttached::Namespace) => self.namespace_not_allowed(id, &parent, &closest),
            Some(NotAttached::Hostname) => disjoint(id, route, &parent, &closest),
        };
        if placements.len() > closest.len() && furthest.is_some_and(|why| why > NotAttached::Port) {
            finding.evidence.push(format!("listeners of {parent}: {}", list(&all, near::NAMED)));
        }
        finding
    }

    fn no_listener(&self, id: &RouteId, reference: &ParentRef, parent: &str, placements: &[Placement]) -> Finding {
        let (section, port) = (reference.section_name.as_deref(), reference.port);
        let names = || placements.iter().map(|one| &*one.listener.name);
        let described = || list(&placements.iter().map(describe).collect::<Vec<_>>(), near::NAMED);
        let message = match (section, port) {
            _ if placements.is_empty() => format!("{parent} has no listeners"),
            (Some(name), Some(port)) if names().any(|one| one == name) => {
                format!("listener {name} of {parent} does not have port {port}; there is {}", described())
            }
            (Some(name), _) => {
                format!("{parent} has no listener {name} (sectionName){}", near::hint(name, "listener", names()))
            }
            (None, Some(port)) => format!("{parent} has no listener with port {port}; there is {}", described()),
            (None, None) => format!("{parent} has no listener for the route"),
        };
        Finding::new(code::NO_MATCHING_LISTENER, message, kubectl("edit", id.kind.name(), &id.key))
    }

    fn namespace_not_allowed(&self, id: &RouteId, parent: &str, closest: &[&Placement]) -> Finding {
        let namespace = namespace_of(&id.key);
        let one = |placement: &&Placement| {
            let allowed = self.listener_spec(&placement.listener).map(|(_, listener)| {
                let namespaces = &listener.allowed_routes.namespaces;
                match namespaces.from.as_deref() {
                    Some("Selector") => "of namespaces with certain labels (from: Selector)".to_owned(),
                    Some(other) if other != "Same" => format!("from: {other}"),
                    _ => format!("of its own namespace (from: Same, {})", namespace_of(owner(&placement.listener))),
                }
            });
            format!("listener {} takes only routes {}", placement.listener.name, allowed.unwrap_or_default())
        };
        let each = list(&closest.iter().map(one).collect::<Vec<_>>(), near::NAMED);
        let message = format!("{parent} does not take routes of namespace {namespace}: {each}");
        let first = closest.first().map(|one| &one.listener);
        let (kind, key) = first.map_or((Kind::Gateway, ""), |listener| (owner_kind(listener), owner(listener)));
        let fix = kubectl("edit", kind.name(), key);
        let mut finding = Finding::new(code::ROUTE_NAMESPACE_NOT_ALLOWED, message, fix);
        let index = first.and_then(|listener| Some(self.listener_spec(listener)?.0)).unwrap_or_default();
        let selector =
            json!({"from": "Selector", "selector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}});
        finding
            .evidence
            .push(format!("allow it in spec.listeners[{index}].allowedRoutes.namespaces, such as {selector}"));
        if let Some(labels) = self.objects.namespaces.get(namespace).filter(|labels| !labels.is_empty()) {
            let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            finding.evidence.push(format!("labels of namespace {namespace}: {}", list(&labels, near::NAMED + 4)));
        }
        finding
    }

    /// A listener as written, with its place.
    pub(super) fn listener_spec(&self, id: &ListenerId) -> Option<(usize, &Listener)> {
        let listeners = match &id.set {
            Some(set) => &self.objects.sets.get(set)?.spec.listeners,
            None => &self.objects.gateways.get(&id.gateway)?.spec.listeners,
        };
        listeners.iter().enumerate().find(|(_, listener)| *listener.name == *id.name)
    }

    /// The state of a listener.
    pub(super) fn listener_state(&self, id: &ListenerId) -> Option<&ListenerState> {
        let listeners = match &id.set {
            Some(set) => &self.cluster.listener_set(set)?.listeners,
            None => &self.cluster.gateway(&id.gateway)?.listeners,
        };
        listeners.iter().find(|listener| listener.id == *id)
    }

    /// Whether gateways serve a listener.
    pub(super) fn is_served(&self, id: &ListenerId) -> bool {
        self.cluster.config(&id.gateway).is_some_and(|config| config.listeners.iter().any(|one| one.id == *id))
    }

    /// A route is attached to a listener that is not served.
    fn not_served(&self, id: &ListenerId) -> Option<Finding> {
        if self.is_served(id) {
            return None;
        }
        let state = self.listener_state(id)?;
        let (kind, key) = (owner_kind(id), owner(id));
        let message = format!(
            "listener {} of {} {key}, to which the route is attached, is not served: {}",
            id.name,
            kind.name(),
            state.programmed.message
        );
        let fix = format!("waypost explain {}/{} -n {}", kind.name().to_lowercase(), name_of(key), namespace_of(key));
        Some(Finding::new(code::LISTENER_NOT_SERVED, message, fix))
    }
}

/// The kind of the object that a listener is part of.
pub(super) const fn owner_kind(listener: &ListenerId) -> Kind {
    if listener.set.is_some() { Kind::ListenerSet } else { Kind::Gateway }
}

/// The key of the object that a listener is part of.
pub(super) fn owner(listener: &ListenerId) -> &Arc<str> {
    listener.set.as_ref().unwrap_or(&listener.gateway)
}

fn kind_not_allowed(id: &RouteId, parent: &str, closest: &[&Placement]) -> Finding {
    let takes = |placement: &&Placement| {
        let kinds: Vec<String> = placement.kinds.iter().map(|kind| format!("{}s", kind.name())).collect();
        let kinds = if kinds.is_empty() { "no routes".to_owned() } else { list(&kinds, near::NAMED) };
        format!("{} takes {kinds}", describe(placement))
    };
    let each = list(&closest.iter().map(takes).collect::<Vec<_>>(), near::NAMED);
    let message = format!("no listener of {parent} takes {}s: {each}", id.kind.name());
    Finding::new(code::ROUTE_KIND_NOT_ALLOWED, message, kubectl("edit", id.kind.name(), &id.key))
}

fn disjoint(id: &RouteId, route: &Route, parent: &str, closest: &[&Placement]) -> Finding {
    let own = list(route.hostnames(), near::NAMED);
    let theirs: Vec<String> = closest.iter().map(|one| describe(one)).collect();
    let hosts = || closest.iter().filter_map(|one| one.hostname.as_deref());
    let pairs = || route.hostnames().iter().flat_map(|own| hosts().map(move |host| (&**own, host)));
    let hint = match pairs().find(|(own, host)| host.strip_prefix("*.") == Some(own)) {
        Some((own, host)) => format!("; {host} does not cover {own} itself, only names below it"),
        None => match pairs().find_map(|(own, host)| near::hostname(own, host)) {
            Some(near) => format!("; did you mean {near}?"),
            None => String::new(),
        },
    };
    let message = format!(
        "hostnames {own} of the route and those of {parent} have nothing in common: {}{hint}",
        list(&theirs, near::NAMED)
    );
    Finding::new(code::HOSTNAMES_DISJOINT, message, kubectl("edit", id.kind.name(), &id.key))
}
