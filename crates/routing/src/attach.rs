//! Attachment of routes: to which listeners of a parent a reference leads, and why to none.
//!
//! A parent that routes see is a [`ParentView`]: only what attachment depends on, so that a change of a certificate or an
//! address does not lead to its routes. Whether a listener is valid does not count: a route is attached to it all the same.

use std::sync::Arc;

use api::view::StringMap;
use api::view::gateway_api::{LabelSelector, Listener, ParentRef};

use crate::cluster::Verdict;
use crate::hosts::intersects;
use crate::listeners::kinds;
use crate::model::{ListenerId, RouteKind};
use crate::traffic::OwnerLayers;

/// What routes see of a Gateway or of a ListenerSet.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ParentView {
    /// `namespace/name` of the Gateway.
    pub(crate) gateway: Arc<str>,
    /// Whether its listeners count; false for a ListenerSet that its Gateway does not allow.
    pub(crate) is_allowed: bool,
    pub(crate) listeners: Arc<[ListenerView]>,
    /// TrafficPolicies of its listeners; none when there are none.
    pub(crate) layers: Option<Arc<OwnerLayers>>,
}

/// What routes see of a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ListenerView {
    pub(crate) id: ListenerId,
    pub(crate) port: u16,
    pub(crate) hostname: Option<Arc<str>>,
    pub(crate) kinds: Vec<RouteKind>,
    pub(crate) namespaces: Namespaces,
    pub(crate) is_passthrough: bool,
}

/// The namespaces of routes that a listener takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Namespaces {
    All,
    /// That of the Gateway or ListenerSet.
    Same(Arc<str>),
    Selected(Arc<LabelSelector>),
    /// A value of a later version: none.
    Unknown,
}

impl ParentView {
    /// Whether it has a listener of this name; without a name, always.
    pub(crate) fn has_listener(&self, name: Option<&str>) -> bool {
        name.is_none_or(|name| self.listeners.iter().any(|listener| *listener.id.name == *name))
    }
}

impl ListenerView {
    /// The view of a listener of an object in this namespace.
    pub(crate) fn new(id: ListenerId, listener: &Listener, own: &str) -> Self {
        let namespaces = &listener.allowed_routes.namespaces;
        Self {
            id,
            port: listener.port,
            hostname: listener.host().map(|host| host.to_ascii_lowercase().into()),
            kinds: kinds::supported(listener).kinds,
            namespaces: match namespaces.from.as_deref() {
                None | Some("" | "Same") => Namespaces::Same(own.into()),
                Some("All") => Namespaces::All,
                Some("Selector") => Namespaces::Selected(Arc::new(namespaces.selector.clone())),
                Some(_) => Namespaces::Unknown,
            },
            is_passthrough: listener.is_passthrough(),
        }
    }
}

/// A route, as far as its attachment depends on it.
pub(crate) struct Candidate<'a> {
    pub(crate) kind: RouteKind,
    pub(crate) namespace: &'a str,
    /// Its hostnames in lower case; none for all hosts.
    pub(crate) hostnames: &'a [Arc<str>],
}

/// The listeners that a reference leads to, each with the hostnames that intersect.
pub(crate) type Attached = Vec<(ListenerId, Vec<Arc<str>>)>;

/// What becomes of a route at one listener of a parent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The listener.
    pub listener: ListenerId,
    /// Its port.
    pub port: u16,
    /// Its hostname, in lower case; none for all.
    pub hostname: Option<Arc<str>>,
    /// The kinds of routes that it takes.
    pub kinds: Vec<RouteKind>,
    /// Those hostnames of the route that intersect with that of the listener (none: all hosts), or why it is not attached.
    pub outcome: Result<Vec<Arc<str>>, NotAttached>,
}

/// Why a route is not attached to a listener: the first condition that does not hold, in the order in which they count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NotAttached {
    /// The ListenerSet is not attached to its Gateway.
    Parent,
    /// The reference names another listener.
    SectionName,
    /// The reference names another port.
    Port,
    /// The listener does not take routes of this kind.
    Kind,
    /// The listener does not take routes of this namespace.
    Namespace,
    /// No hostname of the route intersects with that of the listener.
    Hostname,
}

/// What becomes of a route at each listener of a parent, for diagnosis. [`judge`] succeeds where one of them is attached.
pub(crate) fn placements<'a>(
    parent: &ParentView,
    reference: &ParentRef,
    route: &Candidate<'_>,
    labels: impl Fn(&str) -> Option<&'a StringMap>,
) -> Vec<Placement> {
    let place = |listener: &ListenerView| {
        if !parent.is_allowed {
            return Err(NotAttached::Parent);
        }
        if reference.section_name.as_deref().is_some_and(|name| *name != *listener.id.name) {
            return Err(NotAttached::SectionName);
        }
        if reference.port.is_some_and(|port| port != listener.port) {
            return Err(NotAttached::Port);
        }
        if !listener.kinds.contains(&route.kind) {
            return Err(NotAttached::Kind);
        }
        if !allows_namespace(&listener.namespaces, route.namespace, &labels) {
            return Err(NotAttached::Namespace);
        }
        intersection(listener, route).map(|(_, hostnames)| hostnames).ok_or(NotAttached::Hostname)
    };
    let placement = |listener: &ListenerView| Placement {
        listener: listener.id.clone(),
        port: listener.port,
        hostname: listener.hostname.clone(),
        kinds: listener.kinds.clone(),
        outcome: place(listener),
    };
    parent.listeners.iter().map(placement).collect()
}

/// Judges one reference to a parent.
///
/// # Errors
/// The condition `Accepted` when no listener is left.
pub(crate) fn judge<'a>(
    parent: &ParentView,
    reference: &ParentRef,
    route: &Candidate<'_>,
    labels: impl Fn(&str) -> Option<&'a StringMap>,
) -> Result<Attached, Verdict> {
    if !parent.is_allowed {
        let message = format!("{} \"{}\" is not attached to a Gateway", reference.kind(), reference.name);
        return Err(Verdict::bad("NoMatchingParent", message));
    }
    let is_candidate = |listener: &&ListenerView| {
        reference.section_name.as_deref().is_none_or(|name| *name == *listener.id.name)
            && reference.port.is_none_or(|port| port == listener.port)
    };
    let candidates: Vec<_> = parent.listeners.iter().filter(is_candidate).collect();
    if candidates.is_empty() {
        return Err(Verdict::bad("NoMatchingParent", no_candidate(reference)));
    }
    let takes_kind = |listener: &&&ListenerView| listener.kinds.contains(&route.kind);
    if !candidates.iter().any(|listener| takes_kind(&listener)) {
        let message = format!("No listener of {} \"{}\" takes routes of this kind", reference.kind(), reference.name);
        return Err(Verdict::bad("NotAllowedByListeners", message));
    }
    let allowed: Vec<_> = candidates
        .iter()
        .filter(takes_kind)
        .filter(|listener| allows_namespace(&listener.namespaces, route.namespace, &labels))
        .collect();
    if allowed.is_empty() {
        let message = format!(
            "No listener of {} \"{}\" allows routes of namespace \"{}\"; see allowedRoutes.namespaces of its listeners",
            reference.kind(),
            reference.name,
            route.namespace
        );
        return Err(Verdict::bad("NotAllowedByListeners", message));
    }
    let attached: Attached = allowed.into_iter().filter_map(|listener| intersection(listener, route)).collect();
    if attached.is_empty() {
        let message = format!("No hostname matches a listener of {} \"{}\"", reference.kind(), reference.name);
        return Err(Verdict::bad("NoMatchingListenerHostname", message));
    }
    Ok(attached)
}

fn no_candidate(reference: &ParentRef) -> String {
    let parent = format!("{} \"{}\" has no listener", reference.kind(), reference.name);
    match (&reference.section_name, reference.port) {
        (Some(name), Some(port)) => format!("{parent} \"{name}\" with port {port}"),
        (Some(name), None) => format!("{parent} \"{name}\""),
        (None, Some(port)) => format!("{parent} with port {port}"),
        (None, None) => parent,
    }
}

fn allows_namespace<'a>(allowed: &Namespaces, namespace: &str, labels: impl Fn(&str) -> Option<&'a StringMap>) -> bool {
    match allowed {
        Namespaces::All => true,
        Namespaces::Same(own) => **own == *namespace,
        Namespaces::Selected(selector) => labels(namespace).is_some_and(|labels| selector.matches(labels)),
        Namespaces::Unknown => false,
    }
}

fn intersection(listener: &ListenerView, route: &Candidate<'_>) -> Option<(ListenerId, Vec<Arc<str>>)> {
    if route.hostnames.is_empty() {
        return Some((listener.id.clone(), Vec::new()));
    }
    let matching = route.hostnames.iter().filter(|host| intersects(listener.hostname.as_deref(), host));
    let hostnames: Vec<_> = matching.cloned().collect();
    (!hostnames.is_empty()).then(|| (listener.id.clone(), hostnames))
}

/// Whether a ListenerSet of a namespace may be attached to a Gateway of another.
pub(crate) fn allows_set<'a>(
    allowed: &api::view::gateway_api::AllowedListeners,
    own: &str,
    namespace: &str,
    labels: impl Fn(&str) -> Option<&'a StringMap>,
) -> bool {
    match allowed.namespaces.from.as_deref() {
        Some("All") => true,
        Some("Same") => own == namespace,
        Some("Selector") => labels(namespace).is_some_and(|labels| allowed.namespaces.selector.matches(labels)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(listeners: serde_json::Value, is_allowed: bool) -> ParentView {
        let listeners: Vec<Listener> = serde_json::from_value(listeners).unwrap();
        let gateway: Arc<str> = "infra/gw".into();
        let view = |listener: &Listener| {
            let id = ListenerId { gateway: gateway.clone(), set: None, name: (&*listener.name).into() };
            ListenerView::new(id, listener, "infra")
        };
        ParentView {
            gateway: gateway.clone(),
            is_allowed,
            listeners: listeners.iter().map(view).collect(),
            layers: None,
        }
    }

    #[test]
    fn each_listener_has_the_first_condition_that_fails_and_the_verdict_agrees() {
        let listeners = json!([
            {"name": "a", "port": 80, "protocol": "HTTP", "hostname": "*.a.example",
             "allowedRoutes": {"namespaces": {"from": "All"}}},
            {"name": "b", "port": 80, "protocol": "HTTP", "hostname": "b.example"},
            {"name": "c", "port": 81, "protocol": "TCP", "allowedRoutes": {"namespaces": {"from": "All"}}},
        ]);
        use NotAttached::{Hostname, Kind, Namespace, Parent, Port, SectionName};
        // Reference, hostname, the result of each listener.
        let cases = [
            (json!({}), "x.a.example", true, [None, Some(Namespace), Some(Kind)]),
            (json!({}), "b.example", true, [Some(Hostname), Some(Namespace), Some(Kind)]),
            (json!({"sectionName": "a"}), "x.a.example", true, [None, Some(SectionName), Some(SectionName)]),
            (json!({"port": 81}), "x.a.example", true, [Some(Port), Some(Port), Some(Kind)]),
            (
                json!({"sectionName": "b", "port": 9}),
                "b.example",
                true,
                [Some(SectionName), Some(Port), Some(SectionName)],
            ),
            (json!({}), "x.a.example", false, [Some(Parent); 3]),
        ];
        for (reference, hostname, is_allowed, want) in cases {
            let view = view(listeners.clone(), is_allowed);
            let reference: ParentRef = serde_json::from_value(reference).unwrap();
            let hostnames = [Arc::<str>::from(hostname)];
            let route = Candidate { kind: RouteKind::Http, namespace: "apps", hostnames: &hostnames };
            let found = placements(&view, &reference, &route, |_| None);
            let outcomes: Vec<_> = found.iter().map(|one| one.outcome.as_ref().err().copied()).collect();
            assert_eq!(outcomes, want, "{reference:?} {hostname}");
            let verdict = judge(&view, &reference, &route, |_| None);
            assert_eq!(verdict.is_ok(), want.contains(&None), "{reference:?} {hostname}");
        }
    }
}
