//! Ports whose protocol the Pods do not declare: a UDP port of a Service whose Pods have containers that declare its number
//! for TCP only.
//!
//! Declared container ports are informational, so this is no proof. But a container that declares a number for one
//! protocol rarely serves another on it.

use api::view::service::{ServicePort, TargetPort};

use crate::cluster::{Cluster, Pod};
use crate::finding::{Finding, Level, code};
use crate::labels::Selector;
use crate::model::{Service, port_name, protocol_name};
use crate::pod_state::{Detail, target_of};
use crate::words::list;

/// How many Pods are read. Those of one Service usually have the same template.
const READ: usize = 3;

/// The first port whose protocol no container declares, while all Pods that are read declare its number.
pub(crate) fn find<C: Cluster>(cluster: &C, service: &Service, selector: &Selector) -> Option<Finding> {
    let numbered = |(index, port)| match ServicePort::target(port) {
        TargetPort::Number(number) => Some((index, port, number)),
        TargetPort::Name(_) => None,
    };
    let suspects: Vec<(usize, &ServicePort, u16)> =
        service.ports().iter().enumerate().filter(|(_, port)| !port.is_tcp()).filter_map(numbered).collect();
    if suspects.is_empty() {
        return None;
    }
    let pods = cluster.matching(service.namespace(), selector);
    let details: Vec<Detail> =
        pods.iter().filter(|pod| !pod.standing().finished).take(READ).map(|pod| pod.detail()).collect();
    for (index, port, number) in suspects {
        let declare_other = |detail: &Detail| {
            let mut same = detail.ports().into_iter().filter(|one| one.container_port == number).peekable();
            same.peek().is_some() && same.all(|one| one.protocol != port.protocol)
        };
        if details.is_empty() || !details.iter().all(declare_other) {
            continue;
        }
        let declared = details.iter().flat_map(Detail::ports);
        let mut others: Vec<&str> = declared
            .clone()
            .filter(|one| one.container_port == number)
            .map(|one| protocol_name(one.protocol))
            .collect();
        others.sort_unstable();
        others.dedup();
        let protocol = protocol_name(port.protocol);
        let message = format!(
            "port {}: the Service sends {protocol} to port {number} of its pods, whose containers declare {number} for {} only",
            port_name(port),
            list(&others, READ),
        );
        let fix = declared
            .filter(|one| one.protocol == port.protocol)
            .min_by_key(|one| one.container_port.abs_diff(number))
            .map_or_else(|| service.edit(), |one| service.retarget(index, &target_of(one)));
        return Some(Finding::new(code::PROTOCOL_NOT_DECLARED, message, fix).at(Level::Degraded));
    }
    None
}
