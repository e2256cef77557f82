//! Services that select a Pod, and the resolution of their target ports.

use api::view::service::TargetPort;

use crate::cache::{Change, TypedChange, Versions};
use crate::controller::{AffectedKeys, View};
use crate::objects::pod::Pod;
use crate::objects::service::{Port, Service};

/// Adds the Services whose endpoints a change may affect.
pub(crate) fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    match &change.typed {
        TypedChange::Service(Versions { old: None, new: Some(new) }) => {
            affected.add_triggered(change.key(), Some(&new.created));
        }
        TypedChange::Service(Versions { old: Some(old), new: Some(new) }) if !old.differs_for_endpoints(new) => {}
        TypedChange::Service(_) => affected.add(change.key()),
        TypedChange::Pod(both) if !change.initial => affected_by_pod(view, both, affected),
        _ => {}
    }
}

fn affected_by_pod(view: &View<'_>, Versions { old, new }: &Versions<Pod>, affected: &mut AffectedKeys<'_>) {
    let changed = match (old, new) {
        (Some(old), Some(new)) => old.differs_for_endpoints(new),
        _ => true,
    };
    let reselected = match (old, new) {
        (Some(old), Some(new)) => old.differs_for_selection(new),
        _ => false,
    };
    if !changed && !reselected {
        return;
    }
    let since = new.as_ref().and_then(|new| {
        let before = old.as_ref().and_then(|old| old.ready_since.as_deref());
        new.ready_since.as_deref().filter(|now| reselected || before != Some(*now))
    });
    for pod in old.iter().filter(|_| reselected || new.is_none()).chain(new) {
        for service in view.cache.services.selecting(pod.namespace(), &pod.entry.facts) {
            affected.add_triggered(&service.entry.key.name, since);
        }
    }
}

/// The target port in a Pod; `None` when the Pod has no port of that name.
pub(crate) fn resolve(port: &Port, pod: &Pod) -> Option<u16> {
    match &port.target {
        TargetPort::Number(number) => Some(*number),
        TargetPort::Name(name) => pod.port(name, port.protocol),
    }
}

/// Whether a Pod can be an endpoint.
pub(crate) fn is_eligible(pod: &Pod) -> bool {
    !pod.finished && !pod.addresses.is_empty()
}

/// The host name of a Pod under a Service.
pub(crate) fn hostname<'a>(pod: &'a Pod, service: &Service) -> Option<&'a str> {
    let named = !pod.hostname.is_empty() && *pod.subdomain == *service.name();
    named.then_some(&*pod.hostname)
}
