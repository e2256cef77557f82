//! From Pods to the Services that select them: which Services a change concerns, and where their ports lead.

use api::view::service::TargetPort;

use crate::controller::{View, Wakes};
use crate::objects::pod::Pod;
use crate::objects::service::{Port, Service};
use crate::world::{Both, Change, What};

/// Wakes the Services whose endpoints a change of a Service or a Pod may alter.
pub(crate) fn concerns(view: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    match &change.what {
        What::Service(Both { old: None, new: Some(new) }) => wakes.add_triggered(change.key(), Some(&new.created)),
        What::Service(Both { old: Some(old), new: Some(new) }) if !old.differs_for_endpoints(new) => {}
        What::Service(_) => wakes.add(change.key()),
        What::Pod(both) if !change.initial => pod_concerns(view, both, wakes),
        _ => {}
    }
}

fn pod_concerns(view: &View<'_>, Both { old, new }: &Both<Pod>, wakes: &mut Wakes<'_>) {
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
        for service in view.world.services.selecting(pod.namespace(), &pod.entry.facts) {
            wakes.add_triggered(&service.entry.key.name, since);
        }
    }
}

/// Where a port of a Service leads in a Pod; nowhere when the Pod has no port of that name.
pub(crate) fn resolve(port: &Port, pod: &Pod) -> Option<u16> {
    match &port.target {
        TargetPort::Number(number) => Some(*number),
        TargetPort::Name(name) => pod.port(name, port.protocol),
    }
}

/// Whether a Pod can be an endpoint of a Service at all.
pub(crate) fn is_eligible(pod: &Pod) -> bool {
    !pod.finished && !pod.addresses.is_empty()
}

/// The host name under which a Pod is found below a Service.
pub(crate) fn hostname<'a>(pod: &'a Pod, service: &Service) -> Option<&'a str> {
    let named = !pod.hostname.is_empty() && *pod.subdomain == *service.name();
    named.then_some(&*pod.hostname)
}
