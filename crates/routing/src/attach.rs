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

/// What routes see of a Gateway or of a ListenerSet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ParentView {
    /// `namespace/name` of the Gateway.
    pub(crate) gateway: Arc<str>,
    /// Whether its listeners count; false for a ListenerSet that its Gateway does not allow.
    pub(crate) is_allowed: bool,
    pub(crate) listeners: Arc<[ListenerView]>,
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
